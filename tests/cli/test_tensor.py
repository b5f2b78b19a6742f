"""Kernels from the command line and from the API."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.cli import lamella as command

TEXT = """\
func @scale(%a: f32, %x: memref<f32x2x3,strided<3,6>>) {
  %0 = constant 0 : index
  %r = size %x[0] : index
  %c = size %x[1] : index
  foreach (%i,%j):index=(%0,%0),(%r,%c) {
    %v = load %x[%i,%j] : f32
    %w = arith.mul %a, %v : f32
    store %w, %x[%i,%j]
  }
}
func @count(%n: index, %out: memref<i64x?>) {
  %id = builtin.group_id : index
  %v = cast %id : i64
  parallel {
    store %v, %out[%id]
  }
}
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "k.tensor"
    path.write_text(TEXT, encoding="utf-8")
    return path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_a_kernel_updates_the_arrays_it_is_given(kernels: Path, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    words: list[str | Path] = [
        "run",
        kernels,
        "--kernel",
        "scale",
        "--arg",
        "a=2.5",
        "--arg",
        f"x={tmp_path / 'x.npy'}",
    ]
    done = run(*words, "--output", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert np.array_equal(np.load(tmp_path / "out" / "x.npy"), 2.5 * x)


def test_groups_are_launched(kernels: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "out.npy", np.full(5, -1, np.int64))
    words: list[str | Path] = [
        "run",
        kernels,
        "--kernel",
        "count",
        "--arg",
        "n=5",
        "--arg",
        f"out={tmp_path / 'out.npy'}",
    ]
    done = run(*words, "--groups", "4", "--output", tmp_path / "result")
    assert done.exit_code == 0, done.output
    assert list(np.load(tmp_path / "result" / "out.npy")) == [0, 1, 2, 3, -1]


def test_arrays_of_known_shape_come_from_the_seed(kernels: Path) -> None:
    first, again, other = (
        run("run", kernels, "--kernel", "scale", "--arg", "a=1.0", "--seed", seed).output for seed in "112"
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "say which kernel"),
        (["--kernel", "scal"], "there is no kernel 'scal'"),
        (["--kernel", "scale"], "'a' (f32) has no value"),
        (["--kernel", "count", "--arg", "n=1"], "'out' (memref<i64x?>) has no value"),
        (["--kernel", "scale", "--arg", "a=1.0", "--arg", "b=1"], "no parameter 'b'"),
        (["--kernel", "scale", "--arg", "a=true"], "TEN"),
        (["--kernel", "scale", "--backend", "npu"], "there is no backend 'npu'"),
    ],
)
def test_wrong_calls_are_told(kernels: Path, words: list[str], told: str) -> None:
    done = run("run", kernels, *words)
    assert done.exit_code == 1
    assert told in done.output
    assert "Traceback" not in done.output


def test_a_file_is_checked_shown_and_formatted(kernels: Path) -> None:
    assert run("check", kernels).exit_code == 0
    shown = json.loads(run("show", kernels, "--json").output)
    assert [item["name"] for item in shown["kernels"]] == ["scale", "count"]
    text = run("fmt", kernels).output
    kernels.write_text(text, encoding="utf-8")
    assert run("fmt", kernels, "--check").exit_code == 0


def test_kernels_are_functions_in_python(kernels: Path, tmp_path: Path) -> None:
    model = lamella.load(kernels)
    x = np.ones((2, 3), np.float32)
    laid_out = np.zeros((3, 6), np.float32).reshape(-1)[:18].reshape(3, 2, 3)[:, :, 0].T
    laid_out[...] = x
    kernel = "scale"
    scale = getattr(lamella.compile(model), kernel)
    scale(3.0, laid_out)
    assert np.array_equal(laid_out, 3 * x)
    lamella.save(model, tmp_path / "again.tensor")
    assert not [item for item in lamella.check(tmp_path / "again.tensor") if item.severity != "note"]
    with pytest.raises(LamellaError):
        lamella.lower(model, "nem")
