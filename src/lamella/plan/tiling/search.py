"""The search for the tiles of a stage: heights, chunks of output channels and iterations in flight.

Each candidate is priced by a closed form of the pipelined loop, with the costs of the simulator: the busiest unit of
an engine decides, unless too few tiles are in flight to hide the way of one through all units; filling and draining
come on top. What does not fit into L1 is no candidate. The search goes through a pruned set and keeps the first of
equals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lamella.base.arena import aligned
from lamella.base.errors import Unsupported
from lamella.plan.tiling.choice import Choice, Limits, Price
from lamella.plan.tiling.runs import LOOP_FROM, Run
from lamella.plan.tiling.shape import ALIGN, Machine, StageShape
from lamella.plan.tiling.split import VIEWS, Rows, bits_of
from lamella.plan.timing.dataflow import may_stay

SHARE = 4096
"""Bytes that are worth a move of their own."""
MOST_CHUNKS = 256
"""Chunks of weights that a stage may have."""
SECTION = 4
"""Lines of a section beside its tasks: a comment, a blank line, the ends of its loop."""
MOVE, PART, LET, MAIN = 1, 2, 2, 3
"""Lines of a move, of a move of a part of something, of a region with its type, and of a computation, about."""


def choose(shape: StageShape, limits: Limits) -> Choice:
    """The cheapest tiling of a stage that fits into L1, where a line costs what the limits say.

    Raises Unsupported with the smallest legal tile where none fits.
    """
    return min(candidates(shape, limits), key=lambda item: item.cycles + limits.thrift * item.lines)


def candidates(shape: StageShape, limits: Limits) -> list[Choice]:
    """The tilings of a stage of which none is both slower and longer than another, the shortest first.

    Chunks of channels are looked at only where whole weights crowd out tiles. Raises Unsupported where nothing fits.
    """
    key = limits.room, limits.engines, limits.across
    if key not in shape.fronts:
        shape.fronts[key] = _look(shape, limits)
    return shape.fronts[key]


def _look(shape: StageShape, limits: Limits) -> list[Choice]:
    search = _TileSearch(shape, limits)
    kept = list(_weights(shape))
    if not shape.streamed and not limits.across:
        search.look(kept[:1])
    if not limits.across and (not search.found or 3 * shape.whole_bytes > limits.room):
        search.look(kept[1:])
    if limits.across is not False and can_share_channels(shape, limits.engines):
        search.look_across()
    if not search.found and not limits.across and can_stay(shape):
        return [Choice(shape.stage.split.units, 0, 1, 1, 1, shape.main_cycles(1.0), 0, remote=True)]
    if not search.found:
        raise Unsupported(
            f"{shape.stage.name} needs {search.smallest} bytes of L1 for its smallest tile; "
            f"the device has {limits.room}"
        )
    return search.front()


def least_bytes(shape: StageShape) -> int:
    """Bytes of L1 without which a stage has no tile: one row of its output, what that needs, the fewest weights."""
    ways = [kept.size for kept in _weights(shape)]
    return min(ways[1:] if shape.streamed and len(ways) > 1 else ways) + _Tiles(shape, 1, 1).slot


def can_stay(shape: StageShape) -> bool:
    """Whether a stage may work on memories other than L1: it only moves elements, or cannot be divided."""
    stage = shape.stage
    return (stage.task.opcode in VIEWS or may_stay(stage.task)) and not (stage.followers or stage.leads)


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


class _TileSearch:
    """Prices candidates and keeps the fastest of each length."""

    def __init__(self, shape: StageShape, limits: Limits) -> None:
        self.shape, self.limits = shape, limits
        self.found: dict[int, Choice] = {}
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
            found, price = self._price_across(kept, mine)
            lines = limits.engines * _across_lines(shape, kept, mine) + SECTION
            choice = Choice(
                units,
                kept.chunk,
                kept.ring,
                1,
                limits.engines,
                found,
                needed,
                shape.streamed,
                True,
                lines=lines,
                price=price,
            )
            self._keep(choice)

    def _price_across(self, kept: _Kept, mine: int) -> tuple[int, Price | None]:
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
        resident = kept.ring >= kept.parts
        busy = max(weights, main)
        if not resident or not machine.tactic.weights_hidden:
            busy = max(busy, _ring_cycles(shape, kept, share, share))
        if shape.streamed:
            size = sum(region.extent for _, region in shape.wholes)
            busy = max(busy, machine.fetch(size) / machine.counts["sDMA"])
            busy += _ring_cycles(shape, kept, share, share) / kept.parts * kept.ring
        around = loads + shape.follower_cycles(share) + out
        if not resident or shape.streamed:
            return int(around + busy), None
        return int(around + busy), Price(int(around + main), int(weights), int(loads))

    def _try(self, tiles: _Tiles, kept: _Kept, flight: int) -> None:
        limits = self.limits
        resident = kept.ring >= kept.parts
        held = slots_of(tiles.run if resident else None, tiles.each, flight)
        needed = kept.size + held * tiles.slot
        self.smallest = min(self.smallest or needed, needed)
        if needed > limits.room:
            return
        self.shape.machine.effort.take()
        found, price = tiles.price(kept, min(flight, held))
        lines = tiles.lines(kept, min(flight, held))
        choice = Choice(
            tiles.height,
            kept.chunk,
            kept.ring,
            flight,
            limits.engines,
            found,
            needed,
            self.shape.streamed,
            lines=lines,
            price=price,
        )
        self._keep(choice)

    def _keep(self, choice: Choice) -> None:
        known = self.found.get(choice.lines)
        if known is None or choice.cycles < known.cycles:
            self.found[choice.lines] = choice

    def front(self) -> list[Choice]:
        """Those that no shorter one beats."""
        kept: list[Choice] = []
        for _, item in sorted(self.found.items()):
            if not kept or item.cycles < kept[-1].cycles:
                kept.append(item)
        return kept


def _heights(period: int) -> list[int]:
    """Heights worth trying: one for each number of tiles, few of them for long columns."""
    counts = {*range(1, min(period, 16) + 1), *(1 << k for k in range(4, 24) if 1 << k <= period), period}
    counts |= {*range(18, min(period, 130), 4)}
    return sorted({-(-period // count) for count in counts}, reverse=True)


def slots_of(run: Run | None, each: int, flight: int) -> int:
    """Slots of an engine: those of the ring, and up to two for tiles beside a loop.

    Where one tile is in flight at a time, tiles beside the loop come before it, in the same slot.
    """
    if run is None:
        return min(each, flight)
    held = min(run.length, flight)
    return held + (min(2, max(run.beside)) if held > 1 else 0)


def pieces_of(machine: Machine, unit: str, tiles: int, size: float) -> int:
    """Moves that share the bytes of a tile: where there are fewer tiles than units, the others would stand still."""
    return max(1, min(machine.counts[unit] // tiles, int(size) // SHARE)) if tiles < LOOP_FROM else 1


def load_pieces(machine: Machine, size: int) -> int:
    """Moves that share what lies whole in L1."""
    return max(1, min(machine.counts["DMA"], size // machine.tactic.grain.near))


def _across_lines(shape: StageShape, kept: _Kept, mine: int) -> int:
    """Lines of an engine that computes some channels of the whole."""
    loads = sum(1 for _ in shape.loads(0, shape.stage.split.units, (0, mine)))
    chunk = (2 * LET + 2 + MAIN + PART) * kept.parts
    return (loads + 1) * PART + loads * LET + chunk + (PART + LET) * (len(shape.costs) - 1)


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
    counts = {part for part in (1, 2, 4, 8, 16, 32, 64, 128) if part <= channels}
    # The smallest chunks are of one channel, as long as a person could read them all.
    counts |= {channels} if channels <= MOST_CHUNKS else set()
    for parts in sorted(counts if mine else counts - {1}):
        size = -(-channels // parts)
        each = aligned(size * chunks.depth * bits_of(weight.type.elem) // 8, ALIGN)
        if shape.streamed and not stream_slots(shape.machine, each):
            continue
        for ring in sorted({1, min(2, parts), min(4, parts)}):
            yield _Kept(size, ring, -(-channels // size), rest + ring * each)


def stream_slots(machine: Machine, size: int) -> int:
    """Chunks of weights that are on their way through L2 at once: four, two large ones, or none that are too large."""
    return 4 if 16 * size <= 3 * machine.l2 else 2 if 16 * size <= 5 * machine.l2 else 0


def _ring_cycles(shape: StageShape, kept: _Kept, weights: float, work: float) -> float:
    """Cycles of chunks through a ring: a place is free again when its chunk has been loaded and used."""
    machine = shape.machine
    size = sum(region.extent for _, region in shape.wholes) * weights / kept.parts
    pieces = chunk_pieces(shape, kept.ring, int(size))
    used = shape.main_cycles(work / kept.parts)
    return kept.parts * (machine.load(int(size / pieces)) + used) / kept.ring


def chunk_pieces(shape: StageShape, ring: int, size: int) -> int:
    """Moves that share a chunk of weights; of chunks that come from DDR one by one there is time for one move each."""
    machine = shape.machine
    if shape.streamed:
        return 1
    return max(1, min(-(-machine.counts["DMA"] // ring), size // machine.tactic.grain.near))


class _Tiles:
    """The tiles of one height with what does not depend on the rest of a choice."""

    def __init__(self, shape: StageShape, height: int, engines: int) -> None:
        sizes, machine = shape.sizes(height), shape.machine
        self.shape = shape
        self.height = height
        self.each = -(-sizes.count // engines)
        self.count = sizes.count
        self.engines = min(engines, sizes.count)
        self.run = sizes.run(shape.stage, engines)
        self.slot = sizes.slot
        self.share = sizes.largest[1] / shape.stage.split.units
        self.loads = [machine.load(size) for size in sizes.loads]
        self.out = sum(machine.put(size) for size in sizes.stored)
        self.after = shape.follower_cycles(self.share)
        self.before = list(shape.lead_cycles(*sizes.largest))
        self.gathered = machine.fetch(sizes.made) if shape.distant else 0

    def price(self, kept: _Kept, flight: int) -> tuple[int, Price | None]:
        """Cycles of the stage: the busiest unit of the busiest engine, or the way of a tile through all units."""
        shape, machine, each = self.shape, self.shape.machine, self.each
        main = kept.parts * shape.main_cycles(self.share / kept.parts)
        groups = 1 if kept.ring >= kept.parts else -(-each // flight)
        weights = sum(machine.load(region.extent) for _, region in shape.wholes) / machine.counts["DMA"]
        main_unit = shape.costs[0].unit
        busy: dict[str, float] = {"DMA": each * sum(self.loads) / machine.counts["DMA"] + weights * groups}
        busy[main_unit] = busy.get(main_unit, 0) + each * main / min(flight, each, machine.counts[main_unit])
        busy["CSTL"] = busy.get("CSTL", 0) + each * self.out / machine.counts["CSTL"]
        for unit, cycles in self.before:
            busy[unit] = busy.get(unit, 0) + each * cycles / min(flight, each, machine.counts[unit])
        for cost in shape.costs[1:]:
            share = self.after / len(shape.costs[1:])
            busy[cost.unit] = busy.get(cost.unit, 0) + each * share / machine.counts[cost.unit]
        if shape.streamed:
            size = sum(region.extent for _, region in shape.wholes)
            busy["sDMA"] = groups * machine.fetch(size) / machine.counts["sDMA"]
        if shape.distant:
            # Rows of a table in DDR; the sDMAs serve all engines.
            busy["sDMA"] = self.count * self.gathered / min(self.count, machine.counts["sDMA"])
        load = sum(self.loads) / pieces_of(machine, "DMA", each, max(self.loads, default=0) * machine.dma)
        out = self.out / pieces_of(machine, "CSTL", each, self.out * machine.store)
        way = load + sum(cycles for _, cycles in self.before) + main + self.after + out
        if kept.ring < kept.parts:
            # In groups: all loads, then chunk after chunk, then all stores.
            around = groups * (sum(self.loads) * flight / machine.counts["DMA"] + self.after + out)
            ring = groups * _ring_cycles(shape, kept, 1.0, self.share * min(flight, each))
            if shape.streamed:
                # What comes last from DDR has still its way to go.
                around += ring / groups / kept.parts * kept.ring
            return int(max(*busy.values(), ring) + around), None
        ends = load / 2 + out / 2
        with_weights = max(*busy.values(), each * way / max(1, flight)) + ends
        busy["DMA"] -= weights
        alone = max(*busy.values(), each * way / max(1, flight)) + ends
        price = Price(int(alone), int(weights), int(busy["DMA"]))
        return int(with_weights), None if shape.streamed else price

    def lines(self, kept: _Kept, flight: int) -> int:
        """Lines of text, about: those of a loop count once, and engines share one loop."""
        shape = self.shape
        resident = kept.ring >= kept.parts
        run = self.run if resident else None
        passes = self.count if run is None else self.engines + sum(run.beside)
        main = MAIN + (LET + 1 if kept.chunk else 0)
        move = MOVE if run else PART
        each = len(self.loads) * (move + LET) + LET + kept.parts * main
        each += (len(shape.costs) - 1) * (PART + LET) + move + len(self.before) * (MAIN + LET)
        moves = kept.parts if kept.chunk else 1
        groups = 1 if resident else -(-self.each // flight)
        weights = (
            (moves * (MOVE if moves == 1 else PART) * groups + kept.parts * (LET + bool(kept.chunk)))
            if shape.wholes
            else 0
        )
        weights += len(shape.leads) * (MOVE + LET)
        return passes * each + self.engines * weights + SECTION
