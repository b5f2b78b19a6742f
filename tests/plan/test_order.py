"""The order of tasks without unrolling, against the transitive closure of the unrolled program."""

from __future__ import annotations

from lamella.plan.order import Order, Site
from tests.plan.test_hazards_brute_force import Instance, Unrolled
from tests.support.plan.build import Builder, loop, region, wait
from tests.support.plan.programs import Writer

PROGRAMS = 400


def is_unordered(
    order: Order, sets: dict[int, int], sites: dict[int, Site], pair: tuple[Instance, Instance]
) -> bool:
    """What the docstring of the module says, for two instances, the first one first in program order."""
    early, late = (sites[number] for number, _ in pair)
    first, second = (dict(iteration) for _, iteration in pair)
    for one, other in zip(early.loops, late.loops, strict=False):
        if one.number != other.number:
            break
        distance = second[one.number] - first[one.number]
        if distance:
            return distance < one.window
    if not sets[late.index] >> early.index & 1:
        return False
    limits = order.first_iterations(early, late)
    return all(
        second[late.loops[depth].number] - late.loops[depth].first < count for depth, count in limits.items()
    )


def test_order_is_that_of_the_unrolled_program() -> None:
    compared = unordered = 0
    for seed in range(10_000, 10_000 + PROGRAMS):
        plan = Writer(seed).plan()
        judge = Unrolled(plan)
        if len(judge.tasks) > 200:
            continue
        order = Order(plan)
        sets = {site.index: mask for site, mask in order.sweep()}
        sites = {site.task.number: site for site in order.sites}
        instances = list(judge.tasks)
        for place, late in enumerate(instances):
            for early in instances[:place]:
                expected = judge.unordered(early, late)
                assert is_unordered(order, sets, sites, (early, late)) == expected, (seed, early, late)
                compared += 1
                unordered += expected
    assert compared > 10_000
    assert unordered > compared // 10


def test_an_outer_token_counts_only_behind_the_window() -> None:
    build = Builder()
    data = build.buffer("A", 64)
    outer = build.move(region(data, 0, 4), region(data, 8, 4))
    free = build.move(region(data, 16, 4), region(data, 20, 4))
    bound = build.move(region(data, 24, 4), region(data, 28, 4), outer)
    order = Order(build.plan([outer, loop(0, 0, 9, 3, [free, bound])]))
    sets = [mask for _, mask in order.sweep()]
    assert sets == [0, 0b1, 0b10]
    assert order.first_iterations(order.sites[0], order.sites[1]) == {0: 3}


def test_long_chains_keep_few_sets() -> None:
    build = Builder()
    data = build.buffer("A", 64)
    tasks = [build.move(region(data, 0, 4), region(data, 8, 4))]
    for _ in range(200):
        tasks.append(build.move(region(data, 0, 4), region(data, 8, 4), tasks[-1]))
    order = Order(build.plan([*tasks, wait(tasks[-1]), build.move(region(data, 0, 4), region(data, 8, 4))]))
    closed: dict[int, int] = {}
    most = 0
    for _, unordered in order._sweep(order._body, 0, 0, closed):
        assert unordered == 0
        most = max(most, len(closed))
    assert most <= 2
