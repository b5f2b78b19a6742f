"""How many tokens can be live at once at the very most: below the limit of a device nobody needs to count them.

A token is live from the start of its task to the start of the last step that waits for it. Gates (loops, waits and
`.sync`) cut a list into segments, which run one after the other. Tokens inside a loop are dead when it ends. A token of
the list itself is live from the segment of its task to that of the gate that waits for it last; where the last one to
wait is no gate, which nothing forces to start, to the end of the list.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate

from lamella.plan.timing.program import ProgramStep, ProgramSteps


@dataclass(slots=True)
class _OpenList:
    """A list that is being walked: where the walk stands, and for each token the last gate that waits for it."""

    steps: ProgramSteps
    at: int = 0
    ends: dict[int, int] = field(default_factory=dict)


def most_tokens(steps: ProgramSteps) -> Counter[int]:
    """For each engine, a number of tokens that are never live at once."""
    return _walk(steps, [])


def _walk(steps: ProgramSteps, around: list[_OpenList]) -> Counter[int]:
    lists = [*around, _OpenList(steps)]
    inside: dict[int, Counter[int]] = {}
    for step in steps.steps:
        lists[-1].at = step.index
        for outward, index in step.tokens:
            place = lists[-1 - outward]
            gate = place.at if outward or step.gate else len(place.steps.steps)
            place.ends[index] = max(place.ends.get(index, 0), gate)
        if step.body is not None and step.loop is not None:
            flight = min(step.loop.window, step.loop.trips)
            found = _walk(step.body, lists)
            inside[step.index] = Counter({engine: flight * count for engine, count in found.items()})
    return _largest(lists[-1], inside)


def _largest(held: _OpenList, inside: dict[int, Counter[int]]) -> Counter[int]:
    """The largest number of tokens in any segment of a list, with those of the loop that closes it."""
    steps = held.steps.steps
    before = [0, *accumulate(int(step.gate) for step in steps)]
    segments = before[-1] + 1
    changes: dict[int, list[int]] = {}
    for step in steps:
        for engine, count in _own(step, inside).items():
            lasting = held.ends.get(step.index, step.index) if step.task is not None else step.index
            row = changes.setdefault(engine, [0] * (segments + 1))
            row[before[step.index]] += count
            row[before[min(lasting, len(steps))] + 1] -= count
    return Counter({engine: max(accumulate(row)) for engine, row in changes.items()})


def _own(step: ProgramStep, inside: dict[int, Counter[int]]) -> Counter[int]:
    if step.task is not None:
        return Counter({step.task.engine or 0: 1}) if step.waiters else Counter()
    return inside.get(step.index, Counter())
