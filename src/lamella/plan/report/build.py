"""From a report and its plan to the scene that all pictures show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.diagnostic import printable
from lamella.base.source import Span
from lamella.lang.nem.resolved import Buffer, Item, Loop, Plan, Region, Task, Wait
from lamella.plan.bind import pack
from lamella.plan.timing.bounds import CRITICAL_PATH, HEAD_WORK_TAIL, LINK, ROOFLINE, UNIT, CycleBound
from lamella.plan.timing.cost import SHARED
from lamella.plan.timing.layers import LayerUse, find_layers, has_sections
from lamella.plan.timing.network_bounds import COMPUTE, DDR, L1, PATH
from lamella.plan.timing.report import Occupancy, TaskUse, TimingReport
from lamella.plan.timing.schedule import TOKEN
from lamella.plan.timing.schedule import TaskWait as schedule_Wait

# --- what all pictures show, in the words and numbers they show it with -------------------------------------


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the timeline: one instance of a unit; `engine` is None for units of the whole device."""

    unit: str
    instance: int
    engine: int | None
    busy: int
    utilisation: float

    @property
    def name(self) -> str:
        """`CSTL[1]`."""
        return f"{self.unit}[{self.instance}]"

    @property
    def group(self) -> str:
        """The engine it belongs to, or the device."""
        return "device" if self.engine is None else f"engine {self.engine}"


@dataclass(frozen=True, slots=True)
class WaitStretch:
    """A stretch in which a task instance waited; `cause` is the title of what it waited for, where one is known."""

    reason: str
    cycles: int
    cause: str = ""


