"""Register-tiled products for memory-bound shapes: no cache blocking, sums stay in registers.

`MultistreamGemv` multiplies packed weights with few columns, where nearly all of the time goes into reading the weights
once. One stream of memory leaves the processor waiting at the end of each page, so several panels are read side by
side. `StreamedGemm` multiplies tall matrices whose result is larger than the caches: a tile of rows is multiplied by
all columns of B before the next one, so that A stays in the first cache meanwhile, each row is read once and written
past the caches (non-temporal stores), and no sum is ever read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import add, as_value, least, multiply, subtract, whole_part
from lamella.kernels.passes.lower_linalg.operands import MatrixOperand
from lamella.kernels.passes.lower_linalg.tiles import split
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopStore,
    IndexOrSize,
    Memref,
    Slice,
    Value,
)


@dataclass(frozen=True, slots=True)
class Corner:
    """Where a tile begins in a memref."""

    memref: Value
    row: Value
    column: Value


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles of A, all multiplied by the same columns of B at the same time; each begins at the first column of A."""

    left: tuple[Corner, ...]
    right: Corner
    """The first row of B, and the first of the columns."""
    sum: Coopmatrix
    """The type of the product of a tile."""
    step: int
    """Columns of A in one step of the inner loop."""

    def multiply(self, builder: Builder, depth: int) -> list[Value]:
        """The products of all tiles with so many rows of B."""
        found = [builder.constant(0.0, self.sum) for _ in self.left]
        main = depth - depth % self.step
        if main:
            found = self._loop(builder, found, main)
        if depth % self.step:
            found = self._add(builder, found, builder.constant(main), depth % self.step)
        return found

    def _loop(self, builder: Builder, start: Sequence[Value], end: int) -> list[Value]:
        carried = [(value, self.sum) for value in start]
        begin, stop, step = (builder.constant(number) for number in (0, end, self.step))
        with builder.loop(begin, stop, step, carried) as loop:
            loop.body.give(*self._add(loop.body, loop.carried, loop.variable, self.step))
        return loop.results

    def _add(self, builder: Builder, before: Sequence[Value], position: Value, step: int) -> list[Value]:
        """Add the products of some columns of A and rows of B."""
        element, rows, columns = self.sum.element, self.sum.rows, self.sum.columns
        right = Coopmatrix(element, step, columns, "matrix_b")
        b = builder.value(CoopLoad(self.right.memref, position, self.right.column, right))
        found = []
        for corner, value in zip(self.left, before, strict=True):
            left = Coopmatrix(element, rows, step, "matrix_a")
            a = builder.value(CoopLoad(corner.memref, corner.row, position, left))
            found.append(builder.value(CoopMulAdd(a, b, value, self.sum)))
        return found


# --- few columns ---

PANEL_STEP = 4
"""Columns of a panel in one step of the inner loop."""
MOST_STREAMS = 4
MOST_SUMS = 8
"""Panels times columns: what is summed up at the same time."""


def count_streams(columns: int) -> int:
    """How many panels are read side by side; 1 where there is enough to compute for each."""
    return max(1, min(MOST_STREAMS, MOST_SUMS // columns))


@dataclass(frozen=True, slots=True)
class MultistreamGemv:
    """`C := A B` with A in panels of one element type with B and C; all sizes are known."""

    a: MatrixOperand
    b: MatrixOperand
    c: MatrixOperand

    def write(self, builder: Builder, first: IndexOrSize, end: IndexOrSize) -> None:
        """Write the product of the panels from the first one up to the end."""
        streams = count_streams(self._sum.columns)
        with builder.parallel() as inner:
            whole = add(inner, first, whole_part(inner, subtract(inner, end, first), streams))
            for begin, stop, step in ((first, whole, streams), (whole, end, 1)):
                ends = as_value(inner, begin), as_value(inner, stop)
                with inner.loop(*ends, inner.constant(step)) as loop:
                    panels = [add(loop.body, loop.variable, number) for number in range(step)]
                    self._write_tile(loop.body, panels)

    @property
    def _sum(self) -> Coopmatrix:
        rows, columns = self.a.type.shape[0] or 0, self.b.type.shape[1] or 0
        return Coopmatrix(self.c.type.element, rows, columns, "matrix_acc")

    def _write_tile(self, builder: Builder, panels: Sequence[IndexOrSize]) -> None:
        """Some panels at once."""
        zero = builder.constant(0)
        left = tuple(Corner(self._view(builder, panel), zero, zero) for panel in panels)
        tiles = Tiles(left, Corner(self.b.value, zero, zero), self._sum, PANEL_STEP)
        sums = tiles.multiply(builder, self.b.type.shape[0] or 0)
        checked = "rows" if (self.c.type.shape[0] or 0) % self._sum.rows else ""
        for panel, value in zip(panels, sums, strict=True):
            row = as_value(builder, multiply(builder, panel, self._sum.rows))
            builder.put(CoopStore(value, self.c.value, row, zero, checked))

    def _view(self, builder: Builder, panel: IndexOrSize) -> Value:
        type_ = self.a.type
        shown = Memref(type_.element, type_.shape[:2], type_.stride[:2])
        slices = [*(Slice(0, size or 0) for size in type_.shape[:2]), Slice(as_value(builder, panel))]
        return builder.subview(self.a.value, slices, shown)


# --- tall matrices ---

ROW_STEP = 2
"""Columns of A in one step of the inner loop."""
VECTORS = 2
"""Vectors of rows in a tile."""
COLUMNS = 8
"""Columns of a tile, at most; half of it where there are few registers."""
MANY_REGISTERS = 32


@dataclass(frozen=True, slots=True)
class StreamedGemm:
    """`C := A B` with all sizes known."""

    a: MatrixOperand
    b: MatrixOperand
    c: MatrixOperand
    target: Target

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return VECTORS * self.target.vector_bytes // BYTES[self.c.type.element]

    def write(self, builder: Builder, begin: IndexOrSize, block: int) -> None:
        """Write the product of a block of rows, or of what is left of them."""
        height = self.c.type.shape[0] or 0
        rest = height % self.rows
        whole = height - rest
        with builder.parallel() as inner:
            end = as_value(inner, least(inner, add(inner, begin, block), whole))
            with inner.loop(as_value(inner, begin), end, inner.constant(self.rows)) as loop:
                self._write_rows(loop.body, loop.variable, self.rows)
            if rest:
                first = as_value(inner, subtract(inner, whole, begin))
                with inner.condition(inner.compare("lt", first, inner.constant(block))) as last:
                    self._write_rows(last, last.constant(whole), rest)

    def _write_rows(self, builder: Builder, row: Value, rows: int) -> None:
        depth, width = (size or 0 for size in self.b.type.shape)
        zero = builder.constant(0)
        few = self.target.register_count < MANY_REGISTERS
        for start, columns in _places(width, COLUMNS // 2 if few else COLUMNS):
            column = builder.constant(start)
            kind = Coopmatrix(self.c.type.element, rows, columns, "matrix_acc")
            left, right = Corner(self.a.value, row, zero), Corner(self.b.value, zero, column)
            (found,) = Tiles((left,), right, kind, ROW_STEP).multiply(builder, depth)
            builder.put(CoopStore(found, self.c.value, row, column))


def _places(total: int, largest: int) -> Iterator[tuple[int, int]]:
    """Where each of nearly equal parts begins, and its size."""
    start = 0
    for count, size in split(total, largest):
        for _ in range(count):
            yield start, size
            start += size
