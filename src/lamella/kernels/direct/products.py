"""Products of matrices that lie in memory as they are: sums in registers, an inner loop along the columns of A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import CoopLoad, Coopmatrix, CoopMulAdd, Value


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
