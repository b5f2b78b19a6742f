"""Loops unrolled: every task instance with what must be complete before it starts.

Waits, loop windows and loop joins become gates, nodes that take no time. The rules are the execution semantics:
a task starts after its deps and after every earlier wait or `.sync` of its list and the lists around it; iteration i
starts, in order, when all iterations up to i - window are complete; what follows a loop starts when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem.resolved import Item, Loop, Plan, Task, Wait
from lamella.lang.nem.rules import TOO_LONG

WAIT, WINDOW, COMPLETE, JOIN = "wait", "window", "complete", "join"
_NODES_PER_INSTANCE = 8
"""Gates are cheaper than instances, but a program of gates alone must end at the limit too."""


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """A task instance, or a gate (`task` is None, `gate` says which kind); `after` are numbers of earlier nodes."""

    number: int
    task: Task | None
    gate: str
    iteration: Mapping[int, int]
    after: tuple[int, ...]


def expand(plan: Plan, limits: Limits = DEFAULT, name: str = "max_expansion") -> list[TaskInstance]:
    """All nodes of a plan in program order; more instances than the named limit is an error."""
    limit: int = getattr(limits, name)
    needed = plan.instances()
    if needed > limit:
        raise _too_long(plan, str(needed), limit, name)
    working = working_loops(plan)
    nodes = _count_nodes(plan, working)
    if nodes > limit * _NODES_PER_INSTANCE:
        raise _too_long(plan, f"{nodes} waits, loop iterations and", limit, name)
    expansion = _Expansion(working)
    expansion.items(plan.body, {}, None)
    return expansion.nodes


def working_loops(plan: Plan) -> frozenset[int]:
    """The numbers of the loops that hold a task instance in each iteration; all others may be as long as they like."""
    found: set[int] = set()
    for item, around in plan.walk():
        if isinstance(item, Task):
            for loop in reversed(around):
                if loop.trips <= 0 or loop.number in found:
                    break
                found.add(loop.number)
    return frozenset(found)


def _count_nodes(plan: Plan, working: frozenset[int]) -> int:
    """How many nodes the expansion has."""
    total = 0
    for item, around in plan.walk():
        count = prod(_trips(loop, working) for loop in around)
        total += count * (2 * _trips(item, working) + 1 if isinstance(item, Loop) else 1)
    return total


def _trips(loop: Loop, working: frozenset[int]) -> int:
    """Iterations to expand: without tasks all of them wait for the same things, and one of them says it all."""
    return max(0, loop.trips) if loop.number in working else min(1, max(0, loop.trips))


def _too_long(plan: Plan, needed: str, limit: int, name: str) -> LamellaError:
    return LamellaError([TOO_LONG.at(_first_span(plan), needed=needed, limit=limit, hint=hint_for(name))])


def _first_span(plan: Plan) -> Span:
    return next((item.span for item, _ in plan.walk()), NOWHERE)


class _Expansion:
    """Appends nodes; remembers the latest instance of each task, which is the one that later deps mean."""

    def __init__(self, working: frozenset[int]) -> None:
        self.nodes: list[TaskInstance] = []
        self.latest: dict[int, int] = {}
        self.working = working

    def add(self, task: Task | None, gate: str, iteration: Mapping[int, int], after: list[int]) -> int:
        number = len(self.nodes)
        self.nodes.append(TaskInstance(number, task, gate, iteration, tuple(dict.fromkeys(after))))
        return number

    def items(self, body: tuple[Item, ...], iteration: Mapping[int, int], gate: int | None) -> list[int]:
        """Expand one statement list behind a gate; the numbers of what the list's end must wait for."""
        made: list[int] = []
        for item in body:
            before = [] if gate is None else [gate]
            if isinstance(item, Task):
                number = self.add(item, "", iteration, [self.latest[dep] for dep in item.deps] + before)
                self.latest[item.number] = number
                gate = number if item.sync else gate
            elif isinstance(item, Wait):
                number = self.add(None, WAIT, iteration, [self.latest[dep] for dep in item.deps] + before)
                gate = number
            elif item.trips > 0:
                number = self.loop(item, iteration, before)
                gate = number
            else:
                continue
            made.append(number)
        return made

    def loop(self, loop: Loop, iteration: Mapping[int, int], before: list[int]) -> int:
        """Expand a loop; the number of the gate at its end."""
        ends: list[int] = []
        start: int | None = None
        for trip in range(_trips(loop, self.working)):
            inner = {**iteration, loop.number: loop.first + trip}
            earlier = before if start is None else [start]
            window = [ends[trip - loop.window]] if trip >= loop.window else []
            start = self.add(None, WINDOW, inner, earlier + window)
            made = self.items(loop.body, inner, start)
            ends.append(self.add(None, COMPLETE, inner, [start, *made]))
        return self.add(None, JOIN, iteration, ends[-loop.window :])
