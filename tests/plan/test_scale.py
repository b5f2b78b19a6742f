"""Large programs and long loops need few comparisons: counted, not timed.

The limits below are the number of pairs of accesses that may be compared; a program that needs more is told so.
"""

from __future__ import annotations

import pytest

from lamella.base.limits import Limits
from lamella.lang.nem.resolved import Item, Plan, Task
from lamella.plan.verify import verify
from tests.support.plan.build import Builder, index, loop, operation, plus, region, variable

TASKS = 5000
FEW = Limits(max_pairs=12 * TASKS)


def chained() -> Plan:
    """Every task after the one before, all on the same bytes."""
    build = Builder()
    data, out = build.buffer("A", 640), build.buffer("B", 64)
    tasks: list[Task] = []
    for number in range(TASKS):
        tasks.append(build.move(region(data, number % 7 * 64, 64), region(out, 0, 64), *tasks[-1:]))
    return build.plan(tasks)


def parallel() -> Plan:
    """No order at all, every task on its own tile."""
    build = Builder()
    data, out = build.buffer("A", 64 * TASKS), build.buffer("B", 64 * TASKS)
    return build.plan([build.move(region(data, 64 * n, 64), region(out, 64 * n, 64)) for n in range(TASKS)])


def one_arena() -> Plan:
    """Pairs of tasks without order between the pairs, all in one buffer, with bytes that all read."""
    build = Builder()
    data = build.buffer("A", 256 * TASKS)
    items: list[Item] = []
    for n in range(TASKS // 2):
        load = build.move(region(data, 256 * n, 64), region(data, 256 * n + 64, 64))
        inputs = [region(data, 256 * n + 64, 64), region(data, 256 * TASKS - 64, 64)]
        items += [load, build.task("add", inputs, [region(data, 256 * n + 128, 64)], [load])]
    return build.plan(items)


def accumulated() -> Plan:
    """Loads without order, sums in a chain."""
    build = Builder()
    data, near = build.buffer("A", 64 * TASKS), build.buffer("B", 64 * TASKS)
    items: list[Item] = []
    last: list[Task] = []
    for n in range(1, TASKS // 2):
        load = build.move(region(data, 64 * n, 64), region(near, 64 * n, 64))
        inputs = [region(near, 0, 64), region(near, 64 * n, 64)]
        last = [build.task("add", inputs, [region(near, 0, 64)], [load, *last])]
        items += [load, *last]
    return build.plan(items)


def many_loops() -> Plan:
    """Rings one after the other in the same slots."""
    build = Builder()
    data, ring, out = build.buffer("A", 6400), build.buffer("R", 128), build.buffer("B", 64 * 10 * TASKS)
    items: list[Item] = []
    for n in range(TASKS // 2):
        number = build.loop_number()
        step = variable(number)
        slot = region(ring, plus(index(), operation("mod", step, 2), 64), 64)
        load = build.move(region(data, plus(index(), step, 64), 64), slot)
        store = build.move(slot, region(out, plus(index(640 * n), step, 64), 64), load)
        items.append(loop(number, 0, 9, 2, [load, store]))
    return build.plan(items)


def one_long_body() -> Plan:
    """A loop whose body has thousands of tasks, each with its own slots."""
    build = Builder()
    half = TASKS // 2
    data, ring = build.buffer("A", 64 * half * 10), build.buffer("R", 128 * half)
    out = build.buffer("B", 64 * half * 10)
    number = build.loop_number()
    step = variable(number)
    items: list[Item] = []
    for n in range(half):
        slot = region(ring, plus(index(64 * n), operation("mod", step, 2), 64 * half), 64)
        tile = plus(index(64 * n), step, 64 * half)
        load = build.move(region(data, tile, 64), slot)
        items += [load, build.move(slot, region(out, tile, 64), load)]
    return build.plan([loop(number, 0, 9, 2, items)])


@pytest.mark.parametrize("make", [chained, parallel, one_arena, accumulated, many_loops, one_long_body])
def test_large_programs_need_few_comparisons(make: object) -> None:
    assert callable(make)
    assert verify(make(), FEW) == []


def nest(window: int, slots: int) -> Plan:
    build = Builder()
    data, ring = build.buffer("A", 1 << 40), build.buffer("R", 64 * slots)
    numbers = [build.loop_number() for _ in range(3)]
    tile, place = index(), index()
    for number, size in zip(numbers, (10**6, 10**3, 1), strict=True):
        tile = plus(tile, variable(number), 64 * size)
        place = plus(place, variable(number), size)
    slot = region(ring, plus(index(), operation("mod", place, slots), 64), 64)
    load = build.move(region(data, tile, 64), slot)
    store = build.move(slot, region(data, plus(tile, index(1 << 39)), 64), load)
    inner: Item = loop(numbers[2], 0, 999, window, [load, store])
    middle = loop(numbers[1], 0, 999, 1, [inner])
    return build.plan([loop(numbers[0], 0, 999, 1, [middle])])


def test_a_nest_of_a_thousand_million_iterations() -> None:
    few = Limits(max_pairs=4000)
    assert verify(nest(window=2, slots=2), few) == []
    assert verify(nest(window=7, slots=7)) == []
    assert {finding.code for finding in verify(nest(window=3, slots=2), few)} == {"NEM141", "NEM142"}


def test_too_many_tasks_are_said_to_be() -> None:
    findings = verify(chained(), Limits(max_pairs=1000))
    assert [finding.code for finding in findings] == ["NEM018"]
