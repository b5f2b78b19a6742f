"""Models as plans at the command line: lower, run, diff, --fit, --explain, streams."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import F32
from lamella.base.paths import shipped
from lamella.cli import lamella as command
from lamella.graph.data.safetensors import decode_store, write_safetensors
from tests.support.plan.selection import Drawing, plans_of

TINY = """include "npm_lite.nem"
device tiny extends npm_lite {
    topology {
        num_engines = 1
        l2_size_bytes = 65536
        device_units { sDMA = 1 WDM = 0 }
        per_engine { NMU = 1 CSTL = 2 DMA = 2 VPU = 1 SEQ = 1 l1_size_bytes = 64 }
    }
}
"""


def call(*arguments: str | Path) -> Result:
    """A command that ends in order."""
    result = CliRunner().invoke(command, [str(item) for item in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_bounds_of_stored_weights_need_their_numbers(tmp_path: Path) -> None:
    text = 'device "npm_pro.nem"\nbuffer W : DDR (size=8192, align=64, importCODEC)\n'
    text += "buffer A : L2 (size=8192, align=64)\ntransfer.async(dst=A, src=W)\n"
    (tmp_path / "plan.nem").write_text(
        text.replace("CODEC", ", codec=shared4, stored=4416"), encoding="utf-8"
    )
    (tmp_path / "untiled.nem").write_text(text.replace("CODEC", ""), encoding="utf-8")
    result = call("sim", tmp_path / "plan.nem", "--against", tmp_path / "untiled.nem")
    assert result.exit_code == 1
    assert "untiled.safetensors" in result.output
    assert call("sim", tmp_path / "plan.nem", "--against", tmp_path / "plan.nem").exit_code == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of codes and one of real numbers, and their plans."""
    found = tmp_path_factory.mktemp("plans")
    drawing = Drawing(1)
    x = drawing.builder.input("x", F32, (1, 3, 6, 6))
    codes = drawing.call("quant.quantize", x, scale=0.03, zero_point=4)
    means = {"x_scale": 0.03, "x_zero": 4, "y_scale": 0.05, "y_zero": -9}
    scales = drawing.weight(drawing.random.uniform(0.002, 0.01, 5))
    made = drawing.call(
        "quant.conv", codes, drawing.codes(5, 3, 3, 3), None, scales, padding=[1, 1, 1, 1], **means
    )
    numbers = drawing.call("quant.dequantize", made, scale=0.05, zero_point=-9)
    lamella.save(drawing.finish(numbers), found / "codes.sknd")
    drawing = Drawing(2)
    x = drawing.builder.input("x", F32, (3, 8))
    hidden = drawing.call("nn.linear", x, drawing.real(6, 8), drawing.real(6))
    lamella.save(drawing.finish(drawing.call("math.sin", hidden)), found / "reals.sknd")
    for name, form in (("codes", "stcb"), ("reals", "nem")):
        result = call(
            "lower", found / f"{name}.sknd", "--to", form, "--device", "npm_lite", "-o", found / name
        )
        assert result.exit_code == 0, result.output
    return found


def test_the_plan_is_the_one_program_of_its_folder(folder: Path) -> None:
    """Stages lie below, a device that is not shipped beside it."""
    assert [item.name for item in (folder / "codes").glob("*.nem")] == ["codes.nem"]
    assert (folder / "codes" / "stages" / "1_select.nem").is_file()
    assert call("check", folder / "codes" / "codes.nem").exit_code == 0


def test_diff_says_equal(folder: Path) -> None:
    """Codes bit by bit, real numbers within the tolerance that is printed."""
    found = json.loads(call("diff", folder / "codes.sknd", folder / "codes" / "codes.nem", "--json").output)
    assert (found["equal"], found["tolerance"], found["outputs"][0]["max_abs"]) == (True, 0.0, 0.0)
    found = json.loads(call("diff", folder / "reals.sknd", folder / "reals" / "reals.nem", "--json").output)
    assert found["equal"] is True
    assert 0 < found["outputs"][0]["max_abs"] < found["tolerance"]


def test_diff_sees_one_other_byte(folder: Path, tmp_path: Path) -> None:
    """A weight that differs by one code is not equal; the status is 1."""
    plan, numbers = (folder / "codes" / f"codes{ending}" for ending in (".nem", ".safetensors"))
    content = decode_store(numbers.read_bytes(), "numbers")
    name, array = next(iter(content.arrays.items()))
    changed = array.copy()
    changed.view(np.uint8).reshape(-1)[:] ^= 3
    write_safetensors(tmp_path / "codes.safetensors", {**content.arrays, name: changed}, content.metadata)
    (tmp_path / "codes.nem").write_text(plan.read_text(encoding="utf-8"), encoding="utf-8")
    result = call("diff", folder / "codes.sknd", tmp_path / "codes.nem", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)["equal"] is False


