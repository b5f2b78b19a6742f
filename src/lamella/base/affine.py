"""Affine forms `constant + Σ coefficient · symbol` over integers, and the interval arithmetic that bounds them.

All arithmetic is exact: coefficients are Python integers, and who must stay in 64 bits asks afterwards. Languages whose
expressions are more than affine (products, quotients) build on `add_terms` and on the bounds of single operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import gcd
from typing import Generic, Protocol, TypeAlias, TypeVar

from lamella.base.records import dataclass

Symbol = TypeVar("Symbol", bound=Hashable)
Key = TypeVar("Key", contravariant=True)
Value = TypeVar("Value", covariant=True)

Interval: TypeAlias = tuple[int, int]
"""The least and the largest value, both included."""
Bound: TypeAlias = int | None
OpenInterval: TypeAlias = tuple[Bound, Bound]
"""An interval whose ends may be open: None where nothing is known on that side."""


class Lookup(Protocol[Key, Value]):
    """A mapping or a sequence: what gives a value by symbol."""

    def __getitem__(self, key: Key, /) -> Value: ...


def add_terms(
    left: Iterable[tuple[Symbol, int]], right: Iterable[tuple[Symbol, int]], factor: int = 1
) -> list[tuple[Symbol, int]]:
    """The terms of `left + factor · right`: equal symbols once, zeros gone, those of the left side first."""
    sums = dict(left)
    for symbol, coefficient in right:
        sums[symbol] = sums.get(symbol, 0) + factor * coefficient
    return [item for item in sums.items() if item[1]]


@dataclass(frozen=True, slots=True)
class Affine(Generic[Symbol]):
    """`constant + Σ coefficient · symbol`, in normal form: terms ascend by symbol and no coefficient is 0."""

    constant: int = 0
    terms: tuple[tuple[Symbol, int], ...] = ()

    def __add__(self, other: Affine[Symbol]) -> Affine[Symbol]:
        return self.plus(other)

    def __sub__(self, other: Affine[Symbol]) -> Affine[Symbol]:
        return self.plus(other, -1)

    def plus(self, other: Affine[Symbol], factor: int = 1) -> Affine[Symbol]:
        """The sum with a multiple of another form."""
        constant = self.constant + factor * other.constant
        if not other.terms or factor == 0:
            return Affine(constant, self.terms)
        if not self.terms:
            if factor == 1:
                return Affine(constant, other.terms)
            return Affine(constant, tuple([(symbol, factor * number) for symbol, number in other.terms]))
        # Symbols are unique, so that sorting never compares coefficients.
        return Affine(constant, tuple(sorted(add_terms(self.terms, other.terms, factor))))

    def times(self, factor: int) -> Affine[Symbol]:
        """The form scaled by a number."""
        if factor == 0:
            return Affine()
        return Affine(factor * self.constant, tuple([(symbol, factor * item) for symbol, item in self.terms]))

    def coefficient(self, symbol: Symbol) -> int:
        """The coefficient of a symbol, 0 where it does not occur."""
        for item, number in self.terms:
            if item == symbol:
                return number
        return 0

    def without(self, symbol: Symbol) -> Affine[Symbol]:
        """The form with 0 substituted for a symbol."""
        return Affine(self.constant, tuple([item for item in self.terms if item[0] != symbol]))

    def replace(self, symbol: Symbol, form: Affine[Symbol]) -> Affine[Symbol]:
        """The form with another one substituted for a symbol."""
        coefficient = self.coefficient(symbol)
        return self.without(symbol).plus(form, coefficient) if coefficient else self

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols that occur."""
        return frozenset([symbol for symbol, _ in self.terms])

    def at(self, values: Lookup[Symbol, int]) -> int:
        """The value where every symbol has the value of a lookup."""
        return self.constant + sum([number * values[symbol] for symbol, number in self.terms])

    def bounds(self, box: Lookup[Symbol, Interval]) -> Interval:
        """The exact least and largest value over a box of intervals, one for each symbol."""
        low = high = self.constant
        for symbol, coefficient in self.terms:
            first, last = box[symbol]
            if coefficient > 0:
                low, high = low + coefficient * first, high + coefficient * last
            else:
                low, high = low + coefficient * last, high + coefficient * first
        return low, high

    def open_bounds(self, box: Lookup[Symbol, OpenInterval]) -> OpenInterval:
        """The bounds over a box whose intervals may be open; one open end opens that of the sum."""
        low: Bound = self.constant
        high: Bound = self.constant
        for symbol, coefficient in self.terms:
            first, last = box[symbol]
            if coefficient < 0:
                first, last = last, first
            low = None if low is None or first is None else low + coefficient * first
            high = None if high is None or last is None else high + coefficient * last
        return low, high

    def tightened(self) -> Affine[Symbol]:
        """The strongest form that is 0 or more for the same integers: coefficients without a common divisor."""
        divisor = gcd(*[coefficient for _, coefficient in self.terms])
        if divisor < 2:
            return self
        # The sum of the terms is a multiple of the divisor, so the constant may be rounded down.
        terms = tuple([(symbol, coefficient // divisor) for symbol, coefficient in self.terms])
        return Affine(self.constant // divisor, terms)


def weighted_sum(constant: int, parts: Iterable[tuple[Affine[Symbol], int]]) -> Affine[Symbol]:
    """`constant + Σ factor · form`: one form where a chain of `plus` would make one for each part."""
    sums: dict[Symbol, int] = {}
    for form, factor in parts:
        constant += factor * form.constant
        for symbol, coefficient in form.terms:
            sums[symbol] = sums.get(symbol, 0) + factor * coefficient
    terms = [item for item in sums.items() if item[1]]
    if len(terms) > 1:
        terms.sort()
    return Affine(constant, tuple(terms))


def combine(function: str, forms: list[Affine[Symbol]]) -> Affine[Symbol] | None:
    """The form of `+`, `-`, `*` and `neg` applied to forms; None where the result is not affine."""
    if function == "neg":
        return forms[0].times(-1)
    if len(forms) != 2:
        return None
    left, right = forms
    if function in ("+", "-"):
        return left.plus(right, 1 if function == "+" else -1)
    if function == "*" and not left.terms:
        return right.times(left.constant)
    return left.times(right.constant) if function == "*" and not right.terms else None


# --- interval arithmetic: the bounds of one operation from those of its operands ----------------------------


def corners(rule: Callable[[int, int], int], left: Iterable[int], right: Iterable[int]) -> Interval:
    """The bounds of an operation that is monotonic in each operand: it is extreme where both are."""
    ends = [rule(one, other) for one in left for other in right]
    return min(ends), max(ends)


def multiply(left: Interval, right: Interval) -> Interval:
    """The bounds of a product."""
    ends = [one * other for one in left for other in right]
    return min(ends), max(ends)


def hull(left: Interval, right: Interval) -> Interval:
    """The smallest interval that holds both: bounds of a choice."""
    return min(left[0], right[0]), max(left[1], right[1])


def smaller(left: Interval, right: Interval) -> Interval:
    """The bounds of a minimum."""
    return min(left[0], right[0]), min(left[1], right[1])


def larger(left: Interval, right: Interval) -> Interval:
    """The bounds of a maximum."""
    return max(left[0], right[0]), max(left[1], right[1])


def divisors(interval: Interval) -> list[int]:
    """The divisors at which a quotient is extreme: both ends and those next to zero, which itself is left out."""
    low, high = interval
    # |a / b| falls with |b|: next to zero it is largest, at the ends smallest, and in between on either side monotonic.
    return [number for number in (low, high, -1, 1) if number and low <= number <= high] or [1]


def truncated_remainder(left: Interval, right: Interval) -> Interval:
    """The bounds of what a quotient rounded towards zero leaves: it has the sign of the dividend."""
    most = max(abs(right[0]), abs(right[1]), 1) - 1
    return max(-most, min(left[0], 0)), min(most, max(left[1], 0))