@dataclass(frozen=True, slots=True)
class TaskSlice:
    """A task instance: `track` and `task` are positions in the scene, `after` positions of earlier slices."""

    track: int
    task: int
    start: int
    end: int
    iteration: str
    waits: tuple[WaitStretch, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task of the program with the totals of all its instances; `line` is 0 where it is not in the text.

    `blockers` are what it waited for most, `others` counts the rest of them.
    """

    title: str
    opcode: str
    unit: str
    line: int
    profile: str
    count: int
    cycles: int
    waits: Mapping[str, int]
    blockers: tuple[WaitStretch, ...]
    others: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    layer: str = ""
    fills: tuple[str, ...] = ()
    """The buffers that it writes into."""
    uses: tuple[str, ...] = ()
    """The buffers that it reads from."""

    @property
    def waited(self) -> int:
        """Cycles that its instances waited, for all reasons."""
        return sum(self.waits.values())


@dataclass(frozen=True, slots=True)
class BufferBox:
    """A buffer in its memory, from its first to its last use."""

    name: str
    offset: int
    size: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """A memory over time: `steps` are (cycle, bytes in use from there on), `holders` who holds the peak."""

    name: str
    engine: int | None
    capacity: int | None
    peak: int
    peak_at: int
    holders: tuple[tuple[str, int], ...]
    steps: tuple[tuple[int, int], ...]
    boxes: tuple[BufferBox, ...]


@dataclass(frozen=True, slots=True)
class BoundRow:
    """A lower bound of the cycles, and what it counts."""

    name: str
    cycles: int
    what: str
    binding: bool


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A section of the program: when it runs, how well its main unit is used, what it moves; `tasks` are positions."""

    name: str
    what: str
    line: int
    start: int
    end: int
    unit: str
    utilisation: float
    macs: int
    ddr: int
    once: int
    compulsory: int
    energy: str
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NamedScope:
    """A loop or region that carries a @debug name or a @profile tag."""

    kind: str
    name: str
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A simulated program; `covered` is the cycle up to which the slices show everything, `cut` says so if they end."""

    program: str
    file: str
    device: str
    topology: str
    cycles: int
    covered: int
    cut: str
    tracks: tuple[Track, ...]
    tasks: tuple[TaskRow, ...]
    levels: tuple[MemoryTimeline, ...]
    bounds: tuple[BoundRow, ...]
    ratio: float
    facts: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]
    named: tuple[NamedScope, ...]
    source: tuple[str, ...]
    slices: tuple[TaskSlice, ...] = ()
    layers: tuple[LayerRow, ...] = ()
    """The sections that comments name; empty where none does."""

    @property
    def binding(self) -> BoundRow | None:
        """The largest bound."""
        return next((bound for bound in self.bounds if bound.binding), None)


# --- how numbers, things and iterations are called in every picture; what comes from a file is made ---------


LONGEST = 200
"""Letters of a name that are shown."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PREFIXES = ("", " k", " M", " G", " T", " P", " E")


def name(text: str) -> str:
    """A name from a file, safe to print and of bounded length."""
    return printable(text, LONGEST)


def count(number: int) -> str:
    """A whole number in groups of three digits."""
    return f"{number:,}".replace(",", " ")


def in_bytes(number: int) -> str:
    """A size in the largest binary unit that keeps it above one."""
    unit = min((number.bit_length() - 1) // 10, len(_UNITS) - 1) if number > 0 else 0
    size = number / 1024**unit
    return f"{size:.0f} {_UNITS[unit]}" if size == int(size) else f"{size:.1f} {_UNITS[unit]}"


def in_thousands(number: float, unit: str) -> str:
    """A quantity with the prefix that keeps it between one and a thousand."""
    power = 0
    while number >= 1000 and power < len(_PREFIXES) - 1:
        number /= 1000
        power += 1
    return f"{number:.4g}{_PREFIXES[power] or ' '}{unit}"


def percent(part: float) -> str:
    """A share, with two digits behind the point where it is small."""
    return f"{100 * part:.{0 if part == 0 else 2 if part < 0.0995 else 1}f} %"


def buffer_name(buffer: Buffer) -> str:
    """The @debug name of a buffer beside its own, and its @profile tag."""
    return name(_tagged(_called(buffer.debug, buffer.name), buffer.profile))


def region_name(region: Region) -> str:
    """The @debug name of a region, its own, or that of its buffer, and its @profile tag."""
    own = region.name or f"{region.buffer.name}[…]"
    return name(_tagged(_called(region.debug, own), region.profile))


def _called(debug: str, own: str) -> str:
    return f"{debug} ({own})" if debug and debug != own else own


def _tagged(text: str, tag: str) -> str:
    return f"{text} @profile({tag})" if tag else text


def iteration_name(loops: Sequence[Loop], values: Iterable[int]) -> str:
    """Where an instance stands in its loops: `i=2, rows j=0`, a @debug name before the variable."""
    parts = (f"{_prefix(loop)}{loop.variable}={value}" for loop, value in zip(loops, values, strict=False))
    return printable(", ".join(parts), 2 * LONGEST)


def loop_name(loop: Loop) -> str:
    """The @debug name of a loop beside its variable, and its @profile tag."""
    return name(_tagged(_called(loop.debug, loop.variable), loop.profile))


def line_of(span: Span, plan: Plan) -> int:
    """The line of a place in the text of the program; 0 when it lies elsewhere."""
    return span.line if plan.source.text and span.source is plan.source else 0


def _prefix(loop: Loop) -> str:
    return f"{loop.debug} " if loop.debug else ""


def loops_of(plan: Plan) -> Mapping[int, tuple[Loop, ...]]:
    """The loops around each task, outermost first, by task number."""
    return {item.number: around for item, around in plan.walk() if isinstance(item, Task)}


# --- the loops and regions that carry a @debug name or a @profile tag; tasks and buffers have ---------------


MOST_NAMED = 200


def find_named(plan: Plan) -> Iterator[NamedScope]:
    """The first of them in the order of the text, each once."""
    for _, named in zip(range(MOST_NAMED), dict.fromkeys(_all(plan)), strict=False):
        yield named


def _all(plan: Plan) -> Iterator[NamedScope]:
    yield from (_region(region, plan) for region in plan.declared if region.debug or region.profile)
    for item, _ in plan.walk():
        if isinstance(item, Loop) and (item.debug or item.profile):
            what = f"{item.variable}: {count(max(item.trips, 0))} iterations, {item.window} in flight"
            yield NamedScope("loop", loop_name(item), line_of(item.span, plan), name(what))
        elif isinstance(item, Task):
            operands = (region for region in (*item.inputs, *item.outputs) if not region.name)
            yield from (_region(region, plan) for region in operands if region.debug or region.profile)


def _region(region: Region, plan: Plan) -> NamedScope:
    what = f"{in_bytes(region.extent)} of {region.buffer.name}"
    return NamedScope("region", region_name(region), line_of(region.span, plan), name(what))


# --- the few numbers and sentences that stand at the head and at the foot of every picture ------------------


Fact: TypeAlias = tuple[str, str, str]
"""A label, a value, and a note to it."""

_BOUNDS: Mapping[str, str] = MappingProxyType(
    {
        UNIT: "{what}: all its work",
        HEAD_WORK_TAIL: "{what}: what must come before, all its work, what must follow",
        CRITICAL_PATH: "the longest chain of tasks, were there units without number",
        LINK: "{what}: bytes moved",
        ROOFLINE: "{what}: at peak rate, each byte once",
    }
)
_NETWORK: Mapping[str, str] = MappingProxyType(
    {COMPUTE: "computation", DDR: "DDR", L1: "moves to L1", PATH: "the longest chain of operations"}
)
_INCLUDED = (
    "Included: transfers between DDR, L2 and L1, stores, unit latencies, DMA set-up, dispatch, loop windows, token "
    "limits, fill and drain of the pipeline."
)
_EXCLUDED = (
    "Not included: bank conflicts, arbitration inside a memory, DDR refresh and page misses, work of a host, "
    "and the memory traffic of compute tasks, whose operands are taken as they stand. "
    "A unit is busy for the whole of a task."
)
_WAITS = (
    "Waits: dependency = a token, wait or .sync; unit = its unit was busy; window = @max_in_flight; token = no token "
    "was free; bandwidth = the link was full."
)


def topology_text(report: TimingReport, plan: Plan) -> str:
    """Engines, memories and units of the device."""
    engines = f"{report.engines} engine{'s' if report.engines != 1 else ''}"
    topology = None if plan.device is None else plan.device.topology
    if topology is None:
        return f"{engines} · no device file: default units and rates, memories without end"
    units = {**topology.per_engine, **topology.device_units}
    sizes = [f"L1 {in_bytes(topology.l1_size_bytes)}", f"L2 {in_bytes(topology.l2_size_bytes)}"]
    return " · ".join(
        [engines, *sizes, ", ".join(f"{unit} {number}" for unit, number in units.items() if number)]
    )


def bound_text(bound: CycleBound) -> str:
    """What a bound counts."""
    return _BOUNDS[bound.name].format(what=bound.what) if bound.what or bound.name == CRITICAL_PATH else ""


def find_facts(report: TimingReport) -> Iterator[Fact]:
    """The numbers that people ask for first."""
    binding = report.binding
    what = f" ({binding.what})" if binding.what else ""
    yield "cycles", count(report.cycles), ""
    yield "schedule ÷ bound", f"{report.ratio:.3f}", f"{binding.name.replace('_', '-')}{what} is binding"
    yield from _network(report)
    if report.microseconds is not None and report.clock_khz is not None:
        yield "time", _time(report.microseconds), f"at {in_thousands(report.clock_khz * 1000, 'Hz')}"
    if report.energy is not None:
        yield "energy", _energy(report.energy), f"{_energy(report.energy // max(report.cycles, 1))} a cycle"
    yield "task instances", count(report.instances), f"of {plural(len(report.tasks), 'task')}"
    yield from _work(report)
    for traffic in report.traffic:
        times = f"{traffic.moved / max(traffic.compulsory, 1):,.2f} × its buffers' bytes".replace(",", " ")
        yield f"{traffic.level} traffic", in_bytes(traffic.moved), times


def _network(report: TimingReport) -> Iterator[Fact]:
    """How far the plan is from what no plan of its network can beat."""
    network = report.network
    if network is None:
        return
    bound = network.largest
    what = f" ({bound.what})" if bound.what else ""
    text = f"{count(bound.cycles)} cycles at least, by {_NETWORK[bound.name]}{what}"
    yield "÷ network's bound", f"{report.cycles / max(1, bound.cycles):.3f}", text
    if network.compulsory:
        times = f"{report.moved('DDR') / network.compulsory:.3f}"
        yield "÷ compulsory DDR", times, f"{in_bytes(network.compulsory)}: inputs, weights, results once"


def plural(number: int, what: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count(number)} {what}{'' if number == 1 else 's'}"


def _work(report: TimingReport) -> Iterator[Fact]:
    if report.macs:
        rate = f"{count(report.macs // max(report.cycles, 1))} a cycle"
        yield "MACs", in_thousands(report.macs, "").strip(), rate


def _time(microseconds: float) -> str:
    units = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))
    unit, size = next((item for item in units if microseconds >= item[1]), ("ns", 1e-3))
    return f"{microseconds / size:.4g} {unit}"


