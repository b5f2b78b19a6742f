"""Copies of what tiles read: parts of a matrix, put together in local memory so that they lie one behind the other."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, each, whole_part
from lamella.kernels.passes.lower_linalg.operands import CHECKED, Operand
from lamella.kernels.passes.lower_linalg.scaling import cast
from lamella.lang.tensor.nodes import Coopmatrix, CoopStore, IndexOrSize

STEP = 16
"""Elements that are copied at a time along columns, or across them where each row lies in one piece."""
COLUMNS = 4
"""Columns that are copied at a time where each lies in one piece."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of some rows of a matrix, all columns of them, or the other way round."""

    source: Operand
    target: Operand
    count: int
    """How many rows, or columns where `along` is 0."""
    along: int = 1
    """The mode that is copied step by step: 1 for the columns of some rows, 0 for the rows of some columns."""
    checked: bool = False
    """Whether the source may have fewer, and what it lacks becomes 0."""
    filled: bool = False
    """Whether the last step is a whole one, and what the source lacks there becomes 0."""

    @property
    def step(self) -> int:
        """How much is copied at a time: what fills vectors."""
        return COLUMNS if self.along == 1 and self.source.row_stride == 1 else STEP


def copy_matrix(builder: Builder, copy: Copy, extent: IndexOrSize, step: int) -> None:
    """Copy so many columns of some rows, or rows of some columns."""
    main = whole_part(builder, extent, step)
    if main != 0:
        with each(builder, 0, main, step) as (inner, position):
            _copy_step(inner, copy, position, step)
    if isinstance(extent, int) and extent == main:
        return
    if copy.filled:
        _copy_last(builder, copy, (main, extent), step)
    elif isinstance(extent, int):
        _copy_step(builder, copy, main, extent % step)
    else:
        with each(builder, main, extent, 1) as (inner, position):
            _copy_step(inner, copy, position, 1)


def _copy_last(builder: Builder, copy: Copy, span: tuple[IndexOrSize, IndexOrSize], step: int) -> None:
    """Copy what is left, if anything is, as a whole step."""
    main, extent = span
    if isinstance(extent, int):
        _copy_step(builder, copy, main, step, True)
        return
    rest = builder.compare("lt", as_value(builder, main), extent)
    with builder.condition(rest) as inner:
        _copy_step(inner, copy, main, step, True)


def _copy_step(builder: Builder, copy: Copy, position: IndexOrSize, step: int, beyond: bool = False) -> None:
    """Copy some columns or rows; those beyond the end of the source are 0."""
    by_rows = copy.along == 1
    shape = (copy.count, step) if by_rows else (step, copy.count)
    place = (0, position) if by_rows else (position, 0)
    found = Coopmatrix(copy.source.type.element, *shape, "matrix_a")
    wanted = Coopmatrix(copy.target.type.element, *shape, "matrix_a")
    checked = CHECKED[(copy.checked, beyond) if by_rows else (beyond, copy.checked)]
    value = cast(builder, copy.source.load(builder, place, found, checked), found, wanted)
    row, column = (as_value(builder, item) for item in place)
    builder.put(CoopStore(value, copy.target.value, row, column))
