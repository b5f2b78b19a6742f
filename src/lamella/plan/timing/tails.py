"""What must still follow the end of a task, whatever the units do: the tail of the head–work–tail bound."""

from __future__ import annotations

from collections.abc import Mapping

from lamella.plan.timing.program import Step, Steps


def find_tails(steps: Steps) -> Mapping[int, int]:
    """For each task, cycles that pass at least from the end of any of its instances to the end of the plan."""
    search = _Tails()
    search.measure(steps)
    search.descend(steps, 0, [])
    return search.tails


class _Tails:
    """Walks the lists from the end to the beginning; windows give each loop a shortest length."""

    def __init__(self) -> None:
        self.lengths: dict[Step, int] = {}
        self.tails: dict[int, int] = {}
        self.known: dict[Step, int] = {}

    def measure(self, steps: Steps) -> int:
        """The shortest time that one run of a list takes."""
        ends = [0] * len(steps.steps)
        starts = [0] * len(steps.steps)
        for step in steps.steps:
            ends[step.index] = starts[step.index] + self._length(step)
            for later in step.feeds:
                starts[later] = max(starts[later], ends[step.index])
        return max(ends, default=0)

    def _length(self, step: Step) -> int:
        """The shortest time that a step takes; every window-th iteration follows the one before."""
        length = 0
        if step.cost is not None:
            length = step.cost.cycles
        elif step.loop is not None and step.body is not None:
            length = -(-step.loop.trips // max(1, step.loop.window)) * self.measure(step.body)
        self.lengths[step] = length
        return length

    def descend(self, steps: Steps, after: int, around: list[Steps]) -> None:
        """Find the tails of a list after whose end at least `after` cycles follow."""
        lists = [*around, steps]
        for step in reversed(steps.steps):
            later = [
                self.lengths[steps.steps[index]] + self.known[steps.steps[index]] for index in step.feeds
            ]
            tail = self.known[step] = max([after, self.known.get(step, 0), *later])
            if step.task is not None:
                self.tails[step.task.number] = tail
            if step.body is not None:
                self.descend(step.body, tail, lists)
            for outward, index in step.tokens:
                producer = lists[-1 - outward].steps[index]
                self.known[producer] = max(self.known.get(producer, 0), self.lengths[step] + tail)
