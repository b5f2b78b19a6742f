"""Tiling: from a selected plan, in which every tensor is a whole region of DDR, to a plan for the memories of a device.

    selected plan ──stages──▶ tasks that share tiles ──search──▶ tiles ──placement──▶ L2, L1 ──generator──▶ tiled plan

The result is a NEM document: L2 and L1 arenas, transfers, loops with rings, weights fetched ahead, several engines.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lamella.base.arena import aligned
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Unsupported
from lamella.base.source import Source, Trivia
from lamella.lang.nem import check, nodes, write
from lamella.lang.nem.codecs import CODECS
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.nodes import Document, Integer, Name
from lamella.lang.nem.parse import parse
from lamella.lang.nem.resolved import Plan, Region, Task
from lamella.plan.operands import Codes
from lamella.plan.tiling.choice import COLD_TACTICS, LATENCIES, TACTICS, Choice, Effort, Tactic
from lamella.plan.tiling.emit import Generator
from lamella.plan.tiling.engines import LAYERS, OTHERS, allot
from lamella.plan.tiling.fill import choose_fill
from lamella.plan.tiling.halo import SMALL, Halo, find_halos, with_halo
from lamella.plan.tiling.layouts import settle_layouts
from lamella.plan.tiling.pack import PackedBuffer, Packing
from lamella.plan.tiling.placement import ShortL2, TiledStage, padding_bytes, tiled_stage
from lamella.plan.tiling.program import (
    L2_BUFFER,
    AffineAddress,
    Bytes,
    Line,
    Repeat,
    Step,
    l1_buffer,
    order,
    steps_of,
)
from lamella.plan.tiling.search import least_bytes
from lamella.plan.tiling.shape import ALIGN, Machine, StageShape, TileSizes
from lamella.plan.tiling.slices import WeightSlice, slice_tasks, sliced_arrays
from lamella.plan.tiling.split import LONG_ROW, split_of
from lamella.plan.tiling.stages import ALONE, LONG, SHORT, Network, Stage, group, task_name
from lamella.plan.tiling.stripes import with_stripes
from lamella.plan.tiling.text import Writer
from lamella.plan.timing import schedule_plan
from lamella.plan.timing.cost import MachineModel
from lamella.plan.wdm import stored_sizes


@dataclass(frozen=True, slots=True)
class TilingOptions:
    """What a caller may decide: buffers to keep as outputs, engines to use (0: all), tactics to try."""

    outputs: Collection[str] | None = None
    engines: int = 0
    tactics: tuple[Tactic, ...] = TACTICS
    """For each a plan is made and simulated; the fastest is taken."""
    arrays: Mapping[str, Array] | None = None
    """The bytes of imported buffers: those that a codec stores in fewer come through WDM, where the device has it."""
    effort: int = sys.maxsize
    """Steps after which no further plan is tried."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """What was chosen for one stage, and what it is expected to cost."""

    name: str
    opcodes: tuple[str, ...]
    tiles: int
    height: int
    chunk: int
    engines: int
    cycles: int
    l1_bytes: int
    lines: int


@dataclass(frozen=True, slots=True)
class Tiled:
    """A tiled plan as a document, its packed weights, and a report of its stages."""

    document: Document
    packing: Packing
    stages: tuple[StageReport, ...]
    cycles: Mapping[bool, int] = field(default_factory=dict)
    """The fewest cycles of the plans that were tried: those without a solver, and those with one."""
    effort: Effort = field(default_factory=lambda: Effort(sys.maxsize))
    """What the search took."""
    untried: int = 0
    """Tactics for which there were no steps left."""
    origins: tuple[int, ...] = ()
    """For each task, in the order of the text, the number of the task of the selected plan that it belongs to."""
    slices: Mapping[str, WeightSlice] = field(default_factory=dict)
    """Weights that are parts of those of the selected plan, where tasks had to be cut."""

    def pack(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """What is imported for packed buffers and for slices, from the bytes of the buffers of the selected plan."""
        known = sliced_arrays(self.slices, arrays)
        # What several tasks read is not packed for one of them.
        alone = {item.name.id for item in self.document.statements if isinstance(item, nodes.Buffer)}
        return {name: known[name] for name in self.slices if name in alone} | self.packing.pack(known)


def tile(plan: Plan, device: ResolvedDevice, options: TilingOptions | None = None) -> Tiled:
    """Tile a selected plan for a device.

    Raises Unsupported where a stage has no tile that fits, with the bytes it needs.
    """
    options = options or TilingOptions()
    machine = Machine(MachineModel(device), 1)
    _require_l2(plan, machine)
    full = machine.l1
    # Rings through L2 have slots as large as those of L1: where L2 is too small for them, so are tiles.
    rooms = [full >> step for step in range(full.bit_length()) if step == 0 or full >> step >= LEAST_ROOM]
    fewer = replace(options, tactics=options.tactics[:2])
    for room in rooms:
        try:
            return _within(plan, device, options if room == full else fewer, room)
        except ShortL2 as problem:
            refusal: Unsupported = problem
        except Unsupported as problem:
            refusal = problem
            break
    for room in rooms:
        machine.l1 = room
        try:
            sliced = slice_tasks(plan, group(plan, options.outputs, ALONE).weights, machine)
        except Unsupported as problem:
            raise problem if room == full else refusal from None
        if sliced is None:
            continue
        known = None if options.arrays is None else sliced_arrays(sliced.weights, options.arrays)
        for engines in (options.engines, 1):
            try:
                found = _within(sliced.plan, device, replace(fewer, arrays=known, engines=engines), room)
            except ShortL2 as problem:
                refusal = problem
                continue
            origins = tuple(sliced.origins[number] for number in found.origins)
            return replace(found, origins=origins, slices=sliced.weights)
    raise refusal


def _require_l2(plan: Plan, machine: Machine) -> None:
    """Refuse a kernel that has no tile in L1, and more operands than L2 holds: no tiles of others make room."""
    for task in plan.tasks():
        if task.opcode != "compute" or _is_divided(task, machine):
            continue
        regions = [item for item in (*task.inputs, *task.outputs) if not item.buffer.imported]
        sizes = {item.buffer.name: aligned(item.extent, ALIGN) for item in regions}
        if sum(sizes.values()) > machine.l2:
            held = ", ".join(f"{name} ({size} bytes)" for name, size in sizes.items())
            raise ShortL2(
                f"the plan needs {sum(sizes.values())} bytes of L2 at once; the device has {machine.l2}: "
                f"{task_name(task)} needs {held}, and L1 has no room for a tile of its kernel"
            )


def _is_divided(task: Task, machine: Machine) -> bool:
    """Whether a kernel computes rows apart, of which L1 holds one."""
    split = split_of(task)
    return (
        split.units > 1 and least_bytes(StageShape(Stage(0, task_name(task), split), machine)) <= machine.l1
    )


LEAST_ROOM = 256
"""Bytes of L1 below which there is hardly a task that has a tile."""


def _within(plan: Plan, device: ResolvedDevice, options: TilingOptions, room: int) -> Tiled:
    """Tile a plan as if L1 had no more than some bytes; shorter stages have smaller tiles."""
    search = _Attempts(device, options, room)
    piece = Machine(MachineModel(device), 1).piece
    refused: list[Unsupported] = []
    for length, longest in ((LONG, LONG_ROW), (SHORT, LONG_ROW), (ALONE, piece)):
        try:
            return search.fastest(group(plan, options.outputs, length, longest))
        except Unsupported as problem:
            refused.append(problem)
    raise next((item for item in refused if isinstance(item, ShortL2)), refused[-1])


class _Attempts:
    """Attempts at a plan, each simulated, as long as there are steps left."""

    def __init__(self, device: ResolvedDevice, options: TilingOptions, room: int) -> None:
        self.device, self.options, self.room = device, options, room
        self.effort = Effort(options.effort)
        known = options.arrays is not None and device.units("WDM")
        saves = Machine(MachineModel(device), 1).saves
        self.codes = Codes(options.arrays or {}, saves) if known else None
        self.untried = 0
        self.bases: dict[tuple[object, ...], _Base] = {}
        self.made: dict[tuple[object, ...], _Attempt] = {}
        self.tiles: dict[tuple[object, ...], TileSizes] = {}

    def fastest(self, network: Network) -> Tiled:
        """The plan that the simulator likes best among those of some tactics."""
        self.bases, self.made, self.tiles = {}, {}, {}
        refused: list[Unsupported] = []
        for tactic in (*self.options.tactics, *self._cold_tactics(network)):
            # What codecs store takes whole blocks, for which L2 may be too small.
            for tried in (tactic, replace(tactic, coded=False))[: 1 if self.codes is None else 2]:
                try:
                    self._attempt(network, tried)
                    break
                except Unsupported as problem:
                    refused.append(problem)
        if not self.made:
            raise refused[0]
        if self.codes is not None and self.codes.useful:
            # A fetch through WDM takes whole blocks, and one more for what stands beside them.
            self._attempt(network, replace(self._best().tactic, coded=False))
        self._shorten(network)
        cycles: dict[bool, int] = {}
        for item in self.made.values():
            is_solved = item.tactic.solved
            cycles[is_solved] = min(item.cycles, cycles.get(is_solved, item.cycles))
        return replace(self._best().tiled, cycles=cycles, effort=self.effort, untried=self.untried)

    def _cold_tactics(self, network: Network) -> tuple[Tactic, ...]:
        """Attempts that are worth it where all weights come in a few latencies."""
        machine = Machine(MachineModel(self.device), 1)
        sizes = (item.size for item in network.plan.buffers if item.name in network.weights)
        few = sum(sizes) <= LATENCIES * machine.sdma_overhead * machine.sdma * machine.counts["sDMA"]
        return COLD_TACTICS if few and self.options.tactics[: len(TACTICS)] == TACTICS else ()

    def _attempt(self, network: Network, tactic: Tactic) -> None:
        """Make a plan and simulate it; the first one in any case."""
        if self.made and self.effort.over:
            self.untried += 1
            return
        # What the search prices depends on these.
        key = tactic.weights_hidden, tactic.stripes, tactic.grain, tactic.engines
        if key not in self.bases:
            model, asked = MachineModel(self.device), (self.options.engines, tactic.engines)
            engines = min([model.engines, *filter(None, asked)])
            machine = Machine(model, engines, tactic, self.effort)
            machine.l1, machine.tiles = self.room, self.tiles
            self.bases[key] = _Base(network, machine)
        item = self.bases[key].attempt(tactic, self.codes if tactic.coded else None)
        same = (*item.stages, tactic.grain, tactic.solved, tactic.coded)
        if same not in self.made:
            found = self.made[same] = _Attempt(item, tactic, *_measure(item.document, self.device))
            self.effort.take(found.lines * STEPS)

    def _shorten(self, network: Network) -> None:
        """Look for a plan that can be read.

        Lines are estimated, and long names need more of them: aim at what the estimate would be.
        """
        plans, best = list(self.made.values()), self._best()
        fastest, least = min(plans, key=lambda item: item.cycles), min(item.lines for item in plans)
        if best.lines > LONGEST:
            again = [item for item in plans if item.lines <= 1.05 * least]
        else:
            again = [fastest] if fastest.lines > LONGEST and 1.01 * fastest.cycles < best.cycles else []
        for item in again:
            estimated = lines_each(item.tiled.stages)
            for thrift in (1.0, 3.0, 4.0, 6.0, 10.0):
                lines = estimated * AIM // item.lines
                self._attempt(network, replace(item.tactic, lines=lines, thrift=thrift * item.tactic.thrift))
                if self._best().lines <= LONGEST:
                    break

    def _best(self) -> _Attempt:
        """The fastest plan, or a shorter one that is hardly slower."""
        plans = list(self.made.values())
        least = min(item.cycles for item in plans)
        short = [item for item in plans if item.lines <= LONGEST and item.cycles <= UNREADABLE * least]
        able = short or plans
        fastest = min(item.cycles for item in able)
        return min((item for item in able if item.cycles <= 1.005 * fastest), key=lambda item: item.lines)


def lines_each(stages: Collection[StageReport]) -> int:
    """The lines of each stage of a network of some size that the search took a plan to have."""
    count = len(stages)
    return (OTHERS * count + sum(item.lines for item in stages)) // max(LAYERS, count)


STEPS = 20
"""Steps that a line of a plan takes to be written, checked and simulated, where pricing a tiling takes one."""
LONGEST, AIM = 2950, 2800
"""Lines above which a plan is hard to read, and those to aim at instead."""
UNREADABLE = 1.08
"""How much slower a plan may be that has no more of them."""


class _Attempt(NamedTuple):
    """A plan, how it was made, its cycles and its lines."""

    tiled: Tiled
    tactic: Tactic
    cycles: int
    lines: int


def _measure(document: Document, device: ResolvedDevice) -> tuple[int, int]:
    """Simulated cycles of a plan, and its lines; one that cannot be simulated is the last to be taken."""
    bare = replace(document, includes=(), declarations=(), device=None)
    text = write(bare)
    found, lines = check(Source("attempt.nem", text)).plan, text.count("\n")
    try:
        return sys.maxsize if found is None else schedule_plan(replace(found, device=device)).cycles, lines
    except LamellaError:
        return sys.maxsize, lines


class _Base:
    """What attempts at a plan have in common: the machine, halos, and what the search found."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self.machine = machine
        self.network = network = with_stripes(network, machine) if machine.tactic.stripes else network
        self.halos = find_halos(network, self.machine.l1 // SMALL) if network.length else {}
        self.machine.l1 -= padding_bytes(self.halos.values())
        self.shapes = Shapes(network, self.machine)

    def attempt(self, tactic: Tactic, codes: Codes | None) -> Tiled:
        """One plan."""
        self.machine.tactic = tactic
        spilled: list[str] = []
        while True:
            kept = {name: halo for name, halo in self.halos.items() if name not in spilled}
            generator = _generator(self.network, self.machine, self.shapes, kept, codes)
            victims = generator.place(spilled)
            if not victims:
                break
            if tactic.solved and not spilled:
                spilled += sorted(generator.cheapest_spills()) or victims
            else:
                spilled += victims
        lines = order(generator.generate(), self.machine.tokens)
        reports = tuple(_report(item) for item in generator.stages)
        origins = tuple(step.origin for line in lines for step in steps_of(line))
        document = _document(self.network, generator, lines)
        return Tiled(document, generator.packing, reports, origins=origins)


class Shapes:
    """The shapes of stages with and without halos, each with what the search has found for it."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self.network, self.machine = network, machine
        self.known: dict[tuple[int, bool], StageShape] = {}

    def shape(self, stage: Stage, halos: Collection[str]) -> StageShape:
        """The shape of a stage that reads images of `halos` with their halos."""
        window = stage.split.window
        key = stage.number, window is not None and window.region.buffer.name in halos
        if key not in self.known:
            self.known[key] = StageShape(with_halo(stage, halos), self.machine)
        return self.known[key]


def _generator(
    network: Network, machine: Machine, known: Shapes, halos: Mapping[str, Halo], codes: Codes | None
) -> Generator:
    """The tilings of all stages, where some images have halos."""
    shapes = [known.shape(stage, halos) for stage in network.stages]
    weights = [_weight_bytes(network, shape, codes) for shape in shapes]
    choices = allot(shapes, weights, machine)
    _begin_eagerly(network, shapes, choices, machine)
    planar = settle_layouts(network, shapes, choices, machine)
    for shape in shapes:
        shape.planar = planar
    stages = [tiled_stage(shape.stage, shape, choice) for shape, choice in zip(shapes, choices, strict=True)]
    used = {item.stage.task.inputs[0].buffer.name for item in stages if item.reads_halo}
    kept = {name: halo for name, halo in halos.items() if name in used}
    return Generator(network, machine, stages, kept, codes)


def _begin_eagerly(
    network: Network, shapes: list[StageShape], choices: list[Choice], machine: Machine
) -> None:
    """Let a plan that is little more than its first stage begin before its operands are there."""
    if not shapes:
        return
    stage = with_halo(shapes[0].stage, ())
    bare, key = StageShape(stage, machine), (stage.task.number, len(stage.leads), machine.l1)
    if key not in network.fills:
        network.fills[key] = choose_fill(bare, machine.l1)
    filled = network.fills[key]
    waiting = machine.fetch(_weight_bytes(network, shapes[0]))
    first = shapes[0].stage.task.inputs[0].buffer.name
    alone = machine.engines == 1 and first in network.inputs and first not in network.outputs
    rest = sum(item.cycles for item in choices)
    if filled is not None and alone and 20 * waiting > rest and filled.cycles < choices[0].cycles + waiting:
        choices[0], shapes[0] = filled, bare


def _weight_bytes(network: Network, shape: StageShape, codes: Codes | None = None) -> int:
    """Bytes of weights that a stage fetches, as they are stored; of a table that is read where it lies nothing is."""
    distant = {id(shape.stage.task.inputs[index]) for index in shape.distant}
    return sum(
        region.extent if codes is None or (found := codes.find(region, False)) is None else found.size
        for region in shape.stage.inputs()
        if region.buffer.name in network.weights and id(region) not in distant
    )


def _report(item: TiledStage) -> StageReport:
    count = sum(len(tiles) for tiles in item.tiles)
    opcodes = tuple(task.opcode for stage in (*item.stage.leads, item.stage) for task in stage.tasks)
    choice = item.choice
    return StageReport(
        item.stage.name,
        opcodes,
        count,
        choice.height,
        choice.chunk,
        choice.engines,
        choice.cycles,
        item.l1_bytes,
        choice.lines,
    )


def _document(network: Network, generator: Generator, lines: list[Line]) -> Document:
    """The whole text: the head of the selected plan, buffers, constants, ports, then the tasks."""
    plan = network.plan
    head = parse(plan.source).document
    kept = {item.name for item in plan.buffers} | {item.name for item in generator.packing.buffers}
    writer = Writer(kept | _port_regions(network).keys(), generator.aliases)
    ports = _ports(network, writer)
    body = writer.lines(lines)
    buffers = _buffers(network, generator, writer, lines)
    statements = [*buffers, *writer.heads, *ports, *body]
    return Document(head.includes, head.declarations, head.device, head.name, tuple(statements))


def _buffers(
    network: Network, generator: Generator, writer: Writer, lines: list[Line]
) -> list[nodes.Statement]:
    """The arenas as large as they are used, the packed weights, and the buffers of inputs and outputs."""
    ends: dict[str, int] = {}
    for line in lines:
        trips = line.trips if isinstance(line, Repeat) else 1
        for step in [line] if isinstance(line, Step) else line.body if isinstance(line, Repeat) else []:
            for item in (*step.inputs, *step.outputs):
                end = item.place.bounds(trips)[1] + item.extent
                ends[item.buffer] = max(ends.get(item.buffer, 0), end)
    found: list[nodes.Statement] = []
    for buffer in network.plan.buffers:
        if buffer.name in ends:
            found.append(_buffer(buffer.name, "DDR", buffer.size, imported=buffer.imported))
    for packed in generator.packing.buffers:
        if packed.name in ends:
            found.append(_packed_buffer(packed, generator.packing.codes))
    if L2_BUFFER in ends:
        found.append(_buffer(writer.buffer(L2_BUFFER).id, "L2", ends[L2_BUFFER]))
    for engine in range(generator.machine.engines):
        if l1_buffer(engine) in ends:
            name = l1_buffer(engine)
            found.append(_buffer(writer.buffer(name).id, "L1", ends[name], engine))
    return found


def _packed_buffer(item: PackedBuffer, codes: Codes | None) -> nodes.Buffer:
    """A buffer of weights, stored by a codec or as they are."""
    found = _buffer(item.name, "DDR", item.size, imported=True)
    if not item.codec or codes is None:
        return found
    data, width = item.bytes_of(codes.arrays), CODECS[item.codec].width
    size = next(size for codec, size in stored_sizes(data, width) if codec.name == item.codec)
    return replace(found, codec=Name(item.codec), stored=Integer(size))


def _buffer(
    name: str, level: str, size: int, engine: int | None = None, imported: bool = False
) -> nodes.Buffer:
    index = None if engine is None else Integer(engine)
    return nodes.Buffer(Name(name), level, index, Integer(size), Integer(64), imported, notes=Trivia())


def _port_regions(network: Network) -> dict[str, Region]:
    """The named regions of inputs and outputs, as the selected plan has them."""
    ports = network.inputs | network.outputs
    return {name: region for name, region in network.plan.regions.items() if region.buffer.name in ports}


def _ports(network: Network, writer: Writer) -> list[nodes.Statement]:
    found: list[nodes.Statement] = []
    for name, region in _port_regions(network).items():
        if region.type is not None:
            here = Bytes(
                region.buffer.name, AffineAddress(region.offset.constant), region.extent, region.type
            )
            found.append(nodes.RegionDef(Name(name), writer.region(here), let=True))
    return found


__all__ = ["StageReport", "Tiled", "TilingOptions", "tile"]
