"""The form of symbolic extents and conditions: values in normal form, compared by value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

MOST_PARTS = 4096
"""Parts of one extent or condition, counted as often as they are written out."""
DEEPEST = 64
"""Parts inside each other."""


class TooComplex(ArithmeticError):
    """An extent or a condition has more parts than anyone could use; callers turn it into a finding."""

    def __str__(self) -> str:
        return f"a symbolic value of more than {MOST_PARTS} parts, or {DEEPEST} inside each other"


@dataclass(frozen=True, slots=True)
class Symbol:
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
class Part(Measured):
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


def _parts(extent: Extent) -> Iterable[Part]:
    """The parts directly inside an extent."""
    if isinstance(extent, int):
        return ()
    return [atom for monomial, _ in extent.terms for atom in monomial if isinstance(atom, Part)]


def symbol(name: str, high: int, low: int = 0) -> Extent:
    """A new extent with a range; one of a single value is that value."""
    return low if low == high else Dim((((Symbol(name, low, high),), 1),))
