"""Arithmetic on extents, in normal form: two equal polynomials are one extent, however they were computed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product as pairs

from lamella.base.dim.form import DEEPEST, MOST_PARTS, Dim, Extent, Monomial, Part, TooComplex, Truth
from lamella.base.dim.ranges import bounds


def _terms(extent: Extent) -> tuple[tuple[Monomial, int], ...]:
    return (((), extent),) if isinstance(extent, int) else extent.terms


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Extent:
    """Equal monomials together, zeros gone, in one order."""
    sums: dict[Monomial, int] = {}
    for monomial, factor in terms:
        sums[monomial] = sums.get(monomial, 0) + factor
    kept = [(monomial, factor) for monomial, factor in sums.items() if factor]
    if all(not monomial for monomial, _ in kept):
        return sum(factor for _, factor in kept)
    if len(kept) > MOST_PARTS:
        raise TooComplex
    return Dim(tuple(sorted(kept, key=lambda item: (-len(item[0]), [str(atom) for atom in item[0]]))))


def add(left: Extent, right: Extent) -> Extent:
    """The sum."""
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return _collect([*_terms(left), *_terms(right)])


def sub(left: Extent, right: Extent) -> Extent:
    """The difference."""
    return add(left, mul(right, -1))


def mul(left: Extent, right: Extent) -> Extent:
    """The product."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if len(_terms(left)) * len(_terms(right)) > MOST_PARTS or _degree(left) + _degree(right) > DEEPEST:
        raise TooComplex
    return _collect(
        (tuple(sorted((*a, *b), key=str)), x * y) for (a, x), (b, y) in pairs(_terms(left), _terms(right))
    )


def _degree(extent: Extent) -> int:
    """The factors of the longest monomial, which is the first."""
    return 0 if isinstance(extent, int) else len(extent.terms[0][0])


def _multiple(extent: Extent, divisor: Extent) -> Extent | None:
    """The quotient where it is exact by form: every factor divisible, or the whole a multiple of the divisor."""
    if extent == 0:
        return 0
    if extent == divisor:
        return 1
    if isinstance(divisor, int):
        if divisor and all(factor % divisor == 0 for _, factor in _terms(extent)):
            return _collect((monomial, factor // divisor) for monomial, factor in _terms(extent))
        return None
    return _without(extent, divisor)


def _without(extent: Extent, divisor: Dim) -> Extent | None:
    """The quotient by a single monomial that every term contains."""
    if len(divisor.terms) != 1:
        return None
    ((atoms, factor),) = divisor.terms
    found: list[tuple[Monomial, int]] = []
    for monomial, size in _terms(extent):
        rest = list(monomial)
        for atom in atoms:
            if atom not in rest:
                return None
            rest.remove(atom)
        if size % factor:
            return None
        found.append((tuple(rest), size // factor))
    return _collect(found)


def _part(sign: str, left: Extent, right: Extent) -> Extent:
    return Dim((((Part(sign, (left, right)),), 1),))


def floor_divide(left: Extent, right: Extent) -> Extent:
    """The quotient rounded down; ZeroDivisionError for a divisor that is zero."""
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    exact = _divide_exactly(left, right)
    return _part("/", left, right) if exact is None else exact


def ceil_divide(left: Extent, right: Extent) -> Extent:
    """The quotient rounded up; ZeroDivisionError for a divisor that is zero."""
    if isinstance(left, int) and isinstance(right, int):
        return -(-left // right)
    exact = _divide_exactly(left, right)
    return _part("\\", left, right) if exact is None else exact


def remainder(left: Extent, right: Extent) -> Extent:
    """What flooring division leaves, with the sign of the divisor; ZeroDivisionError for a divisor that is zero."""
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    exact = _divide_exactly(left, right)
    return _part("%", left, right) if exact is None else 0


def _divide_exactly(left: Extent, right: Extent) -> Extent | None:
    if right == 0:
        raise ZeroDivisionError
    return _multiple(left, right)


def smaller(left: Extent, right: Extent) -> Extent:
    """The minimum."""
    return _extreme("<<", left, right)


def larger(left: Extent, right: Extent) -> Extent:
    """The maximum."""
    return _extreme(">>", left, right)


def _extreme(sign: str, left: Extent, right: Extent) -> Extent:
    low, high = bounds(sub(left, right))
    if low >= 0 or high <= 0:
        left_is_smaller = high <= 0
        return left if left_is_smaller == (sign == "<<") else right
    first, second = sorted((left, right), key=str)
    return _part(sign, first, second)


def choose(condition: Truth, then: Extent, otherwise: Extent) -> Extent:
    """`condition ? then : otherwise`."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    return then if then == otherwise else Dim((((Part("?", (then, otherwise), condition),), 1),))
