"""Symbolic hazards against unrolled programs: every pair of instances, every iteration, transitive closure."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lamella.lang.nem.resolved import Plan, Region, Task
from lamella.plan.expand import expand
from lamella.plan.hazards import find_hazards
from lamella.plan.hazards.accesses import iteration_at
from tests.plan.programs import SIZE, Writer

PROGRAMS = 300 if "LAMELLA_FUZZ" not in os.environ else 20_000
Iteration = Mapping[int, int]
Instance = tuple[int, tuple[tuple[int, int], ...]]


def touched(task: Task, iteration: Iteration) -> list[tuple[str, int, int, bool]]:
    regions: list[tuple[Region, bool]] = [(item, False) for item in task.inputs]
    regions += [(item, True) for item in task.outputs]
    found = []
    for region, write in regions:
        start = region.offset.at(iteration)
        found.append((region.buffer.name, start, start + region.extent, write))
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

    def ranges(self, one: Instance, other: Instance) -> set[tuple[str, int, int, str]]:
        """The bytes in which two instances clash, `one` first in program order, with the kind of the clash."""
        found = set()
        for name, start, end, write in touched(*self.tasks[one]):
            for name2, start2, end2, write2 in touched(*self.tasks[other]):
                if name == name2 and (write or write2) and max(start, start2) < min(end, end2):
                    kind = "WAW" if write and write2 else "RAW" if write else "WAR"
                    found.add((name, max(start, start2), min(end, end2), kind))
        return found

    def pairs(self) -> set[tuple[int, int]]:
        order = list(self.tasks)
        found = set()
        for place, late in enumerate(order):
            for early in order[:place]:
                pair = min(early[0], late[0]), max(early[0], late[0])
                if pair not in found and self.unordered(early, late) and self.ranges(early, late):
                    found.add(pair)
        return found

    def leaves(self) -> bool:
        ends = (item for task, iteration in self.tasks.values() for item in touched(task, iteration))
        return any(start < 0 or end > SIZE for _, start, end, _ in ends)


def test_hazards_are_those_of_the_unrolled_program() -> None:
    seen = clean = nested = 0
    seed = 0
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
        pairs = {(h.early.site.task.number, h.late.site.task.number) for h in found.hazards.values()}
        assert {(min(pair), max(pair)) for pair in pairs} == expected, seed
        clean += not expected
        for hazard in found.hazards.values():
            early, late = (
                (access.site.task.number, tuple(sorted(iteration_at(access.site.loops, point).items())))
                for access, point in (
                    (hazard.early, hazard.early_point),
                    (hazard.late, hazard.late_point),
                )
            )
            nested += len(hazard.early_point) > 1
            order = list(judge.tasks)
            assert order.index(early) < order.index(late), seed
            assert judge.unordered(early, late), seed
            low, high = hazard.range
            clash = hazard.early.footprint.buffer.name, low, high, hazard.kind
            assert clash in judge.ranges(early, late), seed
    assert clean > seen // 20
    assert nested > seen // 20
