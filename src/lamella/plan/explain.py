"""Explaining a layer: where it stands under the roofs of the device, what binds it, and what would change that.

Every answer is simulated: the whole plan on a device with one thing changed, or a changed plan on the same device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError, Unsupported
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.base.suggest import nearest
from lamella.lang.nem import check, write
from lamella.lang.nem.device import InheritedValue, ResolvedDevice
from lamella.lang.nem.resolved import Index, Item, Loop, Plan, Task
from lamella.lang.nem.words import MOVES
from lamella.plan.advise import advise
from lamella.plan.tiling import tile
from lamella.plan.timing import schedule_plan
from lamella.plan.timing.cost import (
    MACS,
    RUNNING_UNITS,
    SHARED_UNITS,
    Cost,
    MachineModel,
    cost_of,
    memories,
    rates_of,
    unit_name,
)
from lamella.plan.timing.layers import find_sections
from lamella.plan.timing.report import TimingReport

LINKS = ("ddr_bytes_per_cycle", "l2_bytes_per_cycle")


@dataclass(frozen=True, slots=True)
class Roof:
    """A limit on the time of a layer: its cycles at the full rate of everything that could do it."""

    name: str
    cycles: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of the device or the plan and what it gives: cycles of the plan and, where known, of the layer."""

    title: str
    kind: str
    cycles: int
    layer_cycles: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A layer under its roofs.

    `intensity` is MACs for each byte that crosses `level`, DDR or else L2; at the `ridge` both take as long at peak.
    """

    name: str
    line: int
    cycles: int
    layer_cycles: int
    macs: int
    moved: Mapping[str, int]
    level: str
    intensity: float | None
    ridge: float | None
    roofs: tuple[Roof, ...]
    waits: tuple[tuple[str, int], ...]
    remedies: tuple[Remedy, ...]

    @property
    def binding(self) -> Roof:
        """The roof that the layer is nearest to."""
        return max(self.roofs, key=lambda roof: roof.cycles)

    def to_json(self) -> dict[str, object]:
        """The explanation as `sim --explain --json` prints it."""
        return {
            "layer": self.name,
            "line": self.line,
            "cycles": self.cycles,
            "layer_cycles": self.layer_cycles,
            "macs": self.macs,
            "moved": dict(self.moved),
            "level": self.level,
            "macs_per_byte": self.intensity,
            "ridge": self.ridge,
            "binding": self.binding.name,
            "ratio": self.layer_cycles / max(1, self.binding.cycles),
            "roofs": {roof.name: roof.cycles for roof in self.roofs},
            "waited": dict(self.waits),
            "remedies": [
                {
                    "change": item.title,
                    "kind": item.kind,
                    "cycles": item.cycles,
                    "layer_cycles": item.layer_cycles,
                    "gain": self.cycles - item.cycles,
                }
                for item in self.remedies
            ],
        }


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan with the text it was read from, which advice changes, and how to read such a text."""

    plan: Plan
    source: Source
    path: Path | None = None
    device: str | None = None
    limits: Limits = DEFAULT
    root: Path | None = None
    untiled: Plan | None = None
    """The program that the plan was made from, which can be tiled again for another device."""


def explain(name: str, file: PlanFile, report: TimingReport) -> Explanation:
    """The explanation of a section, loop or task of a simulated plan, by its name or line."""
    plan = file.plan
    title, line, numbers = _find(name, plan)
    machine = MachineModel(plan.device)
    members = [task for task in plan.tasks() if task.number in numbers]
    costs = {task.number: cost_of(task, machine) for task in members}
    counts = {use.number: use.count for use in report.tasks}
    moved = _moved(members, costs, counts)
    level = "DDR" if moved["DDR"] else "L2"
    macs = sum(
        costs[task.number].work * counts[task.number] for task in members if costs[task.number].kind == MACS
    )
    return Explanation(
        name=title,
        line=line,
        cycles=report.cycles,
        layer_cycles=_span(report, numbers),
        macs=macs,
        moved=moved,
        level=level,
        intensity=macs / moved[level] if moved[level] else None,
        ridge=_ridge(level, members, costs, machine),
        roofs=tuple(_roofs(members, costs, counts, machine)),
        waits=_waits(report, numbers),
        remedies=tuple(_remedies(file, numbers, {cost.unit for cost in costs.values()})),
    )


# --- what is explained --------------------------------------------------------------------------------------


def _find(name: str, plan: Plan) -> tuple[str, int, frozenset[int]]:
    """Title, line and tasks of what is called so: a section, a loop, a task, or what stands in a line."""
    found: dict[str, tuple[str, int, frozenset[int]]] = {}
    for item, around in plan.walk():
        if isinstance(item, Task):
            entry = (item.title, item.span.line, frozenset({item.number}))
            for key in (item.token, item.debug, item.title, str(item.span.line)):
                found.setdefault(key, entry)
            for loop in around:
                _add_to_loop(found, loop, item.number)
    for section in find_sections(plan):
        found[section.name] = (section.name, section.line, frozenset(section.tasks))
    # In a plan of `lower` the task that makes a tensor of the model is called `do_` and its name.
    for known in (name, f"do_{name}"):
        if name and known in found:
            return found[known]
    close = nearest(name, found)
    some = ", ".join(section.name for section in find_sections(plan)[:12])
    meant = f"did you mean '{close[0]}'?" if close else "give a section (# == NAME), a loop, a task or a line"
    meant += f"; sections are: {some}" if some else ""
    raise InputError(f"the plan has no layer '{name}'", hint=meant)