def _energy(femtojoules: int) -> str:
    units = (("J", 1e15), ("mJ", 1e12), ("µJ", 1e9), ("nJ", 1e6), ("pJ", 1e3))
    unit, size = next((item for item in units if femtojoules >= item[1]), ("fJ", 1.0))
    return f"{femtojoules / size:.4g} {unit}"


def find_notes(report: TimingReport) -> Iterator[str]:
    """What the numbers include, and where they come from."""
    yield _INCLUDED
    yield _EXCLUDED
    yield _WAITS
    yield _defaults(report)
    if report.clock_khz is None:
        yield "The device file gives no clock (SEQ.clock_khz): cycles only."
    if report.energy is None:
        yield "The device file gives no energy keys (fj_per_mac, fj_per_element, fj_per_byte): no energy."
    if report.forced:
        yield f"{count(report.forced)} task instances started beyond the token limit, as nothing else could run."
    if report.simulated < report.instances:
        share = percent(report.simulated / report.instances)
        yield f"Repeating loop iterations were found: {share} of the instances were simulated, the others are equal."


def _defaults(report: TimingReport) -> str:
    if not report.defaults:
        return "Every value of the cost model comes from the device file."
    used = ", ".join(f"{key} {value}" for key, value in report.defaults.items())
    return f"Defaults of the cost model, where the device file is silent: {used}."


