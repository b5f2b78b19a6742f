"""Legal orders of the task instances of a plan."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE
from lamella.lang.nem.resolved import Item, Loop, Plan, Task
from lamella.lang.nem.rules import TOO_LONG
from lamella.plan.expand import expand, working_loops

Instance = tuple[Task, Mapping[int, int]]


def program_order(plan: Plan, limits: Limits = DEFAULT) -> Iterator[Instance]:
    """Task instances as the text has them, one at a time: nothing is kept of the iterations behind."""
    needed = plan.instances()
    if needed > limits.max_expansion:
        span = next((item.span for item in plan.body), NOWHERE)
        raise LamellaError([TOO_LONG.at(span, needed=needed, limit=limits.max_expansion)])
    return _walk(plan.body, {}, working_loops(plan))


def _walk(
    body: tuple[Item, ...], iteration: Mapping[int, int], working: frozenset[int]
) -> Iterator[Instance]:
    for item in body:
        if isinstance(item, Task):
            yield item, iteration
        elif isinstance(item, Loop) and item.number in working:
            for value in range(item.first, item.last + 1):
                yield from _walk(item.body, {**iteration, item.number: value}, working)


def random_order(plan: Plan, seed: int, limits: Limits = DEFAULT) -> Iterator[Instance]:
    """Task instances in an order that the seed picks among all legal ones."""
    nodes = expand(plan, limits)
    waiting = [len(node.after) for node in nodes]
    followers: list[list[int]] = [[] for _ in nodes]
    for node in nodes:
        for earlier in node.after:
            followers[earlier].append(node.number)
    ready = [node.number for node in nodes if not node.after]
    chooser = random.Random(seed)
    while ready:
        place = chooser.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        node = nodes[ready.pop()]
        if node.task is not None:
            yield node.task, node.iteration
        for number in followers[node.number]:
            waiting[number] -= 1
            if not waiting[number]:
                ready.append(number)
