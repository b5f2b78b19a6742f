"""Rows to columns: vectors are loaded along the direction in which memory runs and turned in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.matrices.bounds import (
    guard,
    inside,
    load_lanes,
    mask_lanes,
    restrict,
    run_place,
    store_lanes,
)
from lamella.backend.cpu.emit.matrices.layout import MatrixLayout, component
from lamella.backend.cpu.emit.matrices.shapes import width_of
from lamella.backend.cpu.emit.matrices.vectors import concatenate, shuffle
from lamella.backend.cpu.emit.memory.addresses import part_bytes
from lamella.backend.cpu.emit.values import MatrixValue
from lamella.lang.tensor.nodes import Coopmatrix


@dataclass(frozen=True, slots=True)
class BlockTranspose:
    """A matrix that is turned in blocks: `group` rows by a power of two of columns."""

    context: EmitContext
    place: MatrixLayout
    type: Coopmatrix
    width: int
    group: int

    @property
    def element(self) -> str:
        """The element type."""
        return self.type.element

    def swap(self, vectors: Sequence[str]) -> list[str]:
        """Turn square blocks, as many side by side as fit a vector: lane l of vector v becomes lane v of vector l."""
        found, distance = list(vectors), 1
        while distance < len(found):
            found = self._exchange(found, distance)
            distance *= 2
        return found

    def _exchange(self, vectors: list[str], distance: int) -> list[str]:
        lanes = range(self.group)
        low = [lane if not lane & distance else self.group + lane - distance for lane in lanes]
        high = [lane + distance if not lane & distance else self.group + lane for lane in lanes]
        found = list(vectors)
        for index, vector in enumerate(vectors):
            if not index & distance:
                pair = (vector, vectors[index + distance])
                found[index] = shuffle(self.context, self.element, pair, self.group, low)
                found[index + distance] = shuffle(self.context, self.element, pair, self.group, high)
        return found


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """Neighbouring columns, a power of two of them, and which of them may be accessed."""

    first: int
    count: int
    mask: str | None

    def mask_row(self, turn: BlockTranspose, row: int) -> str | None:
        """Which columns of a row may be accessed."""
        return restrict(turn.context, self.mask, inside(turn.context, turn.place.rows, row), self.count)


def start_turn(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> BlockTranspose:
    """Decide on the blocks: as many rows as fit a vector register and divide the column."""
    width = width_of(type_)
    longest = max(1, context.target.vector_bytes // part_bytes(type_.element))
    return BlockTranspose(context, place, type_, width, min(longest, width & -width))


def load_turned(context: EmitContext, place: MatrixLayout, type_: Coopmatrix) -> MatrixValue:
    """A matrix whose rows are contiguous in memory."""
    turn = start_turn(context, place, type_)
    columns: list[str] = []
    for block in _blocks(turn):
        groups = [_load_block(turn, block, row) for row in range(0, turn.width, turn.group)]
        columns += [
            concatenate(context, type_.element, [found[index] for found in groups], turn.group)
            for index in range(block.count)
        ]
    return MatrixValue(type_, (tuple(columns),), turn.width)


def _blocks(turn: BlockTranspose) -> Iterator[ColumnBlock]:
    """Columns in powers of two, large ones first."""
    allowed, first = guard(turn.context, turn.place.columns, turn.type.columns), 0
    while first < turn.type.columns:
        count = min(turn.group, 1 << ((turn.type.columns - first).bit_length() - 1))
        yield ColumnBlock(first, count, mask_lanes(turn.context, allowed, range(first, first + count)))
        first += count


def _load_block(turn: BlockTranspose, block: ColumnBlock, row: int) -> list[str]:
    """The columns of a block: rows that lie `count` apart share a vector, so that squares are turned side by side."""
    if row >= turn.type.rows:
        return ["poison"] * block.count
    vectors = []
    for offset in range(block.count):
        rows = range(row + offset, row + turn.group, block.count)
        pieces = [_load_piece(turn, block, item) for item in rows]
        vectors.append(concatenate(turn.context, turn.element, pieces, block.count))
    return turn.swap(vectors)


def _load_piece(turn: BlockTranspose, block: ColumnBlock, row: int) -> str:
    if row >= turn.type.rows:
        return "poison"
    pointer = component(turn.context, turn.place, row, block.first)
    place = run_place(turn.element, pointer, block.count)
    return load_lanes(turn.context, place, block.mask_row(turn, row))


def store_turned(context: EmitContext, place: MatrixLayout, matrix: MatrixValue) -> None:
    """A matrix into memory in which rows are contiguous."""
    turn = start_turn(context, place, matrix.type)
    for block in _blocks(turn):
        columns = matrix.parts[0][block.first : block.first + block.count]
        for row in range(0, matrix.type.rows, turn.group):
            lanes = range(row, row + turn.group)
            own = [_slice(turn, item, turn.width, lanes) for item in columns]
            for offset, vector in enumerate(turn.swap(own)):
                _store_pieces(turn, block, vector, row + offset)


def _store_pieces(turn: BlockTranspose, block: ColumnBlock, vector: str, first: int) -> None:
    """The rows that share a vector, `count` apart from the first on."""
    end = first - first % turn.group + turn.group
    for start, row in enumerate(range(first, min(end, turn.type.rows), block.count)):
        lanes = range(start * block.count, (start + 1) * block.count)
        piece = _slice(turn, vector, turn.group, lanes)
        pointer = component(turn.context, turn.place, row, block.first)
        place = run_place(turn.element, pointer, block.count)
        store_lanes(turn.context, place, piece, block.mask_row(turn, row))


def _slice(turn: BlockTranspose, vector: str, count: int, lanes: range) -> str:
    """Neighbouring lanes of a vector."""
    return vector if len(lanes) == count else shuffle(turn.context, turn.element, (vector,), count, lanes)
