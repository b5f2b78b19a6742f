"""Placement: what lies where. Weights are packed for DDR, activations have a home in L2 or DDR, stages a part of L1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from lamella.base.arena import aligned
from lamella.base.errors import Unsupported
from lamella.lang.nem.codecs import BLOCK
from lamella.lang.nem.resolved import Region
from lamella.plan.operands import Codes
from lamella.plan.tiling.choice import Choice
from lamella.plan.tiling.fill import spans_of, tapered
from lamella.plan.tiling.halo import Halo
from lamella.plan.tiling.memory import LiveBytes, place
from lamella.plan.tiling.pack import PackedBuffer, Packing
from lamella.plan.tiling.program import L2_BUFFER, AffineAddress, Bytes
from lamella.plan.tiling.residency import Spill, cheapest_spills
from lamella.plan.tiling.runs import Run, assign, find_run
from lamella.plan.tiling.search import slots_of, stream_slots
from lamella.plan.tiling.shape import (
    ALIGN,
    Machine,
    Slot,
    Span,
    StageShape,
    different_tiles,
    lead_operand,
    tiles_of,
)
from lamella.plan.tiling.split import VIEWS, OperandRange, Tile, bits_of
from lamella.plan.tiling.stages import Network, Stage

GRAIN = 16
"""Bytes of which the pieces of weights consist that come with the iterations of a loop."""
LONG = 1 << 15
"""Bytes of weights of which two pieces are worth coming with the iterations of a loop."""
NAMED_BLOCKS = 3
"""Blocks that a refusal for want of L2 names."""
URGENT_PIECE = 1 << 12
"""Bytes below which a fetch that nothing hides is not divided among several sDMAs."""

TOGETHER = 16
"""Activations that went to DDR one by one for each that goes with another."""
BESIDE = 1 << 14
"""Bytes of biases that are fetched together where codecs store the weights beside them."""


class ShortL2(Unsupported):
    """L2 is too small for what a plan must hold there at once."""


@dataclass(slots=True, eq=False)
class Fetch:
    """Bytes that come from DDR to L2 before a stage: its weights, or an input of the plan."""

    name: str
    buffer: str
    offset: int
    block: LiveBytes
    use: int
    issued: bool = False
    pieces: int = 1
    lead: int = 0
    """Bytes of the block before them: a halo."""
    size: int = 0
    packed: PackedBuffer | None = None
    """Where weights come from; nothing for inputs of the plan."""

    @property
    def moved(self) -> float:
        """Bytes that cross DDR, about: fewer where a codec stores them."""
        return self.size if self.packed is None else self.size * self.packed.share

    @property
    def grain(self) -> int:
        """Where its pieces begin."""
        return ALIGN if self.packed is None else self.packed.align


@dataclass
class TiledStage:
    """A stage with its tiles, its slot and where it lies in L1."""

    stage: Stage
    shape: StageShape
    choice: Choice
    tiles: list[list[Tile]]
    slot: Slot
    base: int = 0
    weights: dict[int, int] = field(default_factory=dict)
    packed: dict[tuple[str, int], tuple[PackedBuffer, int]] = field(default_factory=dict)
    """Where the weights of the stage lie that are fetched for it: a buffer, and an offset there."""
    distant: dict[tuple[str, int], int] = field(default_factory=dict)
    prepared: bool = False
    along: int = 0
    """Iterations of the loop before this stage, in which its weights come: a piece with each."""
    stream: LiveBytes | None = None
    flowing: int = 0
    """Chunks of weights of which fetches have been written."""
    streamed_at: tuple[PackedBuffer, int] | None = None
    staging: LiveBytes | None = None
    staged: dict[str, int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What its tasks and regions are called."""
        return self.stage.name.removeprefix("do_")

    @property
    def slots(self) -> int:
        """Slots of an engine."""
        most = max(len(tiles) for tiles in self.tiles)
        return most if self.choice.eager else slots_of(self.run, most, self.choice.flight)

    @property
    def resident(self) -> bool:
        """Whether all weights of an engine lie in L1 at once."""
        parts = len(self.chunks())
        return parts == 1 or self.choice.ring >= parts

    @property
    def reads_halo(self) -> bool:
        """Whether its tiles take rows of padding with them; an image in one piece has pads instead."""
        window = self.stage.split.window
        parts = (count < self.stage.split.period for tiles in self.tiles for _, count in tiles)
        return window is not None and window.halo and any(parts)

    @cached_property
    def run(self) -> Run | None:
        """The tiles that are written as a loop."""
        alike = self.resident and not (self.choice.across or self.choice.eager)
        is_open = self.shape.is_open(sum(len(tiles) for tiles in self.tiles))
        return find_run(self.stage, self.tiles) if alike and not is_open else None

    @property
    def beside(self) -> int:
        """Bytes of L1 for weights."""
        chunks = self.stage.split.chunks
        if not self.choice.chunk or chunks is None:
            return sum(aligned(self.stretched(region.extent), ALIGN) for _, region in self.shape.wholes)
        rest = sum(aligned(region.extent, ALIGN) for index, region in self.shape.wholes if index != 1)
        return rest + aligned(self.stretched(self.choice.ring * self.chunk_bytes), ALIGN)

    def stretched(self, size: int) -> int:
        """Bytes of weights in equal pieces, one for each iteration of the loop in which they come."""
        unit = GRAIN * self.along
        return size if size < 2 * LONG or not self.along else -(-size // unit) * unit

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

    def share(self, engine: int) -> int:
        """Output channels of an engine, where they are taken in chunks."""
        return sum(count for _, count in self.chunks(engine))

    @property
    def depth_bytes(self) -> int:
        """Bytes of weights of an output channel."""
        chunks, weight = self.stage.split.chunks, dict(self.shape.wholes)[1]
        assert chunks is not None
        assert weight.type is not None
        return chunks.depth * bits_of(weight.type.elem) // 8

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

    def __init__(
        self,
        network: Network,
        machine: Machine,
        stages: list[TiledStage],
        halos: Mapping[str, Halo],
        codes: Codes | None = None,
    ) -> None:
        self.network = network
        self.machine = machine
        self.stages = stages
        self.halos = halos
        self.padding = _padding(halos.values())
        self.packing = Packing(_unused("weights", network), codes)
        self.homes: dict[str, LiveBytes] = {}
        self.fetches: list[Fetch] = []
        self.fetch_of: dict[int, list[Fetch]] = {}
        """What brings the weights of each stage."""
        self.reserved: list[LiveBytes] = []
        self.l2_bytes = 0
        self.ddr: set[str] = set()

    def place(self, spilled: Collection[str]) -> list[str]:
        """Decide what lies where in L1 and L2; activations that do not fit and had better stay in DDR.

        Those of `spilled` stay there. Where nothing fits, Unsupported says what L2 would need.
        """
        if self.padding:
            sizes = [(size, byte) for byte, size in self.padding.items()]
            plain = self.packing.plain
            start, size = plain.size, sum(aligned(size, ALIGN) for size, _ in sizes)
            for each, byte in sizes:
                plain.fill(aligned(each, ALIGN), byte)
            block = LiveBytes("padding", size, 0, 0)
            self.fetches.append(Fetch("padding", plain.name, start, block, -1, size=size, packed=plain))
        self._come_along()
        for number, tiled in enumerate(self.stages):
            tiled.base = 0 if number % 2 == 0 else (self.machine.l1 - tiled.l1_bytes) // ALIGN * ALIGN
            self._pack(tiled)
        self._blocks(spilled)
        weights = [item.block for item in self.fetches if item.packed is not None]
        others = [block for block in self.reserved if block not in weights]
        self.l2_bytes = place(others, weights, self.machine.l2)
        if self.l2_bytes <= self.machine.l2:
            return []
        victims = self._victims(spilled)
        if not victims:
            raise ShortL2(
                f"the plan needs {self.l2_bytes} bytes of L2 at once; the device has {self.machine.l2}: "
                f"{self._holders()}"
            )
        return victims

    def _holders(self) -> str:
        """What L2 must hold at the stage that needs the most of it, the largest first."""
        alive = [
            [block for block in self.reserved if block.first <= number <= block.last]
            for number in range(len(self.stages))
        ]
        number = max(range(len(alive)), key=lambda at: sum(block.size for block in alive[at]))
        largest = sorted(alive[number], key=lambda block: -block.size)
        words = [f"{block.name} ({block.size} bytes)" for block in largest[:NAMED_BLOCKS]]
        if len(largest) > NAMED_BLOCKS:
            words.append(f"{len(largest) - NAMED_BLOCKS} more")
        return f"{self.stages[number].label} needs {', '.join(words)}"

    def _pack(self, tiled: TiledStage) -> None:
        """Put the weights of a stage side by side into the packed buffer."""
        for index, region in enumerate(tiled.stage.task.inputs):
            if region.buffer.name in self.network.weights and (
                tiled.choice.remote or index in tiled.shape.distant
            ):
                tiled.distant[region.buffer.name, region.offset.constant] = self.packing.plain.shared(region)
        indexed = [
            *((lead_operand(level, index), region) for level, index, region in tiled.stage.lead_operands()),
            *enumerate(tiled.stage.task.inputs),
        ]
        others = [
            (-1, region) for item in tiled.stage.followers for region in item.inputs if region is not None
        ]
        ranges: dict[str, tuple[PackedBuffer, int, int]] = {}
        # The weight that is taken in chunks is the last, behind vectors that all chunks need.
        for index, region in sorted([*indexed, *others], key=lambda item: item[0] == 1):
            key = region.buffer.name, region.offset.constant
            known = tiled.packed.keys() | tiled.distant.keys()
            if region.buffer.name not in self.network.weights or key in known:
                continue
            by_channel = index == 1 and bool(tiled.choice.chunk)
            target = self._buffer_of(tiled, region, by_channel)
            at = target.add(region, by_channel)
            if by_channel and tiled.choice.streamed:
                tiled.streamed_at = target, at
                target.size = aligned(target.size, target.align) if target.codec else target.size
                continue
            if index == 1 or (index >= 0 and not tiled.choice.chunk):
                self._stretch(tiled, region, target)
            if target.codec:
                target.size = aligned(target.size, target.align)
            tiled.packed[key] = target, at
            ranges[target.name] = target, ranges.get(target.name, (target, at))[1], target.size
        for target, start, end in ranges.values():
            self._fetch_weights(tiled, target, start, end - start)

    def _buffer_of(self, tiled: TiledStage, region: Region, by_channel: bool) -> PackedBuffer:
        """The buffer for an operand: that of the codec which stores it in the fewest bytes, where WDM gains by it."""
        packing, choice = self.packing, tiled.choice
        if packing.codes is None or choice.eager:
            return packing.plain
        if by_channel and choice.streamed:
            # A chunk is fetched by itself: it must consist of whole blocks.
            starts = [first for engine in range(len(tiled.tiles)) for first, _ in tiled.chunks(engine)]
            if any(first * tiled.depth_bytes % BLOCK for first in starts) or tiled.chunk_bytes % BLOCK:
                return packing.plain
        found = packing.codes.find(region, by_channel)
        if found is None:
            return packing.plain
        target = packing.buffer(found.codec)
        target.stored += found.size
        return target

    def _fetch_weights(self, tiled: TiledStage, target: PackedBuffer, start: int, size: int) -> None:
        """Fetch weights of a stage, together with those of the stages before it where they are few.

        The first ones come one by one, so that the first stage begins early.
        """
        number = tiled.stage.number
        last = next((item for item in reversed(self.fetches) if item.packed is target), None)
        before = sum(item.size for item in self.fetches if item.use >= 0)
        most = min(self.machine.tactic.grain.together, self.machine.l2 // 32, before)
        if self.machine.tactic.cold:
            most = self.machine.l2
        if self.packing.coded and not target.codec:
            # What stands beside coded weights is small: a fetch for each stage would take lines and tokens.
            most = max(most, min(BESIDE, self.machine.l2 // 32))
        beside = last is not None and last.use >= 0 and aligned(last.offset + last.size, ALIGN) == start
        if last is not None and beside and start + size - last.offset <= most:
            last.size = last.block.size = start + size - last.offset
            last.block.last, last.pieces = number, self._pieces(last.size)
            self.fetch_of.setdefault(number, []).append(last)
            return
        ends = self._ends(tiled, target, start, size)
        for low, high in pairwise([start, *ends]):
            block = LiveBytes(f"{tiled.label}_w", high - low, number, number)
            pieces, name = self._pieces(high - low, urgent=number == 0), f"{tiled.label}_fetch"
            fetch = Fetch(
                name, target.name, low, block, number, pieces=pieces, size=high - low, packed=target
            )
            self.fetches.append(fetch)
            self.fetch_of.setdefault(number, []).append(fetch)

    def _ends(self, tiled: TiledStage, target: PackedBuffer, start: int, size: int) -> list[int]:
        """Where the parts end in which the weights of a stage come: many bytes in a row are seldom free in L2.

        What lies whole in L1 is one part; of chunks of channels, as many are in a part as make an eighth of L2.
        """
        end, least = start + size, self.machine.l2 // 8
        if not tiled.choice.chunk or tiled.choice.streamed or tiled.along or size <= 2 * least:
            return [end]
        weight = tiled.stage.task.inputs[1]
        where, at = tiled.packed[weight.buffer.name, weight.offset.constant]
        if where is not target:
            return [end]
        spans = [span for engine in range(len(tiled.tiles)) for span in tiled.chunks(engine)]
        found = [start]
        for first, count in spans[:-1]:
            here = at + (first + count) * tiled.depth_bytes
            if here - found[-1] >= least and end - here >= least and here % target.align == 0:
                found.append(here)
        return [*found[1:], end]

    def _stretch(self, tiled: TiledStage, region: Region, target: PackedBuffer) -> None:
        """Leave room behind packed weights for whole pieces of the loop in which they come."""
        share = tiled.choice.ring * tiled.chunk_bytes if tiled.choice.chunk else region.extent
        target.size += tiled.stretched(share) - share

    def _come_along(self) -> None:
        """Find the stages whose weights come with the iterations of the loop before: both must fit into L1."""
        for tiled, later in pairwise(self.stages):
            choice = later.choice
            if tiled.run is None or choice.streamed or choice.remote or choice.eager or not later.resident:
                continue
            weights = [region for _, region in later.shape.wholes]
            known = all(region.buffer.name in self.network.weights for region in weights)
            if not known or not any(region.extent >= 2 * LONG for region in weights):
                continue
            if choice.chunk and any(
                later.choice.ring * later.chunk_bytes != later.share(engine) * later.depth_bytes
                for engine in range(len(later.tiles))
            ):
                continue
            later.along = tiled.run.length
            piece = max(
                self.machine.load(later.stretched(region.extent) // later.along) for region in weights
            )
            flight = min(tiled.choice.flight, self.machine.counts["DMA"], later.along)
            slow = later.along * piece > 2 * flight * tiled.choice.cycles
            if slow or tiled.l1_bytes + later.l1_bytes > self.machine.l1:
                later.along = 0

    def _pieces(self, size: int, urgent: bool = False) -> int:
        """Transfers that share a fetch: each takes a token until its bytes are used, so small ones stay whole.

        What everything waits for, at the beginning and at the end of a plan, is divided all the same.
        """
        least = URGENT_PIECE if urgent else self.machine.tactic.grain.far
        return max(1, min(self.machine.counts["sDMA"], size // least))

    def _blocks(self, spilled: Collection[str]) -> None:
        """The blocks that L2 must hold: activations and inputs, weights, staging rings."""
        network = self.network
        self.homes = {}
        self.fetches = [item for item in self.fetches if item.packed is not None]
        sizes = {item.name: item.size for item in network.plan.buffers}
        again = self._read_again()
        for name in sorted(network.activations | network.inputs | again):
            if name in spilled or name in network.outputs - again:
                continue
            around = self.lead(name) + (self.halos[name].below if name in self.halos else 0)
            # What goes to DDR from its home may wait there for long: nothing else takes the place.
            last = len(self.stages) - 1 if name in again else network.last[name]
            self.homes[name] = LiveBytes(name, sizes[name] + around, network.first[name], last)
            if name in network.inputs:
                # The first stage waits for nothing else: small pieces let its first tiles begin early.
                pieces = max(1, min(2 * self.machine.counts["sDMA"], sizes[name] // LONG * 4))
                block, first = self.homes[name], network.first[name]
                self.fetches.append(
                    Fetch(f"{name}_fetch", name, 0, block, first, False, pieces, self.lead(name), sizes[name])
                )
        # Inputs come before weights: rows of tables wait for their numbers.
        self.fetches.sort(key=lambda item: (item.use, item.packed is not None))
        self.ddr = set(network.first) - self.homes.keys() - network.weights
        staging = [block for block in (self._staging(tiled) for tiled in self.stages) if block is not None]
        weights = [item.block for item in self.fetches if item.packed is not None]
        self.reserved = [*self.homes.values(), *weights, *staging, *self._streams()]

    def _read_again(self) -> set[str]:
        """Outputs that stages read, states of the model above all: they have a home, and go to DDR from there.

        So have those of tasks that work where their operands lie, and those whose tiles are shorter than the way there.
        """
        used = {region.buffer.name for tiled in self.stages for region in tiled.stage.inputs()}
        machine, least = self.machine, self.machine.sdma * self.machine.sdma_overhead
        for tiled in self.stages:
            count = sum(len(tiles) for tiles in tiled.tiles)
            for region in tiled.stage.outputs:
                small = count > machine.counts["sDMA"] and region.extent < min(count * least, machine.l2 // 8)
                if tiled.choice.remote or (small and not tiled.choice.eager):
                    used.add(region.buffer.name)
        return used & self.network.outputs

    def lead(self, name: str) -> int:
        """Bytes of the block of an activation before its first element."""
        return aligned(self.halos[name].above, ALIGN) if name in self.halos else 0

    def _streams(self) -> Iterator[LiveBytes]:
        """The rings through which weights pass that are too large for L2."""
        for tiled in self.stages:
            if tiled.choice.streamed:
                number = tiled.stage.number
                size = stream_slots(self.machine, tiled.chunk_bytes) * tiled.chunk_bytes
                tiled.stream = LiveBytes(f"{tiled.label}_stream", size, number, number)
                yield tiled.stream

    def _staging(self, tiled: TiledStage) -> LiveBytes | None:
        """The ring through which a stage reads and writes what lies in DDR; a slot of it for each slot of L1."""
        tiled.staged = {}
        end = 0
        if tiled.choice.remote:
            return None
        for first, count in different_tiles(tiled.stage, tiled.tiles):
            for key, region, part in self._moving(tiled, first, count):
                if region.buffer.name in self.ddr:
                    tiled.staged[key] = max(tiled.staged.get(key, 0), aligned(part.extent, ALIGN))
        for index, region in tiled.shape.wholes:
            if region.buffer.name in self.ddr:
                raise ShortL2(
                    f"{tiled.stage.name} reads {region.name or index} whole, which does not fit into L2"
                )
        for key, size in tiled.staged.items():
            tiled.staged[key] = end
            end += size
        tiled.staged["size"] = end
        number = tiled.stage.number
        total = end * tiled.slots * tiled.choice.engines
        tiled.staging = LiveBytes(f"{tiled.label}_ring", total, number, number) if end else None
        return tiled.staging

    @staticmethod
    def _moving(tiled: TiledStage, first: int, count: int) -> Iterator[tuple[str, Region, OperandRange]]:
        yield from tiled.shape.loads(first, count)
        for key, region, part in tiled.shape.stored(first, count):
            yield f"out_{key}", region, part

    def _victims(self, spilled: Collection[str]) -> list[str]:
        """The activation whose way through DDR costs the least for the bytes it frees; several where many are gone."""
        peak = self._peak_stage()
        able = [
            block
            for name, block in self.homes.items()
            if name not in spilled and block.first <= peak <= block.last and self._can_stage(name)
        ]
        if not able:
            able = [block for name, block in self.homes.items() if self._can_stage(name)]
        able.sort(key=lambda block: (block.size * (block.last - block.first + 1), block.name), reverse=True)
        return [block.name for block in able[: max(1, len(spilled) // TOGETHER)]]

    def cheapest_spills(self) -> frozenset[str]:
        """The activations that go to DDR by a solver's choice: an element is stored once, and read by every stage."""
        reads = Counter(region.buffer.name for tiled in self.stages for region in tiled.stage.inputs())
        homes, blocks = self.homes, self.reserved
        known, spills = {block.name for block in blocks}, {}
        for name in filter(self._can_stage, homes):
            self._blocks((name,))
            moves = reads[name] + (name not in self.network.inputs)
            rings = tuple(block for block in self.reserved if block.name not in known)
            spills[name] = Spill(homes[name].size * moves, rings)
        return cheapest_spills(blocks, spills, self.machine.l2)

    def _can_stage(self, name: str) -> bool:
        """Whether every use of a buffer goes by tiles, or only moves its elements: no unit computes on DDR."""
        for tiled in self.stages:
            if not tiled.choice.remote:
                used = [region for _, region in tiled.shape.wholes]
            elif tiled.stage.task.opcode not in VIEWS:
                used = [*tiled.stage.inputs(), *tiled.stage.outputs]
            else:
                continue
            if any(region.buffer.name == name for region in used):
                return False
        return True

    def _peak_stage(self) -> int:
        live = [
            sum(block.size for block in self.reserved if block.first <= number <= block.last)
            for number in range(len(self.stages))
        ]
        return max(range(len(live)), key=lambda number: live[number])

    def lying(self, tiled: TiledStage, region: Region) -> Bytes:
        """An operand in L2 or DDR, with its type."""
        key = region.buffer.name, region.offset.constant
        type = None if region.type is None else tiled.shape.seen(region, OperandRange(0, region.type)).type
        if key in tiled.distant:
            return Bytes(self.packing.plain.name, AffineAddress(tiled.distant[key]), region.extent, type)
        if region.buffer.name in self.ddr:
            return Bytes(region.buffer.name, AffineAddress(region.offset.constant), region.extent, type)
        found = self.source(tiled, region, 0, region.extent)
        return Bytes(found.buffer, found.place, found.extent, type)

    def l2(self, block: LiveBytes, offset: int, size: int) -> Bytes:
        name = f"at_{block.name}"
        return Bytes(L2_BUFFER, AffineAddress(block.offset + offset, name=name, named=block.offset), size)

    def source(self, tiled: TiledStage, region: Region, offset: int, size: int) -> Bytes:
        """Bytes of an operand in L2."""
        key = region.buffer.name, region.offset.constant
        if key in tiled.packed:
            target, start = tiled.packed[key]
            at = start + offset
            found = [item for item in self.fetch_of[tiled.stage.number] if item.packed is target]
            fetch = next(item for item in reversed(found) if item.offset <= at)
            return self.l2(fetch.block, at - fetch.offset, size)
        name = region.buffer.name
        return self.l2(self.homes[name], self.lead(name) + region.offset.constant + offset, size)


def _padding(halos: Iterable[Halo]) -> dict[int, int]:
    """The bytes of padding that a plan keeps, by what they consist of."""
    found: dict[int, int] = {}
    for halo in halos:
        found[halo.fill] = max(found.get(halo.fill, 0), halo.above, halo.below)
    return found


def padding_bytes(halos: Iterable[Halo]) -> int:
    """Bytes of L1 that the padding of a plan takes."""
    return sum(aligned(size, ALIGN) for size in _padding(halos).values())


def _unused(wanted: str, network: Network) -> str:
    """A name that no buffer or region of the selected plan has, nor one that begins so."""
    taken = {item.name for item in network.plan.buffers} | set(network.plan.regions)
    while any(name == wanted or name.startswith(f"{wanted}_") for name in taken):
        wanted += "_"
    return wanted


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
    return TiledStage(stage, shape, choice, shared, shape.slot(different_tiles(stage, shared)))
