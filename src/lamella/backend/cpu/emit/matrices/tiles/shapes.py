"""The shapes of tiles, and which tile holds what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Coopmatrix

PACKS = {"bf16": 2, "i8": 4}
"""How many elements of a row of A lie together in a tile."""
SUMS = {"bf16": "f32", "i8": "i32"}
"""The type in which tiles add."""
ROWS, ROW_BYTES, TILES = 16, 64, 8
"""What a tile holds at most, and how many there are."""
WORD = 4
"""Bytes of a sum, and of a pack."""


@dataclass(frozen=True, slots=True)
class Tile:
    """The shape of a tile: rows, and bytes of a row."""

    rows: int
    row_bytes: int

    @property
    def fits(self) -> bool:
        """Whether a tile can be so large."""
        return self.rows <= ROWS and self.row_bytes <= ROW_BYTES


def tile_of(type_: Coopmatrix) -> Tile:
    """The tile of a matrix: its columns are the rows of the tile; packs of columns where it is a factor on the left."""
    if type_.use == "matrix_a":
        return Tile(type_.columns // PACKS[type_.element], type_.rows * WORD)
    return Tile(type_.columns, type_.rows * BYTES[type_.element])


def configure(tiles: Sequence[Tile]) -> bytes:
    """The 64 bytes that tell the processor the shapes of all tiles (palette 1).

    Those that a loop does not use are as large as can be, so that loops of whole tiles agree.
    """
    whole = [*tiles, *[Tile(ROWS, ROW_BYTES)] * (TILES - len(tiles))]
    widths = b"".join(tile.row_bytes.to_bytes(2, "little") for tile in whole)
    heights = bytes(tile.rows for tile in whole)
    return bytes([1]) + bytes(15) + widths.ljust(32, b"\0") + heights.ljust(16, b"\0")


def number_tiles(
    sums: Sequence[Tile], loads: Mapping[str, tuple[Tile, int, int]]
) -> tuple[dict[str, int], list[Tile]] | None:
    """A tile for each factor, which is there from one step to another; None where there are not enough.

    A tile has one shape throughout, and serves one factor after the other.
    """
    shapes, until, found = list(sums), [-1] * len(sums), dict[str, int]()
    for name, (tile, first, last) in loads.items():
        free = [
            number
            for number in range(len(sums), len(shapes))
            if until[number] < first and shapes[number] == tile
        ]
        if not free:
            shapes.append(tile)
            until.append(-1)
        found[name] = free[0] if free else len(shapes) - 1
        until[found[name]] = last
    return (found, shapes) if len(shapes) <= TILES else None
