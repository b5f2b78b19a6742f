"""Affine forms and value ranges (interval analysis) of the integers of a formula."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeGuard

from lamella.base.affine import Affine, Interval, combine, corners, hull, larger, multiply, smaller
from lamella.ops.formula import Apply, Index, Scalar

LARGEST = 1 << 62
"""Intervals beyond this are not trusted: 64-bit arithmetic may wrap around."""


Form: TypeAlias = Affine[str]
"""An affine form over the names of loop indices."""


def is_integer(term: object) -> TypeGuard[int]:
    """Whether a term is a known integer."""
    return isinstance(term, int) and not isinstance(term, bool)


def find_form(term: Scalar, extents: Mapping[str, int]) -> Form | None:
    """The affine form of an integer term; an index that takes one step only is 0."""
    return _Found(extents).form(term)


def find_range(term: Scalar, extents: Mapping[str, int]) -> Interval | None:
    """The smallest and the largest value of an integer term (its interval); None where too little is known."""
    return _Found(extents).range(term)


def find_truth(term: Scalar, extents: Mapping[str, int]) -> bool | None:
    """Whether a comparison of integers holds for all steps of the loops, or for none; None where steps decide."""
    if isinstance(term, bool):
        return term
    if not isinstance(term, Apply) or len(term.operands) != 2:
        return None
    if term.function in ("&&", "||"):
        sides = [find_truth(item, extents) for item in term.operands]
        decisive = term.function == "||"
        return decisive if decisive in sides else None if None in sides else not decisive
    if term.function not in ("<", "<=", ">", ">="):
        return None
    left, right = (find_range(item, extents) for item in term.operands)
    if left is None or right is None:
        return None
    if term.function in (">", ">="):
        left, right = right, left
    equal = term.function in ("<=", ">=")
    if left[1] < right[0] + equal:
        return True
    return False if left[0] >= right[1] + equal else None


class _Found:
    """Forms and ranges of the terms below one; a term that many share (`z = y + y`) is looked at once."""

    def __init__(self, extents: Mapping[str, int], bounds: Mapping[str, Interval] | None = None) -> None:
        self._extents = extents
        self._bounds = bounds or {}
        """Where loops are where a condition holds."""
        self._forms: dict[int, Form | None] = {}
        self._ranges: dict[int, Interval | None] = {}

    def form(self, term: Scalar) -> Form | None:
        if is_integer(term):
            return Affine(term)
        if isinstance(term, Index):
            return Affine(0, ((term.name, 1),) if self._extents.get(term.name) != 1 else ())
        if not isinstance(term, Apply) or term.type != "int":
            return None
        if id(term) not in self._forms:
            forms = [self.form(item) for item in term.operands]
            known = [item for item in forms if item is not None]
            self._forms[id(term)] = combine(term.function, known) if len(known) == len(forms) else None
        return self._forms[id(term)]

    def range(self, term: Scalar) -> Interval | None:
        if is_integer(term):
            return term, term
        form = self.form(term)
        if form is not None:
            return _trusted(form.bounds({name: self._steps(name) for name, _ in form.terms}))
        if not isinstance(term, Apply) or term.type != "int":
            return None
        if id(term) not in self._ranges:
            self._ranges[id(term)] = self._between(term) or self._applied(term)
        return self._ranges[id(term)]

    def _steps(self, name: str) -> Interval:
        return self._bounds.get(name) or (0, max(self._extents[name] - 1, 0))

    def _applied(self, term: Apply) -> Interval | None:
        split = self._split(term.operands[0]) if term.function == "?:" else None
        if split is not None:
            sides = [_Found(self._extents, {**self._bounds, split[0]: item}) for item in split[1:]]
            ranges = [side.range(item) for side, item in zip(sides, term.operands[1:], strict=True)]
        else:
            ranges = [self.range(item) for item in term.operands[term.function == "?:" :]]
        known = [item for item in ranges if item is not None]
        return _trusted(_function_range(term.function, known)) if len(known) == len(ranges) else None

    def _split(self, term: Scalar) -> tuple[str, Interval, Interval] | None:
        """A loop that a condition cuts in two, with its steps where that holds and where it does not."""
        if not isinstance(term, Apply) or term.function != "<":
            return None
        index, end = term.operands
        if not isinstance(index, Index) or not is_integer(end) or index.name not in self._extents:
            return None
        low, high = self._steps(index.name)
        return (index.name, (low, end - 1), (end, high)) if low < end <= high else None

    def _between(self, term: Apply) -> Interval | None:
        """The range of an integer that is held between two constants, whatever it is."""
        inner = term.operands[0]
        if term.function != "<<" or not isinstance(inner, Apply) or inner.function != ">>":
            return None
        low, high = inner.operands[1], term.operands[1]
        if not is_integer(low) or not is_integer(high):
            return None
        found = self.range(inner.operands[0]) or (-LARGEST, LARGEST)
        return smaller(larger(found, (low, low)), (high, high))


def find_digits(form: Form, extents: Mapping[str, int], size: int) -> list[str] | None:
    """The loops that delinearize a number: their indices are its digits, and it runs to the end of a dimension."""
    names = [name for name, _ in sorted(form.terms, key=lambda item: -item[1])]
    factor = 1
    for name in reversed(names):
        if (name, factor) not in form.terms:
            return None
        factor *= extents[name]
    return names if form.constant == 0 and factor == size else None


def _trusted(found: Interval | None) -> Interval | None:
    return found if found is not None and found[0] > -LARGEST and found[1] < LARGEST else None


def _function_range(function: str, ranges: list[Interval]) -> Interval | None:
    if len(ranges) != 2:
        return None
    left, right = ranges
    if function in ("/", "%"):
        if right[0] <= 0:
            return None
        return (0, right[1] - 1) if function == "%" else corners(operator.floordiv, left, right)
    rule = _RULES.get(function)
    return None if rule is None else rule(left, right)


_RULES: Mapping[str, Callable[[Interval, Interval], Interval]] = MappingProxyType(
    {
        "+": lambda left, right: (left[0] + right[0], left[1] + right[1]),
        "-": lambda left, right: (left[0] - right[1], left[1] - right[0]),
        "*": multiply,
        "<<": smaller,
        ">>": larger,
        "?:": hull,
    }
)
