"""Layers: the sections of a plan, by the comments that name them, and what each of them costs.

A section begins with a comment line `# == NAME` or `# == NAME: what it does` and ends where the next one begins; behind
the name a short one may stand, `# == NAME (SHORT): what it does`. A task whose own `@profile` tag is the name of a
section, or whose token begins with one of its names and `_` (the longest such name counts), belongs to that section,
wherever it stands: so a plan says that a prefetch is for a later layer. In a plan without such comments the tag of a
task or of a loop around it makes the section, else the outermost loop, else the task is alone.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lamella.lang.nem.resolved import Loop, Plan, Task
from lamella.plan.timing.cost import MACS, crosses
from lamella.plan.timing.report import TaskUse, TimingReport

_SECTION = re.compile(r"^[ \t]*#[ \t]*==[ \t]*([^:\n]*?)[ \t]*(?:=*|:[ \t]*([^\n]*))[ \t]*$", re.MULTILINE)
_SHORT = re.compile(r"(.*\S) \(([A-Za-z_]\w*)\)")


@dataclass(frozen=True, slots=True)
class PlanSection:
    """A part of a plan: its name, what its comment says of it, its first line, and its tasks by number."""

    name: str
    what: str
    line: int
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LayerUse:
    """What a section costs; sections that overlap share cycles.

    `start` and `end` bound its tasks without those that touch DDR, which may run long before, where it has others.
    `busy` are cycles by unit type, `unit` is the type that works most in that time for its instances and `utilisation`
    its share. `ddr` are the bytes moved across DDR, `once` those bytes each counted once, `compulsory` those of them
    that no plan does without: what comes from outside or leaves, not what goes to DDR and back.
    """

    section: PlanSection
    start: int
    end: int
    unit: str
    utilisation: float
    busy: Mapping[str, int]
    macs: int
    ddr: int
    once: int
    compulsory: int
    energy: int | None

    @property
    def cycles(self) -> int:
        """The time from start to end."""
        return self.end - self.start

    def to_json(self) -> dict[str, object]:
        """The layer as `sim --json` prints it."""
        return {
            "name": self.section.name,
            "what": self.section.what,
            "line": self.section.line,
            "start": self.start,
            "end": self.end,
            "cycles": self.cycles,
            "unit": self.unit,
            "utilisation": self.utilisation,
            "busy": dict(self.busy),
            "macs": self.macs,
            "ddr_bytes": self.ddr,
            "ddr_once": self.once,
            "ddr_compulsory": self.compulsory,
            "energy_pj": None if self.energy is None else self.energy / 1000,
        }


# --- sections -----------------------------------------------------------------------------------------------


def has_sections(plan: Plan) -> bool:
    """Whether comments of a plan name sections."""
    return _SECTION.search(plan.source.text) is not None


def find_sections(plan: Plan) -> tuple[PlanSection, ...]:
    """The sections of a plan that have tasks, in the order of their comments, or of their first tasks."""
    marks = _marks(plan)
    names = {mark.short: mark.section for mark in reversed(marks) if mark.short}
    names |= {mark.name: mark.section for mark in reversed(marks)}
    tasks: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for item, around in plan.walk():
        if isinstance(item, Task):
            key = _named(item, names) if marks else _without_comments(item, around)
            tasks[key or _last_mark(marks, item.span.line)].append(item.number)
    found = (PlanSection(*key, tuple(numbers)) for key, numbers in tasks.items())
    return tuple(sorted(found, key=lambda section: section.line) if marks else found)


def _named(task: Task, names: Mapping[str, tuple[str, str, int]]) -> tuple[str, str, int] | None:
    """The section that a task names by its tag, or by how its token begins."""
    if task.profile in names:
        return names[task.profile]
    name = task.token
    while name and name not in names:
        name = name.rpartition("_")[0]
    return names.get(name)


class _Mark(NamedTuple):
    """A comment that begins a section: its line, the name, what it says, and another name for tasks."""

    line: int
    name: str
    what: str
    short: str

    @property
    def section(self) -> tuple[str, str, int]:
        """How a section begins."""
        return self.name, self.what, self.line


def _marks(plan: Plan) -> list[_Mark]:
    """The comments that begin sections."""
    text = plan.source.text
    found: list[_Mark] = []
    line, place = 1, 0
    for match in _SECTION.finditer(text):
        line += text.count("\n", place, match.start())
        place = match.start()
        if match[1]:
            named = _SHORT.fullmatch(match[1])
            name, short = (named[1], named[2]) if named else (match[1], "")
            found.append(_Mark(line, name, match[2] or "", short))
    return found


def _last_mark(marks: list[_Mark], line: int) -> tuple[str, str, int]:
    """The section that a line stands in; before the first comment there is one without a comment."""
    found = ("before the first section", "", 0)
    for mark in marks:
        if mark.line > line:
            break
        found = mark.section
    return found


def _without_comments(task: Task, around: tuple[Loop, ...]) -> tuple[str, str, int]:
    tags = [task.profile, *(loop.profile for loop in reversed(around))]
    tag = next((tag for tag in tags if tag), "")
    if tag:
        return tag, "", 0
    if around:
        loop = around[0]
        return loop.debug or f"loop {loop.variable}, line {loop.span.line}", "", loop.span.line
    return task.title, "", task.span.line


# --- what they cost -----------------------------------------------------------------------------------------


def find_layers(report: TimingReport, plan: Plan) -> tuple[LayerUse, ...]:
    """What each section of a simulated plan costs, in the order of the text."""
    uses = {use.number: use for use in report.tasks}
    tasks = {task.number: task for task in plan.tasks()}
    instances = Counter(unit.unit for unit in report.units)
    spilled = _spilled(plan)
    return tuple(
        _layer(section, [(uses[number], tasks[number]) for number in section.tasks], instances, spilled)
        for section in find_sections(plan)
    )


def _spilled(plan: Plan) -> set[str]:
    """Buffers of DDR that the plan writes first and reads afterwards: what has no room on the chip."""
    written: set[str] = set()
    read_first: set[str] = set()
    found: set[str] = set()
    for task in plan.tasks():
        for region in task.inputs:
            name = region.buffer.name
            (found if name in written else read_first).add(name)
        written |= {region.buffer.name for region in task.outputs if region.buffer.memory == "DDR"}
    return found - read_first


def _layer(
    section: PlanSection,
    members: list[tuple[TaskUse, Task]],
    instances: Mapping[str, int],
    spilled: Collection[str],
) -> LayerUse:
    far = [(use, task) for use, task in members if crosses(task, "DDR")]
    loads = {use.number for use, _ in far}
    near = [use for use, _ in members if use.number not in loads] or [use for use, _ in members]
    busy = _busy(use for use, _ in members)
    inside = _busy(near)
    unit = max(inside, key=lambda name: inside[name] / max(1, instances.get(name, 1)), default="")
    start = min((use.first_start for use in near if use.first_start is not None), default=0)
    end = max((use.last_end for use in near if use.last_end is not None), default=0)
    room = (end - start) * max(1, instances.get(unit, 1))
    energies = [use.energy for use, _ in members if use.energy is not None]
    return LayerUse(
        section=section,
        start=start,
        end=end,
        unit=unit,
        utilisation=inside[unit] / room if room else 0.0,
        busy=dict(busy),
        macs=sum(use.work * use.count for use, _ in members if use.kind == MACS),
        ddr=sum(use.work * use.count for use, _ in far),
        once=_once(far),
        compulsory=_once(far, spilled),
        energy=sum(energies) if energies else None,
    )


def _busy(uses: Iterable[TaskUse]) -> Counter[str]:
    """Cycles by unit type, of all engines together."""
    found: Counter[str] = Counter()
    for use in uses:
        found[use.unit.partition(".")[2] or use.unit] += use.busy
    return found


def _once(moves: Iterable[tuple[TaskUse, Task]], but: Collection[str] = ()) -> int:
    """The DDR bytes of moves, each byte of a buffer counted once in each direction; some buffers do not count."""
    moved: Counter[tuple[str, bool]] = Counter()
    sizes: dict[str, int] = {}
    for use, task in moves:
        sides = [(region, False) for region in task.inputs] + [(region, True) for region in task.outputs]
        for region, written in sides:
            if region.buffer.memory == "DDR" and region.buffer.name not in but:
                moved[region.buffer.name, written] += use.work * use.count
                sizes[region.buffer.name] = region.buffer.size
    return sum(min(count, sizes[name]) for (name, _), count in moved.items())
