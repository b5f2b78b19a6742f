"""Lengths and ranks before any call: integer polynomials over the symbols of an operator.

What no polynomial says becomes a symbol of its own, one for each form, so that equal forms stay equal. Sizes are
bounded: an expression too large to follow is not known, and nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from lamella.base import dim
from lamella.base.dim import Dim, Extent

Known: TypeAlias = Extent | None

MOST_TERMS = 24
MOST_FACTORS = 4
MOST_BITS = 128
FAR = 1 << 64


class Algebra:
    """Arithmetic on lengths that may not be known; None where nothing is known."""

    def __init__(self) -> None:
        self._forms: dict[Hashable, Extent] = {}

    def form(self, key: Hashable, low: int = -FAR, high: int = FAR) -> Extent:
        """The symbol of a form: the same one for the same form."""
        if key not in self._forms:
            self._forms[key] = dim.symbol(f"({len(self._forms)})", high, low)
        return self._forms[key]

    def combine(self, sign: str, left: Known, right: Known) -> Known:
        """`left sign right` for the integer operators."""
        if left is None or right is None or not (_is_small(left) and _is_small(right)):
            return None
        if sign == "+":
            return dim.add(left, right)
        if sign == "-":
            return dim.sub(left, right)
        if sign == "*":
            return dim.mul(left, right)
        return self._divide(sign, left, right)

    def _divide(self, sign: str, left: Extent, right: Extent) -> Known:
        if right == 0 and sign in "/\\%":
            return None
        if sign == "/":
            found = dim.floor_divide(left, right)
        elif sign == "\\":
            found = dim.ceil_divide(left, right)
        elif sign in ("<<", ">>"):
            found = dim.smaller(left, right) if sign == "<<" else dim.larger(left, right)
        else:
            return self.form((sign, left, right))
        return found if isinstance(found, int) or _is_plain(found) else self.form((sign, left, right))

    def choose(self, condition: Known, then: Known, otherwise: Known) -> Known:
        """`condition ? then : otherwise`, where a condition counts 0 or 1."""
        if then is not None and then == otherwise:
            return then
        return self.combine("+", otherwise, self.combine("*", condition, self.combine("-", then, otherwise)))

    def steps(self, distance: Known, step: int) -> Known:
        """How many steps of a size a distance takes, the last one possibly shorter."""
        return self.combine("\\", distance, step) if abs(step) > 1 else distance

    def at_least_zero(self, length: Known) -> Known:
        """A length that is zero where the distance is negative."""
        if length is None or not _is_small(length) or dim.bounds(length)[0] >= 0:
            return length
        return max(length, 0) if isinstance(length, int) else self.form(("length", length), 0)

    def position(self, value: Known, total: Known) -> Known:
        """Where an index points: a negative one counts from the end, one of unknown sign points nowhere known."""
        if value is None or not _is_small(value):
            return None
        low, high = dim.bounds(value)
        if low >= 0:
            return value
        return self.combine("+", total, value) if high < 0 else None

    def differ(self, left: Known, right: Known) -> bool:
        """Whether two lengths are different whatever the symbols are."""
        if left is None or right is None or not (_is_small(left) and _is_small(right)):
            return False
        return dim.equal(left, right) is False


def length_of(name: str) -> Extent:
    """The length or rank that a name stands for."""
    return dim.symbol(name, FAR, 0)


def number_of(name: str) -> Extent:
    """The integer that a name stands for."""
    return dim.symbol(name, FAR, -FAR)


def truth_of(name: str) -> Extent:
    """The truth value that a name stands for, 0 or 1."""
    return dim.symbol(name, 1, 0)


def shown(length: Known) -> str:
    """A length as a message says it."""
    text = "?" if length is None else str(length)
    return text if "(" not in text else "…"


def _is_small(extent: Extent) -> bool:
    if isinstance(extent, int):
        return extent.bit_length() <= MOST_BITS
    return len(extent.terms) <= MOST_TERMS and all(
        len(atoms) <= MOST_FACTORS and factor.bit_length() <= MOST_BITS for atoms, factor in extent.terms
    )


def _is_plain(extent: Dim) -> bool:
    return all(isinstance(atom, dim.DimSymbol) for atoms, _ in extent.terms for atom in atoms)
