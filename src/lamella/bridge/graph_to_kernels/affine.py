"""What is known of the integers of a formula before the run: affine forms and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from lamella.ops.formula import Apply, Index, Scalar

LARGEST = 1 << 62
"""Ranges beyond this are not trusted: 64-bit arithmetic may wrap around."""


@dataclass(frozen=True, slots=True)
class Form:
    """`constant + Σ factor * index`."""

    constant: int
    factors: tuple[tuple[str, int], ...] = ()


def is_integer(term: object) -> TypeGuard[int]:
    """Whether a term is a known integer."""
    return isinstance(term, int) and not isinstance(term, bool)


def find_form(term: Scalar, extents: Mapping[str, int]) -> Form | None:
    """The affine form of an integer term; an index that takes one step only is 0."""
    if is_integer(term):
        return Form(term)
    if isinstance(term, Index):
        return Form(0, ((term.name, 1),) if extents.get(term.name) != 1 else ())
    if not isinstance(term, Apply) or term.type != "int":
        return None
    forms = [find_form(item, extents) for item in term.operands]
    known = [item for item in forms if item is not None]
    return _combine(term.function, known) if len(known) == len(forms) else None


def _combine(function: str, forms: list[Form]) -> Form | None:
    if function == "+" and len(forms) == 2:
        return _add(forms[0], forms[1], 1)
    if function == "-" and len(forms) == 2:
        return _add(forms[0], forms[1], -1)
    if function == "neg":
        return _add(Form(0), forms[0], -1)
    if function == "*" and len(forms) == 2:
        for one, other in (forms, forms[::-1]):
            if not one.factors:
                return _add(Form(0), other, one.constant)
    return None


def _add(left: Form, right: Form, factor: int) -> Form:
    found = dict(left.factors)
    for name, value in right.factors:
        found[name] = found.get(name, 0) + factor * value
    kept = tuple(sorted((name, value) for name, value in found.items() if value))
    return Form(left.constant + factor * right.constant, kept)


Range = tuple[int, int]


def find_range(term: Scalar, extents: Mapping[str, int]) -> Range | None:
    """The smallest and the largest value of an integer term; None where too little is known."""
    if is_integer(term):
        return term, term
    form = find_form(term, extents)
    if form is not None:
        return _trusted(_form_range(form, extents))
    if not isinstance(term, Apply) or term.type != "int":
        return None
    ranges = [find_range(item, extents) for item in term.operands[term.function == "?:" :]]
    known = [item for item in ranges if item is not None]
    return _trusted(_function_range(term.function, known)) if len(known) == len(ranges) else None


def _form_range(form: Form, extents: Mapping[str, int]) -> Range:
    low = high = form.constant
    for name, factor in form.factors:
        last = max(extents[name] - 1, 0) * factor
        low, high = low + min(last, 0), high + max(last, 0)
    return low, high


def _trusted(found: Range | None) -> Range | None:
    return found if found is not None and found[0] > -LARGEST and found[1] < LARGEST else None


def _function_range(function: str, ranges: list[Range]) -> Range | None:
    if function in ("+", "-", "*") and len(ranges) == 2:
        ends = [_apply(function, one, other) for one in ranges[0] for other in ranges[1]]
        return min(ends), max(ends)
    if function == "/" and ranges[1][0] > 0:
        ends = [one // other for one in ranges[0] for other in ranges[1]]
        return min(ends), max(ends)
    if function == "%" and ranges[1][0] > 0:
        return 0, ranges[1][1] - 1
    if function == "<<":
        return min(ranges[0][0], ranges[1][0]), min(ranges[0][1], ranges[1][1])
    if function == ">>":
        return max(ranges[0][0], ranges[1][0]), max(ranges[0][1], ranges[1][1])
    if function == "?:":
        return min(ranges[0][0], ranges[1][0]), max(ranges[0][1], ranges[1][1])
    return None


def _apply(function: str, left: int, right: int) -> int:
    return left + right if function == "+" else left - right if function == "-" else left * right
