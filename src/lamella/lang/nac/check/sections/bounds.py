"""How many steps a plan takes at the most, where its text tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamella.base.limits import LARGEST
from lamella.lang.nac.check.sections.decode import Step
from lamella.lang.nac.check.sections.opcodes import BRANCH, LOOP_END, LOOP_START


@dataclass(frozen=True, slots=True)
class Unbounded:
    """The instruction that leaves the number of steps open, and why, as the rest of a sentence."""

    number: int
    step: Step
    reason: str


def step_bound(steps: Sequence[Step], counts: Mapping[int, int]) -> int | Unbounded:
    """The most steps that sound loops and jumps make; `counts` are the slots that hold one known integer.

    A number beyond 64 bits is as good as the largest of them.
    """
    totals, repeats = [0], [1]
    for number, step in enumerate(steps):
        if step.code == BRANCH and step.target is not None and step.target <= step.offset:
            return Unbounded(number, step, "may jump back any number of times")
        totals[-1] += 1
        if step.code == LOOP_START:
            count = counts.get(step.operands[0][1])
            if count is None:
                return Unbounded(number, step, "counts by a slot that only a run fills")
            totals.append(0)
            repeats.append(max(0, count))
        elif step.code == LOOP_END and len(totals) > 1:
            totals[-2:] = [min(LARGEST, totals[-2] + totals[-1] * repeats.pop())]
    return min(LARGEST, totals[0])