# --- which task instances wait for the tokens of which: the arrows between slices ---------------------------


MOST_ARROWS = 200_000
Place: TypeAlias = tuple[int, tuple[int, ...]]
"""A task number and the values of the loop variables around it, outermost first."""


def arrows(plan: Plan, places: Sequence[Place]) -> list[tuple[int, ...]]:
    """For each instance, by its position, the positions of the instances whose tokens it waits for."""
    where = {place: position for position, place in enumerate(places)}
    loops = loops_of(plan)
    awaited = _awaited(plan)
    found: list[tuple[int, ...]] = []
    left = MOST_ARROWS
    for place in places:
        before = _before(place, awaited.get(place[0], ())[:left], loops, where)
        left -= len(before)
        found.append(before)
    return found


def _before(
    place: Place, deps: Iterable[int], loops: Mapping[int, tuple[Loop, ...]], where: Mapping[Place, int]
) -> tuple[int, ...]:
    number, values = place
    found = (where.get((dep, _latest(loops[dep], loops[number], values))) for dep in deps)
    return tuple(position for position in found if position is not None)


def _latest(loops: Sequence[Loop], around: Sequence[Loop], values: Sequence[int]) -> tuple[int, ...]:
    """The iteration of the instance that a token means: the same in shared loops, the last in others."""
    known = {loop.number: value for loop, value in zip(around, values, strict=False)}
    return tuple(known.get(loop.number, loop.last) for loop in loops)


