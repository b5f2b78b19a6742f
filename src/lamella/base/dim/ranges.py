"""The range an extent stays in, by interval arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product as pairs
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.dim.form import Atom, Extent, Symbol

Ends: TypeAlias = tuple[int, int]


def bounds(extent: Extent) -> Ends:
    """The smallest and the largest value an extent can have, or a little beyond them."""
    if isinstance(extent, int):
        return extent, extent
    low = high = 0
    for monomial, factor in extent.terms:
        ends = (factor, factor)
        for atom in monomial:
            ends = _span(lambda a, b: a * b, ends, _range(atom))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _span(rule: Callable[[int, int], int], left: Ends, right: tuple[int, ...]) -> Ends:
    ends = [rule(a, b) for a, b in pairs(left, right)]
    return min(ends), max(ends)


def _range(atom: Atom) -> Ends:
    if isinstance(atom, Symbol):
        return atom.low, atom.high
    left, right = (bounds(item) for item in atom.operands)
    if atom.sign == "?":
        return min(left[0], right[0]), max(left[1], right[1])
    return _PART_RANGES[atom.sign](left, right)


def _divisors(ends: Ends) -> tuple[int, ...]:
    """Where a quotient is extreme: at the ends, and next to zero, which itself the run refuses."""
    near = [number for number in (*ends, -1, 1) if number and ends[0] <= number <= ends[1]]
    return tuple(near) or (1,)


def _remainder_range(left: Ends, right: Ends) -> Ends:
    if left[0] >= 0 and right[0] > left[1]:
        return left
    return min(right[0] + 1, 0), max(right[1] - 1, 0)


_PART_RANGES: Mapping[str, Callable[[Ends, Ends], Ends]] = MappingProxyType(
    {
        "/": lambda left, right: _span(lambda a, b: a // b, left, _divisors(right)),
        "\\": lambda left, right: _span(lambda a, b: -(-a // b), left, _divisors(right)),
        "%": _remainder_range,
        "<<": lambda left, right: (min(left[0], right[0]), min(left[1], right[1])),
        ">>": lambda left, right: (max(left[0], right[0]), max(left[1], right[1])),
    }
)
