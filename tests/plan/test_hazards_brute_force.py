"""Symbolic hazards against unrolled programs: every pair of instances, every iteration, transitive closure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lamella.lang.nem.resolved import Plan, Task
from lamella.plan.expand import expand
from lamella.plan.hazards import find_hazards
from lamella.plan.hazards.accesses import OperandAccess, Point, iteration_at
from lamella.plan.hazards.find import Hazard
from tests.support.plan.programs import SIZE, Writer

PROGRAMS = 300 if "LAMELLA_FUZZ" not in os.environ else 20_000
Iteration = Mapping[int, int]
Instance = tuple[int, tuple[tuple[int, int], ...]]


Operand = tuple[int, bool, int]


class Bytes(NamedTuple):
    """What an operand of an instance touches."""

    operand: Operand
    buffer: str
    start: int
    end: int


def touched(task: Task, iteration: Iteration) -> list[Bytes]:
    found = []
    for write, regions in ((False, task.inputs), (True, task.outputs)):
        for place, region in enumerate(regions):
            start = region.offset.at(iteration)
            operand = task.number, write, place
            found.append(Bytes(operand, region.buffer.name, start, start + region.extent))
    return found


class Unrolled:
    """The judge: instances, what is complete before each, and the pairs that clash."""

    def __init__(self, plan: Plan) -> None:
        self.before: dict[Instance, set[Instance]] = {}
        self.tasks: dict[Instance, tuple[Task, Iteration]] = {}
        closed: list[int] = []
        instances: list[Instance | None] = []
        for node in expand(plan):
            mask = 0
            for earlier in node.after:
                mask |= closed[earlier] | 1 << earlier
            closed.append(mask)
            instances.append(None)
            if node.task is not None:
                key = node.task.number, tuple(sorted(node.iteration.items()))
                instances[-1] = key
                self.tasks[key] = node.task, node.iteration
                done = (other for place, other in enumerate(instances) if mask >> place & 1)
                self.before[key] = {other for other in done if other is not None}

    def unordered(self, one: Instance, other: Instance) -> bool:
        return one not in self.before[other] and other not in self.before[one]

    def clashes(self, one: Instance, other: Instance) -> Iterator[tuple[Bytes, Bytes]]:
        """The operands of two instances that touch the same bytes, one of them writing."""
        for first in touched(*self.tasks[one]):
            for second in touched(*self.tasks[other]):
                writes = first.operand[1] or second.operand[1]
                meets = max(first.start, second.start) < min(first.end, second.end)
                if writes and meets and first.buffer == second.buffer:
                    yield first, second

    def pairs(self) -> set[frozenset[Operand]]:
        """All pairs of operands that clash in some two unordered instances."""
        order = list(self.tasks)
        found: set[frozenset[Operand]] = set()
        for place, late in enumerate(order):
            for early in order[:place]:
                if self.unordered(early, late):
                    found |= {frozenset((a.operand, b.operand)) for a, b in self.clashes(early, late)}
        return found

    def leaves(self) -> bool:
        items = (item for task, iteration in self.tasks.values() for item in touched(task, iteration))
        return any(item.start < 0 or item.end > SIZE for item in items)

    def judge_witness(self, hazard: Hazard) -> None:
        """The named instances are in program order, unordered, and clash in the named bytes."""
        early = instance(hazard.early, hazard.early_point)
        late = instance(hazard.late, hazard.late_point)
        order = list(self.tasks)
        assert order.index(early) < order.index(late)
        assert self.unordered(early, late)
        wanted = operand(hazard.early), operand(hazard.late)
        found = [(a, b) for a, b in self.clashes(early, late) if (a.operand, b.operand) == wanted]
        assert len(found) == 1
        first, second = found[0]
        assert hazard.range == (max(first.start, second.start), min(first.end, second.end))
        kinds = {(True, True): "WAW", (True, False): "RAW", (False, True): "WAR"}
        assert hazard.kind == kinds[wanted[0][1], wanted[1][1]]


def instance(access: OperandAccess, point: Point) -> Instance:
    return access.site.task.number, tuple(sorted(iteration_at(access.site.loops, point).items()))


def operand(access: OperandAccess) -> Operand:
    return access.site.task.number, access.write, access.operand


def test_hazards_are_those_of_the_unrolled_program() -> None:
    seen = clean = nested = seed = 0
    while seen < PROGRAMS:
        seed += 1
        plan = Writer(seed).plan()
        judge = Unrolled(plan)
        if len(judge.tasks) < 2 or len(judge.tasks) > 300 or judge.leaves():
            continue
        seen += 1
        found = find_hazards(plan)
        assert not found.unproved, seed
        expected = judge.pairs()
        hazards = found.hazards.values()
        assert {frozenset((operand(h.early), operand(h.late))) for h in hazards} == expected, seed
        for hazard in hazards:
            judge.judge_witness(hazard)
        clean += not expected
        nested += any(len(hazard.early_point) > 1 for hazard in hazards)
    assert clean > seen // 10
    assert nested > seen // 20
