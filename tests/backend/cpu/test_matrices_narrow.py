"""Products of bf16 two by two and of bytes four by four: on this processor, and as text for one that has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu import compile_program
from lamella.backend.cpu.compile import emit
from lamella.kernels.target import find_target
from tests.backend.cpu.test_matrices_products import multiply_text
from tests.support.backend.cpu.cooperating import read
from tests.support.backend.interpreter.kernels import DTYPES, draw_array, widen

SHAPES = st.tuples(st.sampled_from([16, 32, 48]), st.integers(1, 4), st.integers(1, 9))


@given(shape=SHAPES)
def test_products_of_bytes_are_exact(shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    kernels = compile_program(read(multiply_text(("i8", "i8", "i32", "i32"), shape)))
    random = np.random.default_rng(depth)
    left, right = (
        np.asfortranarray(random.choice([-128, -127, -1, 0, 1, 127], size).astype(np.int8))
        for size in ((rows, depth), (depth, columns))
    )
    added = np.full((rows, columns), 2**31 - 1, np.int32, order="F")
    found = np.zeros_like(added)
    kernels.call("f", [left, right, added, found], 1)
    exact = left.astype(np.int64) @ right.astype(np.int64) + added
    assert np.array_equal(found, exact.astype(np.int32))


@given(shape=SHAPES)
def test_products_of_bf16_are_summed_in_f32(shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    kernels = compile_program(read(multiply_text(("bf16", "bf16", "f32", "f32"), shape)))
    random = np.random.default_rng(depth)
    left, right, added = (
        draw_array(random, element, size)
        for element, size in (("bf16", (rows, depth)), ("bf16", (depth, columns)), ("f32", (rows, columns)))
    )
    found = np.zeros((rows, columns), DTYPES["f32"], order="F")
    kernels.call("f", [left, right, added, found], 1)
    wide = [widen(item, element) for item, element in ((left, "bf16"), (right, "bf16"), (added, "f32"))]
    sizes = np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2])
    assert np.all(np.abs(found - (wide[0] @ wide[1] + wide[2])) <= 2.0**-22 * (depth + 1) * sizes)


@pytest.mark.parametrize(
    ("element", "total", "feature", "word", "count"),
    [
        ("bf16", "f32", "avx512bf16", "dpbf16ps", 2 * 3 * 2),
        ("i8", "i32", "avx512vnni", "vpdpbusd", 2 * 4 * 1),
    ],
)
def test_instructions_are_used_where_they_are(
    element: str, total: str, feature: str, word: str, count: int
) -> None:
    program = read(multiply_text((element, element, total, total), (32, 3, 4)))
    plain = find_target("cpu-avx512")
    able = replace(plain, features=f"{plain.features},+{feature}")
    calls = [
        emit(program, target).text.count(f"call <16 x {_word(total)}> @llvm.x86") for target in (plain, able)
    ]
    assert calls == [0, count]
    assert word in emit(program, able).text


def _word(element: str) -> str:
    return {"f32": "float", "i32": "i32"}[element]


CODES = """
func @f(%x: memref<i8x{rows}x16>, %y: memref<f32x{rows}x16>) {{
  %0 = constant 0 : index
  parallel {{
    %a = cooperative_matrix_load.n %x[%0,%0] : coopmatrix<i8x{rows}x16,matrix_a>
    %v = cast %a : coopmatrix<i32x{rows}x16,matrix_a>
    {shifts}
    %r = cast %w : coopmatrix<f32x{rows}x16,matrix_a>
    cooperative_matrix_store %r, %y[%0,%0]
  }}
}}
"""


@pytest.mark.parametrize("rows", [8, 16, 32])
@pytest.mark.parametrize(
    "steps", [("shl 28", "shr 28"), ("shr 4",), ("shr 3",), ("shl 28", "shr 28", "shr 28"), ("shl 28",)]
)
def test_shifted_codes_become_numbers(rows: int, steps: tuple[str, ...]) -> None:
    """All bytes; codes of 4 bits are looked up, other integers are not."""
    type_, lines, last = f"coopmatrix<i32x{rows}x16,matrix_a>", [], "%v"
    x = np.asfortranarray(np.resize(np.arange(-128, 128), (rows, 16)).astype(np.int8))
    wanted = x.astype(np.int32)
    for number, step in enumerate(steps):
        name, count = step.split()
        made = "%w" if number == len(steps) - 1 else f"%s{number}"
        lines += [
            f"%c{number} = constant {count} : {type_}",
            f"{made} = arith.{name} {last}, %c{number} : {type_}",
        ]
        last = made
        wanted = wanted << int(count) if name == "shl" else wanted >> int(count)
    kernels = compile_program(read(CODES.format(rows=rows, shifts="\n    ".join(lines))))
    found = np.zeros((rows, 16), np.float32, order="F")
    kernels.call("f", [x, found], 1)
    assert np.array_equal(found, wanted.astype(np.float32))