def _add_to_loop(found: dict[str, tuple[str, int, frozenset[int]]], loop: Loop, number: int) -> None:
    """A task belongs to the first loop of each name; a task of that name goes before."""
    title = loop.debug or f"loop {loop.variable}, line {loop.span.line}"
    for key in (loop.debug, loop.variable, f"loop {loop.variable}", str(loop.span.line)):
        name, _, numbers = found.get(key, (title, 0, frozenset[int]()))
        if name == title:
            found[key] = (title, loop.span.line, numbers | {number})


def _span(report: TimingReport, numbers: frozenset[int]) -> int:
    uses = [use for use in report.tasks if use.number in numbers]
    starts = [use.first_start for use in uses if use.first_start is not None]
    ends = [use.last_end for use in uses if use.last_end is not None]
    return max(ends, default=0) - min(starts, default=0)


def _waits(report: TimingReport, numbers: frozenset[int]) -> tuple[tuple[str, int], ...]:
    sums: Counter[str] = Counter()
    for use in report.tasks:
        if use.number in numbers:
            sums.update(use.waited)
    return tuple((reason, cycles) for reason, cycles in sums.most_common() if cycles)


# --- roofs --------------------------------------------------------------------------------------------------


def _moved(members: list[Task], costs: Mapping[int, Cost], counts: Mapping[int, int]) -> dict[str, int]:
    found = {"DDR": 0, "L2": 0}
    for task in members:
        if task.opcode in MOVES:
            for level in memories(task) & found.keys():
                found[level] += costs[task.number].work * counts[task.number]
    return found


def _ridge(level: str, members: list[Task], costs: Mapping[int, Cost], machine: MachineModel) -> float | None:
    """MACs a byte at which the MACs of the layer take as long as its bytes across a level."""
    rates = [costs[task.number].rate for task in members if costs[task.number].kind == MACS]
    if not rates:
        return None
    unit = "sDMA" if level == "DDR" else "DMA"
    moved = rates_of(unit, machine)["bytes_per_cycle"] * machine.total(unit, machine.engines)
    return max(rates) * machine.total("NMU", machine.engines) / min(moved, machine.links.get(level, moved))


def _roofs(
    members: list[Task], costs: Mapping[int, Cost], counts: Mapping[int, int], machine: MachineModel
) -> list[Roof]:
    """For each class of units the time of its work, latencies included, on all its instances."""
    engines = max([machine.engines, *((task.engine or 0) + 1 for task in members)])
    busy: Counter[tuple[int, str]] = Counter()
    for task in members:
        busy[costs[task.number].place] += costs[task.number].cycles * counts[task.number]
    instances = {cost.place: cost.instances for cost in costs.values()}
    found = [
        Roof(unit_name(place, engines), ceil(cycles / instances[place])) for place, cycles in busy.items()
    ]
    return sorted(found, key=lambda roof: (-roof.cycles, roof.name))


# --- what would change it -----------------------------------------------------------------------------------


def _remedies(file: PlanFile, numbers: frozenset[int], units: set[str]) -> list[Remedy]:
    """Changes with what they give, the best first."""
    advised = list(_advised(file, numbers))
    windows = _wider_windows(file, numbers, {item.title for item in advised})
    found = [*_other_devices(file, numbers, units), *windows, *advised, *_tiled_again(file)]
    return sorted(found, key=lambda item: (item.cycles, item.layer_cycles or 0, item.title))


def _other_devices(file: PlanFile, numbers: frozenset[int], units: set[str]) -> Iterator[Remedy]:
    device = file.plan.device
    if device is None or device.topology is None:
        return
    for title, changed in _changed_devices(device, units):
        yield from _try(title, "device", replace(file.plan, device=changed), numbers, file.limits)


def _try(title: str, kind: str, plan: Plan, numbers: frozenset[int], limits: Limits) -> Iterator[Remedy]:
    """The schedule of a changed plan; nothing where it cannot be stepped through."""
    try:
        outcome = schedule_plan(plan, limits)
    except LamellaError:
        return
    starts = [outcome.first[number] for number in numbers if number in outcome.first]
    ends = [outcome.last[number] for number in numbers if number in outcome.last]
    yield Remedy(title, kind, outcome.cycles, max(ends, default=0) - min(starts, default=0))


