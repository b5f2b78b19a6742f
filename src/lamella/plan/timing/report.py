"""What a simulation tells: cycles, bounds, units, memory, and for each task why it waited."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from lamella.base.liveness import changes
from lamella.lang.nem.resolved import Buffer, Plan
from lamella.plan.timing.bounds import CycleBound, Traffic
from lamella.plan.timing.cost import MACS, MachineModel, unit_name
from lamella.plan.timing.network_bounds import NetworkBounds
from lamella.plan.timing.schedule import REASONS, ScheduledInstance

# --- memory over time: a buffer is held from the start of the first task that touches it to the end ---------


@dataclass(frozen=True, slots=True)
class HeldBuffer:
    """A buffer and the cycles in which it is held; the end is exclusive."""

    buffer: Buffer
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """One memory over time; `steps` are (cycle, bytes from there on), `declared` all its buffers together."""

    level: str
    peak: int
    peak_at: int
    capacity: int | None
    declared: int
    holders: tuple[HeldBuffer, ...]
    held: tuple[HeldBuffer, ...]
    steps: tuple[tuple[int, int], ...]


def find_occupancy(
    plan: Plan, machine: MachineModel, first: Mapping[int, int], last: Mapping[int, int]
) -> tuple[Occupancy, ...]:
    """The memories of a plan, DDR first; `first` starts and `last` ends by task number."""
    spans = _spans(plan, first, last)
    levels: dict[str, list[Buffer]] = defaultdict(list)
    for buffer in sorted(
        plan.buffers, key=lambda item: (("DDR", "L2", "L1").index(item.memory), item.engine)
    ):
        levels[buffer.level].append(buffer)
    return tuple(_occupancy(level, buffers, spans, machine) for level, buffers in levels.items())


def _spans(plan: Plan, first: Mapping[int, int], last: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    """When each buffer is held, by name; buffers that no task touches are missing."""
    spans: dict[str, tuple[int, int]] = {}
    for task in plan.tasks():
        if task.number not in first:
            continue
        start, end = first[task.number], last[task.number]
        for region in (*task.inputs, *task.outputs):
            known = spans.get(region.buffer.name, (start, end))
            spans[region.buffer.name] = min(known[0], start), max(known[1], end)
    return spans


def _occupancy(
    level: str, buffers: list[Buffer], spans: Mapping[str, tuple[int, int]], machine: MachineModel
) -> Occupancy:
    held = [HeldBuffer(buffer, *spans[buffer.name]) for buffer in buffers if buffer.name in spans]
    steps = _steps(held)
    peak_at, peak = max(steps, key=lambda step: step[1], default=(0, 0))
    return Occupancy(
        level=level,
        peak=peak,
        peak_at=peak_at,
        capacity=machine.capacity(level.partition("[")[0]),
        declared=sum(buffer.size for buffer in buffers),
        holders=tuple(item for item in held if item.start <= peak_at < item.end),
        held=tuple(held),
        steps=steps,
    )


def _steps(held: list[HeldBuffer]) -> tuple[tuple[int, int], ...]:
    """How many bytes are in use from which cycle on."""
    steps: list[tuple[int, int]] = []
    level = 0
    for cycle, begun, ended in changes((item.buffer.size, item.start, item.end) for item in held):
        level += sum(begun) - sum(ended)
        steps.append((cycle, level))
    return tuple(steps)


PICOJOULE = 1000
"""Femtojoules of a picojoule; energy keys of device files are in femtojoules."""
MOST_BLOCKERS = 5


@dataclass(frozen=True, slots=True)
class Blocker:
    """What a task waited for: a reason, the task (or unit, link) that was waited for, and cycles in all instances."""

    reason: str
    title: str
    line: int
    cycles: int

    def to_json(self) -> dict[str, object]:
        """The blocker as `sim --json` prints it."""
        return {"reason": self.reason, "title": self.title, "line": self.line, "cycles": self.cycles}


@dataclass(frozen=True, slots=True)
class TaskUse:
    """A task statement with what its instances did; `cycles` is the time of each, `energy` that of all, in fJ."""

    number: int
    title: str
    line: int
    opcode: str
    unit: str
    profile: str
    count: int
    cycles: int
    work: int
    kind: str
    first_start: int | None
    last_end: int | None
    waited: Mapping[str, int]
    blockers: tuple[Blocker, ...]
    energy: int | None

    @property
    def busy(self) -> int:
        """Cycles of all instances together."""
        return self.count * self.cycles

    def to_json(self) -> dict[str, object]:
        """The task as `sim --json` prints it."""
        return {
            "line": self.line,
            "title": self.title,
            "opcode": self.opcode,
            "unit": self.unit,
            "profile": self.profile,
            "count": self.count,
            "cycles": self.cycles,
            "busy": self.busy,
            self.kind: self.work,
            "first_start": self.first_start,
            "last_end": self.last_end,
            "waited": dict(self.waited),
            "waited_for": [item.to_json() for item in self.blockers[:MOST_BLOCKERS]],
            "energy_pj": _picojoules(self.energy),
        }


@dataclass(frozen=True, slots=True)
class UnitUse:
    """A unit instance and how long it was busy; `engine` is -1 for units of the whole device."""

    engine: int
    unit: str
    instance: int
    busy: int
    utilisation: float

    def name(self, engines: int) -> str:
        """`CSTL[1]`, or `E0.CSTL[1]` where there are several engines."""
        return f"{unit_name((self.engine, self.unit), engines)}[{self.instance}]"


@dataclass(frozen=True, slots=True)
class TagUse:
    """All tasks with one `@profile` tag."""

    tag: str
    count: int
    busy: int
    waited: Mapping[str, int]
    energy: int | None


@dataclass(frozen=True, slots=True)
class TimingReport:
    """One simulation of a plan on a device.

    `timeline` holds the first instances in order of their start, and shows everything up to cycle `covered`; the other
    numbers are of the whole plan. `defaults` are the characteristics that the device file did not give, `forced` counts
    starts beyond the token limit, `simulated` the instances that were not skipped by periods. `network` are the
    bounds of the untiled program, where it was given.
    """

    program: str
    device: str
    engines: int
    cycles: int
    bounds: tuple[CycleBound, ...]
    units: tuple[UnitUse, ...]
    memory: tuple[Occupancy, ...]
    tasks: tuple[TaskUse, ...]
    traffic: tuple[Traffic, ...]
    defaults: Mapping[str, int]
    timeline: tuple[ScheduledInstance, ...]
    covered: int
    instances: int
    simulated: int
    forced: int
    clock_khz: int | None
    idle_energy: int | None
    network: NetworkBounds | None = None

    @property
    def binding(self) -> CycleBound:
        """The largest bound; of equal ones the first."""
        return max(self.bounds, key=lambda bound: bound.cycles)

    @property
    def ratio(self) -> float:
        """Cycles over the binding bound: 1.0 is a schedule that cannot be shortened."""
        return self.cycles / self.binding.cycles if self.binding.cycles else 1.0

    @property
    def microseconds(self) -> float | None:
        """The time at the clock of the device, where it is known."""
        return None if self.clock_khz is None else self.cycles * 1000 / self.clock_khz

    @property
    def energy(self) -> int | None:
        """Femtojoules of the whole run; None where the device file has no energy keys."""
        known = [task.energy for task in self.tasks if task.energy is not None]
        known += [] if self.idle_energy is None else [self.idle_energy]
        return sum(known) if known else None

    @property
    def is_complete(self) -> bool:
        """Whether the timeline shows every instance."""
        return len(self.timeline) == self.instances

    @property
    def waited(self) -> dict[str, int]:
        """Cycles waited by all tasks, by reason."""
        return _sum_reasons(self.tasks)

    def tags(self) -> tuple[TagUse, ...]:
        """The totals of each `@profile` tag, in the order of the program."""
        names = dict.fromkeys(task.profile for task in self.tasks if task.profile)
        return tuple(_tag(tag, [task for task in self.tasks if task.profile == tag]) for tag in names)

    def to_json(self, instances: bool = False) -> dict[str, object]:
        """The report as `sim --json` prints it; the timeline only when asked for."""
        found: dict[str, object] = {
            "cycles": self.cycles,
            "bounds": {bound.name: bound.cycles for bound in self.bounds},
            "binding": self.binding.name,
            "ratio": self.ratio,
            "units": {unit.name(self.engines): unit.utilisation for unit in self.units},
            "memory": {item.level: _memory_json(item) for item in self.memory},
            "tasks": [task.to_json() for task in self.tasks],
            "binding_on": self.binding.what,
            "program": self.program,
            "device": self.device,
            "microseconds": self.microseconds,
            "energy_pj": _picojoules(self.energy),
            "waited": self.waited,
            "profile": {tag.tag: _tag_json(tag) for tag in self.tags()},
            "traffic": {
                item.level: {"bytes": item.moved, "compulsory": item.compulsory} for item in self.traffic
            },
            "defaults": dict(self.defaults),
            "instances": self.instances,
            "simulated": self.simulated,
            "forced_starts": self.forced,
            "timeline_covers": self.covered,
        }
        if self.network is not None:
            found["network"] = self.against()
        if instances:
            found["timeline"] = [self._instance_json(item) for item in self.timeline]
        return found

    @property
    def macs(self) -> int:
        """The MACs of all instances."""
        return sum(task.work * task.count for task in self.tasks if task.kind == MACS)

    def moved(self, level: str) -> int:
        """The bytes that cross a memory level."""
        return sum(item.moved for item in self.traffic if item.level == level)

    def against(self) -> dict[str, object]:
        """The bounds of the network, and cycles and DDR bytes over what no plan can avoid; empty where unknown."""
        network = self.network
        if network is None:
            return {}
        return {
            **network.to_json(),
            "ratio": self.cycles / max(1, network.largest.cycles),
            "traffic_ratio": self.moved("DDR") / network.compulsory if network.compulsory else None,
        }

    def _instance_json(self, item: ScheduledInstance) -> dict[str, object]:
        record = item.record
        return {
            "task": record.task,
            "iteration": list(item.iteration),
            "unit": f"{unit_name(record.place, self.engines)}[{record.instance}]",
            "ready": item.ready,
            "start": item.start,
            "end": item.end,
            "waited": [
                {"reason": wait.reason, "task": wait.task, "cycles": wait.cycles} for wait in record.waits
            ],
        }


def _sum_reasons(tasks: tuple[TaskUse, ...] | list[TaskUse]) -> dict[str, int]:
    return {reason: sum(task.waited[reason] for task in tasks) for reason in REASONS}


def _tag(tag: str, tasks: list[TaskUse]) -> TagUse:
    energies = [task.energy for task in tasks if task.energy is not None]
    return TagUse(
        tag,
        sum(task.count for task in tasks),
        sum(task.busy for task in tasks),
        _sum_reasons(tasks),
        sum(energies) if energies else None,
    )


def _picojoules(energy: int | None) -> float | None:
    return None if energy is None else energy / PICOJOULE


def _tag_json(tag: TagUse) -> dict[str, object]:
    energy = _picojoules(tag.energy)
    return {"count": tag.count, "busy": tag.busy, "waited": dict(tag.waited), "energy_pj": energy}


def _memory_json(item: Occupancy) -> dict[str, object]:
    return {
        "peak": item.peak,
        "capacity": item.capacity,
        "peak_at": item.peak_at,
        "declared": item.declared,
        "holders": [_holder_json(held) for held in item.holders],
        "steps": [list(step) for step in item.steps],
    }


def _holder_json(held: HeldBuffer) -> dict[str, object]:
    buffer = held.buffer
    return {
        "buffer": buffer.name,
        "title": buffer.debug or buffer.name,
        "profile": buffer.profile,
        "bytes": buffer.size,
        "from": held.start,
        "to": held.end,
    }


def add_waits(waits: Mapping[tuple[str, str, int], int]) -> tuple[dict[str, int], tuple[Blocker, ...]]:
    """Cycles by reason, and the things waited for, the longest first; keys are reason, title and line."""
    sums: Counter[str] = Counter()
    for (reason, _, _), cycles in waits.items():
        sums[reason] += cycles
    found = [Blocker(*key, cycles) for key, cycles in waits.items()]
    found.sort(key=lambda item: (-item.cycles, item.reason, item.line, item.title))
    return {reason: sums[reason] for reason in REASONS}, tuple(found)
