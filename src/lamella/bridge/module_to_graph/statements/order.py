"""The statements of a graph, guards decided, in an order in which they can run."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.bridge.module_to_graph.frames import Frame
from lamella.lang.module.check.names import DROPPED
from lamella.lang.module.instantiate.evaluate import Problem, Surroundings, evaluate_bool
from lamella.lang.module.nodes import Conditional, Flow, Operation, Recompute, Statement, Stub, names_in
from lamella.lang.module.rules import syntax


class Folding:
    """Decides the guards of a graph and collects its flows."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.flows: list[Flow] = []
        self.recomputed: list[Flow] = []
        self.lost: set[str] = set()
        """Names that only a statement with a wrong guard binds."""
        self.findings: list[Diagnostic] = []
        self._tensors: set[str] = set()
        """Every name that the graph binds, in any arm."""

    def fold(self, statements: Sequence[Statement], into: list[Flow]) -> None:
        """Add the flows of statements, those of the arms that hold."""
        self._tensors.update(name for statement in statements for name in _targets(statement))
        for statement in statements:
            if isinstance(statement, Flow):
                into.append(statement)
            elif isinstance(statement, Conditional):
                self._conditional(statement, into)
            elif isinstance(statement, Recompute):
                self.fold(statement.body, self.recomputed)
            elif isinstance(statement, Stub):
                self.findings.append(syntax.STUB.at(statement.span, name=self.frame.name))

    def _conditional(self, statement: Conditional, into: list[Flow]) -> None:
        tensors = self._tensors.union(self.frame.data_names())
        around = Surroundings(tensors=tensors - self.frame.instance.values.keys())
        for arm in statement.arms:
            try:
                holds = evaluate_bool(arm.condition, self.frame.instance.values, "the guard", around)
            except Problem as problem:
                self.findings.append(problem.finding)
                self.lost.update(_targets(statement))
                return
            if holds:
                self.fold(arm.body, into)
                return
        self.fold(statement.otherwise or (), into)


def _targets(statement: Statement) -> Iterator[str]:
    """Every name that a statement may bind."""
    if isinstance(statement, Flow):
        yield from (target.name for target in statement.targets)
    elif isinstance(statement, Conditional):
        for body in (*(arm.body for arm in statement.arms), statement.otherwise or ()):
            for item in body:
                yield from _targets(item)
    elif isinstance(statement, Recompute):
        for item in statement.body:
            yield from _targets(item)


def reads(flow: Flow) -> set[str]:
    """The names that a statement reads."""
    found = {name for source in flow.sources for name in names_in(source)}
    for step in flow.steps:
        if isinstance(step, Operation):
            found |= {name for argument in step.arguments for name in names_in(argument.value)}
    return found


def sort_flows(flows: Sequence[Flow]) -> tuple[list[Flow], list[str]]:
    """The statements in an order in which each comes behind what it reads, the written order where that is free.

    The second is a cycle of names where there is one; its statements are left out then.
    """
    makers: dict[str, list[int]] = {}
    for number, flow in enumerate(flows):
        for target in flow.targets:
            makers.setdefault(target.name, []).append(number)
    needs = [
        {maker for name in reads(flow) for maker in makers.get(name, ()) if name != DROPPED} for flow in flows
    ]
    users: dict[int, list[int]] = {}
    for number, makers_of in enumerate(needs):
        for maker in makers_of:
            users.setdefault(maker, []).append(number)
    waiting = [len(item) for item in needs]
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for user in users.get(number, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    cycle = [] if len(order) == len(flows) else _cycle(flows, needs, set(order))
    return [flows[number] for number in order], cycle


def _cycle(flows: Sequence[Flow], needs: Sequence[set[int]], done: set[int]) -> list[str]:
    """The names along one cycle of statements, the first again at the end."""
    number = next(item for item in range(len(flows)) if item not in done)
    seen: dict[int, int] = {}
    trail: list[int] = []
    while number not in seen:
        seen[number] = len(trail)
        trail.append(number)
        number = next(item for item in sorted(needs[number]) if item not in done)
    names = [flows[item].targets[0].name for item in reversed(trail[seen[number] :])]
    return [*names, names[0]]
