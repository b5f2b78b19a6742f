"""NAC files from the command line: from graphs and back, run, quantised, with other weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import save_file

from lamella.base.arrays import Array
from lamella.cli import lamella as command

MODEL = """
graph Perceptron {
    @input { x: real[4, 16]; }
    @output { y: real[4, 8]; }
    @variable { w: real[32, 16]; b: real[32]; v: real[8, 32]; }
    @compose {
        a = aten.linear(x, w, b);
        h = aten.relu(a);
        same = math.mul(h, 1.0);
        s = aten.linear(same, v);
        y = aten.softmax{dim=-1}(s);
    }
}
"""


def run(*words: str | Path, fails: bool = False) -> Result:
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code != 0) == fails, done.output
    return done


def numbers() -> dict[str, Array]:
    random = np.random.default_rng(7)
    shapes = {"x": (4, 16), "w": (32, 16), "b": (32,), "v": (8, 32)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def expected(**other: Array) -> Array:
    """The model in NumPy."""
    of = {**numbers(), **other}
    hidden = np.maximum(of["x"] @ of["w"].T + of["b"], 0)
    scores = hidden @ of["v"].T
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: Array = powers / powers.sum(axis=-1, keepdims=True)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, its weights beside it, and an input."""
    (tmp_path / "m.sknd").write_text(f"import aten, math;\n{MODEL}", encoding="utf-8")
    for name, array in numbers().items():
        np.save(tmp_path / f"{name}.npy", array)
    store({name: array for name, array in numbers().items() if name != "x"}, tmp_path / "m.safetensors")
    return tmp_path


def store(arrays: dict[str, Array], path: Path) -> None:
    save_file(arrays, str(path))


def result(path: Path, folder: Path, *more: str) -> Array:
    run("run", path, "--input", f"x={folder / 'x.npy'}", "--output", folder / "out", *more)
    found: Array = np.load(folder / "out" / "y.npy")
    return found


@pytest.mark.parametrize("backend", ["nacvm", "reference", "cpu"])
def test_a_graph_becomes_a_file_that_runs(folder: Path, backend: str) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    assert run("check", "--strict", folder / "m.nac").stdout == "1 file checked: nothing found\n"
    found = result(folder / "m.nac", folder, "--backend", backend)
    np.testing.assert_allclose(found, expected(), rtol=1e-5, atol=1e-6)


