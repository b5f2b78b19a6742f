"""Products of packed weights with few columns: nearly all of the time goes into reading the weights once.

One stream of memory leaves the processor waiting at the end of each page, so several panels are read side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamella.kernels.build import Builder
from lamella.kernels.direct.products import Corner, Tiles
from lamella.kernels.passes.lower_linalg.extents import add, as_value, multiply, subtract, whole_part
from lamella.kernels.passes.lower_linalg.operands import Operand
from lamella.lang.tensor.nodes import Coopmatrix, CoopStore, IndexOrSize, Memref, Slice, Value

DEPTH = 4
"""Columns of a panel in one step of the inner loop."""
MOST_STREAMS = 4
MOST_SUMS = 8
"""Panels times columns: what is summed up at the same time."""


def count_streams(columns: int) -> int:
    """How many panels are read side by side; 1 where there is enough to compute for each."""
    return max(1, min(MOST_STREAMS, MOST_SUMS // columns))


@dataclass(frozen=True, slots=True)
class Abreast:
    """`C := A B` with A in panels of one element type with B and C; all sizes are known."""

    a: Operand
    b: Operand
    c: Operand

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
        tiles = Tiles(left, Corner(self.b.value, zero, zero), self._sum, DEPTH)
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
