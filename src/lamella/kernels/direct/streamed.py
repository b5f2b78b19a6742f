"""Products of tall matrices whose result is larger than the caches: each row is read once and written past them.

A tile of rows is multiplied by all columns of B before the next one, so that A stays in the first cache meanwhile,
and no sum is ever read back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.kernels.build import Builder
from lamella.kernels.direct.products import Corner, Tiles
from lamella.kernels.passes.lower_linalg.extents import add, as_value, least, subtract
from lamella.kernels.passes.lower_linalg.operands import Operand
from lamella.kernels.passes.lower_linalg.tiles import split
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Coopmatrix, CoopStore, IndexOrSize, Value

DEPTH = 2
"""Columns of A in one step of the inner loop."""
VECTORS = 2
"""Vectors of rows in a tile."""
COLUMNS = 8
"""Columns of a tile, at most; half of it where there are few registers."""
MANY_REGISTERS = 32


@dataclass(frozen=True, slots=True)
class Streamed:
    """`C := A B` with all sizes known."""

    a: Operand
    b: Operand
    c: Operand
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
            (found,) = Tiles((left,), right, kind, DEPTH).multiply(builder, depth)
            builder.put(CoopStore(found, self.c.value, row, column))


def _places(total: int, largest: int) -> Iterator[tuple[int, int]]:
    """Where each of nearly equal parts begins, and its size."""
    start = 0
    for count, size in split(total, largest):
        for _ in range(count):
            yield start, size
            start += size