def test_names_survive_both_ways(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    shown = json.loads(run("show", folder / "m.nac", "--json").stdout)
    assert [item["name"] for item in shown["inputs"]] == ["x"]
    assert sorted(item["name"] for item in shown["parameters"]) == ["b", "v", "w"]
    run("convert", folder / "m.nac", folder / "again.sknd")
    np.testing.assert_allclose(result(folder / "again.sknd", folder), expected(), rtol=1e-5, atol=1e-6)


def test_the_optimiser_is_asked_or_not(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "a.nac", "--optimize", "none")
    done = run("convert", folder / "m.sknd", folder / "b.nac")
    assert "5 operations before, 4 after" in done.stdout
    counts = [
        json.loads(run("show", folder / name, "--json").stdout)["operations"] for name in ("a.nac", "b.nac")
    ]
    assert "aten.mul.Tensor" in counts[0]
    assert "aten.mul.Tensor" not in counts[1]
    done = run("diff", folder / "a.nac", folder / "b.nac")
    assert "only left: 1 × aten.mul\n" in done.stdout


def test_signatures_have_roles_or_not(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "a.nac")
    run("convert", folder / "a.nac", folder / "b.nac", "--plain-signatures")
    for name, codes in (("a", "TWB"), ("b", "TTT")):
        run("convert", folder / f"{name}.nac", folder / f"{name}.nacs")
        assert codes in (folder / f"{name}.nacs").read_text(encoding="utf-8")
    np.testing.assert_array_equal(result(folder / "a.nac", folder), result(folder / "b.nac", folder))


@pytest.mark.parametrize(
    ("method", "most"), [("fp16", 1e-2), ("int8_tensor", 0.2), ("int8_channel", 0.2), ("block_fp8", 0.2)]
)
def test_quantisation_tells_its_cost(folder: Path, method: str, most: float) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    exact = result(folder / "m.nac", folder)
    words = ("convert", folder / "m.nac", folder / "q.nac", "--quantize", method, "--seed", "0")
    report = json.loads(run(*words, "--json").stdout)["quantization"]
    assert report["method"] == method
    assert [item["name"] for item in report["tensors"]] == ["w", "b", "v"]
    assert report["bytes"]["after"] < report["bytes"]["before"]
    (output,) = report["outputs"]
    assert 0 < output["max_abs"] < most
    found = result(folder / "q.nac", folder)
    assert 0 < np.abs(found - exact).max() < most
    assert "output y: max abs" in run(*words).stdout


def test_other_weights_leave_the_code_alone(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    weights = {name: array[::-1].copy() for name, array in numbers().items() if name != "x"}
    store(weights, folder / "other.safetensors")
    run("convert", folder / "m.nac", folder / "n.nac", "--weights", folder / "other.safetensors")
    np.testing.assert_allclose(result(folder / "n.nac", folder), expected(**weights), rtol=1e-5, atol=1e-6)
    texts = []
    for name in ("m", "n"):
        run("convert", folder / f"{name}.nac", folder / f"{name}.nacs")
        text = (folder / f"{name}.nacs").read_text(encoding="utf-8")
        texts.append(text[text.index(".code") :].partition("\n.")[0])
    assert texts[0] == texts[1]


def test_weights_of_another_model_are_told(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    given = {"w": numbers()["w"], "stranger": numbers()["b"]}
    store({"stranger": given["stranger"]}, folder / "none.safetensors")
    store(given, folder / "some.safetensors")
    done = run(
        "convert", folder / "m.nac", folder / "n.nac", "--weights", folder / "none.safetensors", fails=True
    )
    assert "no parameter of" in done.output
    assert not (folder / "n.nac").exists()
    done = run("convert", folder / "m.nac", folder / "n.nac", "--weights", folder / "some.safetensors")
    assert "weights are given for 'stranger', which is no parameter" in done.output


def test_weights_move_out_and_in_and_along(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "m1.nac")
    (folder / "there").mkdir()
    done = run("convert", folder / "m1.nac", folder / "there" / "m2.nac", "--external")
    assert [Path(line).name for line in done.stdout.splitlines()] == ["m2.safetensors", "m2.nac"]
    assert (folder / "there" / "m2.nac").stat().st_size < (folder / "m1.nac").stat().st_size
    run("convert", folder / "there" / "m2.nac", folder / "m3.nac")
    assert (folder / "m3.safetensors").exists()
    run("convert", folder / "m3.nac", folder / "m4.nac", "--internal")
    assert (folder / "m4.nac").read_bytes() == (folder / "m1.nac").read_bytes()
    for name in ("there/m2.nac", "m3.nac", "m4.nac"):
        np.testing.assert_allclose(result(folder / name, folder), expected(), rtol=1e-5, atol=1e-6)


def test_lower_writes_a_file_and_compares(folder: Path) -> None:
    report = json.loads(run("lower", folder / "m.sknd", "--to", "nac", "-o", folder / "out", "--json").stdout)
    assert report["ok"] is True
    assert report["largest_difference"] < 1e-6
    done = run("lower", folder / "out" / "m.nac", "--to", "tensor")
    assert "func @" in done.stdout


def test_diff_finds_the_operation_and_writes_it_down(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    run("convert", folder / "m.nac", folder / "q.nac", "--quantize", "int8_tensor")
    assert run("diff", folder / "m.sknd", folder / "m.nac").stdout.endswith("0, of numbers up to 1\n")
    done = run("diff", folder / "m.nac", folder / "q.nac", "--json", "-o", folder / "rep", fails=True)
    found = json.loads(done.stdout)
    assert found["first_diverging"]["operator"] == "aten.linear"
    assert {item["name"] for item in found["weights"]} == {"w", "b", "v"}
    inputs = [word for name in ("x", "w", "b") for word in ("--input", f"{name}={folder / 'rep' / name}.npy")]
    run("run", found["reproducer"], *inputs)
    assert run("diff", folder / "m.nac", folder / "q.nac", "--tolerance", "0.5").exit_code == 0


def test_what_is_not_asked_of_nac_is_refused(folder: Path) -> None:
    done = run("convert", folder / "m.sknd", folder / "n.sknd", "--quantize", "fp16", fails=True)
    assert "--quantize cannot have an effect" in done.output
    run("convert", folder / "m.sknd", folder / "m.nac")
    done = run("run", folder / "m.nac", "--type", "z=f32[1]", fails=True)
    assert "there is no input 'z'" in done.output
    done = run("run", folder / "m.nac", "--type", "x=f33[1]", fails=True)
    assert "is no type for input 'x'" in done.output


def test_a_picture_of_the_bytes(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    run("show", folder / "m.nac", "--picture", folder / "m.svg")
    text = (folder / "m.svg").read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert all(f"<title>{name}</title>" in text for name in ("header", "OPS", "DATA", "RSRC"))
    assert (
        "--picture cannot have an effect"
        in run("show", "nn.conv", "--picture", folder / "x.svg", fails=True).output
    )


def test_files_are_put_in_and_taken_out(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    (folder / "words.txt").write_bytes(b"one\0two")
    run("convert", folder / "m.nac", folder / "n.nac", "--embed", f"vocab={folder / 'words.txt'}")
    assert (folder / "m.nac").read_bytes() != (folder / "n.nac").read_bytes()
    run("show", folder / "n.nac", "--extract", folder / "there")
    assert (folder / "there" / "vocab").read_bytes() == b"one\0two"
    assert sorted(path.name for path in (folder / "there").iterdir()) == ["lamella.json", "vocab"]
    np.testing.assert_array_equal(result(folder / "m.nac", folder), result(folder / "n.nac", folder))


@pytest.mark.parametrize("name", ["../x", "a/b", "lamella.json", "CON"])
def test_names_that_lead_elsewhere_are_refused(folder: Path, name: str) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac")
    words = ("convert", folder / "m.nac", folder / "n.nac", "--embed", f"{name}={folder / 'm.sknd'}")
    run(*words, fails=True)
    assert not (folder / "n.nac").exists()


def test_a_link_in_the_place_of_a_resource_is_not_followed(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "m.nac", "--embed", f"vocab={folder / 'm.sknd'}")
    (folder / "victim").write_text("old", encoding="utf-8")
    (folder / "there").mkdir()
    (folder / "there" / "vocab").symlink_to(folder / "victim")
    run("show", folder / "m.nac", "--extract", folder / "there", fails=True)
    assert (folder / "victim").read_text(encoding="utf-8") == "old"


def test_weights_beside_a_file_are_not_replaced_by_its_conversion(folder: Path) -> None:
    run("convert", folder / "m.sknd", folder / "e.nac", "--external")
    before = (folder / "e.safetensors").read_bytes()
    done = run("convert", folder / "e.nac", folder / "e.sknd", fails=True)
    assert "e.safetensors' holds the weights of 'e.nac', and 'e.sknd' would replace them" in done.output
    run("convert", folder / "e.nac", folder / "e.nacs", "--quantize", "fp16", fails=True)
    run("convert", folder / "m.sknd", folder / "m.nac", "--external", fails=True)
    run("convert", folder / "e.nac", folder / "e.nacs")
    assert (folder / "e.safetensors").read_bytes() == before
    run("convert", folder / "e.nac", folder / "e.nac", "--quantize", "fp16")
    np.testing.assert_allclose(result(folder / "e.nac", folder), expected(), atol=1e-2)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("method", ["fp16", "int8_channel", "block_fp8"])
def test_models_of_other_precisions_are_quantised_too(folder: Path, kind: str, method: str) -> None:
    (folder / "h.sknd").write_text(
        f"import aten, math;\n{MODEL.replace('real[', f'{kind}[')}", encoding="utf-8"
    )
    run("convert", folder / "h.sknd", folder / "h.nac", "--optimize", "none")
    run("convert", folder / "h.nac", folder / "q.nac", "--quantize", method)
    assert run("check", folder / "q.nac").stdout == "1 file checked: nothing found\n"
    exact, found = (result(folder / name, folder) for name in ("h.nac", "q.nac"))
    assert exact.dtype == found.dtype
    assert np.abs(exact - found).max() < 0.1


def test_diff_names_ranges_that_differ(folder: Path) -> None:
    body = "@input { x: real[n|9]; } @output { y: real[~]; } @compose { y = aten.relu(x); }"
    text = f"import aten;\ngraph G {{ {body} }}"
    (folder / "one.sknd").write_text(text, encoding="utf-8")
    (folder / "two.sknd").write_text(text.replace("9", "7"), encoding="utf-8")
    done = run("diff", folder / "one.sknd", folder / "two.sknd")
    assert "output y: max abs 0" in done.output  # compared at a size that both allow
    (folder / "two.sknd").write_text(text.replace("n|9", "9"), encoding="utf-8")
    assert "output y: max abs 0" in run("diff", folder / "one.sknd", folder / "two.sknd").output
    (folder / "two.sknd").write_text(text.replace("n|9", "n|9, 2").replace("~", "~, ~"), encoding="utf-8")
    done = run("diff", folder / "one.sknd", folder / "two.sknd", fails=True)
    assert "input x: f32[n of 0 to 9] | f32[n of 0 to 9, 2]" in done.output
    assert "numbers: not compared, because the types of inputs differ" in done.output
    assert run("diff", folder / "one.sknd", folder / "one.sknd", "--shape", "n=5").exit_code == 0


@pytest.mark.parametrize("backend", ["nacvm", "reference"])
def test_extents_stay_in_their_range(folder: Path, backend: str) -> None:
    body = "@input { x: real[n|9]; } @output { y: real[~]; } @compose { y = aten.relu(x); }"
    (folder / "open.sknd").write_text(f"import aten;\ngraph G {{ {body} }}", encoding="utf-8")
    run("convert", folder / "open.sknd", folder / "open.nac")
    assert "float32[9]" in run("run", folder / "open.nac", "--backend", backend, "--shape", "n=9").output
    done = run("run", folder / "open.nac", "--backend", backend, "--shape", "n=10", fails=True)
    assert "extent 'n' is to be 10; it lies between 0 and 9" in done.output
