"""What is known about a value before any call: its type, whether it is a pack, a tensor, possibly null."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lamella.base.dtype import Kind as ElementKind
from lamella.base.dtype import find_in
from lamella.lang.skriptnd.check.lengths import Known

PRIMITIVES = ("int", "real", "bool", "str")
ABSTRACT = ("type", "arith", "num")
MEMBERS = {"num": ("int", "real", "num"), "arith": ("int", "real", "bool", "num", "arith")}


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a value; `type` is None where an earlier finding leaves it open and empty for items of `[]`.

    `value` is the integer (or truth value) that a single value has, `length` that of a pack, `rank` that of a tensor.
    """

    type: str | None
    optional: bool = False
    packed: bool = False
    tensor: bool = False
    length: Known = None
    rank: Known = None
    value: Known = None

    @property
    def known(self) -> bool:
        """Whether anything is known; what is not known is never found wrong."""
        return self.type is not None

    def single(self) -> Kind:
        """One item of a pack."""
        return replace(self, packed=False, length=None, value=None)

    def pack(self, length: Known) -> Kind:
        """A pack of such values."""
        return replace(self, packed=True, length=length, value=None)

    def present(self) -> Kind:
        """The same value, tested not to be null."""
        return replace(self, optional=False) if self.optional else self

    def maybe(self, optional: bool = True) -> Kind:
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


UNKNOWN = Kind(None)
INT = Kind("int")
REAL = Kind("real")
BOOL = Kind("bool")
STR = Kind("str")


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


def agrees(left: Kind, right: Kind) -> bool:
    """Whether two values have a common type, or one of them is not known."""
    return not left.known or not right.known or join_types(left.type, right.type) is not None


def belongs(name: str, base: str) -> bool:
    """Whether a type, concrete or restricted by an abstract one, is within an abstract type."""
    if base == "type":
        return True
    return family(name) in MEMBERS[base] or (family(name) == "complex" and base == "arith")