def test_plan_stream_and_model_give_the_same(folder: Path, tmp_path: Path) -> None:
    """The plan, its stream and the model on the npu are called alike: with real numbers, by the model's names."""
    np.save(tmp_path / "x.npy", np.random.default_rng(3).standard_normal((1, 3, 6, 6)).astype("f4"))
    ways: dict[str, list[str | Path]] = {
        "plan": [folder / "codes" / "codes.nem"],
        "stream": [folder / "codes" / "codes.stcb"],
        "model": [folder / "codes.sknd", "--backend", "npu", "--device", "npm_pro"],
        "reference": [folder / "codes.sknd", "--backend", "reference"],
    }
    found = {}
    for name, words in ways.items():
        result = call("run", *words, "--input", f"x={tmp_path / 'x.npy'}", "--output", tmp_path / name)
        assert result.exit_code == 0, result.output
        (file,) = (tmp_path / name).glob("*.npy")
        found[name] = np.load(file)
    assert found["plan"].dtype == np.float32
    for name in ways:
        np.testing.assert_array_equal(found[name], found["reference"], err_msg=name)


def test_two_plans_are_compared_bit_by_bit(tmp_path: Path) -> None:
    """A plan beside its faster form, its stream, and one that computes something else."""
    text = (
        'device "npm_lite.nem"\nbuffer X : DDR (size=512)\nbuffer Y : DDR (size=512)\n'
        "buffer M : L2 (size=64)\nbuffer P : L1 (size=64)\n"
        "loop i in [0..7]:\n    let p = region(P, 0, 64) elem=i8, shape=[64], layout=N\n"
        "    a = transfer.async(dst=M, src=region(X, i * 64, 64))\n    b = transfer.async(dst=P, src=M, deps=[a])\n"
        "    c = relu.async in p out p deps=[b]\n"
        "    store.async(dst=region(Y, i * 64, 64), src=P, deps=[c])\nendloop\n"
    )
    plan, other, fixed = (tmp_path / f"{name}.nem" for name in ("plan", "other", "fixed"))
    plan.write_text(text, encoding="utf-8")
    other.write_text(text.replace("relu", "abs"), encoding="utf-8")
    stream = tmp_path / "plan.stcb"
    assert call("sim", plan, "--fix", fixed).exit_code == 0
    assert call("bind", plan, "-o", stream).exit_code == 0
    np.save(tmp_path / "x.npy", np.arange(512, dtype="u1"))
    given = ("--input", f"X={tmp_path / 'x.npy'}")
    assert call("diff", plan, stream).output.endswith("equal bit by bit\n")
    assert call("diff", stream, stream, *given).exit_code == 0
    assert "not compared, other names or sizes: M\n" in call("diff", plan, fixed, *given).output
    found = json.loads(call("diff", plan, other, *given, "--json").output)
    assert (found["ok"], found["first_diverging"], found["not_compared"]) == (False, "Y", [])
    assert [item["max_abs"] for item in found["outputs"] if item["name"] == "Y"] == [128.0]
    assert call("diff", plan, other, *given).exit_code == 1
    assert call("diff", plan, other, *given, "--tolerance", "2").exit_code == 0
    assert call("diff", plan, other, "-o", tmp_path / "alone").exit_code == 2
    other.write_text(text.replace("X", "Z"), encoding="utf-8")
    assert "the inputs of the plans differ: X against Z" in call("diff", plan, other).output


def test_a_plan_of_another_name_keeps_its_numbers(folder: Path, tmp_path: Path) -> None:
    """Bound or improved under another name, the weights go along; a file of somebody else is not replaced."""
    plan, input = folder / "codes" / "codes.nem", tmp_path / "x.npy"
    np.save(input, np.random.default_rng(1).normal(size=(1, 3, 6, 6)).astype(np.float32))
    assert (
        "other.safetensors: the numbers of codes.nem"
        in call("bind", plan, "-o", tmp_path / "other.stcb").output
    )
    call("sim", plan, "--fix", tmp_path / "faster.nem")
    assert call("lower", plan, "--to", "stcb", "-o", tmp_path / "again").exit_code == 0
    shown = [
        call("run", path, "--input", f"x={input}").stdout.splitlines()[-1]
        for path in (
            plan,
            tmp_path / "other.stcb",
            tmp_path / "faster.nem",
            tmp_path / "again" / "codes.stcb",
        )
    ]
    assert len(set(shown)) == 1, shown
    write_safetensors(tmp_path / "own.safetensors", {"w": np.zeros(3, np.float32)})
    result = call("bind", plan, "-o", tmp_path / "own.stcb")
    assert result.exit_code == 1
    assert "'own.safetensors' is in the way" in result.output


