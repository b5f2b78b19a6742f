"""Sizes and positions that are known now or only at run time, and arithmetic on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import INDEX, IndexOrSize, Value


def as_value(builder: Builder, extent: IndexOrSize) -> Value:
    """An extent as a value of type index."""
    return builder.constant(extent) if isinstance(extent, int) else extent


def add(builder: Builder, left: IndexOrSize, right: IndexOrSize) -> IndexOrSize:
    """The sum."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if 0 in (left, right):
        return left if right == 0 else right
    return _arith(builder, "add", left, right)


def subtract(builder: Builder, left: IndexOrSize, right: IndexOrSize) -> IndexOrSize:
    """The difference."""
    if isinstance(left, int) and isinstance(right, int):
        return left - right
    return left if right == 0 else _arith(builder, "sub", left, right)


def multiply(builder: Builder, left: IndexOrSize, right: IndexOrSize) -> IndexOrSize:
    """The product."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if 1 in (left, right):
        return left if right == 1 else right
    return _arith(builder, "mul", left, right)


def least(builder: Builder, left: IndexOrSize, right: IndexOrSize) -> IndexOrSize:
    """The smaller one."""
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right)
    return _arith(builder, "min", left, right)


def quotient(builder: Builder, extent: IndexOrSize, divisor: int) -> IndexOrSize:
    """How often a divisor fits into an extent."""
    if isinstance(extent, int):
        return extent // divisor
    return extent if divisor == 1 else _arith(builder, "div", extent, divisor)


def whole_part(builder: Builder, extent: IndexOrSize, step: int) -> IndexOrSize:
    """The greatest multiple of a step that fits into an extent."""
    if isinstance(extent, int):
        return extent - extent % step
    return extent if step == 1 else subtract(builder, extent, _arith(builder, "rem", extent, step))


def _arith(builder: Builder, function: str, left: IndexOrSize, right: IndexOrSize) -> Value:
    return builder.arith(function, as_value(builder, left), as_value(builder, right), type_=INDEX)


@contextmanager
def each(
    builder: Builder, begin: IndexOrSize, end: IndexOrSize, step: IndexOrSize
) -> Iterator[tuple[Builder, IndexOrSize]]:
    """The positions from begin to end: a loop, or what is known to be a single trip without one."""
    if (
        isinstance(begin, int)
        and isinstance(end, int)
        and isinstance(step, int)
        and begin < end <= begin + step
    ):
        yield builder, begin
        return
    first, last = as_value(builder, begin), as_value(builder, end)
    with builder.loop(first, last, as_value(builder, step)) as loop:
        yield loop.body, loop.variable
