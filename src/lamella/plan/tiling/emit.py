"""The generator of tiled programs: stages one after the other, weights fetched ahead of them.

Statements after a loop start when it is complete, so whatever is to run beside a loop is written before it: fetches
of later weights, tiles with other pads than those of the loop, weights of the next stage. Everything outside loops
starts as soon as its bytes are there, in whatever order the text has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from lamella.base.arena import aligned
from lamella.lang.nem.resolved import Task
from lamella.plan.operands import Codes
from lamella.plan.tiling.fill import new_rows
from lamella.plan.tiling.halo import Halo
from lamella.plan.tiling.memory import LiveBytes, lowest
from lamella.plan.tiling.placement import GRAIN, LONG, Fetch, Placement, TiledStage
from lamella.plan.tiling.program import AffineAddress, Bytes, Draft, Repeat, Settle, Step, l1_buffer, steps_of
from lamella.plan.tiling.search import SHARE, chunk_pieces, load_pieces, stream_slots
from lamella.plan.tiling.shape import ALIGN, Machine
from lamella.plan.tiling.split import OperandRange
from lamella.plan.tiling.stages import Network
from lamella.plan.tiling.text import aliases
from lamella.plan.tiling.tile_pass import TilePass, divide, moving, piece

SHORT = 10
"""Tokens for fetches below which they are spared."""
AHEAD, SLACK = 4, 8000
"""DDR has work for so many times the length of a stage, and for so many cycles more: estimates are not exact."""
TABLE_STAGES = 4
"""Stages before one that reads rows of a table in DDR which leave the way there free."""


class Generator(Placement):
    """Builds the lines of a whole program."""

    def __init__(
        self,
        network: Network,
        machine: Machine,
        stages: list[TiledStage],
        halos: Mapping[str, Halo],
        codes: Codes | None = None,
    ) -> None:
        super().__init__(network, machine, stages, halos, codes)
        self.lines: list[Draft] = []
        self.fetched = 0
        self.clock = 0.0
        """About when the stage in hand begins."""
        self.arrival = 0.0
        """About when the last fetch so far is complete."""
        self.arrivals: dict[int, float] = {}
        """About when what each stage fetches is there."""
        self.pending: list[Step] = []
        """Loads of whole weights that come together with the tile of a stage."""
        self.latest = 0
        """Where weights begin in L2 that come later than the others, where all come at once."""
        self.aliases = aliases([item.label for item in stages])
        """What the tasks and regions of each stage are called: long names make long lines."""

    # --- the program ------------------------------------------------------------------------------------------------

    def generate(self) -> list[Draft]:
        """All lines, in order."""
        for number, tiled in enumerate(self.stages):
            start = len(self.lines)
            self._stage_lines(number, tiled)
            belong(self.lines[start:], tiled)
        return self.lines

    def _stage_lines(self, number: int, tiled: TiledStage) -> None:
        """The lines of one stage, and of what is fetched and loaded beside it."""
        start = len(self.lines)
        if tiled.choice.eager:
            self._fill(tiled)
        self._prefetch(number)
        if number == 0:
            self._load_padding()
        self._pad(number)
        if tiled.choice.eager:
            self._write_back(tiled)
            return
        if tiled.choice.remote:
            self._stay(tiled)
            self._write_back(tiled)
            return
        self.clock = max(self.clock, self.arrivals.get(number, 0.0))
        self._prepare(tiled)
        later = self.stages[number + 1] if number + 1 < len(self.stages) else None
        begin = len(self.lines)
        if self._body(tiled, later):
            steps = [line for line in self.lines[begin:] if isinstance(line, Step)]
            if tiled.distant:
                self._prefetch(number, _index_loads(steps))
            if later is not None:
                self._prepare_early(later)
                self._begin_stream(later)
            self.lines.append(Settle(steps))
        self._write_back(tiled)
        self.clock += tiled.choice.cycles
        first = self.lines[start]
        if not isinstance(first, Settle):
            first.comments = (*self._headline(tiled), *first.comments)

    def _write_back(self, tiled: TiledStage) -> None:
        """Send outputs that have a home in L2 to DDR; nobody waits for that."""
        for region in tiled.stage.outputs:
            name = region.buffer.name
            if name in self.network.outputs and name in self.homes:
                for low, size in divide(region.extent, self._pieces(region.extent, urgent=True)):
                    home = self.source(tiled, region, low, size)
                    far = Bytes(name, AffineAddress(region.offset.constant + low), size)
                    self.lines.append(Step("transfer", (home,), (far,), label=f"{tiled.stage.name}_out"))

    def _load_padding(self) -> None:
        """Bring the padding of halos to L1 of engine 0, above everything else."""
        fetch = next((item for item in self.fetches if item.name == "padding"), None)
        if fetch is not None:
            target = Bytes(l1_buffer(0), AffineAddress(self.machine.l1), fetch.size)
            self.lines.append(
                Step("transfer", (self._near(fetch, 0, fetch.size),), (target,), label="padding")
            )

    def _pad(self, stage: int) -> None:
        """Write the halos of images that a stage makes, or is the first to read."""
        for name, halo in self.halos.items():
            block = self.homes.get(name)
            if block is None or block.first != stage:
                continue
            ends = (self.lead(name) - halo.above, halo.above), (block.size - halo.below, halo.below)
            for at, size in ends:
                if size:
                    source = Bytes(l1_buffer(0), AffineAddress(self._padding_at(halo.fill)), size)
                    target = self.l2(block, at, size)
                    self.lines.append(Step("store", (source,), (target,), label=f"{name}_pad"))

    def _padding_at(self, fill: int) -> int:
        """Where padding of a kind lies in L1."""
        at = self.machine.l1
        for byte, size in self.padding.items():
            if byte == fill:
                break
            at += aligned(size, ALIGN)
        return at

    def _near(self, item: Fetch, low: int, size: int) -> Bytes:
        """Where fetched bytes lie in L2."""
        return self.l2(item.block, item.lead + low, size)

    def _stay(self, tiled: TiledStage) -> None:
        """A task on operands where they lie."""
        task = tiled.stage.task
        inputs = tuple(self.lying(tiled, region) for region in task.inputs)
        outputs = tuple(self.lying(tiled, region) for region in task.outputs)
        comments = (f"{tiled.label}: {task.opcode} in place, too large for L1: {_reason(task)}",)
        step = Step(task.opcode, inputs, outputs, task.attributes, label=tiled.label, comments=comments)
        self.lines += [step, Settle([step])]

    def _fill(self, tiled: TiledStage) -> None:
        """The first stage, chunk by chunk over all tiles, with its fetches where they are needed."""
        (weights,) = self.fetch_of[0]
        image = tiled.stage.task.inputs[0]
        inputs = next((item for item in self.fetches if item.buffer == image.buffer.name), None)
        tiled.prepared = tiled.stage.split.units > 0
        tiled.weights[1] = tiled.base
        passes = [
            TilePass(self, tiled, 0, tile, AffineAddress(tiled.slots_at + number * tiled.slot.size))
            for number, tile in enumerate(tiled.tiles[0])
        ]
        weight = tiled.stage.task.inputs[1]
        at = tiled.packed[weight.buffer.name, weight.offset.constant][1] - weights.offset
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
        source = Bytes(item.buffer, AffineAddress(item.offset + low), size)
        self.lines.append(Step("transfer", (source,), (self._near(item, low, size),), label=item.name))

    def _prepare_early(self, tiled: TiledStage) -> None:
        """Load the weights of the next stage, where they are on their way and nothing else lies whole in L1."""
        number = tiled.stage.number
        fetched = all(item.issued for item in self.fetch_of.get(number, []))
        packed = all(
            (region.buffer.name, region.offset.constant) in tiled.packed for _, region in tiled.shape.wholes
        )
        if fetched and packed and not (tiled.choice.streamed or tiled.choice.remote):
            self._prepare(tiled, early=True)

    def _headline(self, tiled: TiledStage) -> tuple[str, ...]:
        choice, split = tiled.choice, tiled.stage.split
        words = [item.opcode for stage in (*tiled.stage.leads, tiled.stage) for item in stage.tasks]
        count = sum(len(tiles) for tiles in tiled.tiles)
        tile = f"{count} tiles of {choice.height} of {split.units} rows" if split.units > 1 else "one tile"
        chunk = f", chunks of {choice.chunk} channels" if choice.chunk else ""
        where = f" on {choice.engines} engines" if choice.engines > 1 else ""
        alias = self.aliases[tiled.label]
        name = tiled.label if alias == tiled.label else f"{tiled.label} ({alias})"
        return (f"== {name}: {' + '.join(words)}, {tile}{chunk}{where}, about {choice.cycles} cycles",)

    def _prefetch(self, stage: int, after: Sequence[Step] = ()) -> None:
        """Fetch what this stage needs, and what later ones need while there is room and a token.

        What DDR cannot deliver before the next stage begins is left to that one: it would only hold tokens. Rows of a
        table in DDR are ready when their numbers are known: what is fetched `after` these are loaded comes behind the
        rows.
        """
        soon = self.clock + AHEAD * self.stages[stage].choice.cycles + SLACK
        budget = self.machine.tokens // 2 * self.machine.engines
        flying = sum(item.pieces for item in self.fetches if item.issued and item.use > stage)
        room = self.machine.l2 if after or not self._table_comes(stage) else 0
        for item in self.fetches:
            if item.issued:
                continue
            if item.use > stage:
                early = LiveBytes(item.block.name, item.block.size, stage, item.block.last)
                others = [block for block in self.reserved if block is not item.block]
                offset = lowest(early, others)
                room -= early.size
                item.pieces = self._far_pieces(item, stage, budget - flying)
                if offset + early.size > self.machine.l2 or flying + item.pieces > budget or room < 0:
                    break
                if (
                    self.arrival
                    > soon + self.machine.fetch(int(item.moved)) / self.machine.counts["sDMA"] / 2
                ):
                    break
                item.block.first, item.block.offset = stage, offset
                self.l2_bytes = max(self.l2_bytes, offset + early.size)
                flying += item.pieces
            item.issued = True
            self._fetch(item, after)

    def _far_pieces(self, item: Fetch, stage: int, tokens: int) -> int:
        """Transfers that share an early fetch, each of which holds a token until it is used.

        Where tokens are short, as few as bring it in time. Behind the last one nothing comes: all sDMAs share it.
        """
        time = sum(tiled.choice.cycles for tiled in self.stages[stage : item.use])
        left = (time - max(0.0, self.arrival - self.clock)) / 2
        most = self._pieces(item.size, urgent=item is self.fetches[-1])
        if tokens > SHORT:
            return most
        return next(
            (count for count in range(1, most) if self.machine.fetch(int(item.moved) // count) < left), most
        )

    def _table_comes(self, stage: int) -> bool:
        """Whether one of the next stages asks for rows of a table in DDR."""
        return any(item.distant for item in self.stages[stage : stage + TABLE_STAGES])

    def _fetch(self, item: Fetch, after: Sequence[Step] = ()) -> None:
        rate = self.machine.sdma * self.machine.counts["sDMA"]
        self.arrival = max(self.arrival, self.clock) + item.moved / rate
        for stage in range(item.use, item.block.last + 1):
            self.arrivals[stage] = self.arrival + self.machine.sdma_overhead
        for low, size in self._cuts(item):
            source = Bytes(item.buffer, AffineAddress(item.offset + low), size)
            target = self._near(item, low, size)
            self.fetched += 1
            # Its token lives long: the sequencers take turns.
            engine = self.fetched % self.machine.engines
            step = Step("transfer", (source,), (target,), label=item.name, sequencer=engine)
            step.origin = self.stages[max(0, item.use)].stage.task.number
            step.after = list(after)
            self.lines.append(step)

    def _cuts(self, item: Fetch) -> list[tuple[int, int]]:
        """The pieces of a fetch: equal ones, but where all weights come at once such that all sDMAs end together.

        Some bring inputs first. What one of them brings behind those is needed last, and may come later by as much as
        the others have to wait for their way into L1.
        """
        machine = self.machine
        if not machine.tactic.cold or item.packed is None or item.use < 0:
            return divide(item.size, item.pieces, item.grain)
        busy = [0] * machine.counts["sDMA"]
        for other in self.fetches:
            if other.packed is None and other.use == item.use:
                busy[busy.index(min(busy))] += machine.fetch(other.size)
        largest = max((piece.region.extent for piece in item.packed.pieces), default=0)
        slack = machine.load(largest // machine.counts["DMA"])
        starts = sorted(max(0, cycles - slack) if cycles else 0 for cycles in busy)
        while True:
            end = (item.size / machine.sdma + sum(starts)) / len(starts)
            if len(starts) == 1 or starts[-1] < end:
                break
            starts.pop()
        found, low = [], 0
        for start in starts[:-1]:
            size = min(aligned(int((end - start) * machine.sdma), item.grain), item.size - low)
            found.append((low, size))
            low += size
        found.append((low, item.size - low))
        self.latest = self._near(item, low, 0).place.start
        return [span for span in found if span[1]]

    def _prepare(self, tiled: TiledStage, early: bool = False) -> None:
        """Load what lies whole in L1: weights that are not taken in chunks, or chunks that all stay.

        Early, beside the stage before, in pieces one by one, so that nothing waits for them; else in a loop, together
        with the tile where there is only one.
        """
        if tiled.prepared:
            return
        self._settle_weights(tiled)
        start, moves = len(self.lines), self._whole_moves(tiled)
        belong(moves, tiled)
        if early or self.machine.tactic.cold:
            for step in moves:
                for low, part in self._load_cuts(step.inputs[0]):
                    ends = (piece(step.inputs[0], low, part),), (piece(step.outputs[0], low, part),)
                    self.lines.append(Step("transfer", *ends, label=step.label))
        elif tiled.run is None:
            self.pending = moves
        else:
            self.lines += self._in_pieces(moves, "DMA")
        if tiled.choice.chunk and tiled.resident and len(tiled.chunks()) > 1:
            for number in range(len(tiled.chunks())):
                self._load_chunks(tiled, number, self._engines(tiled))
        belong(self.lines[start:], tiled)

    def _load_cuts(self, source: Bytes) -> Iterator[tuple[int, int]]:
        """The pieces in which bytes of L2 are loaded: what comes later does not hold back what comes before."""
        size = source.extent
        first = min(size, max(0, self.latest - source.place.start))
        for start, end in pairwise(sorted({0, first, size})):
            pieces = load_pieces(self.machine, end - start)
            yield from ((start + low, part) for low, part in divide(end - start, pieces))

    def _whole_moves(self, tiled: TiledStage) -> list[Step]:
        """The loads of what lies whole in L1, each in one piece; also of weights of one chunk."""
        found: list[Step] = []
        label = f"{tiled.label}_load"
        for index, region in tiled.shape.wholes:
            type = tiled.shape.whole(index).type
            for engine in self._engines(tiled):
                low, size, name = 0, region.extent, f"{tiled.label}_W"
                if index == 1 and tiled.choice.chunk:
                    if len(tiled.chunks(engine)) > 1 or tiled.stream is not None:
                        continue
                    part = self._chunk(tiled, 0, engine)
                    low, size, type = part.offset, part.extent, part.type
                here = Bytes(l1_buffer(engine), AffineAddress(tiled.weights[index]), size, type, name)
                found.append(Step("transfer", (self.source(tiled, region, low, size),), (here,), label=label))
        return found

    def _in_pieces(self, steps: Sequence[Step], unit: str) -> list[Draft]:
        """Moves that share the units of a kind: a loop over pieces of all that divide evenly, the others whole."""
        able = [step for step in steps if step.on_l1 and step.outputs[0].extent >= 2 * SHARE]
        best, count = list[Step](), 1
        for pieces in range(self.machine.counts[unit], 1, -1):
            even = [step for step in able if step.outputs[0].extent % (GRAIN * pieces) == 0]
            if len(even) > len(best):
                best, count = even, pieces
        found: list[Draft] = [step for step in steps if step not in best]
        body: list[Step] = []
        for step in best:
            size = step.outputs[0].extent // count
            ends = (moving(piece(item, 0, size), size) for item in (step.inputs[0], step.outputs[0]))
            body.append(Step(step.opcode, (next(ends),), (next(ends),), label=step.label, origin=step.origin))
        return [*found, Repeat(count, count, body)] if body else found

    def _settle_weights(self, tiled: TiledStage) -> None:
        """Give what lies whole in L1 its places, weights in chunks behind the rest."""
        tiled.prepared = True
        at = tiled.base
        for index, region in tiled.shape.wholes:
            if not (index == 1 and tiled.choice.chunk):
                tiled.weights[index] = at
                at += aligned(tiled.stretched(region.extent), ALIGN)
        if tiled.choice.chunk:
            tiled.weights[1] = at

    def _load_along(self, tiled: TiledStage) -> list[Step]:
        """Load the weights of the next stage with the iterations of a loop, a piece with each."""
        self._settle_weights(tiled)
        start = len(self.lines)
        found: list[Step] = []
        for index, region in tiled.shape.wholes:
            chunked = index == 1 and bool(tiled.choice.chunk)
            share = tiled.choice.ring * tiled.chunk_bytes if chunked else region.extent
            size = tiled.stretched(share)
            for engine in self._engines(tiled):
                low = self._chunk(tiled, 0, engine).offset if chunked else 0
                label, at = f"{tiled.label}_load", tiled.weights[index]
                if size < 2 * LONG:
                    near, here = (
                        self.source(tiled, region, low, size),
                        Bytes(l1_buffer(engine), AffineAddress(at), size),
                    )
                    self.lines.append(Step("transfer", (near,), (here,), label=label))
                    continue
                step = size // tiled.along
                near = moving(self.source(tiled, region, low, step), step)
                here = Bytes(l1_buffer(engine), AffineAddress(at, step), step)
                found.append(Step("transfer", (near,), (here,), label=label))
        belong([*found, *self.lines[start:]], tiled)
        return found

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
            source = self._stream(tiled, part, turn)
        else:
            source = self.source(tiled, tiled.stage.task.inputs[1], part.offset, part.extent)
        at = tiled.weights[1] + number % tiled.choice.ring * tiled.chunk_bytes
        pieces = chunk_pieces(tiled.shape, tiled.choice.ring, part.extent)
        for engine in engines:
            for low, size in divide(part.extent, pieces):
                near, target = (
                    piece(source, low, size),
                    Bytes(l1_buffer(engine), AffineAddress(at + low), size),
                )
                self.lines.append(Step("transfer", (near,), (target,), label=f"{tiled.label}_w"))

    def _stream(self, tiled: TiledStage, part: OperandRange, turn: int) -> Bytes:
        """Where a chunk of weights passes through L2; its fetch comes before, unless it has come already."""
        assert tiled.stream is not None
        assert tiled.streamed_at is not None
        slots = stream_slots(self.machine, tiled.chunk_bytes)
        found = self.l2(tiled.stream, turn % slots * tiled.chunk_bytes, part.extent)
        if turn >= tiled.flowing:
            packed, start = tiled.streamed_at
            extent = aligned(part.extent, packed.align) if packed.codec else part.extent
            far = Bytes(packed.name, AffineAddress(start + part.offset), extent)
            whole = replace(found, extent=extent)
            self.lines.append(Step("transfer", (far,), (whole,), label=f"{tiled.label}_fetch"))
            tiled.flowing = turn + 1
        return found

    def _begin_stream(self, tiled: TiledStage) -> None:
        """Fetch the first chunks of weights of the next stage, where they pass through L2 one by one."""
        if tiled.stream is None or tiled.choice.across or tiled.choice.eager or tiled.choice.remote:
            return
        start = len(self.lines)
        for turn in range(min(len(tiled.chunks()), stream_slots(self.machine, tiled.chunk_bytes))):
            self._stream(tiled, self._chunk(tiled, turn, 0), turn)
        belong(self.lines[start:], tiled)

    @staticmethod
    def _chunk(tiled: TiledStage, number: int, engine: int) -> OperandRange:
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
        run = tiled.run
        if run is None:
            self._groups(tiled, later)
            return True
        flight = min(run.length, tiled.choice.flight)
        spare = tiled.slots - flight
        for engine, (begin, tiles) in enumerate(zip(run.begins, tiled.tiles, strict=True)):
            for number, tile in enumerate([*tiles[:begin], *tiles[begin + run.length :]]):
                index = flight + number % spare if spare else 0
                slot = AffineAddress(tiled.slots_at + index * tiled.slot.size)
                self.lines += TilePass(self, tiled, engine, tile, slot).lines()
        body: list[Step] = []
        for engine, (begin, tiles) in enumerate(zip(run.begins, tiled.tiles, strict=True)):
            slot = AffineAddress(tiled.slots_at, slot=tiled.slot.size, slots=flight)
            step = tiles[begin + 1][0] - tiles[begin][0]
            body += TilePass(self, tiled, engine, tiles[begin], slot, step).lines()
        if later is not None and tiled.l1_bytes + later.l1_bytes <= self.machine.l1:
            if (
                later.along == run.length
                and self.arrivals.get(later.stage.number, self.clock + 1) <= self.clock
            ):
                body += self._load_along(later)
            else:
                self._prepare_early(later)
        self.lines.append(Repeat(run.length, flight, body))
        return False

    def _groups(self, tiled: TiledStage, later: TiledStage | None) -> None:
        """Tiles in groups of as many as there are slots; chunks of weights pass all tiles of a group."""
        slots, chunks = tiled.slots, tiled.chunks()
        longest = max(len(tiles) for tiles in tiled.tiles)
        for start in range(0, longest, slots):
            passes = [
                TilePass(self, tiled, engine, tile, AffineAddress(tiled.slots_at + number * tiled.slot.size))
                for engine, tiles in enumerate(tiled.tiles)
                for number, tile in enumerate(tiles[start : start + slots])
            ]
            pending, self.pending = self.pending, []
            if start:
                tiled.flowing = 0
            if longest > 1 and not tiled.choice.chunk:
                self.lines += [*pending, *(step for item in passes for step in item.lines())]
                continue
            loads = [*pending, *(step for item in passes for step in item.loads())]
            # Fetches come behind the rows of a table, and would wait for a loop.
            shared = longest == 1 and not tiled.distant
            self.lines += self._in_pieces(loads, "DMA") if shared else loads
            self.lines += [step for item in passes for step in item.leads()]
            for number in range(len(chunks)):
                if not tiled.resident:
                    self._load_chunks(tiled, number, sorted({item.engine for item in passes}))
                self.lines += [
                    item.main(number) for item in passes if number < len(tiled.chunks(item.engine))
                ]
            ends = [step for item in passes for step in item.finish()]
            # What goes on to DDR follows its store: then all stay in order.
            alone = shared and not any(step.opcode == "transfer" for step in ends)
            stores = [step for step in ends if alone and step.opcode == "store"]
            self.lines += [step for step in ends if step not in stores]
            if stores and later is not None and tiled.l1_bytes + later.l1_bytes <= self.machine.l1:
                # The stores may be a loop, and what is written behind it would wait for it. Before them nothing may
                # be loaded to where they read.
                self._prepare_early(later)
            self.lines += self._in_pieces(stores, "CSTL")


def belong(lines: Sequence[Draft], tiled: TiledStage) -> None:
    """Let steps that belong to no task yet belong to the main task of a stage."""
    for step in (step for line in lines for step in steps_of(line)):
        if step.origin < 0:
            step.origin = tiled.stage.task.number


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


def _reason(task: Task) -> str:
    """Why a task has no tiles."""
    if task.opcode == "compute":
        return "its kernel does not compute rows apart"
    return "its operands have no outermost axis in common"