def _awaited(plan: Plan) -> dict[int, tuple[int, ...]]:
    """The tasks whose tokens each task waits for, by task number."""
    found: dict[int, tuple[int, ...]] = {}
    todo: list[tuple[Item, ...]] = [plan.body]
    while todo:
        held: list[int] = []
        for item in todo.pop():
            if isinstance(item, Task):
                found[item.number] = tuple(dict.fromkeys((*item.deps, *held)))
                held = []
            elif isinstance(item, Wait):
                held += item.deps
            else:
                todo.append(item.body)
    return found


MOST_BLOCKERS = 3
MOST_LINES = 50_000
"""Lines of the program text that a page shows."""
_FAR = ("DDR", "L2")
_FEWER = f"Only the first {count(MOST_ARROWS)} dependencies between task instances are shown."


def scene_of(report: TimingReport, plan: Plan) -> Scene:
    """Everything but the slices, which only the timelines need."""
    program = name(plan.name) or "program"
    layers = find_layers(report, plan) if has_sections(plan) else ()
    layer_of = {number: layer.section.name for layer in layers for number in layer.section.tasks}
    return Scene(
        program=program,
        file=name(PurePath(plan.source.name).name) if plan.source.text else "",
        device=name(report.device),
        topology=topology_text(report, plan),
        cycles=report.cycles,
        covered=report.covered,
        cut=_cut_text(report),
        tracks=tuple(_tracks(report)),
        tasks=tuple(
            replace(_row(use, task, plan), layer=name(layer_of.get(use.number, "")))
            for use, task in zip(report.tasks, plan.tasks(), strict=True)
        ),
        levels=tuple(_levels(report, plan)),
        bounds=tuple(
            BoundRow(bound.name.replace("_", "-"), bound.cycles, bound_text(bound), bound is report.binding)
            for bound in report.bounds
        ),
        ratio=report.ratio,
        facts=tuple(find_facts(report)),
        notes=tuple(find_notes(report)),
        named=tuple(find_named(plan)),
        source=tuple(_lines(plan)),
        layers=tuple(_layer_row(layer, report) for layer in layers),
    )


def _layer_row(layer: LayerUse, report: TimingReport) -> LayerRow:
    rows = {use.number: position for position, use in enumerate(report.tasks)}
    return LayerRow(
        name=name(layer.section.name),
        what=name(layer.section.what),
        line=layer.section.line,
        start=layer.start,
        end=layer.end,
        unit=layer.unit,
        utilisation=layer.utilisation,
        macs=layer.macs,
        ddr=layer.ddr,
        once=layer.once,
        compulsory=layer.compulsory,
        energy="" if layer.energy is None else _energy(layer.energy),
        tasks=tuple(rows[number] for number in layer.section.tasks),
    )


def _cut_text(report: TimingReport) -> str:
    if report.is_complete:
        return ""
    return (
        f"The timeline shows the first {count(len(report.timeline))} of {count(report.instances)} task instances: "
        f"everything up to cycle {count(report.covered)}. Every total is of the whole program."
    )


def _lines(plan: Plan) -> Iterator[str]:
    if plan.source.text:
        for line in plan.source.text.removesuffix("\n").split("\n", MOST_LINES)[:MOST_LINES]:
            yield printable(line.rstrip("\r").expandtabs(4))


def _tracks(report: TimingReport) -> Iterator[Track]:
    for use in report.units:
        engine = None if use.engine == SHARED else use.engine
        yield Track(use.unit, use.instance, engine, use.busy, use.utilisation)


