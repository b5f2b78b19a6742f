"""The shortest schedule of a small plan, by exhaustive search with bounds: what list scheduling is measured against."""

from __future__ import annotations

from lamella.lang.nem.resolved import Plan
from tests.support.plan.timing.expanded import Expanded, Node

Place = tuple[tuple[int, str], int]
Places = dict[Place, int]


def find_optimum(plan: Plan, upper: int) -> int:
    """The fewest cycles in which a plan without token and bandwidth limits can run; at most `upper`."""
    return _Search(plan, upper).run()


class _Search:
    """Starts tasks in every order of non-decreasing start times, on every instance that makes a difference."""

    def __init__(self, plan: Plan, upper: int) -> None:
        self.expanded = Expanded(plan)
        self.tasks = [node for node in self.expanded.nodes if node.task]
        self.before = {node: _earlier_tasks(node) for node in self.tasks}
        self.cycles = {node: self.expanded.cost(node).cycles for node in self.tasks}
        self.tails = self._tails()
        self.pinned = {
            self.expanded.cost(node).place for node in self.tasks if node.task and node.task.resource
        }
        self.best = upper

    def _tails(self) -> dict[Node, int]:
        """Cycles from the start of each task to the end of the longest chain behind it."""
        tails: dict[Node, int] = {}
        for node in reversed(self.tasks):
            later = [tails[other] for other in self.tasks if node in self.before[other]]
            tails[node] = self.cycles[node] + max(later, default=0)
        return tails

    def run(self) -> int:
        self.extend({}, {}, (0, -1))
        return self.best

    def extend(self, ends: dict[Node, int], free: Places, last: tuple[int, int]) -> None:
        """Try every task that may start next; tasks are started in the order of (start, number)."""
        if len(ends) == len(self.tasks):
            self.best = min(self.best, max(ends.values(), default=0))
            return
        earliest = self.earliest(ends, last[0])
        if any(earliest[node] + self.tails[node] >= self.best for node in earliest):
            return
        for node in self.tasks:
            if node not in ends and self.before[node] <= ends.keys():
                for place, begin in self.places(node, earliest[node], free):
                    if (begin, node.number) > last:
                        end = begin + self.cycles[node]
                        self.extend({**ends, node: end}, {**free, place: end}, (begin, node.number))

    def earliest(self, ends: dict[Node, int], last: int) -> dict[Node, int]:
        """For each task not yet started, a time before which it cannot start."""
        found: dict[Node, int] = {}
        for node in self.tasks:
            if node not in ends:
                known = [
                    ends.get(other, found.get(other, 0) + self.cycles[other]) for other in self.before[node]
                ]
                found[node] = max([last, *known])
        return found

    def places(self, node: Node, ready: int, free: Places) -> list[tuple[Place, int]]:
        """The instances a task may run on, with its start there; of instances that are alike one is enough."""
        cost = self.expanded.cost(node)
        options = list(range(cost.instances))
        if node.task and node.task.resource:
            options = [node.task.resource.index.at(node.values) % cost.instances]
        elif cost.place not in self.pinned:
            options = list({free.get((cost.place, option), 0): option for option in options}.values())
        return [((cost.place, option), max(ready, free.get((cost.place, option), 0))) for option in options]


def _earlier_tasks(node: Node) -> set[Node]:
    """The tasks that must be complete before a node, seen through gates."""
    found: set[Node] = set()
    todo, seen = list(node.after), set[Node]()
    while todo:
        other = todo.pop()
        if other in seen:
            continue
        seen.add(other)
        if other.task:
            found.add(other)
        else:
            todo += other.after
    return found
