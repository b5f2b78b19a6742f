"""Products and constants of cooperative matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.matrices.places import uniform
from lamella.backend.cpu.emit.matrices.shapes import named_matrix, value_count, width_of
from lamella.backend.cpu.emit.matrices.vectors import splat
from lamella.backend.cpu.emit.scalars import combine, convert, make_constant
from lamella.backend.cpu.emit.scalars.lanes import map_columns
from lamella.backend.cpu.emit.scalars.vectors import Vector
from lamella.backend.cpu.emit.values import LLVM, Lanes, Matrix
from lamella.lang.tensor.nodes import Constant, Coopmatrix, CoopMulAdd, CoopScale

WIDER = {"i8": "i32", "bf16": "f32", "f16": "f32"}
"""The types in which sums of narrow numbers are computed; others are their own."""


def constant_matrix(here: Here, constant: Constant) -> Matrix:
    """A cooperative matrix with the same number everywhere; it writes nothing."""
    type_ = constant.type
    if not isinstance(type_, Coopmatrix):
        raise TypeError("the constant is no cooperative matrix")
    width, number = width_of(type_), make_constant(constant.value, type_.element)
    parts = [splat(here, part, type_.element, width) for part in number.parts]
    return Matrix(type_, tuple((part,) * value_count(type_) for part in parts), width)


def emit_scale(here: Here, scale: CoopScale) -> Matrix:
    """A cooperative matrix times a number."""
    factor = uniform(here, here.scalar(scale.scalar.name))
    return map_columns(scale.type, partial(_times, factor), here, named_matrix(here, scale.operand))


def _times(factor: Lanes, here: Here, column: Lanes) -> Lanes:
    return combine(here, "mul", column, factor)


def emit_mul_add(here: Here, add: CoopMulAdd) -> Matrix:
    """A B + C, computed in the accumulation type of C, each sum in the order of k, and rounded once to the result."""
    left, right, added = (named_matrix(here, item) for item in (add.left, add.right, add.accumulator))
    own = WIDER.get(added.type.element, added.type.element)
    columns = _columns(here, left, own)
    cells = _columns(here, right, own)
    sums = _columns(here, added, own)
    for depth, column in enumerate(columns):
        for place, total in enumerate(sums):
            cell = cells[place * right.type.rows + depth]
            sums[place] = _accumulate(here, column, cell, total)
    found = [convert(here, Lanes(own, total.parts, added.width), add.type.element) for total in sums]
    return Matrix(add.type, tuple(zip(*(item.parts for item in found), strict=True)), added.width)


def _columns(here: Here, matrix: Matrix, element: str) -> list[Lanes]:
    """The values that hold a matrix, in the type in which sums are computed."""
    given = zip(*matrix.parts, strict=True)
    return [convert(here, Lanes(matrix.type.element, parts, matrix.width), element) for parts in given]


def _accumulate(here: Here, column: Lanes, cell: Lanes, total: Lanes) -> Lanes:
    """`total + column * cell`, the cell spread over the lanes of the column."""
    product = _Product(here, column.element, column.count)
    spread = [splat(here, part, column.element, column.count) for part in cell.parts]
    if len(spread) == 1:
        parts = (product.add(column.operand, spread[0], total.operand),)
        return Lanes(column.element, parts, column.count)
    (real, imaginary), (first, second) = column.parts, spread
    low = product.add(real, first, total.parts[0])
    low = product.add(product.negate(imaginary), second, low)
    high = product.add(real, second, total.parts[1])
    high = product.add(imaginary, first, high)
    return Lanes(column.element, (low, high), column.count)


@dataclass(frozen=True, slots=True)
class _Product:
    """Multiplication and addition of parts of one type."""

    here: Here
    element: str
    count: int

    def add(self, left: str, right: str, added: str) -> str:
        """`left * right + added`; floating-point numbers are rounded once."""
        first, second, third = (self._vector(item) for item in (left, right, added))
        whole = first.fma(second, third) if first.is_floating else first * second + third
        return whole.operand

    def negate(self, operand: str) -> str:
        """The negative."""
        return (-self._vector(operand)).operand

    def _vector(self, operand: str) -> Vector:
        return Vector(self.here.out, LLVM[self.element], self.count, operand)
