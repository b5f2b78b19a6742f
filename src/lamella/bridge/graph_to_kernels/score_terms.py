"""Terms of attention: what is made of scores before the exponential."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TypeGuard

from lamella.base.errors import Unsupported
from lamella.ops.formula import Apply, Element
from lamella.ops.formula import Scalar as Term


def find_factor(term: Term, scores: str) -> tuple[float, bool]:
    """By what scores are multiplied in a term, and whether a mask hides some."""
    if isinstance(term, Element) and term.tensor == scores:
        return 1.0, False
    if not isinstance(term, Apply):
        raise Unsupported("its rows are no multiples of scores")
    if term.function == "?:" and term.operands[2] == -inf:
        return find_factor(term.operands[1], scores)[0], True
    numbers = [item for item in term.operands if isinstance(item, int | float) and not isinstance(item, bool)]
    others = [item for item in term.operands if item not in numbers]
    if len(numbers) != 1 or len(others) != 1 or not isinstance(others[0], Apply | Element):
        raise Unsupported("its rows are no multiples of scores")
    factor, masked = find_factor(others[0], scores)
    if term.function == "+" and numbers[0] == 0:
        return factor, masked
    if term.function == "*":
        return factor * numbers[0], masked
    if term.function == "/" and term.operands[1] is numbers[0]:
        return factor / numbers[0], masked
    raise Unsupported("its rows are no multiples of scores")


def is_reals(terms: Sequence[Term]) -> TypeGuard[Sequence[Element]]:
    """Whether terms are two elements."""
    return len(terms) == 2 and all(isinstance(item, Element) for item in terms)


def without_guard(term: Term, tensor: str, number: float) -> Term | None:
    """What a term is but where an element of a tensor is a number, and it is 0; None where it is no such choice."""
    if not isinstance(term, Apply) or term.function != "?:":
        return None
    condition, nothing, rest = term.operands
    if not isinstance(condition, Apply) or condition.function != "==" or nothing != 0.0:
        return None
    first, second = condition.operands
    return rest if isinstance(first, Element) and first.tensor == tensor and second == number else None
