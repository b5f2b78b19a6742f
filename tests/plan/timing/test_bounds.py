"""The five lower bounds: never above the schedule, and never above the shortest schedule there is."""

from __future__ import annotations

import os

import pytest

from lamella.lang.nem.resolved import Index, Loop, Resource
from lamella.plan.timing import simulate
from tests.support.plan.timing.optimum import find_optimum
from tests.support.plan.timing_plans import LITE_UNITS, Builder, RandomPlan, conv_pipeline, make_device, view

CASES = max(1000, int(os.environ.get("LAMELLA_FUZZ", "0")) // 50)


@pytest.mark.parametrize("block", range(4))
def test_cycles_are_never_below_a_bound(block: int) -> None:
    for seed in range(block, CASES, 4):
        report = simulate(RandomPlan(seed, trips=(2, 10, 40)[seed % 3]).plan(), detail=0)
        for bound in report.bounds:
            assert bound.cycles <= report.cycles, (seed, bound)
        assert report.ratio >= 1.0


def test_bounds_hold_for_the_shortest_schedule() -> None:
    """The list schedule may be longer than needed; the bounds must not rely on that."""
    tried = 0
    for seed in range(120):
        plan = RandomPlan(seed, tasks=7, trips=3, limits=False).plan()
        if 2 <= plan.instances() <= 7:
            tried += 1
            report = simulate(plan)
            shortest = find_optimum(plan, report.cycles)
            assert report.binding.cycles <= shortest <= report.cycles, seed
    assert tried > 30


def test_unit_bound_sees_tasks_pinned_to_one_instance() -> None:
    make = Builder()
    near = make.buffer("n", "L1", 4096)
    tile = view(near, 2048, "i8", (2048,))
    relus = [make.task("relu", [tile], [tile], resource=Resource("CSTL", Index(1))) for _ in range(3)]
    report = simulate(make.plan(relus, make_device()))
    bounds = {bound.name: bound for bound in report.bounds}
    assert (bounds["unit"].cycles, bounds["unit"].what) == (27, "CSTL[1]")
    assert report.cycles == 27


def test_link_bound_is_bytes_over_bandwidth() -> None:
    bounds = {bound.name: bound for bound in simulate(conv_pipeline(tiles=4)).bounds}
    assert bounds["link"].cycles == 4 * (16384 + 73728) // (2 * 32)
    assert bounds["link"].what == "L2 by DMA"
    keys = {"SEQ": {"l2_bytes_per_cycle": 8}}
    narrow = simulate(conv_pipeline(tiles=4, device=make_device(keys=keys)))
    link = next(bound for bound in narrow.bounds if bound.name == "link")
    assert (link.cycles, link.what) == (4 * (16384 + 73728 + 25088) // 8, "L2")
    assert narrow.binding.name in ("link", "head_work_tail", "critical_path")


def test_roofline_is_macs_over_peak() -> None:
    bounds = {bound.name: bound for bound in simulate(conv_pipeline(tiles=4)).bounds}
    assert bounds["roofline"].cycles == 4 * 14 * 14 * 128 * 3 * 3 * 64 // 4096
    double = simulate(conv_pipeline(tiles=4, device=make_device({**LITE_UNITS, "NMU": 2}, engines=2)))
    roofline = next(bound for bound in double.bounds if bound.name == "roofline")
    assert roofline.cycles == bounds["roofline"].cycles // 4


def test_compulsory_traffic_counts_each_byte_once() -> None:
    (once,) = simulate(conv_pipeline(tiles=4)).traffic
    assert (once.level, once.moved) == ("L2", 4 * (16384 + 73728 + 25088))
    assert once.compulsory == 4 * (16384 + 25088) + 73728


def test_critical_path_follows_windows() -> None:
    for window, cycles in ((1, 8 * 9), (2, 4 * 9), (8, 9)):
        make = Builder()
        near = make.buffer("n", "L1", 4096)
        tile = view(near, 2048, "i8", (2048,))
        relu = make.task("relu", [tile], [tile])
        plan = make.plan([Loop(make.loop_number(), "i", 0, 7, window, (relu,))], make_device())
        path = next(bound for bound in simulate(plan).bounds if bound.name == "critical_path")
        assert path.cycles == cycles