def test_layers_are_explained_by_names_of_the_model(folder: Path) -> None:
    """A tensor's name stands for the task that makes it; an unknown one is answered with some that there are."""
    plan = folder / "reals" / "reals.nem"
    section = next(
        line.split()[2].rstrip(":") for line in plan.read_text().splitlines() if line.startswith("# == ")
    )
    assert call("sim", plan, "--explain", section.removeprefix("do_")).stdout.startswith(section)
    assert f"sections are: {section}" in call("sim", plan, "--explain", "zzzzzzzz").output


def test_an_input_that_nothing_reads(tmp_path: Path) -> None:
    """The plan has no region for it, the model still takes it."""
    drawing = Drawing(3)
    x, _ = drawing.builder.input("x", F32, (3, 8)), drawing.builder.input("unused", F32, (4,))
    lamella.save(drawing.finish(drawing.call("nn.relu", x)), tmp_path / "some.sknd")
    out = tmp_path / "out"
    result = call("lower", tmp_path / "some.sknd", "--to", "stcb", "--device", "npm_lite", "-o", out)
    assert result.exit_code == 0, result.output
    assert (
        json.loads(call("diff", tmp_path / "some.sknd", out / "some.nem", "--json").stdout)["equal"] is True
    )


def test_numbers_beside_a_plan_are_told_of(folder: Path) -> None:
    """One note says where the weights come from."""
    result = call("run", folder / "codes" / "codes.nem", "--seed", "1")
    assert result.stderr.count("NEM202") == 1
    assert "codes.safetensors" in result.stderr


def test_after_select(folder: Path) -> None:
    """The selected plan on standard output; its tasks name their operations."""
    text = call(
        "lower", folder / "codes.sknd", "--to", "nem", "--device", "npm_lite", "--after", "select"
    ).output
    assert "codes.sknd:" in text
    assert "L1" not in text


def test_explain_lists_operations(folder: Path) -> None:
    """Each operation with what it becomes."""
    lines = call(
        "lower", folder / "reals.sknd", "--to", "nem", "--device", "npm_lite", "--explain", "select"
    ).output
    assert "gemm" in lines
    assert "compute" in lines
    assert "kernels on the VPU" in lines.splitlines()[-1]


def test_json_lists_operations(folder: Path, tmp_path: Path) -> None:
    """The report as data."""
    words = ("--to", "nem", "--device", "npm_lite", "-o", tmp_path / "out", "--json", "--no-compare")
    found = json.loads(call("lower", folder / "reals.sknd", *words).output)
    assert [item["how"] for item in found["operations"]] == ["opcode", "compute"]


def test_fit(folder: Path, tmp_path: Path) -> None:
    """Bytes of each memory; where a layer does not fit, which and by how much."""
    words = ("lower", folder / "codes.sknd", "--to", "nem", "--fit", "--json", "--device")
    found = json.loads(call(*words, "npm_lite").output)
    assert found["fits"] is True
    assert [item["level"] for item in found["memories"]] == ["DDR", "L2", "L1"]
    far, _, near = found["memories"]
    assert int(far["reason"].split()[-1].replace(",", "")) <= far["needed"]
    assert int(near["reason"].split()[-1].replace(",", "")) <= near["needed"] < near["available"]
    device = tmp_path / "tiny.nem"
    device.write_text(TINY, encoding="utf-8")
    result = call(*words, device)
    found = json.loads(result.output)
    (row,) = [item for item in found["memories"] if item["level"] == "L1"]
    assert (result.exit_code, found["fits"], row["available"]) == (1, False, 64)
    assert row["short"] == row["needed"] - 64 > 0
    assert row["reason"].startswith("the smallest tile of ")
    refused = call("lower", folder / "codes.sknd", "--to", "nem", "--device", device, "-o", tmp_path / "out")
    assert refused.exit_code == 1
    assert "NEM201" in refused.stderr
    assert "from: " in refused.stderr


