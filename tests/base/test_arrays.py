"""Packing, conversions and exchange against exact arithmetic, NumPy and ml_dtypes."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import dtype as types
from lamella.base.arrays import (
    Array,
    cast,
    exchange_dtype,
    from_exchange,
    from_memory,
    numpy_dtype,
    pack_nibbles,
    sign_extended,
    to_exchange,
    to_memory,
    unpack_nibbles,
    wrap,
)
from lamella.base.dtype import ALL, ElementType, Kind
from lamella.base.errors import InputError

INTEGERS = tuple(item for item in ALL if item.is_integer)
NARROW = (types.F4E2M1, types.F8E4M3, types.F8E5M2, types.BF16, types.F16)
integer_types = st.sampled_from(INTEGERS)
doubles = st.one_of(
    st.floats(), st.floats(-300, 300), st.sampled_from([2.0**63, 2.0**64, -(2.0**63), 0.5, 2.5])
)


def clamp(value: int, element: ElementType) -> int:
    return max(element.minimum, min(element.maximum, value))


@cache
def all_values(element: ElementType) -> list[Fraction]:
    """Every finite number of a narrow floating type, with one more step beyond the ends."""
    bits = np.arange(1 << min(element.bits, 16), dtype=np.uint16 if element.bits == 16 else np.uint8)
    with np.errstate(invalid="ignore"):
        found = bits.view(numpy_dtype(element)).astype(np.float64)
    finite = [Fraction(item) for item in np.unique(found[np.isfinite(found)]).tolist()]
    step = finite[-1] - finite[-2]
    return [finite[0] - step, *finite, finite[-1] + step]


def is_even(value: Fraction, element: ElementType) -> bool:
    """Whether the last bit of a number is 0; one step beyond the largest begins a binade, so it is even."""
    if abs(value) > Fraction(element.largest):
        return True
    stored = np.array([float(value)]).astype(numpy_dtype(element))
    return int(stored.view(np.uint16 if element.bits == 16 else np.uint8)[0]) % 2 == 0


def nearest(value: Fraction, element: ElementType) -> float:
    """Exact rounding to nearest even by looking at every number of the type."""
    table = all_values(element)
    index = bisect_left(table, value)
    around = table[max(index - 1, 0) : index + 1]
    best = min(around, key=lambda item: (abs(item - value), not is_even(item, element)))
    if abs(best) <= Fraction(element.largest):
        return float(best)
    limit = element.largest if element.bits <= 8 else math.inf
    return limit if value > 0 else -limit


@given(st.lists(st.integers(-8, 7), max_size=33))
def test_signed_nibbles_return(values: list[int]) -> None:
    packed = pack_nibbles(np.array(values, np.int8))
    expected = [
        (low & 15) | (high & 15) << 4
        for low, high in zip(values[0::2], [*values[1::2], *[0] * (len(values) % 2)], strict=True)
    ]
    assert packed.tolist() == expected
    assert unpack_nibbles(packed, len(values), signed=True).tolist() == values
    assert pack_nibbles(np.array(values, np.int64)).tolist() == expected
    assert pack_nibbles(np.array(values, np.int8).astype(ml_dtypes.int4)).tolist() == expected


@given(st.lists(st.integers(-8, 7), max_size=33))
def test_signs_reach_the_upper_bits_of_a_byte(values: list[int]) -> None:
    found = sign_extended(np.array(values, np.int8).astype(ml_dtypes.int4))
    assert found.dtype == ml_dtypes.int4
    assert found.astype(np.int64).tolist() == values
    assert found.view(np.int8).tolist() == values


@given(st.lists(st.integers(0, 15), max_size=33))
def test_unsigned_nibbles_return(values: list[int]) -> None:
    packed = pack_nibbles(np.array(values, np.uint8))
    assert packed.dtype == np.uint8
    assert len(packed) == (len(values) + 1) // 2
    assert unpack_nibbles(packed, len(values), signed=False).tolist() == values


@pytest.mark.parametrize("element", ALL, ids=str)
def test_memory_images_return(element: ElementType) -> None:
    size = 10 * numpy_dtype(element).itemsize
    image = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    image = image[:5] if element.bits == 4 else image
    image = np.append(image[:2], image[2] & np.uint8(15)) if element.bits == 2 else image
    image = image % 2 if element is types.BOOL else image
    values = from_memory(image, element, 10)
    assert values.dtype == numpy_dtype(element)
    assert values.shape == (10,)
    np.testing.assert_array_equal(to_memory(values.reshape(2, 5)), image)


def test_memory_images_are_row_major_and_little_endian() -> None:
    table = np.array([[1, 2], [3, 4]], ">u2")
    assert to_memory(table.T).tolist() == [1, 0, 3, 0, 2, 0, 4, 0]
    assert from_memory(np.array([1, 2, 0], np.uint8), types.BOOL, 3).tolist() == [True, True, False]


@given(st.lists(doubles, min_size=1, max_size=8), integer_types)
def test_float_to_integer(values: list[float], to: ElementType) -> None:
    array = np.array(values, np.float64)
    expected = []
    for value in values:
        if math.isnan(value):
            expected.append(0)
        elif math.isinf(value):
            expected.append(to.maximum if value > 0 else to.minimum)
        else:
            expected.append(clamp(math.trunc(value), to))
    found = cast(array, to)
    assert found.dtype == numpy_dtype(to)
    assert [int(item) for item in found] == expected


@given(st.data(), integer_types, integer_types)
def test_integer_to_integer(data: st.DataObject, source: ElementType, to: ElementType) -> None:
    values = data.draw(st.lists(st.integers(source.minimum, source.maximum), min_size=1, max_size=8))
    array = np.array(values, exchange_dtype(source)).astype(numpy_dtype(source))
    assert [int(item) for item in cast(array, to)] == [clamp(value, to) for value in values]
    modulus = 1 << to.bits
    wrapped = [(value - to.minimum) % modulus + to.minimum for value in values]
    assert [int(item) for item in wrap(array, to)] == wrapped
    assert wrap(array, to).dtype == cast(array, to).dtype == numpy_dtype(to)


@given(st.lists(st.one_of(doubles, st.floats(-1e-6, 1e-6)), min_size=1, max_size=4), st.sampled_from(NARROW))
def test_float_to_narrow_float_rounds_once(values: list[float], to: ElementType) -> None:
    finite = [value for value in values if math.isfinite(value)]
    found = cast(np.array(finite, np.float64), to)
    assert found.dtype == numpy_dtype(to)
    assert found.astype(np.float64).tolist() == [nearest(Fraction(value), to) for value in finite]


@given(st.data(), st.sampled_from(NARROW))
def test_points_just_beside_a_tie_go_the_right_way(data: st.DataObject, to: ElementType) -> None:
    table = all_values(to)
    index = data.draw(st.integers(0, len(table) - 2))
    tie = float((table[index] + table[index + 1]) / 2)
    values = [tie, math.nextafter(tie, math.inf), math.nextafter(tie, -math.inf)]
    found = cast(np.array(values, np.float64), to).astype(np.float64).tolist()
    assert found == [nearest(Fraction(value), to) for value in values]


@given(st.data(), integer_types, st.sampled_from(NARROW))
def test_integer_to_narrow_float_rounds_once(
    data: st.DataObject, source: ElementType, to: ElementType
) -> None:
    bits = data.draw(st.integers(1, source.bits))
    near = (1 << bits) // 3 * 2 if bits % 2 else 1 << (bits - 1)
    choice = st.one_of(
        st.integers(source.minimum, source.maximum),
        st.integers(near - 2, near + 2),
        st.integers(near, near + near // 9),
    )
    values = [clamp(value, source) for value in data.draw(st.lists(choice, min_size=1, max_size=4))]
    array = np.array(values, exchange_dtype(source)).astype(numpy_dtype(source))
    found = cast(array, to).astype(np.float64).tolist()
    assert found == [nearest(Fraction(value), to) for value in values]


def test_the_case_that_rounding_twice_gets_wrong() -> None:
    # 2**40 + 2**32 + 1 lies just above the middle of two neighbours of bf16; in f32 it falls on the middle.
    value = (1 << 40) + (1 << 32) + 1
    assert float(cast(np.array([value], np.int64), types.BF16)[0]) == 2.0**40 + 2.0**33
    assert float(cast(np.array([value], np.float64), types.BF16)[0]) == 2.0**40 + 2.0**33
    # The same one step up: in f64 this falls on the middle.
    value = (1 << 62) + (1 << 54) + 1
    for sign in (1, -1):
        assert float(cast(np.array([sign * value], np.int64), types.BF16)[0]) == sign * (2.0**62 + 2.0**55)


@given(st.data(), integer_types, st.sampled_from([types.F32, types.F64]))
def test_integer_to_wide_float(data: st.DataObject, source: ElementType, to: ElementType) -> None:
    values = data.draw(st.lists(st.integers(source.minimum, source.maximum), min_size=1, max_size=8))
    array = np.array(values, exchange_dtype(source)).astype(numpy_dtype(source))
    for value, item in zip(values, cast(array, to), strict=True):
        error = abs(Fraction(float(item)) - value)
        for direction in (math.inf, -math.inf):
            other = np.nextafter(item, item.dtype.type(direction))
            assert error <= abs(Fraction(float(other)) - value)


@pytest.mark.parametrize("to", NARROW, ids=str)
def test_what_is_not_finite(to: ElementType) -> None:
    found = cast(np.array([math.inf, -math.inf, math.nan], np.float32), to).astype(np.float64)
    limit = math.inf if to.bits == 16 else to.largest
    assert found[:2].tolist() == [limit, -limit]
    assert found[2] == 0 if to is types.F4E2M1 else math.isnan(found[2])


@pytest.mark.parametrize("source", ALL, ids=str)
@pytest.mark.parametrize("to", ALL, ids=str)
def test_every_pair_of_types_converts_small_numbers(source: ElementType, to: ElementType) -> None:
    values = cast(np.array([[0, 1], [1, 0]], np.uint8), source)
    if source.kind is Kind.COMPLEX and to.kind not in (Kind.COMPLEX, Kind.BOOL):
        with pytest.raises(InputError, match="complex"):
            cast(values, to)
        return
    found = cast(values, to)
    assert found.dtype == numpy_dtype(to)
    assert found.astype(np.complex128).tolist() == [[0, 1], [1, 0]]


def test_a_conversion_never_gives_the_same_memory() -> None:
    values = np.array([1, 2], np.int8)
    cast(values, types.I8)[0] = 9
    assert values.tolist() == [1, 2]


@pytest.mark.parametrize("element", ALL, ids=str)
def test_exchange_returns(element: ElementType) -> None:
    values: Array = cast(np.array([[0, 1, 2], [3, 4, 6]], np.uint8), element)
    outside = to_exchange(values)
    assert outside.dtype.type.__module__ == "numpy"
    back = from_exchange(outside, element)
    assert back.dtype == numpy_dtype(element)
    assert back.astype(np.complex128).tolist() == values.astype(np.complex128).tolist()


def test_exchange_types_are_the_promised_ones() -> None:
    assert exchange_dtype(types.I4) == np.int8
    assert {exchange_dtype(item) for item in NARROW[:-1]} == {np.dtype(np.float32)}
    assert exchange_dtype(types.F16) == np.float16


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="float64; f32 travels as float32"):
        from_exchange(np.zeros(2), types.F32)
    with pytest.raises(InputError, match=r"value 8 is outside i4 \(-8 .. 7\)"):
        from_exchange(np.array([1, 8], np.int8), types.I4)
    with pytest.raises(InputError, match="no element type"):
        to_exchange(np.array(["a"]))
