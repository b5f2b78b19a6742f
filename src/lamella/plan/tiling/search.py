"""The search for the tiles of a stage: heights, chunks of output channels and iterations in flight.

Each candidate is priced by a closed form of the pipelined loop, with the costs of the simulator: the busiest unit of
an engine decides, unless too few tiles are in flight to hide the way of one through all units; filling and draining
come on top. What does not fit into L1 is no candidate. The search goes through a pruned set and keeps the first of
equals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lamella.base.arena import aligned
from lamella.base.errors import Unsupported
from lamella.plan.tiling.shape import ALIGN, Machine, StageShape, tiles_of
from lamella.plan.tiling.split import VIEWS, Rows, bits_of

SHARE = 2048
"""Bytes that are worth a move of their own."""
OWN_TOKENS = 10
"""Tokens of an engine that fetches leave for its other tasks, where there are enough."""
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
    streamed: bool = False
    across: bool = False
    """Whether the engines share the output channels rather than the rows."""
    eager: bool = False
    """Whether tasks begin before their stage's operands are all there: the first stage of a plan."""
    remote: bool = False
    """Whether the task works on operands where they lie: a view that cannot be divided and does not fit into L1."""
    edge: int = 0
    """Rows of the first and the last tile of such a stage."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tiling must keep to: bytes of L1, engines, and whether engines may share channels."""

    room: int
    engines: int
    across: bool | None = None
    """Whether engines must share channels or must not; None where they may."""
    thrift: int = 20
    """Cycles that a task less is worth: tasks cost tokens and text."""


def choose(shape: StageShape, limits: Limits) -> Choice:
    """The cheapest tiling of a stage that fits into L1; chunks of channels only where whole weights crowd out tiles.

    Raises Unsupported with the smallest legal tile where none fits.
    """
    search = _Search(shape, limits)
    kept = list(_weights(shape))
    if not shape.streamed and not limits.across:
        search.look(kept[:1])
    if not limits.across and (search.best is None or 3 * shape.whole_bytes > limits.room):
        search.look(kept[1:])
    if limits.across is not False and can_share_channels(shape, limits.engines):
        search.look_across()
    if search.best is None and not limits.across and can_stay(shape):
        return Choice(shape.stage.split.units, 0, 1, 1, 1, shape.main_cycles(1.0), 0, remote=True)
    if search.best is None:
        raise Unsupported(
            f"{shape.stage.name} needs {search.smallest} bytes of L1 for its smallest tile; "
            f"the device has {limits.room}"
        )
    return search.best


def can_stay(shape: StageShape) -> bool:
    """Whether a stage may work on memories other than L1: it only moves elements."""
    return shape.stage.task.opcode in VIEWS and not shape.stage.followers


def can_share_channels(shape: StageShape, engines: int) -> bool:
    """Whether several engines may compute some channels each, all of them from the whole of the other operands."""
    split = shape.stage.split
    outputs = split.outputs[0]
    return (
        split.chunks is not None
        and split.chunks.channels >= engines
        and split.period == split.units
        and isinstance(outputs, Rows)
        and len(split.inputs) < 4
        and not shape.stage.whole_rows
    )