def test_a_device_of_ones_own_goes_with_the_plan(folder: Path, tmp_path: Path) -> None:
    """Its file is copied beside the plan, which is checked from there."""
    device = tmp_path / "mine.nem"
    device.write_text(
        TINY.replace("tiny", "mine").replace("l1_size_bytes = 64", "l1_size_bytes = 65536"), encoding="utf-8"
    )
    result = call("lower", folder / "codes.sknd", "--to", "nem", "--device", device, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert sorted(item.name for item in (tmp_path / "out").glob("*.nem")) == ["codes.nem", "mine.nem"]
    assert call("check", tmp_path / "out" / "codes.nem").exit_code == 0


def test_a_folder_may_be_called_like_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-o npm_lite` makes a folder of that name; the device is still the shipped one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "npm_lite").mkdir()
    plan = str(Path(__file__).parents[2] / "examples/npu/conv_relu.nem")
    for words in (["check", plan], ["sim", plan]):
        done = CliRunner().invoke(command, [*words, "--device", "npm_lite"])
        assert done.exit_code == 0, done.output


PICKED = """import layout, math, nn;
graph Picked {
    @input { x: real[3, 8]; i: int[2]; }
    @output { y: real[2, 8]; best: int[3]; most: real; }
    @variable { t: real[20, 8]; }
    @compose {
        y = layout.gather{axis=0}(t, i);
        best = math.argmax{axis=1, squeeze=true}(x);
        most = math.max_reduce{axes=[0, 1], squeeze=true}(x);
    }
}
"""


def test_a_plan_draws_what_its_model_draws(tmp_path: Path) -> None:
    """From one seed, indices of a table included; positions come back as integers, a number without axes."""
    path, out = tmp_path / "picked.sknd", tmp_path / "out"
    path.write_text(PICKED, encoding="utf-8")
    assert call("lower", path, "--to", "nem", "--device", "npm_lite", "--seed", "4", "-o", out).exit_code == 0
    model = lamella.compile(lamella.load(path), seed=4)()
    plan = lamella.compile(lamella.load(out / "picked.nem"), seed=4)()
    assert plan.keys() == model.keys()
    for name, array in model.items():
        assert plan[name].shape == array.shape
        assert plan[name].dtype == array.dtype
        np.testing.assert_allclose(plan[name], array, atol=5e-3)
    np.testing.assert_array_equal(plan["best"], model["best"])
    assert '@debug("do_y")' in (out / "stages" / "1_select.nem").read_text(encoding="utf-8")


INTEGERS = """
device integers {
    spec_version = "1.0"
    topology {
        num_engines = 1
        l2_size_bytes = 1048576
        device_units { sDMA = 1 WDM = 0 }
        per_engine { NMU = 1 CSTL = 2 DMA = 2 VPU = 1 SEQ = 1 l1_size_bytes = 524288 }
    }
    opcode.mandatory {
        gemm.int8<i8>.no_bias gemm.int8<i8>.with_bias
        conv2d.int8<i8>.no_bias conv2d.int8<i8>.with_bias
        eltwise<i8>.default view<i8>.default cast.default
    }
}
"""


def test_a_device_without_floats_refuses_a_model_of_real_numbers(folder: Path, tmp_path: Path) -> None:
    """The finding says what to run; a model of codes has a plan there."""
    families = (shipped("devices") / "nem_baseline_1.0.nem").read_text(encoding="utf-8")
    families = families[: families.index("device nem_baseline_1_0")]
    path = tmp_path / "integers.nem"
    path.write_text(re.sub(r"MUST( <[^>]*f16[^>]*>)", r"MAY\1", families) + INTEGERS, encoding="utf-8")
    refused = call("lower", folder / "reals.sknd", "--to", "nem", "--device", path, "-o", tmp_path / "reals")
    assert refused.exit_code == 1
    assert refused.stderr.count("error[") == 1
    assert "NEM203" in refused.stderr
    assert f"lamella quantize {folder / 'reals.sknd'}" in refused.stderr
    taken = call("lower", folder / "codes.sknd", "--to", "nem", "--device", path, "-o", tmp_path / "codes")
    assert taken.exit_code == 0, taken.output


def test_what_has_no_plan_is_one_finding() -> None:
    """Empty tensors."""
    drawing = Drawing(1)
    x = drawing.builder.input("x", F32, (0, 3, 6, 6))
    codes = drawing.call("quant.quantize", x, scale=0.03, zero_point=4)
    weight = drawing.codes(5, 3, 3, 3)
    means = {"x_scale": 0.03, "x_zero": 4, "y_scale": 0.05, "y_zero": -9}
    scale = drawing.weight(np.asarray([0.01]))
    made = drawing.call("quant.conv", codes, weight, None, scale, padding=[1] * 4, **means)
    with pytest.raises(LamellaError) as caught:
        plans_of(drawing.finish(drawing.call("quant.dequantize", made, scale=0.05, zero_point=-9)))
    (finding,) = caught.value.findings
    assert finding.code == "NEM200"
    assert "has no elements" in finding.message
