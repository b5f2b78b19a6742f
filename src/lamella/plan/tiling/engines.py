"""How many engines work on each stage: as few as keep pace with the weights that come from DDR.

Weights arrive at the rate of the sDMAs, at most as far ahead as L2 holds them. As long as all stages up to any one are
computed before its weights, and what L2 holds beyond them, could be there, DDR is never idle, and more engines would
only make the program longer. So every stage begins with one engine and few lines; where the stages up to some point
take longer than that, one of them gets smaller tiles or more engines, the one that gains the most cycles for a line,
again and again, as long as there are lines left: a plan is read.
"""

from __future__ import annotations

from itertools import accumulate

from lamella.plan.tiling.choice import Choice, Limits
from lamella.plan.tiling.search import candidates, choose
from lamella.plan.tiling.shape import Machine, StageShape

PACE = 0.8
"""The part of the time of DDR that computation may take: estimates are not exact, and stages begin and end."""
LINES, LAYERS = 2950, 57
"""Lines that a plan may have, and the layers of such a plan; a larger network has as many for each of its layers."""
OTHERS = 9
"""Lines of a stage that do not depend on its tiles, about: constants, tables, fetches, comments."""
THRIFT = 60.0
"""Cycles that a line less is worth as long as there is time."""


def allot(shapes: list[StageShape], weights: list[int], machine: Machine) -> list[Choice]:
    """The tiling of each stage; `weights` are the bytes that each one fetches."""
    rate = machine.sdma * machine.counts["sDMA"]
    ahead = machine.l2 * 2 // 3
    total = sum(weights)
    allowed = [PACE * min(total, done + ahead) / rate for done in accumulate(weights)]
    allotment = _Allotment(shapes, machine)
    for last in range(len(shapes)):
        while sum(item.cycles for item in allotment.choices[: last + 1]) > allowed[last]:
            if not allotment.speed_up(last):
                break
    return allotment.choices


class _Allotment:
    """The choices so far, and what more lines would give: other tiles, or more engines."""

    def __init__(self, shapes: list[StageShape], machine: Machine) -> None:
        counts = sorted({*(1 << k for k in range(8) if 1 << k < machine.engines), machine.engines})
        self.limits = [Limits(machine.l1, engines, thrift=THRIFT) for engines in counts]
        self.shapes = shapes
        self.choices = [choose(shape, self.limits[0]) for shape in shapes]
        count = len(shapes)
        self.left = LINES * max(LAYERS, count) // LAYERS - OTHERS * count
        self.left -= sum(item.lines for item in self.choices)

    def speed_up(self, last: int) -> bool:
        """Give lines to the stage up to `last` that gains the most for each; whether any gains."""
        best: tuple[float, int, Choice] | None = None
        for number in range(last + 1):
            now = self.choices[number]
            offers = (item for limits in self.limits for item in candidates(self.shapes[number], limits))
            for item in offers:
                gain, price = now.cycles - item.cycles, item.lines - now.lines
                worth = gain / max(1, price)
                if gain > 0 and price <= self.left and (best is None or worth > best[0]):
                    best = worth, number, item
        if best is None:
            return False
        _, number, item = best
        self.left -= item.lines - self.choices[number].lines
        self.choices[number] = item
        return True