class _Search:
    """Prices candidates and keeps the best."""

    def __init__(self, shape: StageShape, limits: Limits) -> None:
        self.shape, self.limits = shape, limits
        self.best: Choice | None = None
        self.score = 0
        self.smallest = 0
        units = shape.machine.counts[shape.costs[0].unit]
        self.flights = [*sorted({2, 3, 4, 1 + units, 2 + units}), 1]
        self.tiles = [_Tiles(shape, height, limits.engines) for height in _heights(shape.stage.split.period)]

    def look(self, weights: Sequence[_Kept]) -> None:
        """Try all heights and numbers of tiles in flight with some ways to keep weights."""
        for tiles in self.tiles:
            for kept in weights:
                for flight in self.flights:
                    self._try(tiles, kept, flight)

    def look_across(self) -> None:
        """Try to share the channels among the engines."""
        shape, limits = self.shape, self.limits
        chunks = shape.stage.split.chunks
        assert chunks is not None
        mine = -(-chunks.channels // limits.engines)
        units = shape.stage.split.units
        slot = shape.slot([(0, units)], (0, mine)).size
        for kept in _weights(shape, mine):
            needed = kept.size + slot
            if not kept.chunk or needed > limits.room:
                continue
            found = self._price_across(kept, mine)
            tasks = limits.engines * (3 + 2 * kept.parts)
            choice = Choice(
                units, kept.chunk, kept.ring, 1, limits.engines, found, needed, shape.streamed, True
            )
            self._keep(choice, tasks)

    def _price_across(self, kept: _Kept, mine: int) -> int:
        """Cycles of an engine: its inputs whole, its weights, its products, its channels of the output."""
        shape, machine = self.shape, self.shape.machine
        chunks = shape.stage.split.chunks
        assert chunks is not None
        units, share = shape.stage.split.units, mine / chunks.channels
        parts = [part.extent for _, _, part in shape.loads(0, units, (0, mine))]
        loads = sum(machine.load(size) for size in parts) / pieces_of(machine, "DMA", 1, max(parts))
        size = sum(part.extent for _, _, part in shape.stored(0, units, (0, mine)))
        out = machine.put(size) / pieces_of(machine, "CSTL", 1, size)
        weights = (
            sum(machine.load(region.extent) for _, region in shape.wholes) * share / machine.counts["DMA"]
        )
        parallel = min(kept.parts, machine.counts[shape.costs[0].unit])
        main = kept.parts * shape.main_cycles(share / kept.parts) / parallel
        busy = max(weights, main, _ring_cycles(shape, kept, share, share))
        if shape.streamed:
            size = sum(region.extent for _, region in shape.wholes)
            busy = max(busy, machine.fetch(size) / machine.counts["sDMA"])
        return int(loads + busy + shape.follower_cycles(share) + out)

    def _try(self, tiles: _Tiles, kept: _Kept, flight: int) -> None:
        limits = self.limits
        held = slots_of(tiles.each, flight)
        needed = kept.size + held * tiles.slot
        self.smallest = min(self.smallest or needed, needed)
        if needed > limits.room:
            return
        found = tiles.price(kept, min(flight, held, tiles.in_flight))
        engines, streamed = limits.engines, self.shape.streamed
        choice = Choice(tiles.height, kept.chunk, kept.ring, flight, engines, found, needed, streamed)
        self._keep(choice, engines * tiles.tasks(kept, min(flight, held)))

    def _keep(self, choice: Choice, tasks: int) -> None:
        score = choice.cycles + self.limits.thrift * tasks
        if self.best is None or score < self.score:
            self.best, self.score = choice, score


def _heights(period: int) -> list[int]:
    """Heights worth trying: one for each number of tiles, few of them for long columns."""
    counts = {*range(1, min(period, 16) + 1), *(1 << k for k in range(4, 24) if 1 << k <= period), period}
    counts |= {*range(18, min(period, 130), 4)}
    return sorted({-(-period // count) for count in counts}, reverse=True)


def slots_of(each: int, flight: int) -> int:
    """Slots of an engine for so many tiles: those of the ring, and two for tiles beside a loop.

    Where one tile is in flight at a time, tiles beside the loop come before it, in the same slot.
    """
    return min(each, flight) + (2 if each >= LOOP_FROM and flight > 1 else 0)


def pieces_of(machine: Machine, unit: str, tiles: int, size: int) -> int:
    """Moves that share the bytes of a tile: where there are fewer tiles than units, the others would stand still."""
    return max(1, min(machine.counts[unit] // tiles, size // SHARE)) if tiles < LOOP_FROM else 1


class _Kept(NamedTuple):
    """Weights in L1: channels of a chunk (0: all), chunks at a time, chunks in all, bytes."""

    chunk: int
    ring: int
    parts: int
    size: int


def _weights(shape: StageShape, mine: int = 0) -> Iterator[_Kept]:
    """Ways to keep weights in L1, whole first; `mine` are the channels of an engine where engines share them."""
    yield _Kept(0, 1, 1, shape.whole_bytes)
    chunks = shape.stage.split.chunks
    weight = dict(shape.wholes).get(1)
    if chunks is None or weight is None or weight.type is None:
        return
    rest = shape.whole_bytes - aligned(weight.extent, ALIGN)
    channels = mine or chunks.channels
    for parts in (1, 2, 4, 8, 16, 32, 64, 128) if mine else (2, 4, 8, 16, 32, 64, 128):
        size = -(-channels // parts)
        if parts > channels:
            return
        each = aligned(size * chunks.depth * bits_of(weight.type.elem) // 8, ALIGN)
        for ring in sorted({min(2, parts), min(4, parts)}):
            yield _Kept(size, ring, -(-channels // size), rest + ring * each)


def _ring_cycles(shape: StageShape, kept: _Kept, weights: float, work: float) -> float:
    """Cycles of chunks through a ring: a place is free again when its chunk has been loaded and used."""
    machine = shape.machine
    size = sum(region.extent for _, region in shape.wholes) * weights / kept.parts
    pieces = -(-machine.counts["DMA"] // kept.ring)
    used = shape.main_cycles(work / kept.parts)
    return kept.parts * (machine.load(int(size / pieces)) + used) / kept.ring


class _Tiles:
    """The tiles of one height with what does not depend on the rest of a choice."""

    def __init__(self, shape: StageShape, height: int, engines: int) -> None:
        split = shape.stage.split
        tiles = tiles_of(split.units, split.period, height)
        middle = len(tiles) // 2
        # Of the first, the last and two from the middle, one is the largest in every respect.
        some = [tiles[0], tiles[-1], tiles[middle], tiles[min(1, len(tiles) - 1)]]
        self.shape = shape
        self.height = height
        self.each = -(-len(tiles) // engines)
        self.slot = shape.slot(some).size
        first, count = max(
            some, key=lambda tile: (tile[1], sum(part.extent for _, _, part in shape.loads(*tile)))
        )
        machine = shape.machine
        self.share = count / split.units
        self.loads = [machine.load(part.extent) for _, _, part in shape.loads(first, count)]
        self.out = sum(machine.put(part.extent) for _, _, part in shape.stored(first, count))
        self.after = shape.follower_cycles(self.share)

    @property
    def in_flight(self) -> int:
        """Tiles of a loop that tokens allow beside those of weights on their way."""
        if self.each < LOOP_FROM:
            return self.each
        machine = self.shape.machine
        free = max(OWN_TOKENS, machine.tokens // 3)
        return max(2, free // (len(self.loads) + len(self.shape.costs)))

    def price(self, kept: _Kept, flight: int) -> int:
        """Cycles of the stage: the busiest unit of the busiest engine, or the way of a tile through all units."""
        shape, machine, each = self.shape, self.shape.machine, self.each
        main = kept.parts * shape.main_cycles(self.share / kept.parts)
        groups = 1 if kept.ring >= kept.parts else -(-each // flight)
        weights = sum(machine.load(region.extent) for _, region in shape.wholes) / machine.counts["DMA"]
        main_unit = shape.costs[0].unit
        busy: dict[str, float] = {"DMA": each * sum(self.loads) / machine.counts["DMA"] + weights * groups}
        busy[main_unit] = busy.get(main_unit, 0) + each * main / min(flight, each, machine.counts[main_unit])
        busy["CSTL"] = busy.get("CSTL", 0) + each * self.out / machine.counts["CSTL"]
        for cost in shape.costs[1:]:
            share = self.after / len(shape.costs[1:])
            busy[cost.unit] = busy.get(cost.unit, 0) + each * share / machine.counts[cost.unit]
        if shape.streamed:
            size = sum(region.extent for _, region in shape.wholes)
            busy["sDMA"] = groups * machine.fetch(size) / machine.counts["sDMA"]
        load = sum(self.loads) / pieces_of(machine, "DMA", each, max(self.loads, default=0) * machine.dma)
        out = self.out / pieces_of(machine, "CSTL", each, self.out * machine.store)
        way = load + main + self.after + out
        if kept.ring < kept.parts:
            # In groups: all loads, then chunk after chunk, then all stores.
            around = groups * (sum(self.loads) * flight / machine.counts["DMA"] + self.after + out)
            ring = groups * _ring_cycles(shape, kept, 1.0, self.share * min(flight, each))
            return int(max(*busy.values(), ring) + around)
        return int(max(*busy.values(), each * way / max(1, flight)) + load / 2 + out / 2)

    def tasks(self, kept: _Kept, flight: int) -> int:
        """Tasks of an engine as they are written: those of a loop count once."""
        tile = len(self.loads) + kept.parts + len(self.shape.costs)
        resident = kept.ring >= kept.parts
        written = self.each if self.each < LOOP_FROM or not resident else 3
        weights = kept.parts if resident else kept.parts * -(-self.each // flight)
        return tile * written + weights
