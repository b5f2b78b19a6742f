"""`lamella lower` and `lamella run` on kernels, and on graphs that become kernels."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lamella.cli import lamella
from lamella.kernels.passes import PASSES
from lamella.kernels.target import TARGETS, find_target

TEXT = """\
; the name of this kernel stays in the text
func @evil_name(%a: f32, %x: memref<f32x16>) {
  %0 = constant 0 : index
  %n = constant 16 : index
  foreach (%i):index=(%0),(%n) {
    %v = load %x[%i] : f32
    %w = arith.mul %a, %v : f32
    store %w, %x[%i]
  }
}
"""
GRAPH = """\
import math, linalg;
graph G {
    @input { x: real[4, 12]; w: real[12, 16]; }
    @output { y: real[4, 16]; }
    @compose { z = linalg.matmul(x, w); y = math.exp(z); }
}
"""
NATIVE = """\
import rand;
graph G { @output { y: real[4]; } @compose { y = rand.uniform{shape=[4]}(); } }
"""
OPEN = """\
import math;
graph G { @input { x: real[n|9]; } @output { y: real; } @compose { y = math.exp(x); } }
"""
NAMES = [item.name for item in PASSES]


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "k.tensor"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "m.sknd"
    path.write_text(GRAPH, encoding="utf-8")
    return path


def call(*words: str | Path) -> Result:
    done = CliRunner().invoke(lamella, [str(word) for word in words])
    assert "Traceback" not in done.output
    return done


def right(*words: str | Path) -> str:
    """What a command prints that succeeds."""
    done = call(*words)
    assert done.exit_code == 0, done.output
    return done.output


# --- lower --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_printed_after_each_pass(kernels: Path, tmp_path: Path, name: str) -> None:
    text = right("lower", kernels, "--to", "tensor", "--after", name)
    assert text.count("func @evil_name") == 1
    again = tmp_path / "again.tensor"
    again.write_text(text, encoding="utf-8")
    assert right("fmt", again) == text


def test_the_last_pass_is_the_default(kernels: Path) -> None:
    assert right("lower", kernels, "--to", "tensor") == right(
        "lower", kernels, "--to", "tensor", "--after", NAMES[-1]
    )


@pytest.mark.parametrize("name", TARGETS)
def test_kernels_lower_for_every_target(kernels: Path, name: str) -> None:
    assert "foreach" not in right("lower", kernels, "--to", "tensor", "--target", name)
    is_device = find_target(name).has_threads
    form = "ptx" if is_device else "asm"
    done = call("lower", kernels, "--to", form, "--target", name)
    if name.startswith("cpu") or is_device:
        assert done.exit_code == 0, done.output
        assert "kernel_0" in done.output
    else:
        assert done.exit_code == 1
        assert "no machine code is written" in done.output


def test_symbols_are_not_the_names_of_the_file(kernels: Path) -> None:
    for form, comment in (("llvm", ";"), ("asm", "#"), ("ptx", "//")):
        lines = right("lower", kernels, "--to", form).splitlines()
        named = [line for line in lines if "evil_name" in line.partition(comment)[0]]
        assert named == []
        assert any("kernel_0" in line for line in lines)


def test_stages_are_written_and_numbered(kernels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    told = right("lower", kernels, "--to", "asm", "-o", folder)
    expected = ["00-k.tensor", *(f"{place:02}-{name}.tensor" for place, name in enumerate(NAMES, 1))]
    count = len(expected)
    expected += [f"{count:02}-emit.ll", f"{count + 1:02}-assemble.s"]
    assert sorted(item.name for item in folder.iterdir()) == expected
    assert "largest difference 0" in told
    assert right("lower", kernels, "--to", "llvm") == (folder / expected[-2]).read_text(encoding="utf-8")


def test_json_holds_the_text_or_what_was_written(kernels: Path, tmp_path: Path) -> None:
    found = json.loads(right("lower", kernels, "--to", "llvm", "--json"))
    assert (found["ok"], found["form"]) == (True, "llvm")
    assert found["text"] == right("lower", kernels, "--to", "llvm")
    found = json.loads(right("lower", kernels, "--to", "tensor", "-o", tmp_path / "out", "--json"))
    assert Path(found["written"]).exists()
    assert found["largest_difference"] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--to", "tensor", "--after", "nope"], "there is no pass 'nope'"),
        (["--to", "llvm", "--after", "unroll"], "--after cannot have an effect without --to tensor"),
        (["--to", "llvm", "--target", "nope"], "there is no target 'nope'"),
        (["--to", "asm", "--target", "tgl"], "no machine code is written for 'tgl'"),
        (["--to", "ptx", "--target", "sm_10"], "GPUs before sm_75 lack what kernels need; targets are"),
        (["--to", "ptx", "--target", "sm_87"], "code for 'sm_86' runs there; targets are"),
        (["--to", "ptx", "--target", "sm_90"], "did you mean 'sm_90a'?"),
        (["--to", "ptx", "--target", "sm_999"], "code for 'sm_120' runs there"),
        (["--to", "ptx", "--target", "cpu-avx2"], "'cpu-avx2' has no ptx"),
        (["--to", "asm", "--target", "cuda"], "'cuda' has no asm"),
        (["--to", "stcb", "-o", "out"], "there is no lowering to 'stcb'"),
    ],
)
def test_wrong_wishes_are_told(kernels: Path, words: list[str], told: str) -> None:
    done = call("lower", kernels, *words)
    assert done.exit_code == (2 if "cannot have an effect" in told else 1)
    assert told in done.output


def test_an_unknown_form_is_a_wrong_call(kernels: Path) -> None:
    assert call("lower", kernels, "--to", "wasm").exit_code == 2


def test_wrong_kernels_are_not_lowered(kernels: Path) -> None:
    kernels.write_text(TEXT.replace("%x[%i] : f32", "%x[%i] : f64"), encoding="utf-8")
    done = call("lower", kernels, "--to", "llvm")
    assert done.exit_code == 1
    assert "TEN" in done.output


# --- what is written ----------------------------------------------------------------------------------------


def test_a_folder_that_is_a_file_is_told(kernels: Path, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("kept", encoding="utf-8")
    done = call("lower", kernels, "--to", "tensor", "-o", place)
    assert done.exit_code == 1
    assert place.read_text(encoding="utf-8") == "kept"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(kernels: Path, tmp_path: Path) -> None:
    place = tmp_path / "locked"
    place.mkdir(mode=0o500)
    assert call("lower", kernels, "--to", "tensor", "-o", place / "out").exit_code == 1


def test_files_that_were_there_are_replaced(kernels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    right("lower", kernels, "--to", "tensor", "-o", folder)
    first = {item.name: item.read_text(encoding="utf-8") for item in folder.iterdir()}
    for item in folder.iterdir():
        item.write_text("old", encoding="utf-8")
    right("lower", kernels, "--to", "tensor", "-o", folder)
    assert first == {item.name: item.read_text(encoding="utf-8") for item in folder.iterdir()}


def test_a_device_in_the_place_of_a_stage_is_not_replaced(kernels: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "00-k.tensor").mkdir()
    assert call("lower", kernels, "--to", "tensor", "-o", folder).exit_code == 1
    assert (folder / "00-k.tensor").is_dir()


# --- graphs -------------------------------------------------------------------------------------------------


def test_the_kernels_of_a_graph_are_printed_written_and_compared(graph: Path, tmp_path: Path) -> None:
    text = right("lower", graph, "--to", "tensor")
    assert "cooperative_matrix_mul_add" in text
    assert "read again, largest difference" in right("lower", graph, "--to", "tensor", "-o", tmp_path / "out")
    assert (tmp_path / "out" / "m.tensor").read_text(encoding="utf-8") == text
    assert right("check", tmp_path / "out" / "m.tensor")


@pytest.mark.parametrize("form", ["llvm", "asm", "ptx"])
def test_a_graph_lowers_to_machine_code(graph: Path, form: str) -> None:
    assert "kernel_0" in right("lower", graph, "--to", form)


def test_a_pass_of_the_kernels_of_a_graph(graph: Path) -> None:
    assert "cooperative_matrix_apply" in right("lower", graph, "--to", "tensor", "--after", "choose-sizes")
    text = right("lower", graph, "--to", "tensor", "--after", "lower-extensions")
    assert "cooperative_matrix_apply" not in text
    assert "cooperative_matrix_mul_add" in text


@pytest.mark.parametrize(
    ("text", "told"), [(NATIVE, "no operation of this graph becomes a kernel"), (OPEN, "leaves 'n' open")]
)
def test_a_graph_without_kernels_is_told(graph: Path, tmp_path: Path, text: str, told: str) -> None:
    graph.write_text(text, encoding="utf-8")
    for words in ([], ["-o", str(tmp_path / "out")]):
        done = call("lower", graph, "--to", "tensor", *words)
        assert done.exit_code == 1
        assert told in done.output
    assert "y: float32" in right("run", graph, "--backend", "cpu")


def test_open_extents_are_given(graph: Path) -> None:
    graph.write_text(OPEN, encoding="utf-8")
    assert "memref<f32x7>" in right("lower", graph, "--to", "tensor", "--shape", "n=7")


# --- run ----------------------------------------------------------------------------------------------------


def test_a_graph_runs_by_its_kernels(graph: Path, tmp_path: Path) -> None:
    found = {}
    for backend in ("reference", "cpu", "interpreter"):
        right("run", graph, "--backend", backend, "--seed", "3", "--output", tmp_path / backend)
        found[backend] = np.load(tmp_path / backend / "y.npy")
    np.testing.assert_allclose(found["cpu"], found["reference"], rtol=1e-5)
    np.testing.assert_allclose(found["interpreter"], found["reference"], rtol=1e-5)


def test_a_graph_runs_by_its_plan(graph: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    x, w = random.normal(size=(4, 12)).astype(np.float16), random.normal(size=(12, 16)).astype(np.float16)
    words: list[str | Path] = []
    for name, value in (("x", x), ("w", w)):
        np.save(tmp_path / f"{name}.npy", value.astype(np.float32))
        words += ["--input", f"{name}={tmp_path / name}.npy"]
    right("run", graph, "--backend", "npu", *words, "--output", tmp_path / "found")
    wanted = np.exp(x.astype(np.float64) @ w.astype(np.float64))
    # The product is rounded to f16: below 16 by 2⁻⁸ at the most, which the exponential makes a relative error.
    np.testing.assert_allclose(np.load(tmp_path / "found" / "y.npy"), wanted, rtol=6e-3, atol=1e-6)


def test_a_graph_runs_in_64_bits(graph: Path, tmp_path: Path) -> None:
    found = []
    for backend in ("reference", "cpu"):
        right("run", graph, "--backend", backend, "--dtype", "f64", "--output", tmp_path / backend)
        found.append(np.load(tmp_path / backend / "y.npy"))
    assert found[1].dtype == np.float64
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


def test_kernels_run_on_both_backends(kernels: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(16, dtype=np.float32))
    arguments = ["--arg", "a=2.5", "--arg", f"x={tmp_path / 'x.npy'}"]
    for backend in ("cpu", "interpreter"):
        right("run", kernels, "--backend", backend, *arguments, "--output", tmp_path / backend)
        found = np.load(tmp_path / backend / "x.npy")
        np.testing.assert_array_equal(found, 2.5 * np.arange(16, dtype=np.float32))


def test_what_only_the_interpreter_does_it_does_unasked(kernels: Path) -> None:
    traced = right("run", kernels, "--arg", "a=2.0", "--trace")
    assert "arith.mul" in traced
    right("run", kernels, "--arg", "a=2.0", "--check-bounds")
    for option in ("--trace", "--check-bounds"):
        done = call("run", kernels, "--arg", "a=2.0", option, "--backend", "cpu")
        assert done.exit_code == 2
        assert f"{option} cannot have an effect without --backend interpreter" in done.output


@pytest.mark.parametrize("backend", ["nacvm", "npu", "reference"])
def test_backends_that_run_no_kernels(kernels: Path, backend: str) -> None:
    done = call("run", kernels, "--backend", backend)
    assert done.exit_code == 1
    assert "kernels run on: cpu, cuda, interpreter" in done.output
