"""Arrows are the tokens that instances wait for, judged by the expanded program."""

from __future__ import annotations

import pytest

from lamella.lang.nem.resolved import Loop, Wait
from lamella.plan.expand import expand
from lamella.plan.report.build import MOST_ARROWS, Place, arrows, loops_of
from tests.support.plan.timing_plans import Builder, RandomPlan, conv_pipeline, view


@pytest.mark.parametrize("seed", range(60))
def test_every_dep_has_its_arrow_and_every_arrow_a_reason(seed: int) -> None:
    plan = RandomPlan(seed, trips=4).plan()
    loops = loops_of(plan)
    nodes = expand(plan)
    places: list[Place] = []
    position: dict[int, int] = {}
    direct: list[set[int]] = []
    latest: dict[int, int] = {}
    before: list[set[int]] = []
    for node in nodes:
        before.append({earlier for number in node.after for earlier in (number, *before[number])})
        if node.task is None:
            continue
        position[node.number] = len(places)
        direct.append({position[latest[dep]] for dep in node.task.deps})
        latest[node.task.number] = node.number
        places.append(
            (node.task.number, tuple(node.iteration[loop.number] for loop in loops[node.task.number]))
        )
    made = arrows(plan, places)
    for number, at in position.items():
        assert set(made[at]) >= direct[at]
        assert set(made[at]) <= {position[earlier] for earlier in before[number] if earlier in position}


def test_what_a_wait_holds_back_gets_its_arrows() -> None:
    make = Builder()
    near, far = make.buffer("a", "L1", 64), make.buffer("b", "L2", 64)
    first, second, third = (make.task("transfer", [view(far, 64)], [view(near, 64)]) for _ in range(3))
    plan = make.plan([first, Wait((first.number,)), second, third])
    assert arrows(plan, [(0, ()), (1, ()), (2, ())]) == [(), (0,), ()]


def test_an_instance_that_is_not_shown_has_no_arrow() -> None:
    plan = conv_pipeline(tiles=2)
    loop = next(item for item in plan.body if isinstance(item, Loop))
    numbers = [item.number for item in plan.tasks()]
    shown = [(number, (loop.first,)) for number in numbers[2:]]
    assert arrows(plan, shown) == [(), (0,), (1,)]


def test_many_instances_that_wait_for_many_tokens_do_not_fill_the_memory() -> None:
    make = Builder()
    near, far = make.buffer("a", "L1", 64), make.buffer("b", "L2", 64)
    loads = [make.task("transfer", [view(far, 64)], [view(near, 64)]) for _ in range(1000)]
    waiting = make.task("relu", [view(near, 64, "i8", (64,))], [view(near, 64, "i8", (64,))], loads)
    plan = make.plan([*loads, Loop(0, "i", 0, 999, 1, (waiting,))])
    places = [(task.number, ()) for task in loads] + [(waiting.number, (i,)) for i in range(1000)]
    made = arrows(plan, places)
    assert made[1000] == tuple(range(1000))
    assert sum(map(len, made)) == MOST_ARROWS


def test_a_token_of_a_finished_loop_means_its_last_iteration() -> None:
    make = Builder()
    near, far = make.buffer("a", "L1", 64), make.buffer("b", "L2", 64)
    inner = make.task("transfer", [view(far, 64)], [view(near, 64)])
    later = make.task("transfer", [view(far, 64)], [view(near, 64)], [inner])
    plan = make.plan([Loop(make.loop_number(), "i", 3, 5, 1, (inner,)), later])
    assert arrows(plan, [(0, (3,)), (0, (4,)), (0, (5,)), (1, ())])[-1] == (2,)
