"""Reductions of cooperative matrices, repeated rows and columns, sums as factors: NumPy judges, on every backend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lamella.backend import cpu, cuda, interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.named import NamedKernels
from lamella.base.arrays import Array
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Program
from tests.support.differential.running import read

BACKENDS: dict[str, Callable[[Program], NamedKernels]] = {
    "interpreter": interpreter.compile_program,
    "cpu": cpu.compile_program,
    "cuda": cuda.compile_program,
}
MARKED = [pytest.param(name, marks=[pytest.mark.gpu] * (name == "cuda")) for name in BACKENDS]
FUNCTIONS = {"add": np.add, "max": np.maximum, "min": np.minimum}


def reducing(rows: int, columns: int, function: str, mode: str, element: str = "f32") -> Program:
    """What each column, or row, comes to, and the matrix fused with that and larger than it."""
    whole = f"coopmatrix<{element}x{rows}x{columns},matrix_acc>"
    shape = (1, columns) if mode == "column" else (rows, 1)
    line = f"coopmatrix<{element}x{shape[0]}x{shape[1]},matrix_acc>"
    memory = f"memref<{element}x{rows}x{columns}>"
    return read(f"""
func @f(%A: {memory}, %L: memref<{element}x{shape[0]}x{shape[1]}>, %B: {memory}, %C: {memory})
    attributes{{subgroup_size=32, work_group_size=[32,1]}} {{
  parallel {{
    %0 = constant 0 : index
    %a = cooperative_matrix_load.n %A[%0,%0] : {whole}
    %l = cooperative_matrix_reduce_{function}.{mode} %a : {line}
    %w = cooperative_matrix_construct %l : {whole}
    %f = arith.fma %a, %a, %w : {whole}
    %m = arith.max %a, %w : {whole}
    cooperative_matrix_store %l, %L[%0,%0]
    cooperative_matrix_store %f, %B[%0,%0]
    cooperative_matrix_store %m, %C[%0,%0]
  }}
}}
""")


def run(kernels: NamedKernels, name: str, *arrays: Array) -> None:
    """Call a kernel."""
    kernels.call(name, arrays, 1)


@pytest.mark.parametrize("backend", MARKED)
@pytest.mark.parametrize("mode", ["column", "row"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (40, 3), (33, 8), (1, 5), (7, 1)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_reductions_of_columns_and_rows(
    function: str, rows: int, columns: int, mode: str, backend: str
) -> None:
    axis = 0 if mode == "column" else 1
    random = np.random.default_rng(rows)
    matrix = np.asfortranarray(random.standard_normal((rows, columns)).astype(np.float32))
    want = FUNCTIONS[function].reduce(matrix.astype(np.float64), axis=axis, keepdims=True)
    line = np.asfortranarray(np.full(want.shape, np.nan, np.float32))
    fused, larger = (np.full_like(matrix, np.nan) for _ in range(2))
    kernels = BACKENDS[backend](reducing(rows, columns, function, mode))
    run(kernels, "f", matrix, line, fused, larger)
    np.testing.assert_allclose(line, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fused, matrix.astype(np.float64) ** 2 + line, rtol=2e-7, atol=1e-7)
    assert np.array_equal(larger, np.maximum(matrix, line))


FACTORS = """
func @f(%A: memref<bf16x{m}x{k}>, %B: memref<bf16x{n}x{k}>, %C: memref<f32x{m}x{n}>)
    attributes{{subgroup_size=32, work_group_size=[32,1]}} {{
  parallel {{
    %0 = constant 0 : index
    %a = cooperative_matrix_load.n %A[%0,%0] : coopmatrix<bf16x{m}x{k},matrix_a>
    %b = cooperative_matrix_load.t %B[%0,%0] : coopmatrix<bf16x{k}x{n},matrix_b>
    %z = constant 0.0 : coopmatrix<f32x{m}x{n},matrix_acc>
    %s = cooperative_matrix_mul_add %a, %b, %z : coopmatrix<f32x{m}x{n},matrix_acc>
    %f = cast %s : coopmatrix<bf16x{m}x{n},matrix_b>
    %t = cooperative_matrix_load.t %A[%0,%0] : coopmatrix<bf16x{k}x{m},matrix_a>
    %y = constant 0.0 : coopmatrix<f32x{k}x{n},matrix_acc>
    %u = cooperative_matrix_mul_add %t, %f, %y : coopmatrix<f32x{k}x{n},matrix_acc>
    %q = cooperative_matrix_reduce_max.column %u : coopmatrix<f32x1x{n},matrix_acc>
    %r = cooperative_matrix_construct %q : coopmatrix<f32x{k}x{n},matrix_acc>
    cooperative_matrix_store %r, %C[%0,%0]
  }}
}}
"""


@pytest.mark.parametrize("backend", MARKED)
@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (12, 5, 12)])
def test_sums_become_factors(m: int, n: int, k: int, backend: str) -> None:
    """A' (A B), rounded between: on tensor cores where all extents are theirs."""
    bf16 = np.dtype("bfloat16")
    random = np.random.default_rng(2)
    left, right = (
        np.asfortranarray(random.standard_normal(shape).astype(np.float32).astype(bf16))
        for shape in ((m, k), (n, k))
    )
    found = np.asfortranarray(np.full((m, n), np.nan, np.float32))
    run(BACKENDS[backend](read(FACTORS.format(m=m, n=n, k=k))), "f", left, right, found)
    wide = left.astype(np.float64), right.astype(np.float64)
    between = (wide[0] @ wide[1].T).astype(np.float32).astype(bf16).astype(np.float64)
    want = np.broadcast_to((wide[0].T @ between).max(0, keepdims=True), (k, n))
    np.testing.assert_allclose(found, want, rtol=2e-2)


@pytest.mark.parametrize("target", ["cuda", "sm_90a"])
@pytest.mark.parametrize("text", [FACTORS.format(m=16, n=16, k=16), FACTORS.format(m=12, n=5, k=12)])
def test_threads_have_code_for_it(text: str, target: str) -> None:
    assert "define ptx_kernel" in emit(read(text), find_target(target)).text
