"""How many tokens are live at once, against `SEQ.max_active_tokens`.

A static, conservative count. A token exists where something waits for it: a task that a later `deps` or `wait` names,
or a `.sync` task, which waits for itself. In its list it is live from its producer to its last waiter, both included;
a waiter inside a loop keeps it to the end of that loop. At a statement of a list the live tokens of that list count,
and, if the statement is a loop, min(window, trips) times the largest count inside its body, as each iteration in
flight may be at its worst place. The largest count of the program is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem.resolved import Item, Loop, Plan, Task
from lamella.lang.nem.rules import LIVE_TOKENS


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest number of live tokens and the statement where it is reached."""

    count: int
    span: Span


def check_tokens(plan: Plan) -> Iterator[Diagnostic]:
    """The device can keep all tokens that may be live; the binder serialises otherwise."""
    if plan.device is None:
        return
    limit = plan.device.characteristic("SEQ", "max_active_tokens", -1)
    peak = count_tokens(plan)
    if 0 <= limit < peak.count:
        yield LIVE_TOKENS.at(peak.span, count=peak.count, device=plan.device.name, limit=limit)


def count_tokens(plan: Plan) -> Peak:
    """The largest static count of live tokens."""
    return _count(plan.body)[0]


def _count(body: tuple[Item, ...]) -> tuple[Peak, set[int]]:
    """The peak of a list, and the tasks that it waits for."""
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    inner: list[Peak] = []
    waited: set[int] = set()
    for place, item in enumerate(body):
        deps: set[int] = set()
        peak = Peak(0, item.span)
        if isinstance(item, Loop):
            inside, deps = _count(item.body)
            factor = max(0, min(item.window, item.trips))
            peak = Peak(factor * inside.count, inside.span)
        else:
            deps = set(item.deps)
            if isinstance(item, Task):
                made[item.number] = place
                deps = deps | {item.number} if item.sync else deps
        inner.append(peak)
        waited |= deps
        last.update((dep, place) for dep in deps)
    return _highest(made, last, inner), waited - made.keys()


def _highest(made: dict[int, int], last: dict[int, int], inner: list[Peak]) -> Peak:
    changes = [0] * (len(inner) + 1)
    for number, place in made.items():
        if number in last:
            changes[place] += 1
            changes[last[number] + 1] -= 1
    best, live = Peak(0, NOWHERE), 0
    for place, peak in enumerate(inner):
        live += changes[place]
        if live + peak.count > best.count:
            best = Peak(live + peak.count, peak.span)
    return best
