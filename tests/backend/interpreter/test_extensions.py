"""Extensions of the language: choices, more functions, packed cooperative accesses; judged by Python and by loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from tests.support.backend.interpreter.kernels import DTYPES, EPSILON, FLOATS, Array, compile_text, draw_array

# --- functions ----------------------------------------------------------------------------------------------


def half_away(value: float) -> float:
    """The nearest whole number, halves away from zero."""
    return math.copysign(math.floor(abs(value) + 0.5), value)


JUDGES: dict[str, tuple[Callable[[float], float], float, float]] = {
    "asin": (math.asin, -1, 1),
    "acos": (math.acos, -1, 1),
    "atan": (math.atan, -50, 50),
    "sinh": (math.sinh, -8, 8),
    "cosh": (math.cosh, -8, 8),
    "asinh": (math.asinh, -50, 50),
    "acosh": (math.acosh, 1, 50),
    "atanh": (math.atanh, -0.875, 0.875),
    "round": (half_away, -20, 20),
    "trunc": (math.trunc, -20, 20),
    "sign": (lambda value: (value > 0) - (value < 0), -3, 3),
}


def apply(instruction: str, element: str, *values: float) -> float:
    """The result of an instruction on scalars, read back from memory."""
    names = "abc"[: len(values)]
    parameters = "".join(f"%{name}: {element}, " for name in names)
    operands = ", ".join(f"%{name}" for name in names)
    text = f"""func @f({parameters}%r: memref<{element}>) {{
  %v = {instruction} {operands} : {element}
  store %v, %r[]
}}"""
    found = np.zeros((), DTYPES[element])
    compile_text(text).f(*(DTYPES[element].type(value) for value in values), found)
    return float(found)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("function", JUDGES)
@given(data=st.data())
def test_functions_of_one_operand(function: str, element: str, data: st.DataObject) -> None:
    judge, low, high = JUDGES[function]
    value = float(DTYPES[element].type(data.draw(st.floats(low, high))))
    expected = float(judge(min(high, max(low, value))))
    found = apply(f"math.{function}", element, min(high, max(low, value)))
    assert abs(found - expected) <= (EPSILON[element] + 2**-51) * abs(expected) + 1e-7 * (element == "f16")


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("value", [0.5, -0.5, 1.5, 2.5, -2.5, 0.25, -0.0, math.inf])
def test_halves_are_rounded_away_from_zero(value: float, element: str) -> None:
    expected = value if math.isinf(value) else half_away(value)
    found = apply("math.round", element, value)
    assert (found, math.copysign(1, found)) == (expected, math.copysign(1, value))


def test_what_is_no_number_stays_none() -> None:
    for function in ("round", "trunc", "sign", "asin"):
        assert math.isnan(apply(f"math.{function}", "f32", math.nan))
    assert math.isnan(apply("math.acosh", "f64", 0.5))


@pytest.mark.parametrize("element", FLOATS)
@given(st.floats(0.125, 8), st.floats(-3, 3))
def test_powers(element: str, base: float, exponent: float) -> None:
    base, exponent = (float(DTYPES[element].type(item)) for item in (base, exponent))
    expected = math.pow(base, exponent)
    found = apply("math.pow", element, base, exponent)
    assert abs(found - expected) <= (EPSILON[element] + 2**-51) * expected


# --- choices ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ["i8", "i64", "bf16", "f32", "c32", "c64"])
@pytest.mark.parametrize("condition", [False, True])
def test_select_takes_one_of_two_scalars(element: str, condition: bool) -> None:
    text = f"""func @f(%c: bool, %a: {element}, %b: {element}, %r: memref<{element}>) {{
  %d = arith.select %c, %c, %c : bool
  %v = arith.select %d, %a, %b : {element}
  store %v, %r[]
}}"""
    first, second = (DTYPES[element].type(item) for item in (3, -5))
    found = np.zeros((), DTYPES[element])
    compile_text(text).f(condition, first, second, found)
    assert found == (first if condition else second)


@pytest.mark.parametrize("condition", [False, True])
def test_select_takes_one_of_two_matrices(condition: bool) -> None:
    matrix = "coopmatrix<f32x4x3,matrix_acc>"
    text = f"""func @f(%c: bool, %A: memref<f32x4x3>, %B: memref<f32x4x3>, %C: memref<f32x4x3>) {{
  %0 = constant 0 : index
  parallel {{
    %a = cooperative_matrix_load.n %A[%0,%0] : {matrix}
    %b = cooperative_matrix_load.n %B[%0,%0] : {matrix}
    %r = arith.select %c, %a, %b : {matrix}
    cooperative_matrix_store %r, %C[%0,%0]
  }}
}}"""
    random = np.random.default_rng(3)
    arrays = [draw_array(random, "f32", (4, 3)) for _ in range(3)]
    compile_text(text).f(condition, *arrays)
    assert np.array_equal(arrays[2], arrays[0] if condition else arrays[1])


# --- packed accesses ----------------------------------------------------------------------------------------

PACKS = {"bf16": 2, "f16": 2, "i8": 4}


def packed_copy(element: str, rows: int, columns: int, checked: str) -> str:
    """A kernel that loads a matrix from one packed memref and stores it to another."""
    memory = f"memref<{element}x{PACKS[element]}x?x?>"
    return f"""func @f(%A: {memory}, %x: index, %y: index, %B: {memory}, %u: index, %v: index) {{
  parallel {{
    %a = cooperative_matrix_load.n{checked} %A[%x,%y] : coopmatrix<{element}x{rows}x{columns},matrix_a>
    cooperative_matrix_store{checked} %a, %B[%u,%v]
  }}
}}"""


def element_at(array: Array, row: int, column: int) -> object:
    """The element of the matrix that a packed array holds; 0 outside of it."""
    pack, rows, packs = array.shape
    inside = 0 <= row < rows and 0 <= column < pack * packs
    return array[column % pack, row, column // pack] if inside else 0


@given(
    element=st.sampled_from(sorted(PACKS)),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 9)),
    starts=st.tuples(*(st.integers(-2, 4) for _ in range(4))),
    seed=st.integers(0, 2**32),
)
def test_checked_packed_copies(
    element: str, shape: tuple[int, int], starts: tuple[int, int, int, int], seed: int
) -> None:
    pack, random = PACKS[element], np.random.default_rng(seed)
    source, target = (draw_array(random, element, (pack, 5, 3)) for _ in range(2))
    expected = target.copy()
    x, y, u, v = starts[0], pack * starts[1], starts[2], pack * starts[3]
    for i in range(shape[0]):
        for k in range(shape[1]):
            if 0 <= u + i < 5 and 0 <= v + k < 3 * pack:
                expected[(v + k) % pack, u + i, (v + k) // pack] = element_at(source, x + i, y + k)
    compile_text(packed_copy(element, *shape, ".both_checked")).f(source, x, y, target, u, v)
    assert np.array_equal(target, expected)


@pytest.mark.parametrize(("x", "y", "message"), [(3, 0, "index 5 of mode 1"), (0, 4, "index 3 of mode 2")])
def test_unchecked_packed_accesses_stay_inside(x: int, y: int, message: str) -> None:
    arrays = [np.zeros((2, 5, 3), DTYPES["bf16"], order="F") for _ in range(2)]
    with pytest.raises(LamellaError, match=f"TEN215.*{message}"):
        compile_text(packed_copy("bf16", 3, 4, "")).f(arrays[0], x, y, arrays[1], 0, 0)


def test_a_product_of_packed_matrices() -> None:
    text = """func @f(%A: memref<i8x4x8x2>, %B: memref<i8x8x3>, %C: memref<i32x8x3>) {
  %0 = constant 0 : index
  parallel {
    %a = cooperative_matrix_load.n %A[%0,%0] : coopmatrix<i8x8x8,matrix_a>
    %b = cooperative_matrix_load.n %B[%0,%0] : coopmatrix<i8x8x3,matrix_b>
    %c = constant 0 : coopmatrix<i32x8x3,matrix_acc>
    %d = cooperative_matrix_mul_add %a, %b, %c : coopmatrix<i32x8x3,matrix_acc>
    cooperative_matrix_store %d, %C[%0,%0]
  }
}"""
    random = np.random.default_rng(8)
    packed, right = draw_array(random, "i8", (4, 8, 2)), draw_array(random, "i8", (8, 3))
    left = np.array([[element_at(packed, i, k) for k in range(8)] for i in range(8)], np.int64)
    found = np.zeros((8, 3), np.int32, order="F")
    compile_text(text).f(packed, right, found)
    assert np.array_equal(found, left @ right.astype(np.int64))
