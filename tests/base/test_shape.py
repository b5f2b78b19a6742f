"""Sizes of tensors against NumPy and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.limits import OutOfRange
from lamella.base.shape import bytes_for, element_count, row_major_strides, span_of

SHAPES = st.lists(st.integers(0, 4), max_size=4)


@given(SHAPES)
def test_counts_and_strides_are_those_of_numpy(shape: list[int]) -> None:
    array = np.zeros(shape, np.uint8)
    assert element_count(shape) == array.size
    if array.size:
        assert row_major_strides(shape) == array.strides


@given(SHAPES, st.data())
def test_span_is_what_the_elements_reach(shape: list[int], data: st.DataObject) -> None:
    size = len(shape)
    strides = data.draw(st.lists(st.integers(-50, 50), min_size=size, max_size=size))
    reached = [
        sum(index * stride for index, stride in zip(place, strides, strict=True))
        for place in itertools.product(*(range(size) for size in shape))
    ]
    assert span_of(shape, strides) == ((min(reached), max(reached)) if reached else (0, -1))


@given(st.integers(0, 10_000), st.sampled_from([1, 4, 8, 16, 32, 64, 128]))
def test_bytes_are_rounded_up(count: int, bits: int) -> None:
    assert bytes_for(count, bits) == math.ceil(count * bits / 8)


def test_sizes_that_leave_the_range_are_refused() -> None:
    big = 1 << 62
    with pytest.raises(OutOfRange):
        row_major_strides([4, big, 4])
    with pytest.raises(OutOfRange):
        span_of([3, 3], [big, big])
    with pytest.raises(OutOfRange):
        bytes_for(big, 8)