def _row(use: TaskUse, task: Task, plan: Plan) -> TaskRow:
    return TaskRow(
        title=name(use.title),
        opcode=name(use.opcode),
        unit=use.unit,
        line=line_of(task.span, plan),
        profile=name(use.profile),
        count=use.count,
        cycles=use.busy,
        waits={reason: cycles for reason, cycles in use.waited.items() if cycles},
        blockers=tuple(
            WaitStretch(item.reason, item.cycles, name(item.title)) for item in use.blockers[:MOST_BLOCKERS]
        ),
        others=max(0, len(use.blockers) - MOST_BLOCKERS),
        reads=tuple(region_name(region) for region in task.inputs),
        writes=tuple(region_name(region) for region in task.outputs),
        fills=tuple(dict.fromkeys(buffer_name(region.buffer) for region in task.outputs)),
        uses=tuple(dict.fromkeys(buffer_name(region.buffer) for region in task.inputs)),
    )


# --- memory ---------------------------------------------------------------------------------------------------


def _levels(report: TimingReport, plan: Plan) -> Iterator[MemoryTimeline]:
    """The memories, those nearest to the units first."""
    members: dict[str, list[Buffer]] = defaultdict(list)
    for buffer in plan.buffers:
        members[buffer.level].append(buffer)
    near = [item for item in report.memory if item.level not in _FAR]
    far = [item for item in report.memory if item.level in _FAR]
    return (_level(item, members[item.level]) for item in (*near, *reversed(far)))


def _level(item: Occupancy, members: list[Buffer]) -> MemoryTimeline:
    """A memory with its buffers where the binder puts them."""
    placed = pack(members)
    holders = sorted(item.holders, key=lambda held: -held.buffer.size)
    return MemoryTimeline(
        name=item.level,
        engine=_engine(members),
        capacity=item.capacity,
        peak=item.peak,
        peak_at=item.peak_at,
        holders=tuple((buffer_name(held.buffer), held.buffer.size) for held in holders),
        steps=item.steps,
        boxes=tuple(
            BufferBox(
                buffer_name(held.buffer), placed[held.buffer.name], held.buffer.size, held.start, held.end
            )
            for held in item.held
        ),
    )


def _engine(members: list[Buffer]) -> int | None:
    return next((buffer.engine for buffer in members if buffer.memory == "L1"), None)


# --- the timeline ---------------------------------------------------------------------------------------------


def with_slices(scene: Scene, report: TimingReport, plan: Plan) -> Scene:
    """The scene with the task instances of the report's timeline."""
    loops = loops_of(plan)
    tracks = {(track.engine, track.unit, track.instance): number for number, track in enumerate(scene.tracks)}
    rows = {use.number: position for position, use in enumerate(report.tasks)}
    befores = arrows(plan, [(item.record.task, item.iteration) for item in report.timeline])
    titles = {use.number: row.title for use, row in zip(report.tasks, scene.tasks, strict=True)}
    slices = []
    for item, before in zip(report.timeline, befores, strict=True):
        (engine, unit), number = item.record.place, item.record.task
        slices.append(
            TaskSlice(
                track=tracks[None if engine == SHARED else engine, unit, item.record.instance],
                task=rows[number],
                start=item.start,
                end=item.end,
                iteration=iteration_name(loops[number], item.iteration),
                waits=tuple(_waiting(wait, titles) for wait in item.record.waits),
                after=before,
            )
        )
    notes = (_FEWER,) if sum(map(len, befores)) >= MOST_ARROWS else ()
    return replace(scene, slices=tuple(slices), notes=(*scene.notes, *notes))


def _waiting(wait: schedule_Wait, titles: Mapping[int, str]) -> WaitStretch:
    return WaitStretch(
        wait.reason, wait.cycles, "a free token" if wait.reason == TOKEN else titles.get(wait.task, "")
    )
