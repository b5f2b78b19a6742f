"""Sums of products become `gemm`, in all layouts; their numbers are those of NumPy in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.graph.model import Model
from lamella.kernels.nodes import KernelGraph
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Blas, Function
from tests.bridge.operators.calls import build, by_kernels, call
from tests.graph.texts import small


def gemms(kernels: KernelGraph) -> list[Blas]:
    """The matrix products of a program."""
    return [item for function in kernels.program.functions for item in _products(function)]


def _products(function: Function) -> list[Blas]:
    return [
        line.instruction for line in function.body.statements if isinstance(line.instruction, Blas)
    ]


def product_of(model: Model) -> str:
    """The line of the only product of a model's kernels."""
    kernels = graph_to_kernels(model)
    assert len(gemms(kernels)) == 1
    return next(line for line in write(kernels.program).splitlines() if "gemm" in line).strip()


def run(model: Model, fed: dict[str, Array]) -> Array:
    """The only output of a model by its kernels."""
    (found,) = by_kernels(model)(**fed).values()
    return found


@given(
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "3 ", "2 2 ", "1 "]),
    st.sampled_from(["", "3 ", "2 2 ", "1 "]),
    st.booleans(),
)
def test_matmul(left: bool, right: bool, one: str, other: str, bias: bool) -> None:
    if {one, other} >= {"3 ", "2 2 "}:
        other = one
    a = f"f32 {one}{'12 9' if left else '9 12'} -2..2"
    b = f"f32 {other}{'11 12' if right else '12 11'} -2..2"
    c = ["f32 9 11 -2..2"] if bias else []
    model, fed = build([call("linalg.matmul", a, b, *c, transA=left, transB=right)])
    arrays = [array.astype(np.float64) for array in fed.values()]
    expected = np.matmul(
        np.swapaxes(arrays[0], -1, -2) if left else arrays[0],
        np.swapaxes(arrays[1], -1, -2) if right else arrays[1],
    ) + (arrays[2] if bias else 0)
    assert len(gemms(graph_to_kernels(model))) == 1
    np.testing.assert_allclose(run(model, fed), expected, rtol=1e-5, atol=1e-5)
