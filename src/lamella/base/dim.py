"""Extents that are not known before the run: integer expressions in normal form, with the range they stay in.

An extent is a plain `int` where it is known. Otherwise it is a `Dim`: a polynomial over symbols and over the parts that
no polynomial can say (quotients, remainders, minima, choices). Two equal polynomials are one extent, however spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import reduce
from itertools import product as pairs
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.affine import Interval, corners, divisors, hull, multiply
from lamella.base.affine import larger as larger_bounds
from lamella.base.affine import smaller as smaller_bounds
from lamella.base.records import dataclass

# --- the form of symbolic extents and conditions: values in normal form, compared by value ------------------


MOST_PARTS = 4096
"""Parts of one extent or condition, counted as often as they are written out."""
DEEPEST = 64
"""Parts inside each other."""


class TooComplex(ArithmeticError):
    """A symbolic value, or a question about one, is larger than anyone could use; callers turn it into a finding."""

    def __str__(self) -> str:
        return f"a symbolic value of more than {MOST_PARTS} parts, or {DEEPEST} inside each other"


@dataclass(frozen=True, slots=True)
class DimSymbol:
    """An extent known only at run time, with the range it is checked to lie in; `name` is how the language says it."""

    name: str
    low: int
    high: int

    def __str__(self) -> str:
        return self.name


class Measured:
    """What knows its size, its depth and its text: all are asked again and again while extents are computed."""

    __slots__ = ()
    weight: int
    depth: int
    text: str

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def measure(self, parts: Iterable[Measured], text: str) -> None:
        """Set the derived fields from the parts inside; refuse what grows without end."""
        weight, depth = 1, 1
        for part in parts:
            weight, depth = weight + part.weight, max(depth, part.depth + 1)
        if weight > MOST_PARTS or depth > DEEPEST:
            raise TooComplex
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "text", text)


def _derived_number() -> int:
    number: int = field(init=False, compare=False, repr=False)
    return number


def _derived_text() -> str:
    text: str = field(init=False, compare=False, repr=False)
    return text


@dataclass(frozen=True, slots=True)
class DimPart(Measured):
    r"""What a polynomial cannot say: `/` (floor), `\` (ceiling), `%`, `<<` (minimum), `>>` (maximum), `?` (choice)."""

    sign: str
    operands: tuple[Extent, ...]
    condition: Condition | None = None
    weight: int = _derived_number()
    depth: int = _derived_number()
    text: str = _derived_text()

    def __post_init__(self) -> None:
        inner = [f"({item})" if _is_compound(item) else str(item) for item in self.operands]
        parts = [part for item in self.operands for part in _parts(item)]
        if self.condition is None:
            self.measure(parts, f"({f' {self.sign} '.join(inner)})")
        else:
            self.measure([*parts, self.condition], f"({self.condition} ? {inner[0]} : {inner[1]})")

    __hash__ = Measured.__hash__
    __str__ = Measured.__str__


Atom: TypeAlias = DimSymbol | DimPart
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
class Test(Measured):
    """A comparison of two extents that cannot be decided before the run: `<`, `<=`, `==` or `!=`."""

    __test__ = False

    sign: str
    left: Extent
    right: Extent
    weight: int = _derived_number()
    depth: int = _derived_number()
    text: str = _derived_text()

    def __post_init__(self) -> None:
        parts = [*_parts(self.left), *_parts(self.right)]
        self.measure(parts, f"{self.left} {self.sign} {self.right}")

    __hash__ = Measured.__hash__
    __str__ = Measured.__str__


@dataclass(frozen=True, slots=True)
class Logic(Measured):
    """Undecided conditions joined by `&&`, `||` or `^`, or one negated by `!`."""

    sign: str
    operands: tuple[Condition, ...]
    weight: int = _derived_number()
    depth: int = _derived_number()
    text: str = _derived_text()

    def __post_init__(self) -> None:
        words = [f"({item})" for item in self.operands]
        self.measure(self.operands, f"!{words[0]}" if self.sign == "!" else f" {self.sign} ".join(words))

    __hash__ = Measured.__hash__
    __str__ = Measured.__str__


Extent: TypeAlias = int | Dim
Condition: TypeAlias = Test | Logic
Truth: TypeAlias = bool | Condition
Values: TypeAlias = Mapping[str, Extent]


def _is_compound(extent: Extent) -> bool:
    """Whether the text of an extent needs parentheses inside another."""
    return isinstance(extent, Dim) and (
        len(extent.terms) > 1 or extent.terms[0][1] != 1 or len(extent.terms[0][0]) > 1
    )


def _parts(extent: Extent) -> Iterable[DimPart]:
    """The parts directly inside an extent."""
    if isinstance(extent, int):
        return ()
    return [atom for monomial, _ in extent.terms for atom in monomial if isinstance(atom, DimPart)]


def symbol(name: str, high: int, low: int = 0) -> Extent:
    """A new extent with a range; one of a single value is that value."""
    return low if low == high else Dim((((DimSymbol(name, low, high),), 1),))


# --- the range an extent stays in, by interval arithmetic ---------------------------------------------------


def bounds(extent: Extent) -> Interval:
    """The smallest and the largest value an extent can have, or a little beyond them."""
    if isinstance(extent, int):
        return extent, extent
    low = high = 0
    for monomial, factor in extent.terms:
        ends = (factor, factor)
        for atom in monomial:
            ends = multiply(ends, _range(atom))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _range(atom: Atom) -> Interval:
    if isinstance(atom, DimSymbol):
        return atom.low, atom.high
    left, right = (bounds(item) for item in atom.operands)
    if atom.sign == "?":
        return hull(left, right)
    return _PART_RANGES[atom.sign](left, right)


def _remainder_range(left: Interval, right: Interval) -> Interval:
    if left[0] >= 0 and right[0] > left[1]:
        return left
    return min(right[0] + 1, 0), max(right[1] - 1, 0)


_PART_RANGES: Mapping[str, Callable[[Interval, Interval], Interval]] = MappingProxyType(
    {
        "/": lambda left, right: corners(lambda a, b: a // b, left, divisors(right)),
        "\\": lambda left, right: corners(lambda a, b: -(-a // b), left, divisors(right)),
        "%": _remainder_range,
        "<<": smaller_bounds,
        ">>": larger_bounds,
    }
)


# --- arithmetic on extents, in normal form: two equal polynomials are one extent, however they were ---------


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
    return Dim((((DimPart(sign, (left, right)),), 1),))


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
    return then if then == otherwise else Dim((((DimPart("?", (then, otherwise), condition),), 1),))


# --- comparisons and logic on extents, decided where form or ranges decide them -----------------------------


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


_OPPOSITE: Mapping[str, str] = MappingProxyType({"==": "!=", "!=": "=="})


def negate(truth: Truth) -> Truth:
    """`!truth`."""
    if isinstance(truth, bool):
        return not truth
    if isinstance(truth, Test):
        if truth.sign in _OPPOSITE:
            return Test(_OPPOSITE[truth.sign], truth.left, truth.right)
        return Test("<=" if truth.sign == "<" else "<", truth.right, truth.left)
    return truth.operands[0] if truth.sign == "!" else Logic("!", (truth,))


def both(left: Truth, right: Truth) -> Truth:
    """`left && right`."""
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return _join("&&", left, right)


def either(left: Truth, right: Truth) -> Truth:
    """`left || right`."""
    if isinstance(left, bool):
        return True if left else right
    if isinstance(right, bool):
        return True if right else left
    return _join("||", left, right)


def _join(sign: str, left: Condition, right: Condition) -> Condition:
    """Conditions joined, flat and each once."""
    operands = dict.fromkeys((*_operands(sign, left), *_operands(sign, right)))
    return left if len(operands) == 1 else Logic(sign, tuple(operands))


def _operands(sign: str, condition: Condition) -> tuple[Condition, ...]:
    return condition.operands if isinstance(condition, Logic) and condition.sign == sign else (condition,)


def differ(left: Truth, right: Truth) -> Truth:
    """`left ^ right`."""
    if isinstance(left, bool):
        return negate(right) if left else right
    if isinstance(right, bool):
        return negate(left) if right else left
    return False if left == right else Logic("^", (left, right))


# --- extents and conditions with some symbols known: what the run asks --------------------------------------


def is_told_by_result(extent: Extent) -> bool:
    """Whether an extent is that of what an operation gives, such as `index.shape[1]`: only the run tells it."""
    return isinstance(extent, Dim) and any(".shape[" in item.name for item in symbols(extent))


def symbols(value: Extent | Truth) -> Iterator[DimSymbol]:
    """The symbols in an extent or a condition, possibly several times."""
    if isinstance(value, Dim):
        for monomial, _ in value.terms:
            for atom in monomial:
                yield from [atom] if isinstance(atom, DimSymbol) else _part_symbols(atom)
    elif isinstance(value, Test):
        yield from (*symbols(value.left), *symbols(value.right))
    elif isinstance(value, Logic):
        for item in value.operands:
            yield from symbols(item)


def _part_symbols(part: DimPart) -> Iterator[DimSymbol]:
    if part.condition is not None:
        yield from symbols(part.condition)
    for item in part.operands:
        yield from symbols(item)


def substitute(extent: Extent, values: Values) -> Extent:
    """The extent with some symbols known; ZeroDivisionError where a divisor turns out to be zero."""
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
    if isinstance(atom, DimSymbol):
        return values[atom.name] if atom.name in values else Dim((((atom,), 1),))
    if atom.condition is not None:
        return _chosen(atom.condition, atom, values)
    left, right = (substitute(item, values) for item in atom.operands)
    return _ARITHMETIC[atom.sign](left, right)


def _chosen(condition: Truth, part: DimPart, values: Values) -> Extent:
    """A choice; what is not chosen is not computed."""
    truth = substitute_truth(condition, values)
    if isinstance(truth, bool):
        return substitute(part.operands[0 if truth else 1], values)
    return choose(truth, substitute(part.operands[0], values), substitute(part.operands[1], values))


_ARITHMETIC: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {"/": floor_divide, "\\": ceil_divide, "%": remainder, "<<": smaller, ">>": larger}
)


def substitute_truth(truth: Truth, values: Values) -> Truth:
    """The condition with some symbols known."""
    return change_truth(truth, lambda extent: substitute(extent, values))


def change_truth(truth: Truth, change: Callable[[Extent], Extent]) -> Truth:
    """The condition with every extent that it compares replaced."""
    if isinstance(truth, bool):
        return truth
    if isinstance(truth, Test):
        return _COMPARISONS[truth.sign](change(truth.left), change(truth.right))
    inner = [change_truth(item, change) for item in truth.operands]
    return negate(inner[0]) if truth.sign == "!" else reduce(_LOGIC[truth.sign], inner)


_LOGIC: Mapping[str, Callable[[Truth, Truth], Truth]] = MappingProxyType(
    {"&&": both, "||": either, "^": differ}
)
_COMPARISONS: Mapping[str, Callable[[Extent, Extent], Truth]] = MappingProxyType(
    {
        "==": equal,
        "!=": lambda left, right: negate(equal(left, right)),
        "<": less,
        "<=": less_equal,
    }
)


__all__ = [
    "Atom",
    "Condition",
    "Dim",
    "DimPart",
    "DimSymbol",
    "Extent",
    "Logic",
    "Monomial",
    "Test",
    "TooComplex",
    "Truth",
    "Values",
    "add",
    "both",
    "bounds",
    "ceil_divide",
    "change_truth",
    "choose",
    "differ",
    "either",
    "equal",
    "floor_divide",
    "is_same",
    "larger",
    "less",
    "less_equal",
    "mul",
    "negate",
    "remainder",
    "smaller",
    "sub",
    "substitute",
    "substitute_truth",
    "symbol",
    "symbols",
]
