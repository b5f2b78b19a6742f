"""Types and attributes of the tensor language: scalars, memrefs, groups, cooperative matrices, dictionaries."""

from __future__ import annotations

from typing import TypeAlias

from lamella.base.records import dataclass
from lamella.base.source import Span, where

# --- attributes: what a program adds to a parameter, a function or an instruction ---------------------------


@dataclass(frozen=True, slots=True)
class DictionaryEntry:
    """`key = value` of a dictionary; a key that is not one of the language's words was written as a string."""

    key: str
    value: Attribute
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Dictionary:
    """`{key = value, …}`; the order of the text means nothing, so the parser sorts the entries by key."""

    entries: tuple[DictionaryEntry, ...] = ()
    span: Span = where()

    def find(self, key: str) -> Attribute | None:
        """The value of a key; None where it is absent."""
        return next((item.value for item in self.entries if item.key == key), None)


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str


Attribute: TypeAlias = bool | int | Text | tuple["Attribute", ...] | Dictionary
KEYS = ("alignment", "shape_gcd", "stride_gcd", "subgroup_size", "unroll", "work_group_size")


Size: TypeAlias = int | None
"""A size or stride; None is `?`, known only at run time."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """`bool`, an integer type, `index`, a floating or a complex type, by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Memref:
    """`memref<element x shape, strided<…>, address space>`; strides are always written out here.

    Two spellings of one layout are one type: `make_memref` fills in the packed strides where none are given.
    """

    element: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    local: bool = False

    @property
    def order(self) -> int:
        """How many modes."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Group:
    """`group<memref x size, offset: …>`: pointers to memrefs of one type."""

    memref: Memref
    size: Size
    offset: Size = 0


@dataclass(frozen=True, slots=True)
class Coopmatrix:
    """`coopmatrix<element x rows x columns, use>`: a matrix that a subgroup holds together."""

    element: str
    rows: int
    columns: int
    use: str


Type: TypeAlias = Scalar | Memref | Group | Coopmatrix

BOOL = Scalar("bool")
INDEX = Scalar("index")
INTEGERS = ("i8", "i16", "i32", "i64", "index")
FLOATS = ("bf16", "f16", "f32", "f64")
COMPLEX = ("c32", "c64")
STORED_FLOATS = ("f8e4m3", "f8e5m2")
"""Floating-point numbers of 8 bits, an extension: they are moved, cast, and factors of products; nothing else."""
USES = ("matrix_a", "matrix_b", "matrix_acc")


def packed_stride(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """The strides of the packed layout, first mode fastest; behind a mode of unknown size none is known."""
    strides: list[Size] = []
    distance: Size = 1
    for size in shape:
        strides.append(distance)
        distance = None if distance is None or size is None else distance * size
    return tuple(strides)


def make_memref(
    element: str, shape: tuple[Size, ...], stride: tuple[Size, ...] | None = None, local: bool = False
) -> Memref:
    """A memref type, packed where no strides are given."""
    return Memref(element, shape, packed_stride(shape) if stride is None else stride, local)
