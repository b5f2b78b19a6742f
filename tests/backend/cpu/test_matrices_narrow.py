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
