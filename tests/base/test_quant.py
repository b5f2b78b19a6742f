"""Quantisation descriptors: what fits a tensor, and what each element's scale is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import dtype as types
from lamella.base.arrays import scales_along
from lamella.base.errors import InputError
from lamella.base.quant import (
    PerChannel,
    PerGroup,
    PerTensor,
    Quant,
    expected_count,
    quant_problems,
)

SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def problems(quant: Quant, shape: list[int], element: types.ElementType = types.I8) -> str:
    return "; ".join(quant_problems(quant, shape, element))


@given(SHAPES, st.integers(1, 8), st.data())
def test_each_element_finds_its_group(shape: list[int], group: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    count = math.ceil(shape[axis] / group)
    quant = PerGroup(axis, group, tuple(0.5 + i for i in range(count)), tuple(range(count)))
    assert expected_count(quant, shape) == count
    assert problems(quant, shape) == ""
    scales, zeros = (np.broadcast_to(item, shape) for item in scales_along(quant, shape))
    for place in np.ndindex(*shape):
        number = place[axis] // group
        assert (scales[place], zeros[place]) == (quant.scales[number], quant.zero_points[number])


@given(SHAPES, st.data())
def test_channels_are_groups_of_one(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    scales, zeros = tuple(1.0 + i for i in range(shape[axis])), tuple(range(shape[axis]))
    channel, group = PerChannel(axis, scales, zeros), PerGroup(axis, 1, scales, zeros)
    assert expected_count(channel, shape) == expected_count(group, shape) == shape[axis]
    for left, right in zip(scales_along(channel, shape), scales_along(group, shape), strict=True):
        np.testing.assert_array_equal(left, right)
        assert left.dtype == right.dtype


def test_one_scale_for_the_whole_tensor() -> None:
    quant = PerTensor(0.25, -3)
    scale, zero = scales_along(quant, [2, 3])
    assert expected_count(quant, [2, 3]) == 1
    assert np.broadcast_to(scale, (2, 3)).tolist() == [[0.25] * 3] * 2
    assert np.broadcast_to(zero, (2, 3)).tolist() == [[-3] * 3] * 2
    assert problems(quant, [2, 3]) == ""


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, -math.inf, math.nan])
def test_scales_are_positive_and_finite(scale: float) -> None:
    assert "is not a positive finite number" in problems(PerTensor(scale), [4])
    assert "number 1" in problems(PerChannel(0, (1.0, scale), (0, 0)), [2])


@pytest.mark.parametrize(
    ("element", "zero"), [(types.I8, 128), (types.I4, -9), (types.U8, -1), (types.I4, 1 << 70)]
)
def test_zero_points_are_of_the_element_type(element: types.ElementType, zero: int) -> None:
    assert f"zero point {zero} (number 0) is outside {element}" in problems(
        PerTensor(1.0, zero), [4], element
    )
    edge = max(min(zero, element.maximum), element.minimum)
    assert problems(PerTensor(1.0, edge), [4], element) == ""


@pytest.mark.parametrize(
    ("quant", "words"),
    [
        (PerChannel(0, (1.0,) * 3, (0,) * 4), "3 scales are given; the shape [4, 6] needs 4"),
        (PerChannel(0, (1.0,) * 4, (0,) * 5), "5 zero points are given; the shape [4, 6] needs 4"),
        (PerChannel(2, (1.0,), (0,)), "axis 2 does not exist in a tensor of rank 2"),
        (PerChannel(-3, (1.0,), (0,)), "axis -3 does not exist in a tensor of rank 2"),
        (PerGroup(1, 4, (1.0,) * 3, (0,) * 3), "3 scales are given; the shape [4, 6] needs 2"),
        (PerGroup(1, 0, (1.0,), (0,)), "group size 0 is not positive"),
        (PerGroup(9, 2, (1.0,), (0,)), "axis 9 does not exist in a tensor of rank 2"),
    ],
)
def test_counts_axes_and_groups_are_checked(quant: Quant, words: str) -> None:
    assert words in problems(quant, [4, 6])


def test_only_integers_are_quantised() -> None:
    assert "f16 is not an integer type" in problems(PerTensor(1.0), [4], types.F16)


def test_an_axis_that_does_not_exist_has_no_scales() -> None:
    with pytest.raises(InputError, match="axis 3"):
        scales_along(PerChannel(3, (1.0,), (0,)), [4])
