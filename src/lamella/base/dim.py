"""Extents that are not known before the run: integer expressions in normal form, with the range they stay in.

An extent is a plain `int` where it is known. Otherwise it is a `Dim`: a polynomial over symbols and over the parts that
no polynomial can say (quotients, remainders, minima, choices). Two equal polynomials are one extent, however spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product as pairs
from types import MappingProxyType
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Symbol:
    """An extent known only at run time, with the range it is checked to lie in; `name` is how the language says it."""

    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Part:
    r"""What a polynomial cannot say: `/` (floor), `\` (ceiling), `%`, `<<` (minimum), `>>` (maximum), `?` (choice)."""

    sign: str
    operands: tuple[Extent, ...]
    condition: Condition | None = None

    def __str__(self) -> str:
        inner = [str(item) if isinstance(item, int) else f"({item})" for item in self.operands]
        if self.condition is not None:
            return f"({self.condition} ? {inner[0]} : {inner[1]})"
        return f"({f' {self.sign} '.join(inner)})"


Atom: TypeAlias = Symbol | Part
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Dim:
    """A sum of products: each monomial with its factor, in a fixed order; never a plain number."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        text = ""
        for monomial, factor in self.terms:
            sign, size = ("-" if factor < 0 else "+"), abs(factor)
            words = [str(item) for item in monomial]
            word = " * ".join([str(size), *words] if size != 1 or not words else words)
            text += f" {sign} {word}" if text else (f"-{word}" if sign == "-" else word)
        return text


@dataclass(frozen=True, slots=True)
class Test:
    """A comparison of two extents that cannot be decided before the run: `<`, `<=`, `==` or `!=`."""

    sign: str
    left: Extent
    right: Extent

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True, slots=True)
class Logic:
    """Undecided conditions joined by `&&`, `||` or `^`, or one negated by `!`."""

    sign: str
    operands: tuple[Condition, ...]

    def __str__(self) -> str:
        words = [f"({item})" for item in self.operands]
        return f"!{words[0]}" if self.sign == "!" else f" {self.sign} ".join(words)


Extent: TypeAlias = int | Dim
Condition: TypeAlias = Test | Logic
Truth: TypeAlias = bool | Condition
Values: TypeAlias = Mapping[str, int]


def symbol(name: str, high: int, low: int = 0) -> Extent:
    """A new extent with a range; one of a single value is that value."""
    return low if low == high else Dim((((Symbol(name, low, high),), 1),))


# --- arithmetic ---------------------------------------------------------------------------------------------


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
    return _collect(
        (tuple(sorted((*a, *b), key=str)), x * y) for (a, x), (b, y) in pairs(_terms(left), _terms(right))
    )


def _multiple(extent: Extent, divisor: Extent) -> Extent | None:
    """The quotient where it is exact by form: every factor divisible, or the whole a multiple of the divisor."""
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
    if right == 0:
        raise ZeroDivisionError
    exact = _multiple(left, right)
    return _part("/", left, right) if exact is None else exact


def ceil_divide(left: Extent, right: Extent) -> Extent:
    """The quotient rounded up; ZeroDivisionError for a divisor that is zero."""
    if isinstance(left, int) and isinstance(right, int):
        return -(-left // right)
    if right == 0:
        raise ZeroDivisionError
    exact = _multiple(left, right)
    return _part("\\", left, right) if exact is None else exact


def remainder(left: Extent, right: Extent) -> Extent:
    """What flooring division leaves, with the sign of the divisor; ZeroDivisionError for a divisor that is zero."""
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    if right == 0:
        raise ZeroDivisionError
    return _part("%", left, right) if _multiple(left, right) is None else 0


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


# --- ranges and comparisons ---------------------------------------------------------------------------------


def bounds(extent: Extent) -> tuple[int, int]:
    """The smallest and the largest value an extent can have, by interval arithmetic."""
    if isinstance(extent, int):
        return extent, extent
    low = high = 0
    for monomial, factor in extent.terms:
        ends = (factor, factor)
        for atom in monomial:
            ends = _span(lambda a, b: a * b, ends, _range(atom))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _span(rule: Callable[[int, int], int], left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    ends = [rule(a, b) for a, b in pairs(left, right)]
    return min(ends), max(ends)


def _range(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Symbol):
        return atom.low, atom.high
    left, right = (bounds(item) for item in atom.operands)
    if atom.sign == "?":
        return min(left[0], right[0]), max(left[1], right[1])
    if atom.sign in "/\\%" and right[0] <= 0 <= right[1]:
        # The divisor may be zero, which the run refuses; next to zero the quotient is largest.
        right = (1, max(right[1], 1)) if right[0] == 0 else (min(right[0], -1), max(right[1], 1))
    return _PART_RANGES[atom.sign](left, right)


def _remainder_range(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    if left[0] >= 0 and right[0] > left[1]:
        return left
    return min(right[0] + 1, 0), max(right[1] - 1, 0)


_Ends: TypeAlias = tuple[int, int]
_PART_RANGES: Mapping[str, Callable[[_Ends, _Ends], _Ends]] = MappingProxyType(
    {
        "/": lambda left, right: _span(lambda a, b: a // b, left, right),
        "\\": lambda left, right: _span(lambda a, b: -(-a // b), left, right),
        "%": _remainder_range,
        "<<": lambda left, right: (min(left[0], right[0]), min(left[1], right[1])),
        ">>": lambda left, right: (max(left[0], right[0]), max(left[1], right[1])),
    }
)


def is_same(left: Extent, right: Extent) -> bool:
    """Whether two extents are one by form, decided before the run: the operator `is`."""
    return left == right


def equal(left: Extent, right: Extent) -> Truth:
    """`left == right`, decided where form or ranges decide it."""
    low, high = bounds(sub(left, right))
    if low == high == 0:
        return True
    return False if low > 0 or high < 0 else Test("==", left, right)


def less(left: Extent, right: Extent) -> Truth:
    """`left < right`, decided where ranges decide it."""
    low, high = bounds(sub(left, right))
    if high < 0:
        return True
    return False if low >= 0 else Test("<", left, right)


def less_equal(left: Extent, right: Extent) -> Truth:
    """`left <= right`, decided where ranges decide it."""
    low, high = bounds(sub(left, right))
    if high <= 0:
        return True
    return False if low > 0 else Test("<=", left, right)


def negate(truth: Truth) -> Truth:
    """`!truth`."""
    if isinstance(truth, bool):
        return not truth
    return truth.operands[0] if isinstance(truth, Logic) and truth.sign == "!" else Logic("!", (truth,))


def both(left: Truth, right: Truth) -> Truth:
    """`left && right`."""
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return left if left == right else Logic("&&", (left, right))


def either(left: Truth, right: Truth) -> Truth:
    """`left || right`."""
    return negate(both(negate(left), negate(right)))


def differ(left: Truth, right: Truth) -> Truth:
    """`left ^ right`."""
    if isinstance(left, bool):
        return negate(right) if left else right
    if isinstance(right, bool):
        return negate(left) if right else left
    return Logic("^", (left, right))


# --- values at run time -------------------------------------------------------------------------------------


def symbols(value: Extent | Truth) -> Iterator[Symbol]:
    """The symbols in an extent or a condition, possibly several times."""
    if isinstance(value, Dim):
        for monomial, _ in value.terms:
            for atom in monomial:
                yield from [atom] if isinstance(atom, Symbol) else _part_symbols(atom)
    elif isinstance(value, Test):
        yield from (*symbols(value.left), *symbols(value.right))
    elif isinstance(value, Logic):
        for item in value.operands:
            yield from symbols(item)


def _part_symbols(part: Part) -> Iterator[Symbol]:
    if part.condition is not None:
        yield from symbols(part.condition)
    for item in part.operands:
        yield from symbols(item)


def substitute(extent: Extent, values: Values) -> Extent:
    """The extent with some symbols known."""
    if isinstance(extent, int):
        return extent
    total: Extent = 0
    for monomial, factor in extent.terms:
        term: Extent = factor
        for atom in monomial:
            term = mul(term, _atom_value(atom, values))
        total = add(total, term)
    return total


def _atom_value(atom: Atom, values: Values) -> Extent:
    if isinstance(atom, Symbol):
        return values[atom.name] if atom.name in values else Dim((((atom,), 1),))
    left, right = (substitute(item, values) for item in atom.operands)
    if atom.condition is not None:
        return choose(substitute_truth(atom.condition, values), left, right)
    return _ARITHMETIC[atom.sign](left, right)


_ARITHMETIC: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {"/": floor_divide, "\\": ceil_divide, "%": remainder, "<<": smaller, ">>": larger}
)


def substitute_truth(truth: Truth, values: Values) -> Truth:
    """The condition with some symbols known."""
    if isinstance(truth, bool):
        return truth
    if isinstance(truth, Test):
        left, right = substitute(truth.left, values), substitute(truth.right, values)
        return _COMPARISONS[truth.sign](left, right)
    inner = [substitute_truth(item, values) for item in truth.operands]
    if truth.sign == "!":
        return negate(inner[0])
    return {"&&": both, "||": either, "^": differ}[truth.sign](*inner)


_COMPARISONS: Mapping[str, Callable[[Extent, Extent], Truth]] = MappingProxyType(
    {
        "==": equal,
        "!=": lambda left, right: negate(equal(left, right)),
        "<": less,
        "<=": less_equal,
    }
)
