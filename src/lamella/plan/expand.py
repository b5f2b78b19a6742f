"""Loops unrolled: every task instance with what must be complete before it starts.

Waits, loop windows and loop joins become gates, nodes that take no time. The rules are the execution semantics:
a task starts after its deps and after every earlier wait or `.sync` of its list and the lists around it; iteration i
starts, in order, when all iterations up to i - window are complete; what follows a loop starts when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem.resolved import Item, Loop, Plan, Task, Wait
from lamella.lang.nem.rules import TOO_LONG

WAIT, WINDOW, COMPLETE, JOIN = "wait", "window", "complete", "join"


@dataclass(frozen=True, slots=True)
class Node:
    """A task instance, or a gate (`task` is None, `gate` says which kind); `after` are numbers of earlier nodes."""

    number: int
    task: Task | None
    gate: str
    iteration: Mapping[int, int]
    after: tuple[int, ...]


def expand(plan: Plan, limits: Limits = DEFAULT) -> list[Node]:
    """All nodes of a plan in program order; more instances than the limit is an error."""
    needed = plan.instances()
    if needed > limits.max_expansion:
        raise LamellaError([TOO_LONG.at(_first_span(plan), needed=needed, limit=limits.max_expansion)])
    expansion = _Expansion()
    expansion.items(plan.body, {}, None)
    return expansion.nodes


def _first_span(plan: Plan) -> Span:
    return next((item.span for item, _ in plan.walk()), NOWHERE)


class _Expansion:
    """Appends nodes; remembers the latest instance of each task, which is the one that later deps mean."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.latest: dict[int, int] = {}
        self.working: dict[int, bool] = {}

    def add(self, task: Task | None, gate: str, iteration: Mapping[int, int], after: list[int]) -> int:
        number = len(self.nodes)
        self.nodes.append(Node(number, task, gate, iteration, tuple(dict.fromkeys(after))))
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
        # Without tasks all iterations wait for the same things: one of them says it all.
        trips = loop.trips if self.holds_task(loop) else 1
        for trip in range(trips):
            inner = {**iteration, loop.number: loop.first + trip}
            earlier = before if start is None else [start]
            window = [ends[trip - loop.window]] if trip >= loop.window else []
            start = self.add(None, WINDOW, inner, earlier + window)
            made = self.items(loop.body, inner, start)
            ends.append(self.add(None, COMPLETE, inner, [start, *made]))
        return self.add(None, JOIN, iteration, ends[-loop.window :])

    def holds_task(self, loop: Loop) -> bool:
        """Whether a loop does anything at all; asked once for each loop."""
        if loop.number not in self.working:
            self.working[loop.number] = any(
                isinstance(item, Task)
                or (isinstance(item, Loop) and item.trips > 0 and self.holds_task(item))
                for item in loop.body
            )
        return self.working[loop.number]
