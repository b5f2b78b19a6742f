"""Checked arithmetic against Python's own integers; limits and their options."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.limits import (
    DEFAULT,
    LARGEST,
    SMALLEST,
    DividedByZero,
    Limits,
    OutOfRange,
    add,
    ceil_divide,
    divide,
    from_options,
    hint_for,
    in_range,
    mul,
    product,
    remainder,
    sub,
)

EDGES = (0, 1, -1, 2, 3, 1 << 31, 1 << 32, LARGEST, LARGEST - 1, SMALLEST, SMALLEST + 1)
NUMBERS = st.one_of(st.sampled_from(EDGES), st.integers(SMALLEST, LARGEST), st.integers(-100, 100))


def outcome(call: Callable[[int, int], int], left: int, right: int) -> int | None:
    try:
        return call(left, right)
    except OutOfRange:
        return None


def kept(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


@given(NUMBERS, NUMBERS)
def test_arithmetic_agrees_with_python_inside_the_range(left: int, right: int) -> None:
    assert outcome(add, left, right) == kept(left + right)
    assert outcome(sub, left, right) == kept(left - right)
    assert outcome(mul, left, right) == kept(left * right)


@given(NUMBERS, NUMBERS)
def test_division_truncates_toward_zero(left: int, right: int) -> None:
    if right == 0:
        with pytest.raises(DividedByZero, match="divides by zero"):
            divide(left, right)
        with pytest.raises(DividedByZero, match="divides by zero"):
            remainder(left, right)
        return
    quotient = math.trunc(Fraction(left, right))
    assert outcome(divide, left, right) == kept(quotient)
    rest = remainder(left, right)
    assert rest == left - quotient * right
    assert rest == 0 or (rest < 0) == (left < 0)


@given(NUMBERS, st.integers(1, LARGEST))
def test_rounding_up(value: int, unit: int) -> None:
    assert ceil_divide(value, unit) == math.ceil(Fraction(value, unit))


@pytest.mark.parametrize("unit", [0, -1, SMALLEST])
def test_a_unit_is_positive(unit: int) -> None:
    with pytest.raises(OutOfRange):
        ceil_divide(8, unit)


@given(st.lists(st.one_of(st.integers(0, 9), st.sampled_from((0, 1 << 31, 1 << 62, LARGEST))), max_size=6))
def test_product(shape: list[int]) -> None:
    try:
        found: int | None = product(shape)
    except OutOfRange:
        found = None
    without_zeros = math.prod(size for size in shape if size)
    assert found == (math.prod(shape) if in_range(without_zeros) else None)


@pytest.mark.parametrize(
    "shape", [[1 << 32, 1 << 32], [0, 1 << 62, 1 << 62], [1 << 62, 4, 0], [-1], [3, -2, -2]]
)
def test_products_that_wrap_or_are_negative_are_refused(shape: list[int]) -> None:
    with pytest.raises(OutOfRange):
        product(shape)


def test_operands_out_of_range_are_refused_and_shortened_in_the_message() -> None:
    huge = 1 << 100_000
    for call in (add, sub, mul, divide, remainder, ceil_divide):
        with pytest.raises(OutOfRange) as caught:
            call(huge, 1)
        assert "100001-bit number" in str(caught.value)
    with pytest.raises(OutOfRange) as caught:
        mul(LARGEST, 2)
    assert caught.value.operation == "*"
    assert caught.value.operands == (LARGEST, 2)
    assert str(caught.value) == f"{LARGEST} * 2 leaves the signed 64-bit range"


def test_every_limit_names_itself_when_passed() -> None:
    for field in fields(Limits):
        limit = getattr(DEFAULT, field.name)
        assert DEFAULT.excess(field.name, limit, "it") is None
        sentence = DEFAULT.excess(field.name, limit + 1, "it")
        assert sentence == f"it is {limit + 1}; the limit {field.name} is {limit}"
        assert field.name in hint_for(field.name)


def test_options_raise_limits() -> None:
    changed = from_options(["max_depth=300", "max_name=9"])
    assert (changed.max_depth, changed.max_name, changed.max_pairs) == (300, 9, DEFAULT.max_pairs)
    assert from_options([]) == DEFAULT


@pytest.mark.parametrize(
    "option", ["", "depth=3", "max_depth", "max_depth=", "max_depth=-1", "max_depth=0", "max_depth=1e3"]
)
def test_wrong_options_are_told(option: str) -> None:
    with pytest.raises(ValueError, match="limit"):
        from_options([option])


@pytest.mark.parametrize("digits", ["9" * 5000, str(1 << 63), "²", "٣"])
def test_strange_numbers_in_options_are_told(digits: str) -> None:
    with pytest.raises(ValueError, match="limit max_depth needs"):
        from_options([f"max_depth={digits}"])
