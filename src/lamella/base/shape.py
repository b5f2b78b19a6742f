"""Sizes of tensors in elements and bytes, in checked arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.limits import add, ceil_divide, mul, product

MOST_AXES = 24
"""NumPy holds 32 axes (64 from NumPy 2 on), and some operations need a few more than their operands have."""


def element_count(shape: Sequence[int]) -> int:
    """How many elements a shape has; a scalar has one."""
    return product(shape)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Distances in elements between neighbours along each axis when the last axis is dense."""
    strides: list[int] = []
    distance = 1
    for size in reversed(shape):
        strides.append(distance)
        distance = mul(distance, max(size, 1))
    return tuple(reversed(strides))


def span_of(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The smallest and largest element index that a strided shape reaches; (0, -1) without elements."""
    if element_count(shape) == 0:
        return 0, -1
    lowest = highest = 0
    for size, stride in zip(shape, strides, strict=True):
        reach = mul(size - 1, stride)
        lowest, highest = add(lowest, min(reach, 0)), add(highest, max(reach, 0))
    return lowest, highest


def bytes_for(count: int, bits: int) -> int:
    """Bytes that hold a number of elements packed without gaps."""
    return ceil_divide(mul(count, bits), 8)
