"""Affine forms: an integer constant plus integer multiples of symbols."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant + sum of coefficient * symbol`; terms ascend by symbol and no coefficient is 0."""

    constant: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Affine) -> Affine:
        return self.plus(other, 1)

    def __sub__(self, other: Affine) -> Affine:
        return self.plus(other, -1)

    def plus(self, other: Affine, factor: int) -> Affine:
        """This form and a multiple of another."""
        constant = self.constant + factor * other.constant
        if not other.terms or factor == 0:
            return Affine(constant, self.terms)
        sums = dict(self.terms)
        for symbol, coefficient in other.terms:
            sums[symbol] = sums.get(symbol, 0) + factor * coefficient
        return Affine(constant, tuple(sorted(item for item in sums.items() if item[1])))

    def times(self, factor: int) -> Affine:
        """A multiple of this form."""
        if factor == 0:
            return Affine()
        terms = tuple((symbol, factor * coefficient) for symbol, coefficient in self.terms)
        return Affine(factor * self.constant, terms)

    def coefficient(self, symbol: int) -> int:
        """How often a symbol occurs."""
        return next((number for item, number in self.terms if item == symbol), 0)

    def without(self, symbol: int) -> Affine:
        """What is left when a symbol is 0."""
        return Affine(self.constant, tuple(item for item in self.terms if item[0] != symbol))

    def replace(self, symbol: int, form: Affine) -> Affine:
        """This form with another one in place of a symbol."""
        coefficient = self.coefficient(symbol)
        return self.without(symbol).plus(form, coefficient) if coefficient else self

    @property
    def symbols(self) -> frozenset[int]:
        """The symbols that occur."""
        return frozenset(symbol for symbol, _ in self.terms)

    def tightened(self) -> Affine:
        """The strongest form that is 0 or more for the same integers."""
        divisor = gcd(*(coefficient for _, coefficient in self.terms))
        if divisor < 2:
            return self
        terms = tuple((symbol, coefficient // divisor) for symbol, coefficient in self.terms)
        return Affine(self.constant // divisor, terms)


ZERO = Affine()
ONE = Affine(1)
