"""How a cooperative matrix is cut into LLVM values."""

from __future__ import annotations

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.values import MatrixValue
from lamella.lang.tensor.nodes import Coopmatrix, Value


def column_width(rows: int) -> int:
    """Lanes of a column: the rows, rounded up to a power of two, because LLVM does badly with other vectors."""
    return 1 << (rows - 1).bit_length()


def width_of(type_: Coopmatrix) -> int:
    """Lanes of the values of a matrix: of a column, or 1 where there is a value for each component."""
    return 1 if type_.use == "matrix_b" else column_width(type_.rows)


def is_grid(type_: Coopmatrix) -> bool:
    """Whether there is a scalar for each component."""
    return width_of(type_) == 1


def value_count(type_: Coopmatrix) -> int:
    """How many values hold a matrix (or one part of it)."""
    return type_.rows * type_.columns if type_.use == "matrix_b" else type_.columns


def named_matrix(context: EmitContext, value: Value) -> MatrixValue:
    """The matrix with a name."""
    found = context.values[value.name]
    if not isinstance(found, MatrixValue):
        raise TypeError(f"%{value.name} is no cooperative matrix")
    return found
