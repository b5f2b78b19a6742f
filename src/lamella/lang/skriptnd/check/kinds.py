"""What is known about a value before any call: its type, whether it is a pack, a tensor, possibly null; lengths."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TypeAlias

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import Kind as ElementKind
from lamella.base.dtype import find_in
from lamella.base.records import dataclass

# --- lengths and ranks before any call: integer polynomials over the symbols of an operator -----------------


MaybeExtent: TypeAlias = Extent | None

MOST_TERMS = 24
MOST_FACTORS = 4
MOST_BITS = 128
FAR = 1 << 64


class Algebra:
    """Symbolic arithmetic on lengths and ranks; None where nothing is known.

    Lengths are integer polynomials over the symbols of an operator. What no polynomial says becomes a symbol of its
    own, one for each form, so that equal forms stay equal. Sizes are bounded: an expression too large to follow is not
    known, and nothing is said about it.
    """

    def __init__(self) -> None:
        self._forms: dict[Hashable, Extent] = {}

    def form(self, key: Hashable, low: int = -FAR, high: int = FAR) -> Extent:
        """The symbol of a form: the same one for the same form."""
        if key not in self._forms:
            self._forms[key] = dim.symbol(f"({len(self._forms)})", high, low)
        return self._forms[key]

    def combine(self, sign: str, left: MaybeExtent, right: MaybeExtent) -> MaybeExtent:
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

    def _divide(self, sign: str, left: Extent, right: Extent) -> MaybeExtent:
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

    def choose(self, condition: MaybeExtent, then: MaybeExtent, otherwise: MaybeExtent) -> MaybeExtent:
        """`condition ? then : otherwise`, where a condition counts 0 or 1."""
        if then is not None and then == otherwise:
            return then
        return self.combine("+", otherwise, self.combine("*", condition, self.combine("-", then, otherwise)))

    def steps(self, distance: MaybeExtent, step: int) -> MaybeExtent:
        """How many steps of a size a distance takes, the last one possibly shorter."""
        return self.combine("\\", distance, step) if abs(step) > 1 else distance

    def at_least_zero(self, length: MaybeExtent) -> MaybeExtent:
        """A length that is zero where the distance is negative."""
        if length is None or not _is_small(length) or dim.bounds(length)[0] >= 0:
            return length
        return max(length, 0) if isinstance(length, int) else self.form(("length", length), 0)

    def position(self, value: MaybeExtent, total: MaybeExtent) -> MaybeExtent:
        """Where an index points: a negative one counts from the end, one of unknown sign points nowhere known."""
        if value is None or not _is_small(value):
            return None
        low, high = dim.bounds(value)
        if low >= 0:
            return value
        return self.combine("+", total, value) if high < 0 else None

    def differ(self, left: MaybeExtent, right: MaybeExtent) -> bool:
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


def shown(length: MaybeExtent) -> str:
    """A length as a message says it."""
    text = "?" if length is None else str(length)
    return text if "(" not in text else "…"


def _is_small(extent: Extent) -> bool:
    # Products multiply the numbers of terms: without a bound a short text would make polynomials of any size.
    if isinstance(extent, int):
        return extent.bit_length() <= MOST_BITS
    return len(extent.terms) <= MOST_TERMS and all(
        len(atoms) <= MOST_FACTORS and factor.bit_length() <= MOST_BITS for atoms, factor in extent.terms
    )


def _is_plain(extent: Dim) -> bool:
    return all(isinstance(atom, dim.DimSymbol) for atoms, _ in extent.terms for atom in atoms)


PRIMITIVES = ("int", "real", "bool", "str")
ABSTRACT = ("type", "arith", "num")
MEMBERS = {"num": ("int", "real", "num"), "arith": ("int", "real", "bool", "num", "arith")}


@dataclass(frozen=True, slots=True)
class ValueKind:
    """The kind of a value; `type` is None where an earlier finding leaves it open and empty for items of `[]`.

    `value` is the integer (or truth value) that a single value has, `length` that of a pack, `rank` that of a tensor.
    """

    type: str | None
    optional: bool = False
    packed: bool = False
    tensor: bool = False
    length: MaybeExtent = None
    rank: MaybeExtent = None
    value: MaybeExtent = None

    @property
    def known(self) -> bool:
        """Whether anything is known; what is not known is never found wrong."""
        return self.type is not None

    def single(self) -> ValueKind:
        """One item of a pack."""
        return replace(self, packed=False, length=None, value=None)

    def pack(self, length: MaybeExtent) -> ValueKind:
        """A pack of such values."""
        return replace(self, packed=True, length=length, value=None)

    def present(self) -> ValueKind:
        """The same value, tested not to be null."""
        return replace(self, optional=False) if self.optional else self

    def maybe(self, optional: bool = True) -> ValueKind:
        """The same value, possibly null."""
        return replace(self, optional=True) if optional and not self.optional else self

    def __str__(self) -> str:
        name = self.type or "unknown"
        if self.tensor:
            article = "an" if name[0] in "aiu" else "a"
            name = f"a pack of {name} tensors" if self.packed else f"{article} {name} tensor"
        elif self.packed:
            name = f"a pack of {name}"
        return f"optional {name}" if self.optional else name


UNKNOWN = ValueKind(None)
INT = ValueKind("int")
REAL = ValueKind("real")
BOOL = ValueKind("bool")
STR = ValueKind("str")


def family(name: str) -> str:
    """The primitive type that a sized name refines; any other name itself."""
    if name in PRIMITIVES:
        return name
    element = find_in("skriptnd", name)
    if element is None:
        return name
    if element.is_integer:
        return "int"
    return "real" if element.kind is ElementKind.FLOAT else "complex"


def is_type(name: str) -> bool:
    """Whether a name is a concrete type of the language or one of the sized names."""
    return name in PRIMITIVES or find_in("skriptnd", name) is not None


def join_types(left: str | None, right: str | None) -> str | None:
    """The common type of two values, None where they have none; a sized name is more than its primitive type."""
    if left == right or not right or not left:
        return left or right
    if family(left) != family(right):
        return None
    if left in PRIMITIVES:
        return right
    return left if right in PRIMITIVES else None


def agrees(left: ValueKind, right: ValueKind) -> bool:
    """Whether two values have a common type, or one of them is not known."""
    return not left.known or not right.known or join_types(left.type, right.type) is not None


def belongs(name: str, base: str) -> bool:
    """Whether a type, concrete or restricted by an abstract one, is within an abstract type."""
    if base == "type":
        return True
    return family(name) in MEMBERS[base] or (family(name) == "complex" and base == "arith")