def _changed_devices(device: ResolvedDevice, units: set[str]) -> Iterator[tuple[str, ResolvedDevice]]:
    for unit in RUNNING_UNITS:
        if unit in units:
            count = device.units(unit)
            yield f"{count + 1} {unit} instead of {count}", _with_count(device, unit, count + 1)
            yield f"{unit} twice as fast", _with_rates(device, unit, rates_of(unit, MachineModel(device)))
            if unit in SHARED_UNITS:
                yield f"{unit} without latency", _with_value(device, unit, "latency", 0)
    given = device.characteristics.get("SEQ", {})
    for key in LINKS:
        if key in given:
            yield f"SEQ.{key} twice as wide", _with_rates(device, "SEQ", {key: given[key].value})
    if "max_active_tokens" in given:
        tokens = 2 * given["max_active_tokens"].value
        yield f"{tokens} tokens", _with_value(device, "SEQ", "max_active_tokens", tokens)


def _with_count(device: ResolvedDevice, unit: str, count: int) -> ResolvedDevice:
    topology = device.topology
    if topology is None:
        return device
    if unit in SHARED_UNITS:
        changed = replace(topology, device_units={**topology.device_units, unit: count})
    else:
        changed = replace(topology, per_engine={**topology.per_engine, unit: count})
    return replace(device, topology=changed)


def _with_rates(device: ResolvedDevice, unit: str, rates: Mapping[str, int]) -> ResolvedDevice:
    for key, rate in rates.items():
        device = _with_value(device, unit, key, 2 * rate)
    return device


def _with_value(device: ResolvedDevice, unit: str, key: str, value: int) -> ResolvedDevice:
    values = {**device.characteristics.get(unit, {}), key: InheritedValue(value, device.name)}
    return replace(device, characteristics={**device.characteristics, unit: values})


def _tiled_again(file: PlanFile) -> Iterator[Remedy]:
    """The plan that tiling finds for the device, and for devices with more memory or a faster way to DDR."""
    device, untiled = file.plan.device, file.untiled
    if device is None or device.topology is None or untiled is None:
        return
    near, far = device.topology.l1_size_bytes, device.topology.l2_size_bytes
    changes = {
        "tiled again": device,
        f"{2 * near:,} bytes of L1, tiled again": _with_memory(device, 2 * near, far),
        f"{2 * far:,} bytes of L2, tiled again": _with_memory(device, near, 2 * far),
        "sDMA twice as fast, tiled again": _with_rates(
            device, "sDMA", rates_of("sDMA", MachineModel(device))
        ),
    }
    for title, changed in changes.items():
        try:
            made = tile(untiled, changed)
        except Unsupported:
            continue
        source = Source(file.source.name, write(made.document))
        plan = check(source, file.path, file.device, file.limits, file.root).plan
        if plan is not None:
            cycles = schedule_plan(replace(plan, device=changed), file.limits).cycles
            yield Remedy(title, "tiling", cycles)


def _with_memory(device: ResolvedDevice, near: int, far: int) -> ResolvedDevice:
    if device.topology is None:
        return device
    return replace(device, topology=replace(device.topology, l1_size_bytes=near, l2_size_bytes=far))


def _wider_windows(file: PlanFile, numbers: frozenset[int], advised: set[str]) -> Iterator[Remedy]:
    """More iterations in flight of each loop around the layer: what deeper rings would give, and take of L1.

    What advice found already is left out: there the rings were made and the plan was checked.
    """
    loops: dict[int, Loop] = {}
    for item, around in file.plan.walk():
        if isinstance(item, Task) and item.number in numbers:
            loops |= {loop.number: loop for loop in around}
    for loop in loops.values():
        for window in dict.fromkeys((loop.window + 1, 2 * loop.window)):
            known = f"keep {window} iterations of loop {loop.variable} in flight" in advised
            if window <= loop.trips and not known:
                more = (window - loop.window) * _written(loop)
                title = f"{window} iterations of loop {loop.variable} (line {loop.span.line}) in flight"
                body = tuple(_widened(item, loop.number, window) for item in file.plan.body)
                title += f", with rings for them: {more:,} bytes more of L1"
                yield from _try(title, "plan", replace(file.plan, body=body), numbers, file.limits)


def _widened(item: Item, number: int, window: int) -> Item:
    if not isinstance(item, Loop):
        return item
    body = tuple(_widened(inner, number, window) for inner in item.body)
    return replace(item, body=body, window=window if item.number == number else item.window)


def _written(loop: Loop) -> int:
    """The bytes of L1 that one iteration writes, each place once."""
    found: dict[tuple[str, Index], int] = {}
    todo: list[Item] = list(loop.body)
    while todo:
        item = todo.pop()
        if isinstance(item, Loop):
            todo += item.body
        elif isinstance(item, Task):
            for region in item.outputs:
                if region.buffer.memory == "L1":
                    place = (region.buffer.name, region.offset)
                    found[place] = max(found.get(place, 0), region.extent)
    return sum(found.values())


def _advised(file: PlanFile, numbers: frozenset[int]) -> Iterator[Remedy]:
    """What `--advise` finds in the lines of the layer and of the loops around it."""
    lines: set[int] = set()
    for item, around in file.plan.walk():
        if isinstance(item, Task) and item.number in numbers:
            lines |= {item.span.line, *(loop.span.line for loop in around)}
    for advice in advise(file.source, file.path, file.device, file.limits, file.root):
        if advice.line in lines:
            yield Remedy(advice.title, "plan", advice.after_cycles)
