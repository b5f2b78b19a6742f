"""Placement: what lies where. Weights are packed for DDR, activations have a home in L2 or DDR, stages a part of L1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lamella.base.arena import aligned
from lamella.base.errors import Unsupported
from lamella.lang.nem.resolved import Region
from lamella.plan.tiling.fill import spans_of, tapered
from lamella.plan.tiling.memory import Block, place
from lamella.plan.tiling.pack import Packing
from lamella.plan.tiling.program import L2_BUFFER, Bytes, Place
from lamella.plan.tiling.search import Choice, slots_of
from lamella.plan.tiling.shape import ALIGN, Machine, Slot, Span, StageShape, tiles_of
from lamella.plan.tiling.split import Part
from lamella.plan.tiling.stages import Network, Stage

STREAM_SLOTS = 4
"""Chunks of weights that are on their way through L2 at once."""
PIECE = 1 << 15
"""Bytes below which a load is not divided among several DMAs."""
FAR_PIECE = 1 << 15
"""Bytes below which a fetch is not divided among several sDMAs."""
URGENT_PIECE = 1 << 12
"""The same of one that nothing hides."""

Tile = tuple[int, int]


@dataclass(slots=True, eq=False)
class Fetch:
    """Bytes that come from DDR to L2 before a stage: its weights, or an input of the plan."""

    name: str
    buffer: str
    offset: int
    block: Block
    use: int
    issued: bool = False
    pieces: int = 1


@dataclass(slots=True)
class TiledStage:
    """A stage with its tiles, its slot and where it lies in L1."""

    stage: Stage
    shape: StageShape
    choice: Choice
    tiles: list[list[Tile]]
    slot: Slot
    base: int = 0
    weights: dict[int, int] = field(default_factory=dict)
    packed: dict[tuple[str, int], int] = field(default_factory=dict)
    distant: dict[tuple[str, int], int] = field(default_factory=dict)
    prepared: bool = False
    stream: Block | None = None
    streamed_at: int = 0
    staging: Block | None = None
    staged: dict[str, int] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Slots of an engine."""
        most = max(len(tiles) for tiles in self.tiles)
        return most if self.choice.eager else slots_of(most, self.choice.flight)

    @property
    def beside(self) -> int:
        """Bytes of L1 for weights."""
        chunks = self.stage.split.chunks
        if not self.choice.chunk or chunks is None:
            return self.shape.whole_bytes
        rest = sum(aligned(region.extent, ALIGN) for index, region in self.shape.wholes if index != 1)
        return rest + self.choice.ring * self.chunk_bytes

    @property
    def chunk_bytes(self) -> int:
        """Bytes of L1 for a chunk of weights."""
        chunks, weight = self.stage.split.chunks, dict(self.shape.wholes)[1]
        assert chunks is not None
        assert weight.type is not None
        most = max(count for _, count in self.chunks())
        return aligned(chunks.weight(weight.type, 0, most).extent, ALIGN)

    @property
    def l1_bytes(self) -> int:
        """Bytes of L1 in use on an engine."""
        if self.choice.remote:
            return 0
        return self.beside + self.slots * self.slot.size

    @property
    def slots_at(self) -> int:
        """Where the slots begin in L1."""
        return self.base + self.beside

    def span(self, engine: int) -> Span | None:
        """The channels of an engine, where engines share them."""
        chunks = self.stage.split.chunks
        if not self.choice.across or chunks is None:
            return None
        each = -(-chunks.channels // self.choice.engines)
        return engine * each, min(each, chunks.channels - engine * each)

    def chunks(self, engine: int = 0) -> list[Span]:
        """The chunks of output channels of an engine; one of all where nothing is divided."""
        chunks = self.stage.split.chunks
        if not self.choice.chunk or chunks is None:
            return [(0, 0)]
        size = self.choice.chunk
        if self.choice.eager:
            return spans_of(chunks.channels, size, self.choice.ring)
        begin, count = self.span(engine) or (0, chunks.channels)
        return [(first, min(size, begin + count - first)) for first in range(begin, begin + count, size)]


class Placement:
    """Decides where the bytes of a plan lie, and says where an operand is."""

    def __init__(self, network: Network, machine: Machine, stages: list[TiledStage]) -> None:
        self.network = network
        self.machine = machine
        self.stages = stages
        self.packing = Packing(_unused("weights", network))
        self.homes: dict[str, Block] = {}
        self.fetches: list[Fetch] = []
        self.reserved: list[Block] = []
        self.l2_bytes = 0
        self.ddr: set[str] = set()

    def place(self) -> None:
        """Decide what lies where in L1 and L2; activations that do not fit stay in DDR."""
        for number, tiled in enumerate(self.stages):
            tiled.base = 0 if number % 2 == 0 else (self.machine.l1 - tiled.l1_bytes) // ALIGN * ALIGN
            self._pack(tiled)
        spilled: set[str] = set()
        while True:
            self._blocks(spilled)
            weights = [item.block for item in self.fetches if item.buffer == self.packing.name]
            others = [block for block in self.reserved if block not in weights]
            self.l2_bytes = place(others, weights, self.machine.l2)
            if self.l2_bytes <= self.machine.l2:
                return
            victim = self._victim(spilled)
            if victim is None:
                raise Unsupported(
                    f"the plan needs {self.l2_bytes} bytes of L2 at once; the device has {self.machine.l2}"
                )
            spilled.add(victim)

    def _pack(self, tiled: TiledStage) -> None:
        """Put the weights of a stage side by side into the packed buffer."""
        for index, region in enumerate(tiled.stage.task.inputs):
            if region.buffer.name in self.network.weights and (
                tiled.choice.remote or index in tiled.shape.distant
            ):
                tiled.distant[region.buffer.name, region.offset.constant] = self.packing.share(region)
        start = self.packing.size = aligned(self.packing.size, ALIGN)
        indexed = list(enumerate(tiled.stage.task.inputs))
        others = [
            (-1, region) for item in tiled.stage.followers for region in item.inputs if region is not None
        ]
        # The weight that is taken in chunks is the last, behind vectors that all chunks need.
        ordered = sorted([*indexed, *others], key=lambda item: item[0] == 1)
        size = 0
        for index, region in ordered:
            key = region.buffer.name, region.offset.constant
            known = tiled.packed.keys() | tiled.distant.keys()
            if region.buffer.name in self.network.weights and key not in known:
                by_channel = index == 1 and bool(tiled.choice.chunk)
                at = self.packing.add(region, by_channel)
                if by_channel and tiled.choice.streamed:
                    tiled.streamed_at = at
                    continue
                tiled.packed[key] = at - start
                size = self.packing.size - start
        if size:
            number = tiled.stage.number
            block = Block(f"{tiled.stage.name}_w", size, number, number)
            self.fetches.append(
                Fetch(
                    f"{tiled.stage.name}_fetch",
                    self.packing.name,
                    start,
                    block,
                    number,
                    pieces=self._pieces(size, urgent=number == 0),
                )
            )

    def _pieces(self, size: int, urgent: bool = False) -> int:
        """Transfers that share a fetch: each takes a token until its bytes are used, so small ones stay whole.

        What everything waits for, at the beginning and at the end of a plan, is divided all the same.
        """
        return max(1, min(self.machine.counts["sDMA"], size // (URGENT_PIECE if urgent else FAR_PIECE)))

    def _blocks(self, spilled: set[str]) -> None:
        """The blocks that L2 must hold: activations and inputs, weights, staging rings."""
        network = self.network
        self.homes = {}
        self.fetches = [item for item in self.fetches if item.buffer == self.packing.name]
        sizes = {item.name: item.size for item in network.plan.buffers}
        again = self._read_again()
        for name in sorted(network.activations | network.inputs | again):
            if name in spilled or name in network.outputs - again:
                continue
            # What goes to DDR from its home may wait there for long: nothing else takes the place.
            last = len(self.stages) - 1 if name in again else network.last[name]
            self.homes[name] = Block(name, sizes[name], network.first[name], last)
            if name in network.inputs:
                # The first stage waits for nothing else: small pieces let its first tiles begin early.
                pieces = max(1, min(2 * self.machine.counts["sDMA"], sizes[name] // PIECE * 4))
                self.fetches.append(
                    Fetch(f"{name}_fetch", name, 0, self.homes[name], network.first[name], pieces=pieces)
                )
        # Inputs come before weights: rows of tables wait for their numbers.
        self.fetches.sort(key=lambda item: (item.use, item.buffer == self.packing.name))
        self.ddr = set(network.first) - self.homes.keys() - network.weights
        staging = [block for block in (self._staging(tiled) for tiled in self.stages) if block is not None]
        weights = [item.block for item in self.fetches if item.buffer == self.packing.name]
        self.reserved = [*self.homes.values(), *weights, *staging, *self._streams()]

    def _read_again(self) -> set[str]:
        """Outputs that stages read, states of the model above all: they have a home, and go to DDR from there."""
        read = {region.buffer.name for tiled in self.stages for region in tiled.stage.inputs()}
        return read & self.network.outputs

    def _streams(self) -> Iterator[Block]:
        """The rings through which weights pass that are too large for L2."""
        for tiled in self.stages:
            if tiled.choice.streamed:
                number = tiled.stage.number
                size = STREAM_SLOTS * tiled.chunk_bytes
                tiled.stream = Block(f"{tiled.stage.name}_stream", size, number, number)
                yield tiled.stream

    def _staging(self, tiled: TiledStage) -> Block | None:
        """The ring through which a stage reads and writes what lies in DDR; a slot of it for each slot of L1."""
        tiled.staged = {}
        end = 0
        if tiled.choice.remote:
            return None
        for first, count in {tile for tiles in tiled.tiles for tile in (tiles[:2] + tiles[-2:])}:
            for key, region, part in self._moving(tiled, first, count):
                if region.buffer.name in self.ddr:
                    tiled.staged[key] = max(tiled.staged.get(key, 0), aligned(part.extent, ALIGN))
        for index, region in tiled.shape.wholes:
            if region.buffer.name in self.ddr:
                raise Unsupported(
                    f"{tiled.stage.name} reads {region.name or index} whole, which does not fit into L2"
                )
        for key, size in tiled.staged.items():
            tiled.staged[key] = end
            end += size
        tiled.staged["size"] = end
        number = tiled.stage.number
        total = end * tiled.slots * tiled.choice.engines
        tiled.staging = Block(f"{tiled.stage.name}_ring", total, number, number) if end else None
        return tiled.staging

    @staticmethod
    def _moving(tiled: TiledStage, first: int, count: int) -> Iterator[tuple[str, Region, Part]]:
        yield from tiled.shape.loads(first, count)
        for key, region, part in tiled.shape.stored(first, count):
            yield f"out_{key}", region, part

    def _victim(self, spilled: set[str]) -> str | None:
        """The activation whose way through DDR costs the least for the bytes it frees."""
        peak = self._peak_stage()
        able = [
            block
            for name, block in self.homes.items()
            if name not in spilled and block.first <= peak <= block.last and self._can_stage(name)
        ]
        if not able:
            able = [block for name, block in self.homes.items() if self._can_stage(name)]
        if not able:
            return None
        return max(able, key=lambda block: (block.size * (block.last - block.first + 1), block.name)).name

    def _can_stage(self, name: str) -> bool:
        """Whether every use of a buffer goes by tiles."""
        staying = [tiled for tiled in self.stages if not tiled.choice.remote]
        wholes = {region.buffer.name for tiled in staying for _, region in tiled.shape.wholes}
        return name not in wholes

    def _peak_stage(self) -> int:
        live = [
            sum(block.size for block in self.reserved if block.first <= number <= block.last)
            for number in range(len(self.stages))
        ]
        return max(range(len(live)), key=lambda number: live[number])

    def lying(self, tiled: TiledStage, region: Region) -> Bytes:
        """An operand in L2 or DDR, with its type."""
        key = region.buffer.name, region.offset.constant
        if key in tiled.distant:
            return Bytes(self.packing.name, Place(tiled.distant[key]), region.extent, region.type)
        if region.buffer.name in self.ddr:
            return Bytes(region.buffer.name, Place(region.offset.constant), region.extent, region.type)
        found = self.source(tiled, region, 0, region.extent)
        return Bytes(found.buffer, found.place, found.extent, region.type)

    def l2(self, block: Block, offset: int, size: int) -> Bytes:
        name = f"at_{block.name}"
        return Bytes(L2_BUFFER, Place(block.offset + offset, name=name, named=block.offset), size)

    def source(self, tiled: TiledStage, region: Region, offset: int, size: int) -> Bytes:
        """Bytes of an operand in L2."""
        key = region.buffer.name, region.offset.constant
        if key in tiled.packed:
            fetch = next(
                item
                for item in self.fetches
                if item.use == tiled.stage.number and item.buffer == self.packing.name
            )
            return self.l2(fetch.block, tiled.packed[key] + offset, size)
        return self.l2(self.homes[region.buffer.name], region.offset.constant + offset, size)


def _unused(wanted: str, network: Network) -> str:
    """A name that no buffer or region of the selected plan has."""
    taken = {item.name for item in network.plan.buffers} | set(network.plan.regions)
    while wanted in taken:
        wanted += "_"
    return wanted


def assign(tiles: Sequence[Tile], engines: int) -> list[list[Tile]]:
    """Neighbouring tiles to the same engine, as evenly as they go."""
    count = min(engines, len(tiles))
    bounds = [len(tiles) * number // count for number in range(count + 1)]
    return [list(tiles[bounds[number] : bounds[number + 1]]) for number in range(count)]


def tiled_stage(stage: Stage, shape: StageShape, choice: Choice) -> TiledStage:
    """A stage with the tiles of its choice."""
    split = stage.split
    if choice.across:
        whole = (0, split.units)
        found = TiledStage(stage, shape, choice, [[whole] for _ in range(choice.engines)], Slot({}, 0))
        # The last engine may have nothing left to do.
        found.tiles = [
            tiles for engine, tiles in enumerate(found.tiles) if (found.span(engine) or (0, 0))[1] > 0
        ]
        found.slot = shape.slot([whole], found.span(0))
        return found
    tiles = tiles_of(split.units, split.period, choice.height)
    if choice.eager:
        tiles = tapered(split.units, choice.height, choice.edge)
        return TiledStage(stage, shape, choice, [tiles], shape.slot(tiles))
    shared = assign(tiles, choice.engines)
    edge = [tile for engine in shared for tile in (*engine[:2], *engine[-2:])]
    return TiledStage(stage, shape, choice, shared, shape.slot(edge))
