"""The simulator: what a plan costs on a device, how it is scheduled, and how far that is from the possible."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem.resolved import Plan, Task
from lamella.plan.timing.bounds import UnitLoad, find_bounds, find_traffic
from lamella.plan.timing.cost import RUNNING_UNITS, SHARED, SHARED_UNITS, MachineModel, cost_of, unit_name
from lamella.plan.timing.program import ProgramStep, ProgramSteps, prepare
from lamella.plan.timing.report import TaskUse, TimingReport, UnitUse, add_waits, find_occupancy
from lamella.plan.timing.schedule import BANDWIDTH, TOKEN, UNIT, Simulation, UnitWait
from lamella.plan.timing.stepping import find_schedule

# --- critical path: what must still follow the end of a task, whatever the units do --------------------------


def find_tails(steps: ProgramSteps) -> Mapping[int, int]:
    """The tail of the critical path: for each task, cycles at least from the end of an instance to that of the plan."""
    search = _Tails()
    search.measure(steps)
    search.descend(steps, 0, [])
    return search.tails


class _Tails:
    """Walks the lists from the end to the beginning; windows give each loop a shortest length."""

    def __init__(self) -> None:
        self.lengths: dict[ProgramStep, int] = {}
        self.tails: dict[int, int] = {}
        self.known: dict[ProgramStep, int] = {}

    def measure(self, steps: ProgramSteps) -> int:
        """The shortest time that one run of a list takes."""
        ends = [0] * len(steps.steps)
        starts = [0] * len(steps.steps)
        for step in steps.steps:
            ends[step.index] = starts[step.index] + self._length(step)
            for later in step.feeds:
                starts[later] = max(starts[later], ends[step.index])
        return max(ends, default=0)

    def _length(self, step: ProgramStep) -> int:
        """The shortest time that a step takes; every window-th iteration follows the one before."""
        length = 0
        if step.cost is not None:
            length = step.cost.cycles
        elif step.loop is not None and step.body is not None:
            length = -(-step.loop.trips // max(1, step.loop.window)) * self.measure(step.body)
        self.lengths[step] = length
        return length

    def descend(self, steps: ProgramSteps, after: int, around: list[ProgramSteps]) -> None:
        """Find the tails of a list after whose end at least `after` cycles follow."""
        lists = [*around, steps]
        for step in reversed(steps.steps):
            later = [
                self.lengths[steps.steps[index]] + self.known[steps.steps[index]] for index in step.feeds
            ]
            tail = self.known[step] = max([after, self.known.get(step, 0), *later])
            if step.task is not None:
                self.tails[step.task.number] = tail
            if step.body is not None:
                self.descend(step.body, tail, lists)
            for outward, index in step.tokens:
                producer = lists[-1 - outward].steps[index]
                self.known[producer] = max(self.known.get(producer, 0), self.lengths[step] + tail)


# --- simulating a plan: costs, schedule, bounds and occupancy put together into one report ------------------


Waits: TypeAlias = defaultdict[int, Counter[tuple[str, str, int]]]
"""For each task, cycles by reason, title and line of what it waited for."""
_RANKS = MappingProxyType({unit: rank for rank, unit in enumerate(RUNNING_UNITS)})
MOST_LISTED = 256
"""Units of a device that are listed although no task runs on them."""


def simulate(plan: Plan, limits: Limits = DEFAULT, detail: int = 20_000) -> TimingReport:
    """Simulate a plan on its device; the first `detail` instances are kept on the timeline.

    Raises LamellaError when a plan of more than `limits.max_stepped` instances reaches no steady state soon.
    """
    machine = MachineModel(plan.device)
    tasks = tuple(plan.tasks())
    costs = {task.number: cost_of(task, machine) for task in tasks}
    counts = _counts(plan)
    engines = max([machine.engines, *((task.engine or 0) + 1 for task in tasks)])
    load = UnitLoad(tasks, machine, costs, counts, engines)
    steps = prepare(plan, costs)
    outcome = find_schedule(steps, machine, limits, detail)
    free = find_schedule(steps, None, limits)
    idle = machine.given("SEQ", "fj_per_cycle")
    return TimingReport(
        program=plan.name,
        device=machine.name,
        engines=engines,
        cycles=outcome.cycles,
        bounds=find_bounds(load, free.cycles, free.first, find_tails(steps)),
        units=_unit_uses(load, outcome),
        memory=find_occupancy(plan, machine, outcome.first, outcome.last),
        tasks=_task_uses(load, outcome, _tags(plan)),
        traffic=find_traffic(load),
        defaults=dict(sorted(machine.defaults.items())),
        timeline=outcome.timeline,
        covered=outcome.covered,
        instances=sum(counts.values()),
        simulated=outcome.simulated,
        forced=outcome.forced,
        clock_khz=machine.clock_khz,
        idle_energy=None if idle is None else idle * outcome.cycles,
    )


def schedule_plan(plan: Plan, limits: Limits = DEFAULT) -> Simulation:
    """The schedule of a plan alone, without bounds and timeline."""
    machine = MachineModel(plan.device)
    steps = prepare(plan, {task.number: cost_of(task, machine) for task in plan.tasks()})
    return find_schedule(steps, machine, limits)


def _counts(plan: Plan) -> dict[int, int]:
    """How many instances each task has."""
    return {
        item.number: prod(max(0, loop.trips) for loop in around)
        for item, around in plan.walk()
        if isinstance(item, Task)
    }


# --- tasks --------------------------------------------------------------------------------------------------


def _task_uses(load: UnitLoad, outcome: Simulation, tags: Mapping[int, str]) -> tuple[TaskUse, ...]:
    waits = _sum_waits(load, outcome.waits)
    return tuple(_task_use(load, outcome, task, tags[task.number], waits) for task in load.tasks)


def _task_use(load: UnitLoad, outcome: Simulation, task: Task, tag: str, waits: Waits) -> TaskUse:
    cost, count = load.costs[task.number], load.counts[task.number]
    waited, blockers = add_waits(waits[task.number])
    return TaskUse(
        number=task.number,
        title=task.title,
        line=task.span.line,
        opcode=task.opcode,
        unit=unit_name(cost.place, load.engines),
        profile=tag,
        count=count,
        cycles=cost.cycles,
        work=cost.work,
        kind=cost.kind,
        first_start=outcome.first.get(task.number),
        last_end=outcome.last.get(task.number),
        waited=waited,
        blockers=blockers,
        energy=None if cost.energy is None else cost.energy * count,
    )


def _tags(plan: Plan) -> dict[int, str]:
    """The `@profile` tag of each task: its own, else that of the nearest loop that has one."""
    found: dict[int, str] = {}
    for item, around in plan.walk():
        if isinstance(item, Task):
            tags = (item.profile, *(loop.profile for loop in reversed(around)))
            found[item.number] = next((tag for tag in tags if tag), "")
    return found


def _sum_waits(load: UnitLoad, found: Mapping[UnitWait, int]) -> Waits:
    """For each task, cycles waited by reason, title and line of what was waited for."""
    tasks = {task.number: task for task in load.tasks}
    sums: Waits = defaultdict(Counter)
    for wait, cycles in found.items():
        title, line = _name_blocker(load, tasks, wait)
        sums[wait.start.task][wait.reason, title, line] += cycles
    return sums


def _name_blocker(load: UnitLoad, tasks: Mapping[int, Task], wait: UnitWait) -> tuple[str, int]:
    """How people call what was waited for, and its line (0 where it is no task)."""
    start = wait.start
    if wait.reason == TOKEN:
        return f"SEQ of engine {tasks[start.task].engine or 0}", 0
    if wait.reason == BANDWIDTH:
        return ", ".join(level for level, _ in load.costs[start.task].links), 0
    if wait.task not in tasks:
        return "", 0
    title, line = tasks[wait.task].title, tasks[wait.task].span.line
    unit = f"{unit_name(start.place, load.engines)}[{start.instance}]"
    return (f"{title} on {unit}" if wait.reason == UNIT else title), line


# --- units --------------------------------------------------------------------------------------------------


def _unit_uses(load: UnitLoad, outcome: Simulation) -> tuple[UnitUse, ...]:
    """All units of a small device, and on any device those that ran something."""
    busy: Counter[tuple[int, str, int]] = Counter()
    for start, count in outcome.starts.items():
        busy[(*start.place, start.instance)] += load.costs[start.task].cycles * count
    for key in _listed_units(load):
        busy.setdefault(key, 0)
    keys = sorted(busy, key=lambda key: (key[0] == SHARED, key[0], _RANKS.get(key[1], len(_RANKS)), key))
    whole = max(1, outcome.cycles)
    return tuple(UnitUse(*key, busy[key], busy[key] / whole) for key in keys)


def _listed_units(load: UnitLoad) -> Iterable[tuple[int, str, int]]:
    machine = load.machine
    if sum(machine.count(unit) for unit in RUNNING_UNITS) * load.engines > MOST_LISTED:
        return
    for unit in RUNNING_UNITS:
        engines = (SHARED,) if unit in SHARED_UNITS else range(load.engines)
        for engine in engines:
            for instance in range(machine.count(unit)):
                yield engine, unit, instance


__all__ = ["TimingReport", "schedule_plan", "simulate"]
