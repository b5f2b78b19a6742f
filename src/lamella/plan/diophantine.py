"""A bounded Diophantine problem: one two-sided linear inequality over integers in intervals, and a solution of it.

`low <= constant + Σ a·z <= high` with every z in its own interval. Variables are taken in the order of falling |a|;
at each one only the values that the remaining variables can still complete are tried. Three facts end the search
early: the remaining sums are multiples of their gcd; when each coefficient is small against what the smaller ones
reach, they reach every such multiple; and two variables are decided by Euclid's algorithm, whatever their ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from lamella.base.dim import TooComplex

Box = Mapping[int, tuple[int, int]]


class StepBudget:
    """Steps left for all questions together, and for the one being answered."""

    def __init__(self, total: int, each: int) -> None:
        self.left = total
        self.each = each
        self._now = each

    def begin(self) -> None:
        """Start a question."""
        self._now = self.each

    def spend(self, steps: int = 1) -> None:
        """Count steps; TooComplex when none is left."""
        self.left -= steps
        self._now -= steps
        if self.left < 0 or self._now < 0:
            raise TooComplex


@dataclass(frozen=True, slots=True)
class _Tail:
    """The variables from one on: what they reach together, all positive and from zero."""

    coefficient: int
    count: int
    reach: int
    divisor: int
    complete: bool


def solve(
    constant: int, terms: Mapping[int, int], box: Box, low: int, high: int, budget: StepBudget
) -> dict[int, int] | None:
    """Values of the variables of `terms` that bring the sum into [low, high], or None where there are none."""
    budget.spend()
    order = sorted((v for v in terms if terms[v]), key=lambda v: -abs(terms[v]))
    base = constant + sum(terms[v] * box[v][terms[v] < 0] for v in order)
    tails = _tails([(abs(terms[v]), box[v][1] - box[v][0]) for v in order])
    found = _descend(tails, low - base, high - base, budget)
    if found is None:
        return None
    return {v: box[v][0] + n if terms[v] > 0 else box[v][1] - n for v, n in zip(order, found, strict=True)}


def _tails(pairs: list[tuple[int, int]]) -> list[_Tail]:
    """What every suffix of the variables reaches; the last entry is the empty suffix."""
    tails = [_Tail(0, 0, 0, 0, True)]
    for coefficient, count in reversed(pairs):
        rest = tails[-1]
        # A multiple of the rest's divisor that steps over no gap leaves the sums without gaps.
        dense = rest.divisor == 0 or (
            coefficient % rest.divisor == 0 and coefficient <= rest.reach + rest.divisor
        )
        reach = rest.reach + coefficient * count
        tails.append(
            _Tail(coefficient, count, reach, gcd(rest.divisor, coefficient), rest.complete and dense)
        )
    tails.reverse()
    return tails


def _descend(tails: list[_Tail], low: int, high: int, budget: StepBudget) -> list[int] | None:
    """Depth-first search; one range of values per variable is open at a time."""
    path: list[int] = []
    open_values: list[range] = []
    while True:
        depth = len(path)
        found = _finish(tails, depth, low, high)
        if isinstance(found, list):
            return path + found
        values = range(0) if found is None else found
        while not values:
            if not path:
                return None
            budget.spend()
            last = path.pop()
            low, high = low + tails[len(path)].coefficient * last, high + tails[len(path)].coefficient * last
            values = open_values.pop()
        budget.spend()
        value, coefficient = values[0], tails[len(path)].coefficient
        path.append(value)
        open_values.append(values[1:])
        low, high = low - coefficient * value, high - coefficient * value


def _finish(tails: list[_Tail], depth: int, low: int, high: int) -> list[int] | range | None:
    """The rest of a solution, None where there is none, or the values of the next variable still to be tried."""
    tail = tails[depth]
    low, high = max(low, 0), min(high, tail.reach)
    if low > high:
        return None
    if tail.divisor == 0:
        return []
    target = -(-low // tail.divisor) * tail.divisor
    if target > high:
        return None
    if tail.complete:
        return _fill(tails, depth, target)
    if depth == len(tails) - 3:
        return _two(tail, tails[depth + 1], low, high)
    rest = tails[depth + 1].reach
    first = max(0, -(-(low - rest) // tail.coefficient))
    return range(first, min(tail.count, high // tail.coefficient) + 1)


def _fill(tails: list[_Tail], depth: int, target: int) -> list[int]:
    """A complete suffix reaches the target greedily."""
    found = []
    for tail in tails[depth:-1]:
        value = min(tail.count, target // tail.coefficient)
        found.append(value)
        target -= value * tail.coefficient
    return found


def _two(large: _Tail, small: _Tail, low: int, high: int) -> list[int] | None:
    """`low <= a·x + b·y <= high` with x and y bounded: some multiple of b must lie in a window that x moves."""
    a, b = large.coefficient, small.coefficient
    first = max(0, -(-(low - b * small.count) // a))
    last = min(large.count, high // a)
    if first > last:
        return None
    # With x in [first, last] the window [low - a·x, high - a·x] meets [0, b·count], whose ends are multiples of b.
    step = _first_within(-a % b, b, (high - a * first) % b, high - low)
    if step is None or first + step > last:
        return None
    x = first + step
    return [x, min(small.count, (high - a * x) // b)]


def _first_within(step: int, modulus: int, start: int, width: int) -> int | None:
    """The smallest n >= 0 with (start + n·step) mod modulus <= width."""
    if start <= width:
        return 0
    return _first_between(step, modulus, modulus - start, modulus - start + width)


def _first_between(step: int, modulus: int, low: int, high: int) -> int | None:
    """The smallest n >= 0 with low <= (n·step) mod modulus <= high, where 0 <= low <= high < modulus."""
    descent: list[tuple[int, int, int]] = []
    while True:
        step %= modulus
        if low == 0 or step == 0:
            found = 0 if low == 0 else None
            break
        found = -(-low // step)
        if found * step <= high:
            break
        descent.append((step, modulus, low))
        step, modulus, low, high = modulus, step, -high % step, -low % step
    for step, modulus, low in reversed(descent):
        if found is None:
            return None
        found = -(-(low + modulus * found) // step)
    return found
