"""What scalar types are: their bytes, and which of them are promotable or castable to which."""

from __future__ import annotations

from lamella.lang.tensor.nodes import Coopmatrix, Scalar, Type
from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS, INTEGERS, STORED_FLOATS
from lamella.lang.tensor.words import ELEMENTS

BYTES = {
    "bool": 1,
    "i8": 1,
    "i16": 2,
    "i32": 4,
    "i64": 8,
    "index": 8,
    **dict.fromkeys(STORED_FLOATS, 1),
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
    # An integer of fewer bytes is exact in a float: i8 in bf16 (8 significant bits), i16 in f32, i32 in f64.
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
    return type_.name if isinstance(type_, Scalar) and type_.name in ELEMENTS else None


def component(type_: Type) -> str | None:
    """The name of a scalar type or of the components of a cooperative matrix, bool included."""
    if isinstance(type_, Scalar):
        return type_.name
    return type_.element if isinstance(type_, Coopmatrix) else None


def can_cast(source: Type, target: Type) -> bool:
    """Whether a cast leads from one type to another; matrices keep their shape, and their use or become a factor."""
    left, right = component(source), component(target)
    if left not in ELEMENTS or right not in ELEMENTS or not is_castable(left, right):
        return False
    if isinstance(source, Coopmatrix) and isinstance(target, Coopmatrix):
        alike = (source.rows, source.columns) == (target.rows, target.columns)
        return alike and source.use in ("matrix_acc", target.use)
    return scalar_name(source) is not None and scalar_name(target) is not None
