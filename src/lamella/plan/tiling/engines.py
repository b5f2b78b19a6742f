"""How many engines work on each stage: as few as keep pace with the weights that come from DDR.

Weights arrive at the rate of the sDMAs, at most as far ahead as L2 holds them. As long as all stages up to any one are
computed before its weights, and what L2 holds beyond them, could be there, DDR is never idle, and more engines would
only make the program longer. So every stage begins with one engine and few lines; where the stages up to some point
take longer than that, one of them gets smaller tiles or more engines, the one that gains the most cycles for a line,
again and again, as long as there are lines left: a plan is read.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from lamella.plan.tiling.choice import Choice, Limits
from lamella.plan.tiling.search import candidates, choose
from lamella.plan.tiling.shape import Machine, StageShape

LAYERS = 57
"""Stages of a network of 50 layers: a smaller network may have as many lines."""
OTHERS = 9
"""Lines of a stage that do not depend on its tiles, about: constants, tables, fetches, comments."""


def allot(shapes: list[StageShape], weights: list[int], machine: Machine) -> list[Choice]:
    """The tiling of each stage; `weights` are the bytes that each one fetches."""
    rate = machine.sdma * machine.counts["sDMA"]
    ahead = machine.l2 * 2 // 3
    total = sum(weights)
    allowed = [machine.tactic.pace * min(total, done + ahead) / rate for done in accumulate(weights)]
    allotment = _Allotment(shapes, machine)
    for last in range(len(shapes)):
        allotment.reach(last)
        while allotment.cycles > allowed[last] and not machine.effort.over and allotment.speed_up(last):
            machine.effort.take()
    return allotment.choices


class _Offer(NamedTuple):
    """A change of one stage: the cycles that it saves for a line, and the choice."""

    worth: float
    choice: Choice


class _Allotment:
    """The choices so far, and what more lines would give: other tiles, or more engines."""

    def __init__(self, shapes: list[StageShape], machine: Machine) -> None:
        counts = sorted({*(1 << k for k in range(8) if 1 << k < machine.engines), machine.engines})
        self.limits = [Limits(machine.l1, engines, thrift=machine.tactic.thrift) for engines in counts]
        self.shapes, self.machine = shapes, machine
        self.choices = [choose(shape, self.limits[0]) for shape in shapes]
        count = len(shapes)
        self.left = machine.tactic.lines * max(LAYERS, count) - OTHERS * count
        self.left -= sum(item.lines for item in self.choices)
        self.offers: dict[int, _Offer | None] = {}
        self.last = -1
        self.cycles = 0
        """Cycles of all stages up to the last one that was reached."""

    def reach(self, last: int) -> None:
        """Go on to a stage."""
        self.cycles += sum(self._cycles(number) for number in range(self.last + 1, last + 1))
        self.last = last

    def _cycles(self, number: int, change: tuple[int, Choice] | None = None) -> int:
        """Cycles of a stage beside its neighbours: weights come during the stage before, where L1 holds both.

        Where it does not, a stage waits for its own weights.
        """
        before, now, after = (self._choice(number + step, change) for step in (-1, 0, 1))
        if now is None:
            return 0
        room, price = self.machine.l1, now.price
        own = later = 0
        if price is None or not self.machine.tactic.neighbours:
            return now.cycles
        if before is None or before.l1_bytes + now.l1_bytes > room:
            own = price.weights
        if after is not None and after.price is not None and now.l1_bytes + after.l1_bytes <= room:
            units = self.machine.counts["DMA"]
            later = price.tiles + after.price.weights * units // min(units, now.flight + 1)
        return own + max(price.alone, later)

    def _choice(self, number: int, change: tuple[int, Choice] | None) -> Choice | None:
        if change is not None and change[0] == number:
            return change[1]
        return self.choices[number] if 0 <= number < len(self.choices) else None

    def speed_up(self, last: int) -> bool:
        """Give lines to the stage up to `last` that gains the most for each; whether any gains."""
        best: tuple[float, int] | None = None
        for number in range(last + 1):
            offer = self.offers.get(number)
            if number not in self.offers or (
                offer is not None and self._lines(number, offer.choice) > self.left
            ):
                offer = self.offers[number] = self._best_offer(number)
            if offer is not None and (best is None or offer.worth > best[0]):
                best = offer.worth, number
        if best is None:
            return False
        number = best[1]
        offer = self.offers[number]
        assert offer is not None
        self.left -= self._lines(number, offer.choice)
        around = [item for item in (number - 1, number, number + 1) if 0 <= item <= self.last]
        self.cycles -= sum(self._cycles(item) for item in around)
        self.choices[number] = offer.choice
        self.cycles += sum(self._cycles(item) for item in around)
        for neighbour in (number - 2, number - 1, number, number + 1, number + 2):
            self.offers.pop(neighbour, None)
        return True

    def _lines(self, number: int, choice: Choice) -> int:
        return choice.lines - self.choices[number].lines

    def _best_offer(self, number: int) -> _Offer | None:
        """The change of a stage that saves the most cycles for a line, of those that there are lines for."""
        around = (number - 1, number, number + 1)
        now = sum(self._cycles(item) for item in around)
        best: _Offer | None = None
        for limits in self.limits:
            for choice in candidates(self.shapes[number], limits):
                lines = self._lines(number, choice)
                if choice == self.choices[number] or lines > self.left:
                    continue
                gain = now - sum(self._cycles(item, (number, choice)) for item in around)
                worth = gain / max(1, lines)
                if gain > 0 and (best is None or worth > best.worth):
                    best = _Offer(worth, choice)
        return best
