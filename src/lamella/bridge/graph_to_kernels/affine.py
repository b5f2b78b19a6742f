"""What is known of the integers of a formula before the run: affine forms and ranges."""

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
    if is_integer(term):
        return Affine(term)
    if isinstance(term, Index):
        return Affine(0, ((term.name, 1),) if extents.get(term.name) != 1 else ())
    if not isinstance(term, Apply) or term.type != "int":
        return None
    forms = [find_form(item, extents) for item in term.operands]
    known = [item for item in forms if item is not None]
    return combine(term.function, known) if len(known) == len(forms) else None


def find_range(term: Scalar, extents: Mapping[str, int]) -> Interval | None:
    """The smallest and the largest value of an integer term; None where too little is known."""
    if is_integer(term):
        return term, term
    form = find_form(term, extents)
    if form is not None:
        return _trusted(_form_range(form, extents))
    if not isinstance(term, Apply) or term.type != "int":
        return None
    between = _between(term, extents)
    if between is not None:
        return between
    ranges = [find_range(item, extents) for item in term.operands[term.function == "?:" :]]
    known = [item for item in ranges if item is not None]
    return _trusted(_function_range(term.function, known)) if len(known) == len(ranges) else None


def _between(term: Apply, extents: Mapping[str, int]) -> Interval | None:
    """The range of an integer that is held between two constants, whatever it is."""
    inner = term.operands[0]
    if term.function != "<<" or not isinstance(inner, Apply) or inner.function != ">>":
        return None
    low, high = inner.operands[1], term.operands[1]
    if not is_integer(low) or not is_integer(high):
        return None
    found = find_range(inner.operands[0], extents) or (-LARGEST, LARGEST)
    return smaller(larger(found, (low, low)), (high, high))


def _form_range(form: Form, extents: Mapping[str, int]) -> Interval:
    return form.bounds({name: (0, max(extents[name] - 1, 0)) for name, _ in form.terms})


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
