"""The search for the tiles of a stage: heights, chunks of output channels and iterations in flight.

Each candidate is priced by a closed form of the pipelined loop, with the costs of the simulator: the busiest unit of an
engine decides, unless too few tiles are in flight to hide the way of one through all units; filling and draining come on
top. What does not fit into L1 is no candidate. The search is exhaustive over a pruned set and keeps the first of equals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lamella.base.arena import aligned
from lamella.base.errors import Unsupported
from lamella.plan.tiling.shape import ALIGN, StageShape, tiles_of
from lamella.plan.tiling.split import bits_of

LOOP_FROM = 4
"""Tiles of an engine from which on they are written as a loop."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How a stage is tiled: rows of a tile, channels of a chunk (0: all), chunks resident in L1, tiles in flight."""

    height: int
    chunk: int
    ring: int
    flight: int
    engines: int
    cycles: int
    l1_bytes: int


class _Price(NamedTuple):
    cycles: int
    tiles: int


def choose(shape: StageShape, engines: int, room: int) -> Choice:
    """The cheapest tiling of a stage that fits into `room` bytes of L1.

    Raises Unsupported with the smallest legal tile where none fits.
    """
    best: Choice | None = None
    smallest = 0
    for height in _heights(shape.stage.split.period):
        tiles = tiles_of(shape.stage.split.units, shape.stage.split.period, height)
        slot = shape.slot(_extremes(tiles))
        for chunk, ring, beside in _weights(shape):
            for flight in (2, 3, 4, 6, 8, 1):
                held = _slots(len(tiles), engines, flight)
                needed = beside + held * slot.size
                smallest = min(smallest or needed, needed)
                if needed > room:
                    continue
                found = _price(shape, tiles, chunk, ring, min(flight, held), engines)
                if best is None or found < best.cycles:
                    best = Choice(height, chunk, ring, flight, engines, found, needed)
    if best is None:
        raise Unsupported(
            f"{shape.stage.name} needs {smallest} bytes of L1 for its smallest tile; the device has {room}"
        )
    return best


def _heights(period: int) -> list[int]:
    """Heights worth trying: one for each number of tiles, few of them for long columns."""
    counts = sorted({*range(1, min(period, 16) + 1), *(1 << k for k in range(4, 24) if 1 << k <= period), period})
    counts += [count for count in range(18, min(period, 130), 4)]
    return sorted({-(-period // count) for count in counts}, reverse=True)


def _extremes(tiles: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Tiles of which one is the largest in every respect: the first, the last and two from the middle."""
    middle = len(tiles) // 2
    return [tiles[0], tiles[-1], tiles[middle], tiles[min(1, len(tiles) - 1)]]


def _slots(tiles: int, engines: int, flight: int) -> int:
    """Slots of an engine: those of the ring, and of tiles beside the loop."""
    each = -(-tiles // engines)
    return min(each, flight) if each < LOOP_FROM else flight + min(2, each)


def _weights(shape: StageShape) -> Iterator[tuple[int, int, int]]:
    """Ways to keep weights in L1: channels of a chunk (0: all), chunks at a time, bytes."""
    yield 0, 1, shape.whole_bytes
    chunks = shape.stage.split.chunks
    if chunks is None:
        return
    weight = dict(shape.wholes).get(1)
    if weight is None or weight.type is None:
        return
    rest = shape.whole_bytes - aligned(weight.extent, ALIGN)
    for parts in (2, 4, 8, 16, 32, 64, 128):
        size = -(-chunks.channels // parts)
        if parts > chunks.channels:
            return
        each = aligned(size * chunks.depth * bits_of(weight.type.elem) // 8, ALIGN)
        for ring in {2, 3, 4, parts}:
            if ring <= parts:
                yield size, ring, rest + ring * each


def _price(
    shape: StageShape, tiles: list[tuple[int, int]], chunk: int, ring: int, flight: int, engines: int
) -> int:
    """Cycles of a stage: the busiest unit of the busiest engine, or the way of a tile through all units."""
    machine, split = shape.machine, shape.stage.split
    first, count = max(tiles, key=lambda tile: tile[1])
    each = -(-len(tiles) // engines)
    share = count / split.units
    loads = [machine.load(part.extent) for _, _, part in shape.loads(first, count)]
    parts = 1 if not chunk or split.chunks is None else -(-split.chunks.channels // chunk)
    main = parts * shape.main_cycles(share / parts)
    after = shape.follower_cycles(share)
    out = sum(machine.put(part.extent) for _, _, part in shape.stored(first, count))
    weights = [machine.load(region.extent) for _, region in shape.wholes]
    groups = 1 if ring >= parts else -(-each // flight)
    load_weights = sum(weights) / machine.counts["DMA"]
    main_unit = shape.costs[0].unit
    after_units = {cost.unit for cost in shape.costs[1:]} or {"CSTL"}
    busy: dict[str, float] = {"DMA": each * sum(loads) / machine.counts["DMA"] + load_weights * groups}
    busy[main_unit] = busy.get(main_unit, 0) + each * main / min(flight, machine.counts[main_unit])
    busy["CSTL"] = busy.get("CSTL", 0) + each * out / machine.counts["CSTL"]
    for unit in after_units:
        busy[unit] = busy.get(unit, 0) + each * after / len(after_units) / machine.counts[unit]
    way = max(loads, default=0) + main + after + out
    fill = load_weights / parts + max(loads, default=0) / 2 + out / 2
    hidden = each * way / max(1, flight)
    # Tokens and text: many small tiles cost both, so of nearly equal prices the fewer tiles win.
    return int(max(*busy.values(), hidden) + fill + 8 * each)
