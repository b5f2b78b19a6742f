"""GEMV with codes of 8 and 4 bits, planned for a GPU: the interpreter runs them, the processor judges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cuda.compile import with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options
from tests.backend.cuda.test_tensor_core_gemm import draw_inputs, linear, write_graph

Precision = Literal["w8", "w4", "fp8"]

VECTORS = {
    "whole blocks": (1, 1024, 2),
    "a last block that is cut": (3, 1056, 2),
    "several rows of a subgroup": (1, 64, 34),
}
"""Tokens, elements of the sum, rows: few enough vectors that nothing is rounded."""
TILES = {"whole tiles": (16, 128, 64), "cut tiles": (19, 96, 40)}


def plan(path: Path, precision: str) -> KernelGraph:
    """The kernels of a graph for a small Hopper, whose subgroups take several rows of 34."""
    model: Any = lamella.load(path)
    options, target = Options(precision=precision), replace(find_target("sm_90a"), multiprocessors=1)
    made = to_kernels(prepare(model, options, True), options, {}, True, target)
    return replace(made, program=with_sizes(made.program))


@pytest.mark.parametrize("precision", ["w8", "w4", "fp8"])
@pytest.mark.parametrize("name", VECTORS)
def test_vectors_meet_woven_codes(name: str, precision: Precision, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *linear(*VECTORS[name]))
    made = plan(path, precision)
    (weave, kernel) = made.program.functions[-2:]
    # The codes are read 16 bytes at a time, of 4 bits two in a byte; what weaves them runs once.
    (call,) = (item for calls in made.calls.values() for item in calls if item.kernel == weave.name)
    assert call.once
    assert 16 in [item.attributes.find("alignment") for item in kernel.parameters if item.attributes]
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(5))
    want = lamella.compile(path, backend="cpu", precision=precision)(**given)
    np.testing.assert_allclose(run(**given)["y"], want["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["w8", "w4", "fp8"])
@pytest.mark.parametrize("name", TILES)
def test_codes_of_many_columns_are_halves_of_tensor_cores(
    name: str, precision: Precision, tmp_path: Path
) -> None:
    path = write_graph(tmp_path, *linear(*TILES[name]))
    made = plan(path, precision)
    compiled = emit(made.program, find_target("sm_90a"))
    assert any(item.pipeline is not None for item in compiled.entries)
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(5))
    want = lamella.compile(path, backend="cpu", precision=precision)(**given)["y"]
    # Both factors are rounded to 8 bits: 2^-9 of what is summed, twice.
    np.testing.assert_allclose(run(**given)["y"], want, rtol=0, atol=2**-8 * np.abs(want).max())


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["w8", "w4", "fp8"])
@pytest.mark.parametrize("name", [*VECTORS, *TILES])
def test_a_device_computes_with_codes(name: str, precision: Precision, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *linear(*{**VECTORS, **TILES}[name]))
    given = draw_inputs(plan(path, precision), np.random.default_rng(6))
    found, want = (
        lamella.compile(path, backend=item, precision=precision)(**given)["y"] for item in ("cuda", "cpu")
    )
    close = 1e-5 if name in VECTORS else 2**-8
    np.testing.assert_allclose(found, want, rtol=close, atol=close * np.abs(want).max())
