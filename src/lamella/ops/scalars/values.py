"""What expressions evaluate to, and the words for it.

A value is a scalar (a number, a string, a symbolic extent or condition, a term of a formula), a pack as a tuple, null
as None, or a tensor, of which nothing is asked but its shape and its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lamella.base.dim import Dim, Extent, Logic, Test
from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.lang.skriptnd.rules.invocation import NOT_COMPUTABLE, TOO_LARGE, UNDECIDED
from lamella.lang.skriptnd.rules.types import INTEGER_NEEDED
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Counter, Element, Guard, Index, Lookup
from lamella.ops.instance import Repeated

Scope: TypeAlias = Mapping[str, object]
"""The value of every name that has one; a `@dtype` name has an element type."""
Code: TypeAlias = Callable[[Scope], object]
"""An expression ready to be evaluated."""
Term: TypeAlias = Index | Counter | Element | Apply | Lookup

TERMS = (Apply, Index, Element, Lookup, Counter)
CONDITIONS = (Test, Logic)
SCALARS = (int, float, str, Dim, Test, Logic, Apply, Index, Element, Lookup, Counter)
LONGEST_SHOWN = 24


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """A helper symbol that cannot be had in this call; whoever uses it meets the problem."""

    problem: Found


def word_of(value: object) -> str:
    """The type of a scalar in the words of the language; other values have a word of ours."""
    kind = type(value)
    found = _WORDS.get(kind)
    if found is not None:
        return found
    if isinstance(value, Apply | Element | Lookup):
        return value.type
    if isinstance(value, int):  # an extent that is marked as open
        return "int"
    return "tensor" if hasattr(value, "shape") else "nothing"


_WORDS: Mapping[type, str] = {
    **{bool: "bool", int: "int", float: "real", str: "str", Dim: "int", Test: "bool", Logic: "bool"},
    **{
        Index: "int",
        Counter: "int",
        tuple: "a pack",
        Repeated: "a pack",
        type(None): "null",
        Guard: "a guarded index",
    },
}


def word_of_type(element: ElementType) -> str:
    """The primitive type that an element type is a width of."""
    if element.is_float:
        return "real"
    return "int" if element.is_integer else str(element.kind)


def same(left: object, right: object) -> bool:
    """Whether two values are one by form, as `is` asks: numbers by value, extents by form, tensors by identity."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, int | float | str | Dim | Test | Logic | Index | Counter):
        return left == right
    return False


def expect_known(value: object, what: str) -> int:
    """An integer that must be known before the run."""
    if type(value) is int:
        return value
    if type(value) is bool:
        return int(value)
    raise Fault(UNDECIDED, what=what, value=show(value))


def expect_extent(value: object, what: str = "an extent") -> Extent:
    """An integer that may be symbolic."""
    if type(value) is int or isinstance(value, Dim):
        return value
    if isinstance(value, TERMS):
        raise Fault(UNDECIDED, what=what, value=spell(value))
    raise Fault(INTEGER_NEEDED, what=what, type=word_of(value))


def expect_count(value: object, what: str, most: int) -> int:
    """A number of items that must be known before the run, and small enough to list them."""
    count = expect_known(value, what)
    if count < 0:
        raise Fault(NOT_COMPUTABLE, what=f"a pack of {spell(count)} items", reason="the length is negative")
    if count > most:
        raise Fault(TOO_LARGE, what=f"a pack of {spell(count)} items", limit="max_pack", bound=most)
    return count


def show(value: object) -> str:
    """A value as a message prints it: short, in the spelling of the language."""
    if type(value) is tuple and len(value) > LONGEST_SHOWN:
        inner = ", ".join(show(item) for item in value[:LONGEST_SHOWN])
        return f"[{inner}, … {len(value)} items]"
    return spell(value)


def spell(value: object) -> str:
    """A value in the spelling of the language, as a formatted string holds it."""
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is tuple:
        return f"[{', '.join([spell(item) for item in value])}]"
    if type(value) is int and value.bit_length() > 512:
        return f"a {value.bit_length()}-bit number"
    if isinstance(value, Repeated):
        return f"[{spell(value.item)} ..({value.length})]"
    if isinstance(value, TERMS):
        return "a value of the run"
    return str(getattr(value, "name", value))
