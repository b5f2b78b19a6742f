"""Functions of scalars against Python's exact numbers and its math module."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.formula.scalars import DOUBLE, SINGLE, apply_function, convert, erf, undefined

INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-40, 40)
WORD = 2**64


def wrapped(value: int) -> int:
    """The 64-bit integer with the same low bits."""
    return (value + WORD // 2) % WORD - WORD // 2


def apply_integers(function: str, *operands: int) -> int:
    with np.errstate(all="ignore"):
        return int(apply_function(function, [np.asarray([item], np.int64) for item in operands])[0])


@given(st.floats(-7, 7), st.floats(allow_nan=False))
def test_the_error_function_is_exact_to_the_last_bits(near: float, anywhere: float) -> None:
    found = erf(np.array([near, anywhere, -0.0, math.inf, -math.inf]))
    expected = [math.erf(item) for item in (near, anywhere, -0.0, math.inf, -math.inf)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
    assert math.isnan(erf(np.array([math.nan]))[0])


def test_the_error_function_keeps_small_numbers() -> None:
    x = np.array([1e-300, 1e-20, 1e-8, -1e-5])
    np.testing.assert_allclose(erf(x), [math.erf(item) for item in x], rtol=4e-16)
    assert erf(np.array([0.5], np.float32)).dtype == SINGLE


@given(INT64, INT64)
def test_sums_and_products_wrap_around(left: int, right: int) -> None:
    assert apply_integers("+", left, right) == wrapped(left + right)
    assert apply_integers("-", left, right) == wrapped(left - right)
    assert apply_integers("*", left, right) == wrapped(left * right)
    assert apply_integers("neg", left) == wrapped(-left)


@given(INT64, INT64.filter(bool))
def test_quotients_are_rounded_down_and_up(left: int, right: int) -> None:
    quotient = Fraction(left, right)
    assert apply_integers("/", left, right) == wrapped(math.floor(quotient))
    assert apply_integers("\\", left, right) == wrapped(math.ceil(quotient))
    assert apply_integers("%", left, right) == left - right * math.floor(quotient)


@given(SMALL, st.integers(-5, 30))
def test_powers_of_integers(base: int, exponent: int) -> None:
    if base == 0 and exponent < 0:
        bad = undefined("**", [np.array([base]), np.array([exponent])])
        assert bad is not None
        assert bad.all()
    else:
        expected = wrapped(base**exponent) if exponent >= 0 else int(Fraction(base) ** exponent)
        assert apply_integers("**", base, exponent) == expected


@pytest.mark.parametrize("sign", ["/", "\\", "%"])
def test_division_by_zero_is_told(sign: str) -> None:
    bad = undefined(sign, [np.array([1, 2]), np.array([0, 3])])
    assert bad is not None
    np.testing.assert_array_equal(bad, [True, False])
    assert undefined(sign, [np.array([1.0]), np.array([0.0])]) is None


@given(st.floats(-1e17, 1e17))
def test_halves_are_rounded_away_from_zero(value: float) -> None:
    expected = math.copysign(math.floor(abs(Fraction(value)) + Fraction(1, 2)), value)
    assert apply_function("round", [np.array([value])])[0] == expected


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_fraction_and_remainder_have_the_sign_of_the_dividend(value: float) -> None:
    assert apply_function("frac", [np.array([value])])[0] == math.fmod(value, 1.0)
    assert apply_function("%", [np.array([value]), np.array([3.0])])[0] == math.fmod(value, 3.0)


@given(st.floats())
def test_reals_become_integers_by_truncation_within_64_bits(value: float) -> None:
    if math.isnan(value):
        expected = 0
    else:
        bounded = max(min(value, 2.0**63), -(2.0**63))
        expected = max(min(int(bounded), 2**63 - 1), -(2**63))
    assert int(convert(np.array([value]), "int", DOUBLE)[0]) == expected


def test_other_conversions() -> None:
    np.testing.assert_array_equal(convert(np.array([0, -3]), "bool", SINGLE), [False, True])
    np.testing.assert_array_equal(convert(np.array([0.0, math.nan]), "bool", SINGLE), [False, True])
    found = convert(np.array([True, False]), "real", SINGLE)
    assert found.dtype == SINGLE
    np.testing.assert_array_equal(found, [1.0, 0.0])
    np.testing.assert_array_equal(convert(np.array([True, False]), "int", SINGLE), [1, 0])


@pytest.mark.parametrize(("left", "right"), [(False, False), (False, True), (True, False), (True, True)])
def test_truth_tables(left: bool, right: bool) -> None:
    operands = [np.array([left]), np.array([right])]
    assert apply_function("=>", operands)[0] == ((not left) or right)
    assert apply_function("^", operands)[0] == (left != right)
    assert apply_function("&&", operands)[0] == (left and right)
    assert apply_function("||", operands)[0] == (left or right)
    assert apply_function("!", operands[:1])[0] == (not left)


@pytest.mark.parametrize("name", ["sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"])
def test_elementary_functions(name: str) -> None:
    x = np.array([0.1, 0.5, 0.9])
    expected = [getattr(math, name)(item) for item in x]
    np.testing.assert_allclose(apply_function(name, [x]), expected, rtol=4e-16)


@pytest.mark.parametrize("name", ["cosh", "tanh", "asinh", "atanh", "floor", "ceil"])
def test_more_elementary_functions(name: str) -> None:
    x = np.array([-0.9, 0.1, 0.5])
    np.testing.assert_allclose(
        apply_function(name, [x]), [getattr(math, name)(item) for item in x], rtol=4e-16
    )
    np.testing.assert_allclose(
        apply_function("acosh", [x + 2]), [math.acosh(item + 2) for item in x], rtol=4e-16
    )


def test_not_a_number_passes_through_minimum_and_maximum() -> None:
    x, y = np.array([math.nan, 1.0]), np.array([0.0, math.nan])
    assert np.isnan(apply_function("<<", [x, y])).all()
    assert np.isnan(apply_function(">>", [x, y])).all()
