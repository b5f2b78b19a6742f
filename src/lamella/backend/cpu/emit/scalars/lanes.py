"""Scalar values as vectors and back, and cooperative matrices column by column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.scalars.vectors import Vector
from lamella.backend.cpu.emit.values import LLVM, Lanes, Matrix
from lamella.lang.tensor.nodes import Coopmatrix, Scalar, Type


def element_of(type_: Type) -> str:
    """The name of a scalar type, or of the components of a cooperative matrix."""
    if isinstance(type_, Scalar):
        return type_.name
    if isinstance(type_, Coopmatrix):
        return type_.element
    raise TypeError(f"a {type(type_).__name__.lower()} is no number")


def vectors_of(here: Here, value: Lanes) -> tuple[Vector, ...]:
    """The parts of a value."""
    return tuple(Vector(here.out, LLVM[value.element], value.count, part) for part in value.parts)


def vector_of(here: Here, value: Lanes) -> Vector:
    """The only part of a value."""
    return vectors_of(here, value)[0]


def lanes_of(element: str, *parts: Vector) -> Lanes:
    """A value of a scalar type from its parts."""
    return Lanes(element, tuple(part.operand for part in parts), parts[0].count)


def level(here: Here, *values: Lanes) -> list[Lanes]:
    """Values with as many lanes each: one where all are uniform, else those of the widest."""
    count = max(value.count for value in values)
    return [_widen(here, value, count) for value in values]


def _widen(here: Here, value: Lanes, count: int) -> Lanes:
    if value.count == count:
        return value if value.parts else integers.spread(here, value)
    parts = tuple(_splat(here, part, value.element, count) for part in value.parts)
    return replace(value, parts=parts, count=count)


def _splat(here: Here, operand: str, element: str, count: int) -> str:
    if operand.startswith("%"):
        return integers.splat(here, operand, element, count)
    return f"splat ({LLVM[element]} {operand})"


def map_columns(
    type_: Type, operate: Callable[..., Lanes], here: Here, first: Matrix, *others: Matrix
) -> Matrix:
    """A cooperative matrix from others of its shape, column by column: `operate(here, column, …)`."""
    if not isinstance(type_, Coopmatrix):
        raise TypeError("the result is no cooperative matrix")
    matrices = (first, *others)
    found = [
        operate(here, *(_column(matrix, number) for matrix in matrices))
        for number in range(len(first.parts[0]))
    ]
    parts = tuple(zip(*(column.parts for column in found), strict=True))
    return Matrix(type_, parts, first.width)


def _column(matrix: Matrix, number: int) -> Lanes:
    return Lanes(matrix.type.element, tuple(part[number] for part in matrix.parts), matrix.width)
