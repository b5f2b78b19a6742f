"""Integer arithmetic on expressions in loop variables: linear where it can be, with the range of every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamella.base.affine import Interval, corners, divisors, multiply, truncated_remainder
from lamella.base.dim import TooComplex
from lamella.base.limits import DividedByZero, OutOfRange, divide, in_range, remainder
from lamella.lang.nem.resolved import Atom, Index, Operation, Variable

MOST_OPERATIONS = 100
DEEPEST = 40
"""Expressions in loop variables are walked again and again, by recursion and in every proof: they stay small."""


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops open at a place: the first and last value of each variable by loop number."""

    ranges: Mapping[int, Interval]

    def interval(self, index: Index) -> Interval:
        """Bounds of an index over all iterations; exact for sums of distinct variables."""
        low = high = index.constant
        for atom, factor in index.terms:
            first, last = self._atom(atom)
            low += min(factor * first, factor * last)
            high += max(factor * first, factor * last)
        return low, high

    def _atom(self, atom: Atom) -> Interval:
        if isinstance(atom, Variable):
            return self.ranges[atom.loop]
        left, right = self.interval(atom.left), self.interval(atom.right)
        if atom.sign == "*":
            return multiply(left, right)
        return (
            corners(divide, left, divisors(right)) if atom.sign == "/" else truncated_remainder(left, right)
        )


def combine(sign: str, left: Index, right: Index, loops: Loops) -> Index:
    """`left sign right`; OutOfRange or DividedByZero when some iteration leaves the integers, or TooComplex."""
    if sign in "+-":
        result = left.plus(right, 1 if sign == "+" else -1)
    elif sign == "*":
        result = _product(left, right)
    else:
        result = _quotient(sign, left, right, loops)
    _keep_small(result)
    low, high = loops.interval(result)
    if not (in_range(low) and in_range(high)):
        raise OutOfRange(sign, low, high)
    return result


def _keep_small(index: Index) -> None:
    count, depth = index.size()
    if count > MOST_OPERATIONS or depth > DEEPEST:
        raise TooComplex


def negate(index: Index) -> Index:
    """The index with its sign changed."""
    return Index(0).plus(index, -1)


def _product(left: Index, right: Index) -> Index:
    if right.terms and left.terms:
        return Index(0, ((Operation("*", left, right), 1),))
    factor, other = (right.constant, left) if left.terms else (left.constant, right)
    if not factor:
        return Index(0)
    return Index(other.constant * factor, tuple((atom, count * factor) for atom, count in other.terms))


def _quotient(sign: str, left: Index, right: Index, loops: Loops) -> Index:
    low, high = loops.interval(right)
    if low <= 0 <= high:
        raise DividedByZero(sign, left.constant, 0)
    if not left.terms and not right.terms:
        operation = divide if sign == "/" else remainder
        return Index(operation(left.constant, right.constant))
    return Index(0, ((Operation(sign, left, right), 1),))
