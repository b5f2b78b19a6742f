"""Any legal order gives the same bytes."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from lamella.backend.npu import compile_plan
from lamella.backend.npu.order import program_order, random_order
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import Limits
from lamella.plan.expand import expand
from tests.support.backend.npu.programs import PIPELINES, plan_of

SEEDS = 20


@pytest.mark.parametrize("name", PIPELINES)
def test_random_orders_give_the_bytes_of_program_order(name: str) -> None:
    plan = plan_of(PIPELINES[name])
    inputs = _inputs(name)
    wanted = compile_plan(plan)(**inputs)
    assert wanted
    orders = set()
    for seed in range(SEEDS):
        executable = compile_plan(plan, seed=seed, order="random")
        found = executable(**inputs)
        assert not executable.findings
        assert {key: value.tobytes() for key, value in found.items()} == {
            key: value.tobytes() for key, value in wanted.items()
        }
        orders.add(tuple((task.number, *iteration.values()) for task, iteration in random_order(plan, seed)))
    assert len(orders) > SEEDS // 2


def _inputs(name: str) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    plan = plan_of(PIPELINES[name])
    random = np.random.default_rng(7)
    sizes = {buffer.name: buffer.size for buffer in plan.buffers if buffer.memory != "L1"}
    # Bytes below 60 keep every f16 finite.
    return {key: random.integers(0, 60, size, np.uint8) for key, size in sizes.items()}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_random_order_starts_nothing_too_early(name: str) -> None:
    plan = plan_of(PIPELINES[name])
    nodes = expand(plan)
    tasks = {(node.task.number, *node.iteration.values()): node for node in nodes if node.task is not None}
    before: dict[int, set[int]] = {}
    for node in nodes:
        before[node.number] = {node.number, *(old for item in node.after for old in before[item])}
    done: set[int] = set()
    for task, iteration in random_order(plan, 3):
        node = tasks[(task.number, *iteration.values())]
        needed = {number for number in before[node.number] if nodes[number].task is not None}
        assert needed - {node.number} <= done
        done.add(node.number)
    assert len(done) == plan.instances()


LONG = """
buffer A : L2 (size=64)
loop i in [0..{last}]:
    loop j in [0..{last}]:
        neg.sync in region(A, 0, 8) elem=i8, shape=[8], layout=C out region(A, 8, 8) elem=i8, shape=[8], layout=C
    endloop
endloop
"""


def test_program_order_keeps_nothing_of_long_loops() -> None:
    plan = plan_of(LONG.format(last=10**9))
    walk = program_order(plan, Limits(max_expansion=10**20))
    assert [tuple(iteration.values()) for _, iteration in islice(walk, 3)] == [(0, 0), (0, 1), (0, 2)]


def test_too_many_instances_are_refused() -> None:
    plan = plan_of(LONG.format(last=99))
    limits = Limits(max_expansion=9_999)
    for order in ("program", "random"):
        with pytest.raises(LamellaError) as caught:
            compile_plan(plan, order=order, limits=limits)()
        assert [item.code for item in caught.value.findings] == ["NEM176"]
        assert "10000 task instances" in caught.value.findings[0].message
