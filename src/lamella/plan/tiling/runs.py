"""Runs: which tiles of a stage are written as one loop.

The tiles of a loop differ by a constant step only. Extents, shapes and pads cannot depend on a loop variable, so tiles
at an edge, with other pads or fewer rows, stand beside the loop. All engines share one loop: loops join, so two of
them would run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamella.plan.tiling.split import Split, Tile
from lamella.plan.tiling.stages import Stage

LOOP_FROM = 2
"""Tiles of an engine from which on they are written as a loop."""


@dataclass(frozen=True, slots=True)
class Run:
    """Tiles of each engine that are alike: where they begin, how many there are, and how many stand beside them."""

    begins: tuple[int, ...]
    length: int
    beside: tuple[int, ...]


def find_run(stage: Stage, shared: Sequence[Sequence[Tile]]) -> Run | None:
    """The longest run that every engine has; None where there are too few tiles for a loop."""
    if not shared or any(len(tiles) < LOOP_FROM for tiles in shared):
        return None
    runs = [_longest_run(stage, tiles) for tiles in shared]
    length = min(count for _, count in runs)
    if length < LOOP_FROM:
        return None
    return Run(tuple(begin for begin, _ in runs), length, tuple(len(tiles) - length for tiles in shared))


def _longest_run(stage: Stage, tiles: Sequence[Tile]) -> Tile:
    """Where the longest run of tiles begins that have the same form and move by one step, and its length."""
    looks = [_looks(stage, tile) for tile in tiles]
    best, begin, step = (0, 1), 0, tuple[int, ...]()
    for end in range(1, len(tiles)):
        (form, place), (before, last) = looks[end], looks[end - 1]
        moved = tuple(now - then for now, then in zip(place, last, strict=True))
        if form != before:
            begin = end
            continue
        if end - begin > 1 and moved != step:
            begin = end - 1
        step = moved
        if end - begin + 1 > best[1]:
            best = begin, end - begin + 1
    return best


def _looks(stage: Stage, tile: Tile) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the tiles of a loop have in common, and what moves, for the stage and for its leads."""
    found = [_look(stage.split, tile)]
    found += [_look(lead.split, own) for lead, own in zip(stage.leads, stage.stripes(*tile), strict=True)]
    return tuple(n for form, _ in found for n in form), tuple(n for _, place in found for n in place)


def _look(split: Split, tile: Tile) -> tuple[tuple[int, int, int, int], Tile]:
    """What the tiles of a loop have in common, and what moves: rows of the output and of the image under a kernel.

    Everything else follows the rows of the output: all other operands have as many.
    """
    first, count = tile
    window = split.window
    if window is None or window.region.type is None:
        return (count, 0, 0, 0), (first, first)
    image, low, high, top, bottom = window.bounds(first, count)
    return (count, high - low, top, bottom), (first, image * window.region.type.shape[1] + low)


def assign(tiles: Sequence[Tile], engines: int) -> list[list[Tile]]:
    """Neighbouring tiles to the same engine, as evenly as they go."""
    count = min(engines, len(tiles))
    bounds = [len(tiles) * number // count for number in range(count + 1)]
    return [list(tiles[bounds[number] : bounds[number + 1]]) for number in range(count)]
