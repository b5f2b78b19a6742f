"""The generator of tiled programs: stages one after the other, weights fetched ahead of them.

Statements after a loop start when it is complete, so whatever is to run beside a loop is written before it: fetches
of later weights, tiles with other pads than those of the loop, weights of the next stage. Everything outside loops
starts as soon as its bytes are there, in whatever order the text has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from lamella.base.arena import aligned
from lamella.base.errors import Unsupported
from lamella.lang.nem.resolved import Region, TensorType
from lamella.plan.tiling.fill import new_rows, spans_of, tapered
from lamella.plan.tiling.memory import Block, lowest, place
from lamella.plan.tiling.pack import Packing
from lamella.plan.tiling.program import L2_BUFFER, Bytes, Draft, Place, Repeat, Settle, Step, l1_buffer
from lamella.plan.tiling.search import LOOP_FROM, Choice, pieces_of, slots_of
from lamella.plan.tiling.shape import ALIGN, Machine, Slot, Span, StageShape, tiles_of
from lamella.plan.tiling.split import Part, extent_of, planar
from lamella.plan.tiling.stages import Network, Stage

STREAM_SLOTS = 4
"""Chunks of weights that are on their way through L2 at once."""
PIECE = 1 << 15
"""Bytes below which a load is not divided among several DMAs."""
OWN_TOKENS = 10
"""Tokens of an engine that fetches leave for its other tasks, where there are enough."""
FAR_PIECE = 1 << 17
"""Bytes below which a fetch is not divided among several sDMAs."""


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


class Generator:
    """Builds the lines of a whole program."""

    def __init__(self, network: Network, machine: Machine, stages: list[TiledStage]) -> None:
        self.network = network
        self.machine = machine
        self.stages = stages
        self.packing = Packing(_unused("weights", network))
        self.lines: list[Draft] = []
        self.homes: dict[str, Block] = {}
        self.fetches: list[Fetch] = []
        self.reserved: list[Block] = []
        self.l2_bytes = 0
        self.ddr: set[str] = set()
        self.fetched = 0

    # --- placement --------------------------------------------------------------------------------------------------

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
                tiled.distant[region.buffer.name, region.offset.constant] = self.packing.add(
                    region, by_channel=False
                )
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
                    pieces=self._pieces(size),
                )
            )

    def _pieces(self, size: int) -> int:
        """Transfers that share a fetch: each takes a token until its bytes are used, so small ones stay whole."""
        return max(1, min(self.machine.counts["sDMA"], size // FAR_PIECE))

    def _blocks(self, spilled: set[str]) -> None:
        """The blocks that L2 must hold: activations and inputs, weights, staging rings."""
        network = self.network
        self.homes = {}
        self.fetches = [item for item in self.fetches if item.buffer == self.packing.name]
        sizes = {item.name: item.size for item in network.plan.buffers}
        for name in sorted(network.activations | network.inputs):
            if name in spilled or name in network.outputs:
                continue
            self.homes[name] = Block(name, sizes[name], network.first[name], network.last[name])
            if name in network.inputs:
                # The first stage waits for nothing else: small pieces let its first tiles begin early.
                pieces = max(1, min(2 * self.machine.counts["sDMA"], sizes[name] // PIECE * 4))
                self.fetches.append(
                    Fetch(f"{name}_fetch", name, 0, self.homes[name], network.first[name], pieces=pieces)
                )
        self.fetches.sort(key=lambda item: item.use)
        self.ddr = set(network.first) - self.homes.keys() - network.weights
        staging = [block for block in (self._staging(tiled) for tiled in self.stages) if block is not None]
        weights = [item.block for item in self.fetches if item.buffer == self.packing.name]
        self.reserved = [*self.homes.values(), *weights, *staging, *self._streams()]

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

    # --- the program ------------------------------------------------------------------------------------------------

    def generate(self) -> list[Draft]:
        """All lines, in order."""
        for number, tiled in enumerate(self.stages):
            start = len(self.lines)
            if tiled.choice.eager:
                self._fill(tiled)
            self._prefetch(number)
            if tiled.choice.eager:
                continue
            if tiled.choice.remote:
                self._stay(tiled)
                continue
            self._prepare(tiled)
            later = self.stages[number + 1] if number + 1 < len(self.stages) else None
            begin = len(self.lines)
            if self._body(tiled, later):
                steps = [line for line in self.lines[begin:] if isinstance(line, Step)]
                if later is not None:
                    self._prepare_early(later)
                self.lines.append(Settle(steps))
            first = self.lines[start]
            if not isinstance(first, Settle):
                first.comments = (*self._headline(tiled), *first.comments)
        return self.lines

    def _stay(self, tiled: TiledStage) -> None:
        """A task on operands where they lie."""
        task = tiled.stage.task
        inputs = tuple(self._lying(tiled, region) for region in task.inputs)
        outputs = tuple(self._lying(tiled, region) for region in task.outputs)
        comments = (f"{tiled.stage.name}: {task.opcode} in place, too large for L1",)
        step = Step(task.opcode, inputs, outputs, task.attributes, label=tiled.stage.name, comments=comments)
        self.lines += [step, Settle([step])]

    def _lying(self, tiled: TiledStage, region: Region) -> Bytes:
        """An operand in L2 or DDR, with its type."""
        key = region.buffer.name, region.offset.constant
        if key in tiled.distant:
            return Bytes(self.packing.name, Place(tiled.distant[key]), region.extent, region.type)
        if region.buffer.name in self.ddr:
            return Bytes(region.buffer.name, Place(region.offset.constant), region.extent, region.type)
        found = self._source(tiled, region, 0, region.extent)
        return Bytes(found.buffer, found.place, found.extent, region.type)

    def _fill(self, tiled: TiledStage) -> None:
        """The first stage, chunk by chunk over all tiles, with its fetches where they are needed."""
        weights = next(item for item in self.fetches if item.use == 0 and item.buffer == self.packing.name)
        image = tiled.stage.task.inputs[0]
        inputs = next((item for item in self.fetches if item.buffer == image.buffer.name), None)
        tiled.prepared = tiled.stage.split.units > 0
        tiled.weights[1] = tiled.base
        passes = [
            _Pass(self, tiled, 0, tile, Place(self._slots_at(tiled) + number * tiled.slot.size), number)
            for number, tile in enumerate(tiled.tiles[0])
        ]
        at = tiled.packed[tiled.stage.task.inputs[1].buffer.name, tiled.stage.task.inputs[1].offset.constant]
        fresh = list(new_rows(tiled.shape, tiled.tiles[0]))
        start, done = len(self.lines), 0
        parts = len(tiled.chunks())
        for number in range(parts):
            part = self._chunk(tiled, number, 0)
            self._fetch_part(weights, done, at + part.offset + part.extent - done)
            done = at + part.offset + part.extent
            self._load_chunk(tiled, number, number, [0])
            for item, (low, size) in zip(passes, fresh, strict=True):
                if number == 0:
                    if inputs is not None and size:
                        self._fetch_part(inputs, image.offset.constant + low, size)
                    self.lines += item.loads()
                self.lines.append(item.main(number))
                if number == parts - 1:
                    self.lines += item.finish()
        first = self.lines[start]
        assert isinstance(first, Step)
        first.comments = self._headline(tiled)
        for fetch in (weights, inputs):
            if fetch is not None:
                fetch.issued = True
        if len(self.stages) > 1:
            self.lines.append(Settle([line for line in self.lines[start:] if isinstance(line, Step)]))

    def _fetch_part(self, item: Fetch, low: int, size: int) -> None:
        source = Bytes(item.buffer, Place(item.offset + low), size)
        self.lines.append(Step("transfer", (source,), (self._l2(item.block, low, size),), label=item.name))

    def _prepare_early(self, tiled: TiledStage) -> None:
        """Load the weights of the next stage, where they are on their way and nothing else lies whole in L1."""
        number = tiled.stage.number
        fetched = all(
            item.issued for item in self.fetches if item.use == number and item.buffer == self.packing.name
        )
        packed = all(
            (region.buffer.name, region.offset.constant) in tiled.packed for _, region in tiled.shape.wholes
        )
        if fetched and packed and not (tiled.choice.streamed or tiled.choice.remote):
            self._prepare(tiled)

    def _headline(self, tiled: TiledStage) -> tuple[str, ...]:
        choice, split = tiled.choice, tiled.stage.split
        words = [item.opcode for item in tiled.stage.tasks]
        count = sum(len(tiles) for tiles in tiled.tiles)
        tile = f"{count} tiles of {choice.height} of {split.units} rows" if split.units > 1 else "one tile"
        chunk = f", chunks of {choice.chunk} channels" if choice.chunk else ""
        where = f" on {choice.engines} engines" if choice.engines > 1 else ""
        return (
            f"== {tiled.stage.name}: {' + '.join(words)}, {tile}{chunk}{where}, about {choice.cycles} cycles",
        )

    def _prefetch(self, stage: int) -> None:
        """Fetch what this stage needs, and what later ones need while there is room and a token."""
        budget = max(self.machine.tokens // 2, self.machine.tokens - OWN_TOKENS) * self.machine.engines
        flying = sum(item.pieces for item in self.fetches if item.issued and item.use > stage)
        for item in self.fetches:
            if item.issued:
                continue
            if item.use > stage:
                early = Block(item.block.name, item.block.size, stage, item.block.last)
                offset = lowest(early, [block for block in self.reserved if block is not item.block])
                if offset + early.size > self.machine.l2 or flying + item.pieces > budget:
                    break
                item.block.first, item.block.offset = stage, offset
                self.l2_bytes = max(self.l2_bytes, offset + early.size)
                flying += item.pieces
            item.issued = True
            self._fetch(item)

    def _fetch(self, item: Fetch) -> None:
        for low, size in _divide(item.block.size, item.pieces):
            source = Bytes(item.buffer, Place(item.offset + low), size)
            target = self._l2(item.block, low, size)
            self.fetched += 1
            # Its token lives long: the sequencers take turns.
            engine = self.fetched % self.machine.engines
            self.lines.append(Step("transfer", (source,), (target,), label=item.name, sequencer=engine))

    def _l2(self, block: Block, offset: int, size: int) -> Bytes:
        name = f"at_{block.name}"
        return Bytes(L2_BUFFER, Place(block.offset + offset, name=name, named=block.offset), size)

    def _prepare(self, tiled: TiledStage) -> None:
        """Load what lies whole in L1: weights that are not taken in chunks, or chunks that all stay."""
        if tiled.prepared:
            return
        tiled.prepared = True
        stage = tiled.stage
        at = tiled.base
        for index, region in tiled.shape.wholes:
            if index == 1 and tiled.choice.chunk:
                continue
            tiled.weights[index] = at
            at += aligned(region.extent, ALIGN)
            for engine in self._engines(tiled):
                for low, size in _divide(
                    region.extent, min(self.machine.counts["DMA"], region.extent // PIECE)
                ):
                    source = self._source(tiled, region, low, size)
                    target = Bytes(l1_buffer(engine), Place(tiled.weights[index] + low), size)
                    self.lines.append(Step("transfer", (source,), (target,), label=f"{stage.name}_load"))
        if tiled.choice.chunk:
            tiled.weights[1] = at
            if tiled.choice.ring >= len(tiled.chunks()):
                for number in range(len(tiled.chunks())):
                    self._load_chunks(tiled, number, self._engines(tiled))

    def _load_chunks(self, tiled: TiledStage, number: int, engines: Sequence[int]) -> None:
        """Load a chunk of weights for each engine: the same for all, or one of its own channels."""
        if not tiled.choice.across:
            self._load_chunk(tiled, number, number, engines)
            return
        for engine in engines:
            if number < len(tiled.chunks(engine)):
                self._load_chunk(tiled, number, number * len(engines) + engine, [engine])

    def _load_chunk(self, tiled: TiledStage, number: int, turn: int, engines: Sequence[int]) -> None:
        """Load a chunk of weights into its place in the ring of some engines; `turn` counts all chunks."""
        part = self._chunk(tiled, number, engines[0])
        if tiled.stream is not None:
            far = Bytes(self.packing.name, Place(tiled.streamed_at + part.offset), part.extent)
            source = self._l2(tiled.stream, turn % STREAM_SLOTS * tiled.chunk_bytes, part.extent)
            self.lines.append(Step("transfer", (far,), (source,), label=f"{tiled.stage.name}_fetch"))
        else:
            source = self._source(tiled, tiled.stage.task.inputs[1], part.offset, part.extent)
        at = tiled.weights[1] + number % tiled.choice.ring * tiled.chunk_bytes
        pieces = min(-(-self.machine.counts["DMA"] // tiled.choice.ring), part.extent // PIECE)
        for engine in engines:
            for low, size in _divide(part.extent, pieces):
                near, target = _piece(source, low, size), Bytes(l1_buffer(engine), Place(at + low), size)
                self.lines.append(Step("transfer", (near,), (target,), label=f"{tiled.stage.name}_w"))

    @staticmethod
    def _chunk(tiled: TiledStage, number: int, engine: int) -> Part:
        chunks, type = tiled.stage.split.chunks, tiled.stage.task.inputs[1].type
        assert chunks is not None
        assert type is not None
        return chunks.weight(type, *tiled.chunks(engine)[number])

    @staticmethod
    def _engines(tiled: TiledStage) -> list[int]:
        return [engine for engine, tiles in enumerate(tiled.tiles) if tiles]

    def _source(self, tiled: TiledStage, region: Region, offset: int, size: int) -> Bytes:
        """Bytes of an operand in L2."""
        key = region.buffer.name, region.offset.constant
        if key in tiled.packed:
            fetch = next(
                item
                for item in self.fetches
                if item.use == tiled.stage.number and item.buffer == self.packing.name
            )
            return self._l2(fetch.block, tiled.packed[key] + offset, size)
        return self._l2(self.homes[region.buffer.name], region.offset.constant + offset, size)

    # --- tiles ------------------------------------------------------------------------------------------------------

    def _body(self, tiled: TiledStage, later: TiledStage | None) -> bool:
        """The tiles of a stage: those beside the loop first, then the loop; or all of them in groups, without one.

        What is to run beside the loop stands before it. True where there is no loop to wait for.
        """
        chunks = tiled.chunks()
        resident = len(chunks) == 1 or tiled.choice.ring >= len(chunks)
        run = _uniform_run(tiled) if resident and not tiled.choice.across else None
        if run is None:
            self._groups(tiled)
            return True
        begins, length = run
        flight = max(1, tiled.slots - 2)
        beside = flight if tiled.slots > 1 else 0
        for engine, (begin, tiles) in enumerate(zip(begins, tiled.tiles, strict=True)):
            for number, tile in enumerate([*tiles[:begin], *tiles[begin + length :]]):
                index = beside + number % 2 if beside else 0
                slot = Place(self._slots_at(tiled) + index * tiled.slot.size)
                self.lines += _Pass(self, tiled, engine, tile, slot, index).lines()
        body: list[Step] = []
        for engine, (begin, tiles) in enumerate(zip(begins, tiled.tiles, strict=True)):
            slot = Place(self._slots_at(tiled), slot=tiled.slot.size, slots=flight)
            step = tiles[begin + 1][0] - tiles[begin][0]
            body += _Pass(self, tiled, engine, tiles[begin], slot, 0, step).lines()
        if later is not None and tiled.l1_bytes + later.l1_bytes <= self.machine.l1:
            self._prepare_early(later)
        self.lines.append(Repeat(length, flight, body))
        return False

    def _slots_at(self, tiled: TiledStage) -> int:
        return tiled.base + tiled.beside

    def _groups(self, tiled: TiledStage) -> None:
        """Tiles in groups of as many as there are slots; chunks of weights pass all tiles of a group."""
        slots, chunks = tiled.slots, tiled.chunks()
        resident = len(chunks) == 1 or tiled.choice.ring >= len(chunks)
        longest = max(len(tiles) for tiles in tiled.tiles)
        for start in range(0, longest, slots):
            passes = [
                _Pass(
                    self, tiled, engine, tile, Place(self._slots_at(tiled) + number * tiled.slot.size), number
                )
                for engine, tiles in enumerate(tiled.tiles)
                for number, tile in enumerate(tiles[start : start + slots])
            ]
            if not tiled.choice.chunk:
                self.lines += [step for item in passes for step in item.lines()]
                continue
            for item in passes:
                self.lines += item.loads()
            for number in range(len(chunks)):
                if not resident:
                    self._load_chunks(tiled, number, sorted({item.engine for item in passes}))
                self.lines += [
                    item.main(number) for item in passes if number < len(tiled.chunks(item.engine))
                ]
            for item in passes:
                self.lines += item.finish()


def _unused(wanted: str, network: Network) -> str:
    """A name that no buffer or region of the selected plan has."""
    taken = {item.name for item in network.plan.buffers} | set(network.plan.regions)
    while wanted in taken:
        wanted += "_"
    return wanted


def _piece(item: Bytes, low: int, size: int) -> Bytes:
    """A part of a range."""
    return Bytes(item.buffer, replace(item.place, start=item.place.start + low), size)


def _divide(size: int, pieces: int) -> list[tuple[int, int]]:
    """Offsets and sizes of nearly equal pieces, aligned."""
    pieces = max(1, pieces)
    each = aligned(-(-size // pieces), ALIGN)
    return [(low, min(each, size - low)) for low in range(0, size, each)]


def _uniform_run(tiled: TiledStage) -> tuple[list[int], int] | None:
    """Runs of tiles that differ by a constant step only: where that of each engine begins, and their common length."""
    if any(len(tiles) < LOOP_FROM for tiles in tiled.tiles):
        return None
    runs = [_longest_run(tiled, tiles) for tiles in tiled.tiles]
    length = min(count for _, count in runs)
    return ([begin for begin, _ in runs], length) if length >= LOOP_FROM - 1 else None


def _longest_run(tiled: TiledStage, tiles: list[Tile]) -> tuple[int, int]:
    kinds = [_signature(tiled, tile) for tile in tiles]
    places = [_offsets(tiled, tile) for tile in tiles]
    steps = [[then - now for now, then in zip(*pair, strict=True)] for pair in pairwise(places)]
    best, begin = (0, 1), 0
    for end in range(1, len(tiles)):
        if kinds[end] != kinds[begin]:
            begin = end
        elif steps[end - 1] != steps[begin]:
            begin = end - 1
        best = max(best, (begin, end - begin + 1), key=lambda run: run[1])
    return best


def _signature(tiled: TiledStage, tile: Tile) -> tuple[object, ...]:
    """What the tiles of a loop have in common: their types and pads."""
    parts = [part.type for _, _, part in tiled.shape.loads(*tile)]
    return (tile[1], tuple(parts), tiled.stage.split.attributes_of(*tile).get("pads"))


def _offsets(tiled: TiledStage, tile: Tile) -> list[int]:
    """Where the parts of a tile begin in their tensors: an image further, an input may move by more than its output."""
    shape = tiled.shape
    return [part.offset for _, _, part in (*shape.loads(*tile), *shape.stored(*tile))]


class _Pass:
    """One tile on its way through an engine; `step` units lie between it and the tile of the next iteration."""

    def __init__(
        self,
        generator: Generator,
        tiled: TiledStage,
        engine: int,
        tile: Tile,
        slot: Place,
        number: int,
        step: int = 0,
    ) -> None:
        self.generator, self.tiled, self.engine = generator, tiled, engine
        self.tile, self.slot, self.number, self.step = tile, slot, number, step
        self.label = tiled.stage.name
        first, count = tile
        self.span = tiled.span(engine)
        self.parts = {key: part for key, _, part in tiled.shape.loads(first, count, self.span)}
        self.next = (
            {key: part for key, _, part in tiled.shape.loads(first + step, count)} if step else self.parts
        )

    def lines(self) -> list[Step]:
        """All tasks of the tile."""
        chunks = range(len(self.tiled.chunks()))
        return [*self.loads(), *(self.main(number) for number in chunks), *self.finish()]

    def _here(self, key: str, part: Part | None, extent: int, name: str = "") -> Bytes:
        """Bytes of the slot, typed where a part is given."""
        offset = self.tiled.slot.offsets[key]
        at = Place(self.slot.start + offset, 0, self.slot.slot, self.slot.slots)
        return Bytes(l1_buffer(self.engine), at, extent, None if part is None else part.type, name)

    def _share(self, unit: str, size: int) -> int:
        """Moves that share the bytes of a tile; in a loop there are other tiles to keep the units busy."""
        tiles = max(len(each) for each in self.tiled.tiles)
        return 1 if self.step else pieces_of(self.generator.machine, unit, tiles, size)

    def loads(self) -> list[Step]:
        """Load the inputs of the tile."""
        found: list[Step] = []
        for key, region, part in self.tiled.shape.loads(*self.tile, self.span):
            step = self.next[key].offset - part.offset
            if region.buffer.name in self.generator.ddr:
                far = self._far(region, part, step)
                near = self._staged(key, part.extent)
                found.append(Step("transfer", (far,), (near,), label=f"{self.label}_in"))
            else:
                source = self.generator._source(self.tiled, region, part.offset, part.extent)
                near = _moving(source, step)
            here = self._here(key, None, part.extent)
            for low, size in _divide(part.extent, self._share("DMA", part.extent)):
                source, target = _piece(near, low, size), _piece(here, low, size)
                found.append(Step("transfer", (source,), (target,), label=f"{self.label}_x"))
        return found

    def _far(self, region: Region, part: Part, step: int) -> Bytes:
        return Bytes(region.buffer.name, Place(region.offset.constant + part.offset, step), part.extent)

    def _staged(self, key: str, extent: int) -> Bytes:
        """Bytes of the ring in L2 that go with the slot."""
        tiled, staging = self.tiled, self.tiled.staging
        assert staging is not None
        size = tiled.staged["size"]
        start = staging.offset + self.engine * tiled.slots * size + tiled.staged[key] + self.number * size
        slots = self.slot.slots if self.slot.slot else 1
        at = Place(start, 0, size if slots > 1 else 0, slots, f"at_{staging.name}", staging.offset)
        return Bytes(L2_BUFFER, at, extent)

    def main(self, number: int) -> Step:
        """The main task on a chunk of channels."""
        tiled, task = self.tiled, self.tiled.stage.task
        split = tiled.stage.split
        inputs: list[Bytes] = []
        for index, item in enumerate(split.inputs):
            if f"x{index}" in self.parts:
                part = self.parts[f"x{index}"]
                inputs.append(self._here(f"x{index}", part, part.extent, f"{self.label}_X"))
            else:
                inputs.append(
                    self._whole(index, tiled.shape.seen(item.region, item.part(*self.tile)), number)
                )
        outputs: list[Bytes] = []
        for index, item in enumerate(split.outputs):
            part = item.part(*self.tile)
            whole = self._here(f"y{index}", part, part.extent, f"{self.label}_Y")
            outputs.append(whole if not tiled.choice.chunk else self._cut(whole, part, number))
        attributes = split.attributes_of(*self.tile)
        return Step(task.opcode, tuple(inputs), tuple(outputs), attributes, label=self.label)

    def _cut(self, whole: Bytes, tile: Part, number: int) -> Bytes:
        """The channels of a tile that a chunk writes: between the others, or beside them where engines share them."""
        chunks = self.tiled.stage.split.chunks
        assert chunks is not None
        first, count = self.tiled.chunks(self.engine)[number]
        if self.span is None:
            part = chunks.output(tile.type, first, count)
        else:
            part = planar(Part(0, tile.type), first, count)
            part = Part(part.offset - planar(Part(0, tile.type), self.span[0], 1).offset, part.type)
        place = whole.place
        moved = Place(place.start + part.offset, place.step, place.slot, place.slots)
        return Bytes(whole.buffer, moved, part.extent, part.type, whole.name)

    def _whole(self, index: int, part: Part, number: int) -> Bytes:
        """An operand that all tiles need: in L1, or a vector in L2."""
        tiled, region = self.tiled, self.tiled.stage.task.inputs[index]
        split = tiled.stage.split
        type, offset, name = part.type, 0, f"{self.label}_W"
        if tiled.choice.chunk and split.chunks is not None and index in (1, 2):
            first, count = tiled.chunks(self.engine)[number]
            cut = (
                split.chunks.weight(type, first, count)
                if index == 1
                else split.chunks.table(type, first, count)
            )
            type, offset = cut.type, cut.offset
        if index in tiled.shape.distant:
            found = self.generator._lying(tiled, region)
            return Bytes(found.buffer, found.place, extent_of(type), type)
        if index in tiled.shape.vectors:
            found = self.generator._source(tiled, region, offset, extent_of(type))
            return Bytes(found.buffer, found.place, found.extent, type)
        at = tiled.weights[index]
        if tiled.choice.chunk and index == 1:
            at += number % tiled.choice.ring * tiled.chunk_bytes
        return Bytes(l1_buffer(self.engine), Place(at), extent_of(type), type, name)

    def finish(self) -> list[Step]:
        """Followers, and the way out."""
        found: list[Step] = []
        made = list(self.tiled.shape.made(*self.tile, self.span))
        current = made[0]
        for number, follower in enumerate(self.tiled.stage.followers):
            result = made[len(self.tiled.stage.split.outputs) + number]
            inputs: list[Bytes] = []
            for index, region in enumerate(follower.inputs):
                if region is None:
                    own = follower.task.inputs[index].type
                    part = Part(0, _requantised(current[2].type, own))
                    inputs.append(self._here(current[0], part, part.extent, f"{self.label}_Y"))
                else:
                    part = self.parts[f"f{number}_{index}"]
                    inputs.append(self._here(f"f{number}_{index}", part, part.extent, f"{self.label}_R"))
            output = self._here(result[0], result[2], result[2].extent, f"{self.label}_Y")
            found.append(
                Step(
                    follower.task.opcode,
                    tuple(inputs),
                    (output,),
                    follower.task.attributes,
                    label=f"{self.label}_a",
                )
            )
            current = result
        return [*found, *self._stores()]

    def _stores(self) -> Iterable[Step]:
        shape, (first, count) = self.tiled.shape, self.tile
        now = shape.stored(first, count, self.span)
        later = shape.stored(first + self.step, count) if self.step else now
        for (key, region, part), (_, _, moved) in zip(now, later, strict=True):
            step = moved.offset - part.offset
            here = self._here(key, None, part.extent)
            staged = region.buffer.name in self.generator.ddr
            if staged:
                near = self._staged(f"out_{key}", part.extent)
            else:
                near = _moving(self.generator._source(self.tiled, region, part.offset, part.extent), step)
            for low, size in _divide(part.extent, self._share("CSTL", part.extent)):
                ends = (_piece(here, low, size),), (_piece(near, low, size),)
                yield Step("store", *ends, label=f"{self.label}_st")
            if staged:
                yield Step("transfer", (near,), (self._far(region, part, step),), label=f"{self.label}_out")


def _requantised(type: TensorType, own: TensorType | None) -> TensorType:
    quant = type.quant if own is None else own.quant
    return TensorType(type.elem, type.shape, type.layout, type.strides, quant)


def _moving(item: Bytes, step: int) -> Bytes:
    place = item.place
    moved = Place(place.start, step, place.slot, place.slots, place.name, place.named)
    return Bytes(item.buffer, moved, item.extent, item.type, item.name)


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
