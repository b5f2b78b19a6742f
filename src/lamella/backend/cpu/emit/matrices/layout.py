"""Where the components of a cooperative matrix lie in memory: a first one, steps along rows and columns, limits."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import add, dynamic, multiply, number
from lamella.backend.cpu.emit.memory.addresses import alignment_of, first_lane, pick_lane, step_pointer
from lamella.backend.cpu.emit.values import MatrixValue, MemrefValue, ScalarValue
from lamella.base.records import dataclass
from lamella.lang.tensor.nodes import CoopLoad, Coopmatrix, CoopStore, Value

# --- how a cooperative matrix is cut into LLVM values -------------------------------------------------------


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


NOT_AT_ALL = number(0)


@dataclass(frozen=True, slots=True)
class MatrixAxis:
    """The rows or the columns of a matrix in memory."""

    step: ScalarValue
    """Elements from one to the next."""
    start: ScalarValue
    """The index of the first in its mode."""
    size: ScalarValue
    """Indices of the mode: an access leaves out what lies outside, where it is checked."""
    checked: bool


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """Component (i, j) is at `pointer + i * rows.step + j * columns.step`, counted in elements.

    Where the access is packed, `pack` columns lie together: component (i, j) is at
    `pointer + j mod pack * within + i * rows.step + j div pack * columns.step`.
    """

    element: str
    pointer: str
    rows: MatrixAxis
    columns: MatrixAxis
    pack: int = 1
    within: ScalarValue = NOT_AT_ALL
    alignment: int = 1
    """Bytes that divide the place of the first component of each column."""
    streamed: bool = False
    """Whether what is written need not stay in a cache."""


def find_layout(context: EmitContext, access: CoopLoad | CoopStore) -> MatrixLayout:
    """The memory layout of the matrix of an access."""
    memory = context.values[access.operand.name]
    if not isinstance(memory, MemrefValue):
        raise TypeError(f"%{access.operand.name} is no memref")
    starts = [uniform(context, context.scalar(value.name)) for value in (access.row, access.column)]
    word = access.checked.removesuffix("_checked")
    checked = [word in ("rows", "both"), word in ("cols", "both")]
    transposed = isinstance(access, CoopLoad) and access.transposed
    if transposed:
        checked.reverse()
    pack = _pack(memory)
    steps = [uniform(context, item) for item in memory.strides]
    sizes = [uniform(context, item) for item in memory.sizes]
    if pack > 1:
        starts[1] = _in_packs(context, starts[1], pack)
    axes = [MatrixAxis(*found) for found in zip(steps[-2:], starts, sizes[-2:], checked, strict=True)]
    rows, columns = reversed(axes) if transposed else axes
    place = MatrixLayout(memory.type.element, _first(context, memory, axes), rows, columns, pack)
    place = replace(place, alignment=_alignment(memory, axes, columns.step), streamed=memory.streamed)
    return replace(place, within=steps[0]) if pack > 1 else place


def _pack(memory: MemrefValue) -> int:
    size = memory.type.shape[0] if memory.type.order == 3 else 1
    if size is None:
        raise TypeError("the first mode of a packed memref has a known size")
    return size


def _in_packs(context: EmitContext, column: ScalarValue, pack: int) -> ScalarValue:
    """A packed access begins with the first column of a pack."""
    if isinstance(column.constant, int):
        return number(column.constant // pack)
    bits = pack.bit_length() - 1
    return dynamic(context.out.value(f"ashr i64 {column.operand}, {bits}"))


def _first(context: EmitContext, memory: MemrefValue, axes: list[MatrixAxis]) -> str:
    """The pointer to the first component."""
    offset = uniform(context, memory.offset)
    for axis in axes:
        offset = add(context, offset, multiply(context, axis.start, axis.step))
    return move(context, memory.type.element, uniform(context, memory.pointer).operand, offset)


def _alignment(memory: MemrefValue, axes: list[MatrixAxis], step: ScalarValue) -> int:
    moved = (axis.start.divisor * axis.step.divisor for axis in axes)
    return alignment_of(
        memory.type.element, memory.alignment, gcd(memory.offset.divisor, *moved, step.divisor)
    )


def move(context: EmitContext, element: str, pointer: str, distance: ScalarValue) -> str:
    """A pointer so many elements on."""
    return step_pointer(context, element, pointer, distance.operand)


def component(context: EmitContext, place: MatrixLayout, row: int, column: int) -> str:
    """The pointer to a component."""
    along = multiply(context, place.rows.step, number(row))
    across = multiply(context, place.columns.step, number(column // place.pack))
    inside = multiply(context, place.within, number(column % place.pack))
    return move(context, place.element, place.pointer, add(context, add(context, across, along), inside))


def uniform(context: EmitContext, value: ScalarValue) -> ScalarValue:
    """Operands of cooperative instructions are the same in all lanes that run, so that any of those tells."""
    if value.is_uniform:
        return value
    if not value.parts:
        return dynamic(value.base or "0", value.element)
    return pick_lane(context, value, first_lane(context))
