"""The width of register tiles: as wide as registers allow, and so that little is left behind the last whole one."""

from __future__ import annotations

from lamella.base.open_extent import is_open

FEWEST_SUMS = 8
"""Vectors of sums below which an addition waits for the one before it."""
TILE_COST = 0.5
"""What a tile costs beside its sums, in vectors of sums."""
OTHER_COST = 2.0
"""The same for a last tile of another width, which is code of its own."""


def tile_width(extent: int, most: int, each: int = 1) -> int:
    """The tile width along a loop, of which one step is `each` sums, for which all tiles together cost least.

    A tile costs its sums, or as much as a few where those wait for each other, and something for its beginning and end.
    """
    if is_open(extent):
        return most
    if extent <= most:
        return extent

    def cost(width: int) -> float:
        full, rest = divmod(extent, width)
        last = max(rest * each, FEWEST_SUMS) + OTHER_COST if rest else 0.0
        return full * (max(width * each, FEWEST_SUMS) + TILE_COST) + last

    return min(range(most, most // 2, -1), key=cost)
