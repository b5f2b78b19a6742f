"""A plan prepared for simulation: statement lists as steps that know what they wait for and what waits for them.

Loops that run no task become waits, loops without iterations disappear, so every iteration has work in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import lcm, prod

from lamella.lang.nem.resolved import Item, Loop, Plan, Task, Wait
from lamella.plan.timing.cost import Cost
from lamella.plan.timing.periods import APERIODIC, index_period


@dataclass(slots=True, eq=False)
class ProgramStep:
    """A statement of a list; `tokens` names the tasks waited for as (lists outward, index in that list)."""

    index: int
    gate: bool
    task: Task | None = None
    cost: Cost | None = None
    loop: Loop | None = None
    body: ProgramSteps | None = None
    feeds: list[int] = field(default_factory=list)
    tokens: list[tuple[int, int]] = field(default_factory=list)
    waiters: int = 0
    """How many instances wait for the token of each instance."""
    period: int = 1
    """After how many iterations of the loop the unit indices inside repeat; 0 when never."""


@dataclass(slots=True, eq=False)
class ProgramSteps:
    """A statement list; `needs` counts, for each step, what it waits for inside and outside the list."""

    depth: int
    steps: list[ProgramStep] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """Steps that wait for nothing inside the list."""
    listens: list[tuple[int, int, int]] = field(default_factory=list)
    """Step, lists outward, index there: what is waited for outside the list."""


def prepare(plan: Plan, costs: Mapping[int, Cost]) -> ProgramSteps:
    """The steps of a plan; `costs` by task number."""
    return _Preparation(costs).build(plan.body, ())


class _Preparation:
    """Builds lists inside out, remembering where each task stands."""

    def __init__(self, costs: Mapping[int, Cost]) -> None:
        self.costs = costs
        self.places: dict[int, tuple[int, ProgramStep]] = {}

    def build(self, body: tuple[Item, ...], around: tuple[Loop, ...]) -> ProgramSteps:
        """Prepare one list and the lists inside it."""
        made = ProgramSteps(len(around))
        gate: ProgramStep | None = None
        for item in body:
            step = self.step(item, len(made.steps), around)
            if step is None:
                continue
            self.tie(made, step, gate, _deps(item), around)
            if step.task is not None:
                self.places[step.task.number] = (made.depth, step)
            if isinstance(item, Loop) and step.loop is not None:
                step.body = self.build(item.body, (*around, item))
            gate = step if step.gate else gate
        return made

    def step(self, item: Item, index: int, around: tuple[Loop, ...]) -> ProgramStep | None:
        """The bare step of an item; None for a loop without iterations."""
        if isinstance(item, Task):
            return ProgramStep(index, item.sync, task=item, cost=self.costs[item.number])
        if isinstance(item, Wait) or not _has_tasks(item):
            return ProgramStep(index, True) if isinstance(item, Wait) or item.trips > 0 else None
        if item.trips <= 0:
            return None
        inside = {loop.number: loop for loop in (*around, item)}
        return ProgramStep(index, True, loop=item, period=self.period(item, inside))

    def period(self, loop: Loop, around: dict[int, Loop]) -> int:
        """After how many iterations all unit indices of a loop repeat."""
        period = 1
        known = dict(around)
        todo: list[Item] = [*loop.body]
        while todo:
            item = todo.pop()
            if isinstance(item, Loop):
                known[item.number] = item
                todo += item.body
            elif isinstance(item, Task) and item.resource is not None:
                count = self.costs[item.number].instances
                found = index_period(item.resource.index, count, loop.number, known)
                if found == APERIODIC:
                    return APERIODIC
                period = lcm(period, found)
        return period

    def tie(
        self,
        made: ProgramSteps,
        step: ProgramStep,
        gate: ProgramStep | None,
        deps: list[int],
        around: tuple[Loop, ...],
    ) -> None:
        """Append a step to its list and tie it to what it waits for."""
        inside = set() if gate is None else {gate.index}
        for depth, producer in [self.places[dep] for dep in deps if dep in self.places]:
            outward = made.depth - depth
            step.tokens.append((outward, producer.index))
            producer.waiters += prod(loop.trips for loop in around[depth:])
            if outward:
                made.listens.append((step.index, outward, producer.index))
            else:
                inside.add(producer.index)
        for index in inside:
            made.steps[index].feeds.append(step.index)
        made.steps.append(step)
        made.needs.append(len(inside) + sum(1 for outward, _ in step.tokens if outward))
        if not inside:
            made.starts.append(step.index)


def _deps(item: Item) -> list[int]:
    """The tasks that an item waits for by name; those of waits inside a loop without tasks count for it."""
    found: list[int] = []
    todo: list[Item] = [item]
    while todo:
        item = todo.pop()
        if not isinstance(item, Loop):
            found += item.deps
        elif item.trips > 0 and not _has_tasks(item):
            todo += item.body
    return list(dict.fromkeys(found))


def _has_tasks(loop: Loop) -> bool:
    """Whether a loop runs any task."""
    todo: list[Item] = [loop]
    while todo:
        item = todo.pop()
        if isinstance(item, Task):
            return True
        if isinstance(item, Loop) and item.trips > 0:
            todo += item.body
    return False
