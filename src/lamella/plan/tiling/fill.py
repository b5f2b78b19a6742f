"""The first stage from a cold start: nothing runs yet that could hide its fetches.

Where everything of a stage fits into L1, its tasks are written chunk by chunk over all tiles. The first product needs
one chunk of weights and one tile of the input; during the first chunk the rest of the input arrives, and each later
chunk of weights while the one before is computed. Tiles leave as their last chunk is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lamella.base.arena import aligned
from lamella.plan.tiling.choice import Choice
from lamella.plan.tiling.shape import ALIGN, Span, StageShape, tiles_of
from lamella.plan.tiling.split import RowWindow, bits_of

LIVE = 6
"""Tokens that a chunk needs beside one for each tile."""


def choose_fill(shape: StageShape, room: int) -> Choice | None:
    """The best tiling of a first stage that begins before its operands are all there; None where none fits.

    For one engine, and stages whose only large input is the image under a kernel.
    """
    split = shape.stage.split
    chunks = split.chunks
    if (
        chunks is None
        or split.units != split.period
        or not isinstance(split.inputs[0], RowWindow)
        or shape.streamed
    ):
        return None
    return min(_all_candidates(shape, room), key=lambda choice: choice.cycles, default=None)


def _all_candidates(shape: StageShape, room: int) -> Iterator[Choice]:
    """Candidates of all heights; `min` keeps the first of equals."""
    units, most = shape.stage.split.units, max(2, shape.machine.tokens - LIVE)
    for count in range(2, most + 1):
        height = -(-units // count)
        for edge in sorted({height, -(-height // 2), -(-height // 3)}):
            tiles = tapered(units, height, edge)
            if len(tiles) <= most:
                yield from (
                    replace(item, height=height, edge=edge) for item in _candidates(shape, tiles, room)
                )


def tapered(units: int, height: int, edge: int) -> list[tuple[int, int]]:
    """Tiles of which the first and the last are small: the first begins early, the last leaves little to store."""
    if units <= 2 * edge:
        return tiles_of(units, units, height)
    middle = [(first + edge, count) for first, count in tiles_of(units - 2 * edge, units - 2 * edge, height)]
    return [(0, edge), *middle, (units - edge, edge)]


def spans_of(channels: int, chunk: int, parts: int) -> list[Span]:
    """Chunks of channels: small ones first, then all that is left, so that the output leaves over a longer time."""
    early = [(number * chunk, chunk) for number in range(parts - 1)]
    return [*early, ((parts - 1) * chunk, channels - (parts - 1) * chunk)]


def _candidates(shape: StageShape, tiles: list[tuple[int, int]], room: int) -> Iterator[Choice]:
    chunks, weight = shape.stage.split.chunks, shape.stage.task.inputs[1].type
    assert chunks is not None
    assert weight is not None
    slot = shape.slot(tiles).size
    chunk = chunks.channels // 2
    while chunk >= 8:
        for parts in range(2, 5):
            spans = spans_of(chunks.channels, chunk, parts)
            most = max(chunk, spans[-1][1])
            needed = (
                parts * aligned(most * chunks.depth * bits_of(weight.elem) // 8, ALIGN) + len(tiles) * slot
            )
            if spans[-1][1] > 0 and needed <= room:
                cycles = _cycles(shape, tiles, spans)
                yield Choice(0, chunk, parts, len(tiles), 1, cycles, needed, eager=True)
        chunk //= 2


def new_rows(shape: StageShape, tiles: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The bytes of the input that each tile is the first to need: offset and size."""
    window = shape.stage.split.inputs[0]
    end = 0
    for first, count in tiles:
        part = window.part(first, count)
        until = max(end, part.offset + part.extent)
        yield end, until - end
        end = until


def _cycles(shape: StageShape, tiles: list[tuple[int, int]], spans: list[Span]) -> int:
    """Cycles of a cold start, step by step: what each product waits for, and the way out of each tile."""
    machine, split = shape.machine, shape.stage.split
    chunks, weight = split.chunks, shape.stage.task.inputs[1].type
    assert chunks is not None
    assert weight is not None
    fresh = list(new_rows(shape, tiles))
    arrived = [0] * len(tiles)
    clock, now, out = 0, 0.0, 0.0
    for number, (_, count) in enumerate(spans):
        size = count * chunks.depth * bits_of(weight.elem) // 8
        clock += machine.fetch(size)
        ready = clock + machine.load(size)
        for tile, (_, rows) in enumerate(tiles):
            if number == 0:
                clock += machine.fetch(fresh[tile][1]) if fresh[tile][1] else 0
                arrived[tile] = clock + machine.load(fresh[tile][1])
            share = rows / split.units
            main = shape.main_cycles(share * count / chunks.channels) / machine.counts[shape.costs[0].unit]
            now = max(now, ready, arrived[tile]) + main
            if number == len(spans) - 1:
                stored = sum(part.extent for _, _, part in shape.stored(*tiles[tile]))
                done = now + shape.follower_cycles(share) + machine.put(stored)
                out = max(out, done, clock) + machine.fetch(stored) / machine.counts["sDMA"]
    return int(out)
