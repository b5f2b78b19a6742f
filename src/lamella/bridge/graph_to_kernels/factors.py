"""Operands of sums of products: elements as they are, or quantised codes that are decoded on the fly.

y += x * w                      both are elements
y += x * (real(q) * s)          q holds codes, integers or reals of 8 bits, s the scale of a row of q, or of a part
y += x * (t[q + 8] * s)         4-bit codes that are looked up in a table of sixteen numbers
"""

from __future__ import annotations

from lamella.base.codes import LOWEST_CODE
from lamella.base.records import dataclass
from lamella.ops.formula import Apply, Contraction, Element, Lookup, Scalar

CODES = 16
"""How many codes of 4 bits there are."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor: an element, and the scales that belong to it."""

    element: Element
    scales: tuple[Element, ...] = ()
    numbers: tuple[float, ...] = ()
    """What its codes of 4 bits stand for, from the lowest on, where they are not numbers themselves."""


def find_factors(stage: Contraction) -> tuple[Factor, Factor] | None:
    """The two factors of a sum of products; None where a stage is none."""
    value = stage.values[0]
    if stage.sign != "+=" or not isinstance(value, Apply) or value.function != "*":
        return None
    found = [
        Factor(item) if isinstance(item, Element) else find_decoded(item, scaled=True)
        for item in value.operands
    ]
    first, second = found
    return None if first is None or second is None else (first, second)


def find_decoded(term: Scalar, scaled: bool = False) -> Factor | None:
    """The codes behind a term: `real(q)` or `t[q + 8]`, or that times scales; None where it is something else."""
    if isinstance(term, Lookup):
        return _looked_up(term)
    if not isinstance(term, Apply):
        return None
    first = term.operands[0]
    if term.function == "cast" and term.type == "real":
        return Factor(first) if isinstance(first, Element) and first.type in ("int", "real") else None
    if term.function != "*" or not scaled:
        return None
    for codes, scale in (term.operands, term.operands[::-1]):
        found = find_decoded(codes, scaled=True)
        if found is not None and isinstance(scale, Element):
            return Factor(found.element, (*found.scales, scale), found.numbers)
    return None


def _looked_up(term: Lookup) -> Factor | None:
    """Codes that pick numbers of a table."""
    index = term.index
    if not isinstance(index, Apply) or index.function != "+" or len(term.table) != CODES:
        return None
    codes, start = index.operands
    numbers = tuple(item for item in term.table if isinstance(item, float))
    plain = isinstance(codes, Element) and start == -LOWEST_CODE and len(numbers) == CODES
    return Factor(codes, (), numbers) if plain and isinstance(codes, Element) else None


def is_contraction(stage: Contraction) -> bool:
    """Whether a stage is a sum of products of two factors."""
    return find_factors(stage) is not None
