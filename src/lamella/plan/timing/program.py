"""A plan prepared for simulation: statement lists as steps that know what they wait for and what waits for them.

Loops that run no task become waits, loops without iterations disappear, so every iteration has work in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd, lcm, prod

from lamella.lang.nem.resolved import Atom, Index, Item, Loop, Operation, Plan, Task, Variable, Wait
from lamella.plan.timing.cost import Cost


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
                found = _index_period(item.resource.index, count, loop.number, known)
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


# --- after how many iterations the unit index of `@resource` repeats ---

APERIODIC = 0
"""The answer for an expression whose residues follow no period that we can prove."""
LARGEST_PERIOD = 1 << 20


def _index_period(index: Index, modulus: int, loop: int, around: Mapping[int, Loop]) -> int:
    """The smallest proved p with index(v + p) ≡ index(v) (mod modulus) for the variable v of a loop, or APERIODIC."""
    if loop not in index.loops():
        return 1
    period = 1
    for atom, factor in index.terms:
        found = _atom_period(atom, modulus // gcd(factor, modulus), loop, around)
        if found == APERIODIC:
            return APERIODIC
        period = lcm(period, found)
    return period if period <= LARGEST_PERIOD else APERIODIC


def _atom_period(atom: Atom, modulus: int, loop: int, around: Mapping[int, Loop]) -> int:
    if isinstance(atom, Variable):
        return modulus if atom.loop == loop else 1
    if atom.sign == "*":
        sides = [_index_period(side, modulus, loop, around) for side in (atom.left, atom.right)]
        return APERIODIC if APERIODIC in sides else lcm(*sides)
    return _quotient_period(atom, modulus, loop, around)


def _quotient_period(atom: Operation, modulus: int, loop: int, around: Mapping[int, Loop]) -> int:
    """`a / c` and `a mod c` repeat with a mod c·modulus and a mod c, as long as a never becomes negative."""
    divisor = atom.right.constant
    if not atom.right.is_constant or divisor <= 0 or _least(atom.left, around) < 0:
        return APERIODIC
    return _index_period(atom.left, divisor * modulus if atom.sign == "/" else divisor, loop, around)


def _least(index: Index, around: Mapping[int, Loop]) -> int:
    """A lower bound of a sum whose atoms are loop variables; -1 where atoms are operations of unknown sign."""
    total = index.constant
    for atom, factor in index.terms:
        if isinstance(atom, Variable) and atom.loop in around:
            loop = around[atom.loop]
            total += factor * (loop.first if factor > 0 else loop.last)
        elif not _never_negative(atom, around) or factor < 0:
            return -1
    return total


def _never_negative(atom: Atom, around: Mapping[int, Loop]) -> bool:
    if isinstance(atom, Variable):
        return False
    if atom.sign != "*" and not (atom.right.is_constant and atom.right.constant > 0):
        return False
    return all(_least(side, around) >= 0 for side in (atom.left, atom.right))
