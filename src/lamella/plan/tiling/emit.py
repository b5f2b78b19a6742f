"""The generator of tiled programs: stages one after the other, weights fetched ahead of them.

Statements after a loop start when it is complete, so whatever is to run beside a loop is written before it: fetches
of later weights, tiles with other pads than those of the loop, weights of the next stage. Everything outside loops
starts as soon as its bytes are there, in whatever order the text has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lamella.base.arena import aligned
from lamella.plan.tiling.fill import new_rows
from lamella.plan.tiling.memory import Block, lowest
from lamella.plan.tiling.placement import PIECE, STREAM_SLOTS, Fetch, Placement, Tile, TiledStage
from lamella.plan.tiling.program import Bytes, Draft, Place, Repeat, Settle, Step, l1_buffer
from lamella.plan.tiling.search import LOOP_FROM, OWN_TOKENS
from lamella.plan.tiling.shape import ALIGN, Machine
from lamella.plan.tiling.split import Part
from lamella.plan.tiling.stages import Network
from lamella.plan.tiling.tile_pass import TilePass, divide, piece

TABLE_STAGES = 4
"""Stages before one that reads rows of a table in DDR which leave the way there free."""
WHOLE_PIECE = 1 << 12
"""Bytes below which a load of what all tiles need is not divided: computation may wait for it."""


class Generator(Placement):
    """Builds the lines of a whole program."""

    def __init__(self, network: Network, machine: Machine, stages: list[TiledStage]) -> None:
        super().__init__(network, machine, stages)
        self.lines: list[Draft] = []
        self.fetched = 0

    # --- the program ------------------------------------------------------------------------------------------------

    def generate(self) -> list[Draft]:
        """All lines, in order."""
        for number, tiled in enumerate(self.stages):
            start = len(self.lines)
            if tiled.choice.eager:
                self._fill(tiled)
            self._prefetch(number)
            if tiled.choice.eager:
                self._write_back(tiled)
                continue
            if tiled.choice.remote:
                self._stay(tiled)
                self._write_back(tiled)
                continue
            self._prepare(tiled)
            later = self.stages[number + 1] if number + 1 < len(self.stages) else None
            begin = len(self.lines)
            if self._body(tiled, later):
                steps = [line for line in self.lines[begin:] if isinstance(line, Step)]
                if tiled.distant:
                    self._prefetch(number, _index_loads(steps))
                if later is not None:
                    self._prepare_early(later)
                self.lines.append(Settle(steps))
            self._write_back(tiled)
            first = self.lines[start]
            if not isinstance(first, Settle):
                first.comments = (*self._headline(tiled), *first.comments)
        return self.lines

    def _write_back(self, tiled: TiledStage) -> None:
        """Send outputs that have a home in L2 to DDR; nobody waits for that."""
        for region in tiled.stage.outputs:
            name = region.buffer.name
            if name in self.network.outputs and name in self.homes:
                for low, size in divide(region.extent, self._pieces(region.extent, urgent=True)):
                    home = self.source(tiled, region, low, size)
                    far = Bytes(name, Place(region.offset.constant + low), size)
                    self.lines.append(Step("transfer", (home,), (far,), label=f"{tiled.stage.name}_out"))

    def _stay(self, tiled: TiledStage) -> None:
        """A task on operands where they lie."""
        task = tiled.stage.task
        inputs = tuple(self.lying(tiled, region) for region in task.inputs)
        outputs = tuple(self.lying(tiled, region) for region in task.outputs)
        comments = (f"{tiled.stage.name}: {task.opcode} in place, too large for L1",)
        step = Step(task.opcode, inputs, outputs, task.attributes, label=tiled.stage.name, comments=comments)
        self.lines += [step, Settle([step])]

    def _fill(self, tiled: TiledStage) -> None:
        """The first stage, chunk by chunk over all tiles, with its fetches where they are needed."""
        weights = next(item for item in self.fetches if item.use == 0 and item.buffer == self.packing.name)
        image = tiled.stage.task.inputs[0]
        inputs = next((item for item in self.fetches if item.buffer == image.buffer.name), None)
        tiled.prepared = tiled.stage.split.units > 0
        tiled.weights[1] = tiled.base
        passes = [
            TilePass(self, tiled, 0, tile, Place(tiled.slots_at + number * tiled.slot.size))
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
        self.lines.append(Step("transfer", (source,), (self.l2(item.block, low, size),), label=item.name))

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

    def _prefetch(self, stage: int, after: Sequence[Step] = ()) -> None:
        """Fetch what this stage needs, and what later ones need while there is room and a token.

        Whatever is ready first is moved first. Rows of a table in DDR are ready when their numbers are known: what is
        fetched `after` these are loaded comes behind the rows.
        """
        budget = max(self.machine.tokens // 2, self.machine.tokens - OWN_TOKENS) * self.machine.engines
        flying = sum(item.pieces for item in self.fetches if item.issued and item.use > stage)
        room = self.machine.l2 if after or not self._table_comes(stage) else 0
        for item in self.fetches:
            if item.issued:
                continue
            if item.use > stage:
                early = Block(item.block.name, item.block.size, stage, item.block.last)
                offset = lowest(early, [block for block in self.reserved if block is not item.block])
                room -= early.size
                if offset + early.size > self.machine.l2 or flying + item.pieces > budget or room < 0:
                    break
                item.block.first, item.block.offset = stage, offset
                self.l2_bytes = max(self.l2_bytes, offset + early.size)
                flying += item.pieces
            item.issued = True
            self._fetch(item, after)

    def _table_comes(self, stage: int) -> bool:
        """Whether one of the next stages asks for rows of a table in DDR."""
        return any(item.distant for item in self.stages[stage : stage + TABLE_STAGES])

    def _fetch(self, item: Fetch, after: Sequence[Step] = ()) -> None:
        for low, size in divide(item.block.size, item.pieces):
            source = Bytes(item.buffer, Place(item.offset + low), size)
            target = self.l2(item.block, low, size)
            self.fetched += 1
            # Its token lives long: the sequencers take turns.
            engine = self.fetched % self.machine.engines
            step = Step("transfer", (source,), (target,), label=item.name, sequencer=engine)
            step.after = list(after)
            self.lines.append(step)

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
                pieces = min(self.machine.counts["DMA"], region.extent // WHOLE_PIECE)
                for low, size in divide(region.extent, pieces):
                    source = self.source(tiled, region, low, size)
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
            source = self.l2(tiled.stream, turn % STREAM_SLOTS * tiled.chunk_bytes, part.extent)
            self.lines.append(Step("transfer", (far,), (source,), label=f"{tiled.stage.name}_fetch"))
        else:
            source = self.source(tiled, tiled.stage.task.inputs[1], part.offset, part.extent)
        at = tiled.weights[1] + number % tiled.choice.ring * tiled.chunk_bytes
        pieces = min(-(-self.machine.counts["DMA"] // tiled.choice.ring), part.extent // PIECE)
        for engine in engines:
            for low, size in divide(part.extent, pieces):
                near, target = piece(source, low, size), Bytes(l1_buffer(engine), Place(at + low), size)
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
                slot = Place(tiled.slots_at + index * tiled.slot.size)
                self.lines += TilePass(self, tiled, engine, tile, slot).lines()
        body: list[Step] = []
        for engine, (begin, tiles) in enumerate(zip(begins, tiled.tiles, strict=True)):
            slot = Place(tiled.slots_at, slot=tiled.slot.size, slots=flight)
            step = tiles[begin + 1][0] - tiles[begin][0]
            body += TilePass(self, tiled, engine, tiles[begin], slot, step).lines()
        if later is not None and tiled.l1_bytes + later.l1_bytes <= self.machine.l1:
            self._prepare_early(later)
        self.lines.append(Repeat(length, flight, body))
        return False

    def _groups(self, tiled: TiledStage) -> None:
        """Tiles in groups of as many as there are slots; chunks of weights pass all tiles of a group."""
        slots, chunks = tiled.slots, tiled.chunks()
        resident = len(chunks) == 1 or tiled.choice.ring >= len(chunks)
        longest = max(len(tiles) for tiles in tiled.tiles)
        for start in range(0, longest, slots):
            passes = [
                TilePass(self, tiled, engine, tile, Place(tiled.slots_at + number * tiled.slot.size))
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


def _index_loads(steps: Sequence[Step]) -> list[Step]:
    """The loads of the numbers of rows that are gathered."""
    wanted = {
        (item.buffer, item.place) for step in steps if step.opcode == "gather" for item in step.inputs[1:]
    }
    return [
        step
        for step in steps
        if step.opcode == "transfer" and (step.outputs[0].buffer, step.outputs[0].place) in wanted
    ]


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
