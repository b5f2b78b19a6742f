"""What scalar types are, which of them are promotable or castable, and how shapes are shown."""

from __future__ import annotations

from lamella.lang.tensor.nodes import Coopmatrix, Scalar, Size, Type
from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS, INTEGERS
from lamella.lang.tensor.words import SCALARS
from lamella.lang.tensor.write.types import write_size

BYTES = {
    "bool": 1,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "index": 8,
    "bf16": 2,
    "f16": 2,
    "f32": 4,
    "f64": 8,
    "c32": 8,
    "c64": 16,
}
PARTS = {"c32": "f32", "c64": "f64"}
ATOMIC = ("i32", "i64", "index", "f16", "f32", "f64", "c32", "c64")


def component_of(name: str) -> str:
    """The component of a complex type; another scalar type is its own."""
    return PARTS.get(name, name)


def is_promotable(source: str, target: str) -> bool:
    """Whether every value of one scalar type is exactly one of another."""
    if source == target:
        return True
    if (source in COMPLEX and target not in COMPLEX) or (source not in INTEGERS and target in INTEGERS):
        return False
    if source in FLOATS and source == component_of(target):
        return True
    return BYTES[component_of(source)] < BYTES[component_of(target)]


def promote(left: str, right: str) -> str | None:
    """The one of two scalar types that holds the values of both; None where neither does."""
    if is_promotable(left, right):
        return right
    return left if is_promotable(right, left) else None


def is_castable(source: str, target: str) -> bool:
    """Whether a cast leads from one scalar type to another: all do but from complex to real."""
    return source not in COMPLEX or target in COMPLEX


def scalar_name(type_: Type) -> str | None:
    """The name of a scalar type; None for bool and all else."""
    return type_.name if isinstance(type_, Scalar) and type_.name in SCALARS else None


def component(type_: Type) -> str | None:
    """The name of a scalar type or of the components of a cooperative matrix, bool included."""
    if isinstance(type_, Scalar):
        return type_.name
    return type_.element if isinstance(type_, Coopmatrix) else None


def spell_shape(shape: tuple[Size, ...]) -> str:
    """A shape as sentences show it: 4x5."""
    return "x".join(map(write_size, shape)) if shape else "(order 0)"
