"""Kernels that are chosen by measuring, on a GPU: numbers are those of the usual ones, choices are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend.cuda.compile import device_target
from lamella.backend.cuda.cublaslt import usable_version
from lamella.backend.cuda.lists import CudaList
from lamella.base.arrays import Array
from lamella.base.tuning import tuning_of
from lamella.kernels.candidates import Candidate, Problem
from lamella.kernels.native_products import find_native
from lamella.pipeline.backends.kernels import compile_kernel_graph
from lamella.pipeline.kernels import execution, tuning
from lamella.pipeline.options import Options
from tests.support.cli.skriptnd_models import call

pytestmark = [pytest.mark.gpu, pytest.mark.real_gpu]

LAYERS = """
import nn, linalg;
graph Layers {
    @input { x: real[128,256]; }
    @variable { w: real[512,256]; b: real[512]; v: real[512,128]; }
    @output { y: real[128,128]; }
    @compose { h = nn.linear(x, w, b); g = nn.gelu(h); y = linalg.matmul(g, v); }
}
"""
WINDOWS = """
import nn;
graph Windows {
    @input { x: real[1,64,14,14]; }
    @variable { w: real[128,64,3,3]; b: real[128]; u: real[64,128,1,1]; }
    @output { y: real[1,64,14,14]; }
    @compose { h = nn.conv{padding=1}(x, w, b); r = nn.relu(h); y = nn.conv(r, u); }
}
"""
TOKEN = """
import nn;
graph Token {
    @input { x: real[1,1024]; }
    @variable { w: real[2048,1024]; v: real[512,2048]; }
    @output { y: real[1,512]; }
    @compose { h = nn.linear(x, w, 0.0); r = nn.silu(h); y = nn.linear(r, v, 0.0); }
}
"""
MODELS = {"layers": LAYERS, "windows": WINDOWS, "token": TOKEN}


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that holds nothing yet."""
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "cache"))


def write_model(folder: Path, name: str) -> Path:
    path = folder / f"{name}.sknd"
    path.write_text(MODELS[name])
    return path


def inputs_of(run: Any) -> dict[str, Array]:
    return {name: item * np.float32(0.1) for name, item in run.draw_inputs().items()}


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("precision", ["f32", "bf16", "w8"])
@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_the_usual_kernels(name: str, precision: Any, tmp_path: Path) -> None:
    path = write_model(tmp_path, name)
    usual: Any = lamella.compile(path, backend="cuda", precision=precision, seed=1)
    tuned: Any = lamella.compile(
        path, backend="cuda", precision=precision, seed=1, tune=True, tune_seconds=20
    )
    given = inputs_of(usual)
    want, found = usual(**given)["y"], tuned(**given)["y"]
    assert np.linalg.norm(found - want) <= 1e-2 * np.linalg.norm(want)
    report = tuned.tuning
    assert report.products
    for item in report.products:
        assert item.ways[0].seconds is not None, item.line()
        assert all(way.seconds is not None for way in item.ways), item.line()


@pytest.mark.usefixtures("own_cache")
def test_choices_are_found_again(tmp_path: Path) -> None:
    path = write_model(tmp_path, "layers")
    first: Any = lamella.compile(path, backend="cuda", precision="bf16", tune=True)
    again: Any = lamella.compile(path, backend="cuda", precision="bf16", tune=True, tune_seconds=0)
    assert [item.chosen for item in again.tuning.products] == [item.chosen for item in first.tuning.products]
    assert all(item.kept for item in again.tuning.products)
    assert again.tuning.left == 0
    assert tuning_of(lamella.compile(path, backend="cuda", precision="bf16")) is None


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_library_computes_what_the_text_says(precision: str, tmp_path: Path) -> None:
    if not usable_version():
        pytest.skip("there is no cuBLASLt here")
    model: Any = lamella.load(write_model(tmp_path, "layers"))
    options = Options(precision=precision, seed=1)

    def choose(problem: Problem) -> Candidate:
        return next(item for item in problem.candidates() if item.is_native)

    class Library(tuning.Tuner):
        def __init__(self) -> None:
            """It needs nothing."""

        def choose(self, problem: Problem) -> Candidate:
            return choose(problem)

        def tune(self, write: Any) -> Any:
            return write()

    prepared = execution.prepare(model, options, True)
    made = execution.to_kernels(prepared, options, {}, True, device_target(), Library())
    natives = [item.name for item in made.program.functions if find_native(item) is not None]
    assert len(natives) == 2
    runs = [
        compile_kernel_graph(made, "cuda", Options(precision=precision, seed=1, strict_backend=strict))
        for strict in (False, True)
    ]
    given = inputs_of(runs[0])
    for _ in range(3):  # launch by launch, recorded, and as a graph
        found, want = (run(**given)["y"] for run in runs)
        assert np.linalg.norm(found - want) <= 1e-3 * np.linalg.norm(want)
    counts = []
    for run in runs:
        segment = run.whole_segment()
        assert segment is not None
        assert isinstance(segment.each, CudaList)
        counts.append(segment.each.library_launches)
    assert counts == [2, 0]


@pytest.mark.usefixtures("own_cache")
def test_commands_tell_what_was_measured(tmp_path: Path) -> None:
    path = write_model(tmp_path, "layers")
    words = ["run", str(path), "--backend", "cuda", "--precision", "bf16", "--tune", "--tune-seconds", "20"]
    told = call(*words)
    assert told.exit_code == 0, told.stderr
    assert "tuned in" in told.stderr
    facts = json.loads(call(*words, "--json").output)
    assert facts["tuning"][0]["products"][0]["cached"] is True
    text = call("lower", str(path), "--to", "tensor", "--target", device_target().name, "--tune")
    assert text.exit_code == 0, text.stderr
    assert "func @" in text.output
