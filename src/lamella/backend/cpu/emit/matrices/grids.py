"""Matrices that are held as a scalar for each component."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import multiply, number
from lamella.backend.cpu.emit.matrices.bounds import (
    inside,
    join_conditions,
    load_scalar,
    or_aside,
    or_zeros,
    store_scalar,
)
from lamella.backend.cpu.emit.matrices.layout import MatrixLayout, component, move
from lamella.backend.cpu.emit.values import MatrixValue
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Coopmatrix

Instead: TypeAlias = Callable[[EmitContext, str, str, int], str]
"""Gives a pointer where a condition holds, else one to so many other bytes."""
LARGEST_COLUMN = 1 << 10
"""Bytes of a column that is replaced as a whole."""


def load_grid(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> MatrixValue:
    """Load component by component; a product spreads each over a vector, which costs no more than the load."""
    cells = [load_scalar(context, type_.element, cell) for cell in _cells(context, place, type_, or_zeros)]
    return MatrixValue(type_, tuple(zip(*cells, strict=True)))


def store_grid(context: EmitContext, place: MatrixLayout, matrix: MatrixValue) -> None:
    """Store component by component."""
    cells = _cells(context, place, matrix.type, or_aside)
    for parts, cell in zip(zip(*matrix.parts, strict=True), cells, strict=True):
        store_scalar(context, place.element, parts, cell)


def _cells(context: EmitContext, place: MatrixLayout, type_: Coopmatrix, instead: Instead) -> Iterator[str]:
    """The pointer to each component, columns first; what a check leaves out is replaced."""
    rows = [inside(context, place.rows, row) for row in range(type_.rows)]
    size = BYTES[place.element]
    whole = _column_bytes(place, type_)
    for column in range(type_.columns):
        start = component(context, place, 0, column)
        condition = inside(context, place.columns, column // place.pack)
        if condition is not None and whole is not None:
            start, condition = instead(context, start, condition, whole), None
        for row, other in enumerate(rows):
            step = multiply(context, place.rows.step, number(row))
            both = join_conditions(context, condition, other)
            pointer = move(context, place.element, start, step)
            yield pointer if both is None else instead(context, pointer, both, size)


def _column_bytes(place: MatrixLayout, type_: Coopmatrix) -> int | None:
    """From the first to the last byte of a column, rounded up to a power of two; None where it is too long."""
    step = place.rows.step.constant
    if not isinstance(step, int) or step < 0:
        return None
    reach = ((type_.rows - 1) * step + 1) * BYTES[place.element]
    return 1 << (reach - 1).bit_length() if reach <= LARGEST_COLUMN else None
