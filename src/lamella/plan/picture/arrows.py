"""Which task instances wait for the tokens of which: the arrows between slices.

A task waits for its own deps; the first task behind a `wait` also stands for all that the wait holds back. There are at
most `MOST_ARROWS`: many instances that all wait for many tokens would fill the memory, and no picture shows that many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from lamella.lang.nem.resolved import Item, Loop, Plan, Task, Wait
from lamella.plan.picture.names import loops_of

MOST_ARROWS = 200_000
Place: TypeAlias = tuple[int, tuple[int, ...]]
"""A task number and the values of the loop variables around it, outermost first."""


def arrows(plan: Plan, places: Sequence[Place]) -> list[tuple[int, ...]]:
    """For each instance, by its position, the positions of the instances whose tokens it waits for."""
    where = {place: position for position, place in enumerate(places)}
    loops = loops_of(plan)
    awaited = _awaited(plan)
    found: list[tuple[int, ...]] = []
    left = MOST_ARROWS
    for place in places:
        before = _before(place, awaited.get(place[0], ())[:left], loops, where)
        left -= len(before)
        found.append(before)
    return found


def _before(
    place: Place, deps: Iterable[int], loops: Mapping[int, tuple[Loop, ...]], where: Mapping[Place, int]
) -> tuple[int, ...]:
    number, values = place
    found = (where.get((dep, _latest(loops[dep], loops[number], values))) for dep in deps)
    return tuple(position for position in found if position is not None)


def _latest(loops: Sequence[Loop], around: Sequence[Loop], values: Sequence[int]) -> tuple[int, ...]:
    """The iteration of the instance that a token means: the same in shared loops, the last in others."""
    known = {loop.number: value for loop, value in zip(around, values, strict=False)}
    return tuple(known.get(loop.number, loop.last) for loop in loops)


def _awaited(plan: Plan) -> dict[int, tuple[int, ...]]:
    """The tasks whose tokens each task waits for, by task number."""
    found: dict[int, tuple[int, ...]] = {}
    todo: list[tuple[Item, ...]] = [plan.body]
    while todo:
        held: list[int] = []
        for item in todo.pop():
            if isinstance(item, Task):
                found[item.number] = tuple(dict.fromkeys((*item.deps, *held)))
                held = []
            elif isinstance(item, Wait):
                held += item.deps
            else:
                todo.append(item.body)
    return found
