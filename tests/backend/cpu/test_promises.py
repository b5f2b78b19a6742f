"""Promises about arguments in whole programs: what LLVM is told because of them, and that it changes no number."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lamella.backend.cpu import compile_program
from lamella.backend.cpu.compile import emit
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.kernels.target import find_target
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Program

TARGET = find_target("cpu-avx512")
EACH = """func @f(%x: memref<f32x?x?> {PROMISES}, %y: memref<f32x?x?> {PROMISES})
    attributes{subgroup_size=16, work_group_size=[16,1]} {
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  axpby.n %one, %x, %zero, %y
}"""
GROUP = """func @f(%x: group<memref<f32x?x?>x?, offset: 16> {PROMISES},
    %y: group<memref<f32x?x?>x?, offset: ?> {PROMISES})
    attributes{subgroup_size=16, work_group_size=[16,1]} {
  %id = builtin.group_id : index
  %a = load %x[%id] : memref<f32x?x?>
  %b = load %y[%id] : memref<f32x?x?>
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  axpby.n %one, %a, %zero, %b
}"""
PRODUCT = """func @f(%a: memref<f32x64x24> {PROMISES}, %b: memref<f32x24x16>, %c: memref<f32x64x16> {PROMISES}) {
  %one = constant 1.0 : f32
  %zero = constant 0.0 : f32
  gemm.n.n %one, %a, %b, %zero, %c
}"""


def program_of(text: str, promises: str) -> Program:
    """A program whose parameters make promises."""
    return parse(Source("promises.tensor", text.replace("PROMISES", promises))).program


def read_off(text: str, promises: str) -> tuple[bool, set[int]]:
    """Whether any access has a mask, and the alignments of whole vectors in memory."""
    found = emit(program_of(text, promises), TARGET).text
    vectors = re.findall(r"(?:load|store) <\d+ x float>.*align (\d+)", found)
    return "llvm.masked" in found, set(map(int, vectors))


def aligned(*shape: int) -> Array:
    """Numbers whose first mode is contiguous, at a multiple of 64 bytes."""
    count = int(np.prod(shape))
    memory = np.zeros(4 * count + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found: Array = memory[start : start + 4 * count].view(np.float32).reshape(shape, order="F")
    found[...] = np.random.default_rng(count).standard_normal(shape)
    return found


@pytest.mark.parametrize("text", [EACH, GROUP])
@pytest.mark.parametrize(
    ("promises", "masked", "alignment"),
    [
        ("", True, 4),
        ("alignment=64", True, 4),
        ("alignment=64, stride_gcd=[1,16]", True, 64),
        ("alignment=64, stride_gcd=[1,4]", True, 16),
        ("shape_gcd=[16]", False, 4),
        ("shape_gcd=[8]", True, 4),
        ("alignment=64, shape_gcd=[48,3], stride_gcd=[1,16]", False, 64),
    ],
)
def test_what_promises_make_of_a_copy(text: str, promises: str, masked: bool, alignment: int) -> None:
    assert read_off(text, promises) == (masked, {alignment})


@pytest.mark.parametrize(("promises", "alignment"), [("", 4), ("alignment=16", 16), ("alignment=128", 64)])
def test_matrices_are_loaded_and_stored_as_they_are_aligned(promises: str, alignment: int) -> None:
    assert read_off(PRODUCT, promises) == (False, {alignment})


@pytest.mark.parametrize("rows", [0, 16, 48])
def test_copies_are_whole(rows: int) -> None:
    kernels = compile_program(program_of(EACH, "alignment=64, shape_gcd=[16], stride_gcd=[1,16]"))
    x, y = aligned(rows, 5), aligned(rows, 5)
    y[...] = np.nan
    kernels.call("f", [x, y], 1)
    np.testing.assert_array_equal(y, x)


def test_aligned_products() -> None:
    a, b, c = aligned(64, 24), aligned(24, 16), aligned(64, 16)
    compile_program(program_of(PRODUCT, "alignment=64")).call("f", [a, b, c], 1)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_groups_may_be_streamed() -> None:
    promises = 'alignment=64, "streamed"=true, shape_gcd=[16], stride_gcd=[1,16]'
    assert "!nontemporal" in emit(program_of(GROUP, promises), TARGET).text
    assert "!nontemporal" not in emit(program_of(GROUP, promises.replace("true", "false")), TARGET).text
