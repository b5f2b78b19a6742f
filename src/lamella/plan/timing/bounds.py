"""Five lower bounds of the cycles of a plan; no schedule of it on the device can be faster.

- unit: the cycles of all tasks of a unit class, divided by its instances (or of those pinned to one instance);
- head–work–tail: the earliest start of any task of the class with infinite units, its work as above, and what must
  follow the end of any of its tasks;
- critical path: the plan with infinite units, no token and no bandwidth limit; windows hold;
- link: the bytes that cross a memory level, by the unit that moves them, over the rate of all such units of the
  device, and over the level's own limit where the device file gives one;
- roofline: MACs and elements over the peak rate of the device, and compulsory bytes over all bandwidth of a level.

Compulsory bytes of a level count each byte of a buffer once for reading and once for writing: at most the buffer's
size, at most what is moved. Latencies are part of the first three bounds only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from lamella.lang.nem.resolved import Task
from lamella.plan.timing.cost import BYTES, Cost, MachineModel, crosses, unit_name

UNIT, HEAD_WORK_TAIL, CRITICAL_PATH = "unit", "head_work_tail", "critical_path"
LINK, ROOFLINE = "link", "roofline"
LEVELS = ("DDR", "L2")


@dataclass(frozen=True, slots=True)
class CycleBound:
    """A lower bound in cycles, and the unit or level that sets it."""

    name: str
    cycles: int
    what: str = ""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that cross a memory level: what the plan moves, and what no plan could avoid."""

    level: str
    moved: int
    compulsory: int


@dataclass(frozen=True, slots=True)
class UnitLoad:
    """What the bounds are computed from: costs and counts of instances by task number, engines in use or there."""

    tasks: tuple[Task, ...]
    machine: MachineModel
    costs: Mapping[int, Cost]
    counts: Mapping[int, int]
    engines: int

    def total(self, unit: str) -> int:
        """Instances of a unit on the whole device."""
        return self.machine.total(unit, self.engines)

    def work(self, task: Task) -> int:
        """The work of all instances of a task."""
        return self.costs[task.number].work * self.counts[task.number]


def find_bounds(
    load: UnitLoad, path: int, heads: Mapping[int, int], tails: Mapping[int, int]
) -> tuple[CycleBound, ...]:
    """The five bounds; `path`, `heads` (earliest starts) and `tails` come from the plan with infinite units."""
    whole = _largest(UNIT, _unit_loads(load))
    around = _largest(HEAD_WORK_TAIL, _embedded_loads(load, heads, tails))
    links = _largest(LINK, _link_loads(load))
    roof = _largest(ROOFLINE, [*_compute_roofs(load), *_memory_roofs(load)])
    return (whole, around, CycleBound(CRITICAL_PATH, path), links, roof)


def _largest(name: str, found: Iterable[tuple[int, str]]) -> CycleBound:
    cycles, what = max(found, key=lambda item: item[0], default=(0, ""))
    return CycleBound(name, cycles, what)


# --- units --------------------------------------------------------------------------------------------------


def _groups(load: UnitLoad) -> Iterable[tuple[str, int, list[Task]]]:
    """Tasks that share units: name, instances and tasks of each class, and of each instance with pinned tasks."""
    found: dict[tuple[tuple[int, str], int | None], list[Task]] = defaultdict(list)
    for task in load.tasks:
        if load.counts[task.number] == 0:
            continue
        cost = load.costs[task.number]
        found[cost.place, None].append(task)
        if task.resource is not None and task.resource.index.is_constant:
            found[cost.place, task.resource.index.constant % cost.instances].append(task)
    for (place, pin), tasks in found.items():
        name = unit_name(place, load.engines)
        instances = load.costs[tasks[0].number].instances
        yield (name, instances, tasks) if pin is None else (f"{name}[{pin}]", 1, tasks)


def _busy(load: UnitLoad, instances: int, tasks: list[Task]) -> int:
    cycles = sum(load.costs[task.number].cycles * load.counts[task.number] for task in tasks)
    return -(-cycles // instances)


def _unit_loads(load: UnitLoad) -> Iterable[tuple[int, str]]:
    for name, instances, tasks in _groups(load):
        yield _busy(load, instances, tasks), name


def _embedded_loads(
    load: UnitLoad, heads: Mapping[int, int], tails: Mapping[int, int]
) -> Iterable[tuple[int, str]]:
    for name, instances, tasks in _groups(load):
        head = min(heads[task.number] for task in tasks)
        tail = min(tails[task.number] for task in tasks)
        yield head + _busy(load, instances, tasks) + tail, name


# --- memory levels ------------------------------------------------------------------------------------------


def _crossing(load: UnitLoad, level: str) -> list[Task]:
    return [task for task in load.tasks if crosses(task, level)]


def _rates(load: UnitLoad, tasks: Iterable[Task]) -> dict[str, int]:
    """For each unit that moves bytes, the rate of all its instances on the device."""
    best: Counter[str] = Counter()
    for task in tasks:
        cost = load.costs[task.number]
        best[cost.unit] = max(best[cost.unit], cost.rate)
    return {unit: rate * load.total(unit) for unit, rate in best.items()}


def _link_loads(load: UnitLoad) -> Iterable[tuple[int, str]]:
    for level in LEVELS:
        tasks = _crossing(load, level)
        moved = Counter[str]()
        for task in tasks:
            moved[load.costs[task.number].unit] += load.work(task)
        for unit, rate in _rates(load, tasks).items():
            yield -(-moved[unit] // rate), f"{level} by {unit}"
        if level in load.machine.links:
            yield -(-moved.total() // load.machine.links[level]), level


def find_traffic(load: UnitLoad) -> tuple[Traffic, ...]:
    """What crosses the levels that the plan uses."""
    found = [Traffic(level, _moved(load, level), _compulsory(load, level)) for level in LEVELS]
    return tuple(item for item in found if item.moved)


def _moved(load: UnitLoad, level: str) -> int:
    return sum(load.work(task) for task in _crossing(load, level))


def _compulsory(load: UnitLoad, level: str) -> int:
    """Each byte of each buffer once in each direction; a move inside the level crosses it once, as in `_moved`."""
    once: Counter[tuple[str, bool]] = Counter()
    sizes: dict[str, int] = {}
    for task in _crossing(load, level):
        sides = [(region.buffer, False) for region in task.inputs]
        sides += [(region.buffer, True) for region in task.outputs]
        buffer, written = next(side for side in sides if side[0].memory == level)
        once[buffer.name, written] += load.work(task)
        sizes[buffer.name] = buffer.size
    return sum(min(sizes[name], moved) for (name, _), moved in once.items())


# --- roofline -----------------------------------------------------------------------------------------------


def _compute_roofs(load: UnitLoad) -> Iterable[tuple[int, str]]:
    sums: Counter[tuple[str, str, int]] = Counter()
    for task in load.tasks:
        cost = load.costs[task.number]
        if cost.kind != BYTES:
            sums[cost.unit, cost.kind, cost.rate] += load.work(task)
    peaks: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for (unit, kind, rate), work in sums.items():
        peaks[unit, kind] += Fraction(work, rate * load.total(unit))
    for (unit, kind), cycles in peaks.items():
        yield ceil(cycles), f"{unit} {kind}"


def _memory_roofs(load: UnitLoad) -> Iterable[tuple[int, str]]:
    for traffic in find_traffic(load):
        every = sum(_rates(load, _crossing(load, traffic.level)).values())
        limit = load.machine.links.get(traffic.level, every)
        yield -(-traffic.compulsory // min(every, limit)), f"{traffic.level} bytes"
