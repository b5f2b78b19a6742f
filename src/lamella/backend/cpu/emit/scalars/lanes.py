"""Scalar values as vectors and back, and cooperative matrices column by column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.scalars.vectors import Vector
from lamella.backend.cpu.emit.values import LLVM, MatrixValue, ScalarValue
from lamella.lang.tensor.nodes import Coopmatrix, Scalar, Type


def element_of(type_: Type) -> str:
    """The name of a scalar type, or of the components of a cooperative matrix."""
    if isinstance(type_, Scalar):
        return type_.name
    if isinstance(type_, Coopmatrix):
        return type_.element
    raise TypeError(f"a {type(type_).__name__.lower()} is no number")


def vectors_of(context: EmitContext, value: ScalarValue) -> tuple[Vector, ...]:
    """The parts of a value."""
    return tuple(Vector(context.out, LLVM[value.element], value.count, part) for part in value.parts)


def vector_of(context: EmitContext, value: ScalarValue) -> Vector:
    """The only part of a value."""
    return vectors_of(context, value)[0]


def lanes_of(element: str, *parts: Vector) -> ScalarValue:
    """A value of a scalar type from its parts."""
    return ScalarValue(element, tuple(part.operand for part in parts), parts[0].count)


def level(context: EmitContext, *values: ScalarValue) -> list[ScalarValue]:
    """Values with as many lanes each: one where all are uniform, else those of the widest."""
    count = max(value.count for value in values)
    return [_widen(context, value, count) for value in values]


def _widen(context: EmitContext, value: ScalarValue, count: int) -> ScalarValue:
    if value.count == count:
        return value if value.parts else integers.spread(context, value)
    parts = tuple(_splat(context, part, value.element, count) for part in value.parts)
    return replace(value, parts=parts, count=count)


def _splat(context: EmitContext, operand: str, element: str, count: int) -> str:
    if operand.startswith("%"):
        return integers.splat(context, operand, element, count)
    return f"splat ({LLVM[element]} {operand})"


def map_columns(
    type_: Type,
    operate: Callable[..., ScalarValue],
    context: EmitContext,
    first: MatrixValue,
    *others: MatrixValue,
) -> MatrixValue:
    """A cooperative matrix from others of its shape, column by column: `operate(here, column, …)`."""
    if not isinstance(type_, Coopmatrix):
        raise TypeError("the result is no cooperative matrix")
    matrices = (first, *others)
    found = [
        operate(context, *(_column(matrix, number) for matrix in matrices))
        for number in range(len(first.parts[0]))
    ]
    parts = tuple(zip(*(column.parts for column in found), strict=True))
    return MatrixValue(type_, parts, first.width)


def _column(matrix: MatrixValue, number: int) -> ScalarValue:
    return ScalarValue(matrix.type.element, tuple(part[number] for part in matrix.parts), matrix.width)
