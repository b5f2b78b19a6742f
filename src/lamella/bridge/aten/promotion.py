"""Type promotion: the element type in which torch computes with operands of several types."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from lamella.base.dim import Dim
from lamella.base.dtype import BF16, BOOL, F16, F32, I8, I16, I32, I64, ElementType, Kind
from lamella.graph.nodes import Tensor

Number = int | float | bool | Dim
"""What ATen calls a Scalar; an extent is an integer."""


def result_type(operands: Iterable[Tensor | Number]) -> ElementType:
    """The common type: tensors with dimensions say it, unless scalars, or else numbers, are of a wider category."""
    ranks: list[list[ElementType]] = [[], [], []]
    for item in operands:
        if isinstance(item, Tensor):
            ranks[0 if item.shape else 1].append(item.element)
        else:
            ranks[2].append(number_type(item))
    found: ElementType | None = None
    for group in reversed(ranks):
        if group:
            found = _combine(reduce(promote, group), found)
    return found or F32


def number_type(value: Number) -> ElementType:
    """The type of a tensor that is made of a number alone."""
    if isinstance(value, bool):
        return BOOL
    return F32 if isinstance(value, float) else I64


def real_type(element: ElementType) -> ElementType:
    """The type of a result that has fractions: floating types themselves, float32 for the others."""
    return element if _category(element) > 1 else F32


def _combine(higher: ElementType, lower: ElementType | None) -> ElementType:
    """The type of those that count more, unless the others are of a wider category."""
    if lower is None or _category(higher) >= _category(lower):
        return higher
    return promote(higher, lower)


def _category(element: ElementType) -> int:
    if element.kind is Kind.BOOL:
        return 0
    return 1 if element.is_integer else 2


def promote(left: ElementType, right: ElementType) -> ElementType:
    """The smallest type that both fit into, by torch's lattice."""
    if left == right:
        return left
    low, high = sorted((left, right), key=lambda item: (_category(item), item.bits))
    if _category(low) < _category(high):
        return high
    if low.is_float:
        return F32 if {low, high} == {F16, BF16} else high
    if low.kind is high.kind or (high.kind is Kind.SIGNED and high.bits > low.bits):
        return high
    return _signed_above(max(item.bits for item in (low, high) if item.kind is Kind.UNSIGNED))


def _signed_above(bits: int) -> ElementType:
    """The smallest signed type of more bits, 64 being the most."""
    return next((item for item in (I8, I16, I32) if item.bits > bits), I64)
