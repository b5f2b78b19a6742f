"""How many engines work on each stage: as few as keep pace with the weights that come from DDR.

Weights arrive at the rate of the sDMAs, at most as far ahead as L2 holds them. As long as all stages up to any one are
computed before its weights, and what L2 holds beyond them, could be there, DDR is never idle, and more engines would
only make the program longer. So every stage begins with one engine and few tasks; where the stages up to some point
take longer than that, the one that gains the most gets more tiles, then more engines, again and again.
"""

from __future__ import annotations

from itertools import accumulate

from lamella.plan.tiling.search import Choice, Limits, choose
from lamella.plan.tiling.shape import Machine, StageShape

PACE = 0.8
"""The part of the time of DDR that computation may take: estimates are not exact, and stages begin and end."""


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


THRIFTS = (60.0, 5.0)
"""Cycles that a line less is worth, at first and where time is short."""


class _Allotment:
    """The choices so far, and what more effort would give: more tiles first, then more engines."""

    def __init__(self, shapes: list[StageShape], machine: Machine) -> None:
        self.shapes, self.machine = shapes, machine
        counts = sorted({*(1 << k for k in range(8) if 1 << k < machine.engines), machine.engines})
        self.ladder = [(engines, thrift) for engines in counts for thrift in THRIFTS]
        self.known: dict[tuple[int, int], Choice] = {}
        self.rungs = [0] * len(shapes)
        self.choices = [self._choose(number, 0) for number in range(len(shapes))]

    def _choose(self, number: int, rung: int) -> Choice:
        key = number, rung
        if key not in self.known:
            engines, thrift = self.ladder[rung]
            self.known[key] = choose(self.shapes[number], Limits(self.machine.l1, engines, thrift=thrift))
        return self.known[key]

    def speed_up(self, last: int) -> bool:
        """Move the stage up to `last` that gains the most to the next rung that is faster; whether any gains."""
        best: tuple[int, int, int] = (0, 0, 0)
        for number in range(last + 1):
            for rung in range(self.rungs[number] + 1, len(self.ladder)):
                gain = self.choices[number].cycles - self._choose(number, rung).cycles
                if gain > 0:
                    best = max(best, (gain, -number, rung))
                    break
        gain, place, rung = best
        if gain <= 0:
            return False
        self.rungs[-place] = rung
        self.choices[-place] = self._choose(-place, rung)
        return True
