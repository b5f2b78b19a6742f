"""A tile of a product: sums that stay in registers while the inner loop runs along the columns of A."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.kernels.build import Builder
from lamella.kernels.passes.lower_linalg.extents import as_value, whole_part
from lamella.kernels.passes.lower_linalg.operands import Operand
from lamella.kernels.passes.lower_linalg.scaling import Piece, constant
from lamella.lang.tensor.nodes import Coopmatrix, CoopMulAdd, IndexOrSize, Value


@dataclass(frozen=True, slots=True)
class Tile:
    """Some rows of A and some columns of B, whose product is kept in one matrix or in several."""

    a: Operand
    b: Operand
    pieces: tuple[Piece, ...]
    step: int
    """Columns of A in one step."""
    checked: tuple[bool, bool]
    """Whether A has fewer rows and B fewer columns."""

    def sum(self, builder: Builder, depth: IndexOrSize, whole: bool) -> list[Value]:
        """The sums: the inner loop, and what is left of the columns unless that is known to be nothing."""
        main = depth if whole else whole_part(builder, depth, self.step)
        found = start_sums(builder, self.pieces)
        if main != 0:
            found = self._loop(builder, (0, main, self.step), found)
        if whole or depth == main:
            return found
        if isinstance(depth, int):
            return self._add(builder, main, depth % self.step, found)
        return self._loop(builder, (main, depth, 1), found)

    def _loop(
        self, builder: Builder, bounds: tuple[IndexOrSize, IndexOrSize, int], start: list[Value]
    ) -> list[Value]:
        begin, end, step = bounds
        if begin == 0 and end == step:
            return self._add(builder, 0, step, start)
        first, last = as_value(builder, begin), as_value(builder, end)
        carried = [(value, piece.type) for value, piece in zip(start, self.pieces, strict=True)]
        with builder.loop(first, last, builder.constant(step), carried) as loop:
            loop.body.give(*self._add(loop.body, loop.variable, step, loop.carried))
        return loop.results

    def _add(self, builder: Builder, position: IndexOrSize, step: int, before: list[Value]) -> list[Value]:
        """Add the products of some columns of A and rows of B."""
        left: dict[int, Value] = {}
        right: dict[int, Value] = {}
        sums = []
        for piece, value in zip(self.pieces, before, strict=True):
            if piece.row not in left:
                left[piece.row] = self._load_a(builder, piece, position, step)
            if piece.column not in right:
                right[piece.column] = self._load_b(builder, piece, position, step)
            product = CoopMulAdd(left[piece.row], right[piece.column], value, piece.type)
            sums.append(builder.value(product))
        return sums

    def _load_a(self, builder: Builder, piece: Piece, position: IndexOrSize, step: int) -> Value:
        type_ = Coopmatrix(self.a.type.element, piece.type.rows, step, "matrix_a")
        return self.a.load(builder, (piece.row, position), type_, "rows" if self.checked[0] else "")

    def _load_b(self, builder: Builder, piece: Piece, position: IndexOrSize, step: int) -> Value:
        type_ = Coopmatrix(self.b.type.element, step, piece.type.columns, "matrix_b")
        return self.b.load(builder, (position, piece.column), type_, "cols" if self.checked[1] else "")


def start_sums(builder: Builder, pieces: tuple[Piece, ...]) -> list[Value]:
    """Sums of nothing."""
    return [constant(builder, 0, piece.type) for piece in pieces]


def cut_tile(element: str, shape: tuple[int, int], unit: int | None) -> tuple[Piece, ...]:
    """The matrices that hold a tile: one, or several where none may have more rows or columns than a unit."""
    rows, columns = (_cut(size, unit or size) for size in shape)
    return tuple(
        Piece(row, column, Coopmatrix(element, height, width, "matrix_acc"))
        for row, height in rows
        for column, width in columns
    )


def _cut(size: int, unit: int) -> list[tuple[int, int]]:
    return [(begin, min(unit, size - begin)) for begin in range(0, size, unit)]
