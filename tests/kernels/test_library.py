"""Kernels of the library against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.interpreter import compile_program
from lamella.kernels.library import GemmShape, batched_gemm, pack_panels, packed_gemm, tall_gemm
from lamella.kernels.passes import lower
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Memref, Program
from tests.support.backend.interpreter.kernels import DTYPES, Array, draw_array, widen

TARGETS = ("cpu-avx512", "cpu-avx2", "cpu-aarch64", "cpu-amx")


def run(program: Program, arrays: list[Array], target: str, groups: int) -> None:
    """Run a kernel before and after all passes: both must find the same."""
    results = []
    for item in (program, lower(program, find_target(target))):
        own = arrays[2].copy(order="F")
        compile_program(item, check_bounds=True).call("kernel", [*arrays[:2], own], groups)
        results.append(own)
    arrays[2][...] = results[0]
    first, second = (widen(item, _name(item)) for item in results)
    assert np.allclose(first, second, rtol=1e-5, atol=1e-4)


def _name(array: Array) -> str:
    return next(name for name, dtype in DTYPES.items() if dtype == array.dtype)


@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 2, 4]))
def test_panels_hold_the_matrix(m: int, k: int, rows: int, pack: int) -> None:
    matrix = np.arange(m * k).reshape(m, k) + 1
    found = pack_panels(matrix, rows, pack)
    for i in range(m):
        for j in range(k):
            place = (i % rows, j, i // rows) if pack == 1 else (j % pack, i % rows, j // pack, i // rows)
            assert found[place] == matrix[i, j]
    assert found.sum() == matrix.sum()
    assert found.flags.f_contiguous


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "i8"])
@pytest.mark.parametrize(
    ("shape", "groups"),
    [
        (GemmShape(70, 5, 9), 1),
        (GemmShape(96, 33, 40), 3),
        (GemmShape(100, 1, 3), 2),
        (GemmShape(300, 2, 13), 1),
        (GemmShape(320, 4, 8), 3),
    ],
)
def test_packed_products(target: str, element: str, shape: GemmShape, groups: int) -> None:
    random = np.random.default_rng(1)
    a, b = (draw_array(random, element, size) for size in ((shape.m, shape.k), (shape.k, shape.n)))
    wide = {"bf16": "f32", "i8": "i32"}.get(element, element)
    program = packed_gemm(shape, find_target(target), element, groups=groups)
    panels = program.functions[0].parameters[0].type
    assert isinstance(panels, Memref)
    sizes = [size or 0 for size in panels.shape]
    packed = pack_panels(a, sizes[-3], sizes[0] if len(sizes) == 4 else 1)
    assert list(packed.shape) == sizes
    c = np.zeros((shape.m, shape.n), DTYPES[wide], order="F")
    run(program, [packed, b, c], target, groups)
    assert np.allclose(widen(c, wide), widen(a, element) @ widen(b, element), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("beta", [0, 1])
def test_batches(transposes: tuple[bool, bool], beta: int) -> None:
    random, shape = np.random.default_rng(2), GemmShape(5, 4, 3)
    sizes = [(3, 5) if transposes[0] else (5, 3), (4, 3) if transposes[1] else (3, 4), (5, 4)]
    arrays = [draw_array(random, "f32", (*size, 6)) for size in sizes]
    a, b, before = (widen(item, "f32") for item in arrays)
    a = a.swapaxes(0, 1) if transposes[0] else a
    b = b.swapaxes(0, 1) if transposes[1] else b
    run(batched_gemm(shape, "f32", transposes, beta), arrays, "cpu-avx512", 6)
    assert np.allclose(arrays[2], np.einsum("ikg,kjg->ijg", a, b) + beta * before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m", [256, 300, 40])
def test_tall_matrices(m: int) -> None:
    random = np.random.default_rng(3)
    arrays = [draw_array(random, "f64", size) for size in ((m, 4), (4, 3), (m, 3))]
    run(tall_gemm(GemmShape(m, 3, 4), "f64", 128), arrays, "cpu-avx512", -(-m // 128))
    assert np.allclose(arrays[2], arrays[0] @ arrays[1], rtol=1e-12, atol=1e-12)
