"""The simulator against the judge that unrolls loops, on random plans: by periods, and stepped through."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from lamella.base.diagnostic import LamellaError
from lamella.base.limits import Limits
from lamella.lang.nem.resolved import Index, Item, Loop, Operation, Plan, Resource, Variable, Wait
from lamella.plan.timing import simulate
from lamella.plan.timing.cost import MachineModel, cost_of
from lamella.plan.timing.program import ProgramSteps, prepare
from lamella.plan.timing.queues import Queues
from lamella.plan.timing.schedule import Schedule, Simulation
from lamella.plan.timing.stepping import find_schedule, step_through
from tests.support.plan.timing.expanded import Expanded
from tests.support.plan.timing_plans import LITE_UNITS, Builder, RandomPlan, make_device, variable_mod, view

CASES = max(200, int(os.environ.get("LAMELLA_FUZZ", "0")) // 100)
LARGEST_EXPANSION = 300


def prepared(plan: Plan) -> tuple[ProgramSteps, MachineModel]:
    machine = MachineModel(plan.device)
    return prepare(plan, {task.number: cost_of(task, machine) for task in plan.tasks()}), machine


def run(plan: Plan, *, jump: bool = True, units: bool = True, detail: int = 0) -> Simulation:
    steps, machine = prepared(plan)
    found = Schedule(steps, Queues(machine, steps) if units else None, detail=detail, jump=jump).run()
    assert found is not None
    return found


def step(plan: Plan, *, units: bool = True) -> Simulation:
    """The same in machine code."""
    steps, machine = prepared(plan)
    return step_through(steps, Queues(machine, steps) if units else None)


def sums(judge: Expanded) -> tuple[Counter[object], Counter[object]]:
    """What an outcome has of the judge's records: starts on each instance, and cycles waited by reason and cause."""
    starts: Counter[object] = Counter()
    waits: Counter[object] = Counter()
    for (task, place, instance, stretches), count in judge.records().items():
        starts[task, place, instance] += count
        for reason, blocker, cycles in stretches:
            waits[(task, place, instance), reason, blocker] += count * cycles
    return starts, waits


def small_plan(seed: int, trips: int, limits: bool) -> Plan:
    """The first plan from a seed on that is small enough to unroll."""
    while True:
        plan = RandomPlan(seed, trips=trips, limits=limits).plan()
        if 0 < plan.instances() <= LARGEST_EXPANSION:
            return plan
        seed += 1_000_003


@pytest.mark.parametrize("block", range(10))
def test_random_plans_equal_their_expansion(block: int) -> None:
    """Cycles, units, every stretch of waiting and what was waited for, in half of the cases with limits."""
    for case in range(CASES // 10):
        plan = small_plan(1000 * block + case, trips=(3, 8, 20)[case % 3], limits=case % 2 == 0)
        judge = Expanded(plan)
        cycles = judge.run()
        outcome = run(plan, detail=LARGEST_EXPANSION)
        assert (outcome.cycles, outcome.forced) == (cycles, judge.forced), (block, case)
        kept = Counter(tuple(item.record) for item in outcome.timeline)
        assert kept == judge.records(), (block, case)
        for found in (outcome, run(plan), step(plan)):
            assert (found.cycles, found.forced) == (cycles, judge.forced), (block, case)
            assert (found.starts, found.waits) == sums(judge), (block, case)


def test_jumps_happen_and_change_nothing() -> None:
    """Longer loops, too long for the judge: with and without jumps everything is the same."""
    jumped = 0
    for seed in range(40):
        plan = RandomPlan(5_000 + seed, tasks=10, trips=60).plan()
        if plan.instances() > 20_000:
            continue
        for units in (True, False):
            plain = run(plan, jump=False, units=units)
            for fast in (run(plan, units=units), step(plan, units=units)):
                jumped += fast.simulated < plain.simulated
                assert (fast.cycles, fast.forced) == (plain.cycles, plain.forced), seed
                assert (fast.first, fast.last) == (plain.first, plain.last), seed
                assert not units or (fast.starts, fast.waits) == (plain.starts, plain.waits), seed
    assert jumped > 20


def test_same_plan_same_report() -> None:
    for seed in range(20):
        first, second = (simulate(RandomPlan(seed).plan()) for _ in range(2))
        assert first.to_json(instances=True) == second.to_json(instances=True)


def test_timeline_keeps_the_first_instances() -> None:
    make = Builder()
    near = make.buffer("n", "L1", 4096)
    tile = view(near, 256, "i8", (256,))
    relu = make.task("relu", [tile], [tile])
    plan = make.plan([Loop(make.loop_number(), "i", 5, 1004, 2, (relu,))], make_device())
    whole, cut = simulate(plan), simulate(plan, detail=10)
    assert whole.is_complete
    assert [item.iteration for item in whole.timeline] == [(i,) for i in range(5, 1005)]
    assert cut.timeline == whole.timeline[:10]
    assert not cut.is_complete
    later = [item.start for item in whole.timeline[10:]]
    assert cut.covered == min(later)
    assert cut.cycles == whole.cycles == whole.covered
    assert cut.to_json() | {"simulated": 0, "timeline_covers": 0} == (
        whole.to_json() | {"simulated": 0, "timeline_covers": 0}
    )


def nested_plan(trips: tuple[int, int, int], window: int) -> Plan:
    """Three loops, pins that depend on two of them, an outer token waited for in the innermost one."""
    make = Builder()
    far, near = make.buffer("l", "L2", 1 << 20), make.buffer("n", "L1", 1 << 18)
    tile = view(near, 2048, "i8", (2048,))
    i, j, k = (make.loop_number() for _ in range(3))
    early = make.task("transfer", [view(far, 512)], [view(near, 512)])
    load = make.task("transfer", [view(far, 2048)], [tile], [early])
    relu = make.task("relu", [tile], [tile], [load], resource=Resource("CSTL", variable_mod(k, 3)))
    store = make.task("store", [tile], [view(far, 2048)], resource=Resource("CSTL", variable_mod(j, 2)))
    inner = Loop(k, "k", 0, trips[2] - 1, window, (load, relu))
    middle = Loop(j, "j", 0, trips[1] - 1, window, (inner, store))
    return make.plan([Loop(i, "i", 0, trips[0] - 1, window, (early, middle))], make_device())


def test_nests_jump_at_every_depth() -> None:
    for window in (1, 2):
        small = nested_plan((3, 4, 12), window)
        assert run(small).cycles == Expanded(small).run()
        large = run(nested_plan((100, 100, 1000), window))
        assert large.simulated < 20_000
        assert sum(large.starts.values()) == 100 + 100 * 100 * (1 + 2 * 1000)


def test_a_long_task_outside_does_not_hinder_jumps() -> None:
    make = Builder()
    far, near = make.buffer("d", "DDR", 1 << 40), make.buffer("n", "L1", 1 << 20)
    tile = view(near, 256, "i8", (256,))
    load = make.task("transfer", [view(far, 1 << 36)], [view(near, 1 << 36)])
    relu = make.task("relu", [tile], [tile])
    loop = Loop(make.loop_number(), "i", 0, 10**6, 2, (relu,))
    last = make.task("relu", [tile], [tile], [load])
    outcome = run(make.plan([load, loop, last], make_device()))
    assert outcome.cycles == (1 << 32) + 100 + 2
    assert outcome.simulated < 100


def test_jumps_end_before_a_task_outside_ends() -> None:
    """In the midst of a long loop a load ends, and what waits for it takes a unit from the loop."""
    make = Builder()
    far, near = make.buffer("d", "DDR", 1 << 20), make.buffer("n", "L1", 1 << 20)
    tile = view(near, 2048, "i8", (2048,))
    load = make.task("transfer", [view(far, 160_000)], [view(near, 160_000)])
    late = make.task("relu", [tile], [tile], [load])
    relu = make.task("relu", [tile], [tile])
    loop = Loop(make.loop_number(), "i", 0, 9_999, 3, (relu,))
    plan = make.plan([load, late, loop], make_device())
    outcome, plain = run(plan), run(plan, jump=False)
    assert 10_100 <= outcome.first[late.number] < 10_109
    assert (outcome.cycles, outcome.first, outcome.waits) == (plain.cycles, plain.first, plain.waits)
    assert outcome.simulated < 200


def test_unit_indices_without_a_period_are_simulated_one_by_one() -> None:
    """`(i - 8) / 3` changes sign on the way; the judge sees every iteration."""
    make = Builder()
    near = make.buffer("n", "L1", 4096)
    tile = view(near, 2048, "i8", (2048,))
    number = make.loop_number()
    inner = Index(-8, ((Variable(number, "i"), 1),))
    pin = Index(0, ((Operation("/", inner, Index(3)), 1),))
    relu = make.task("relu", [tile], [tile], resource=Resource("CSTL", pin))
    plan = make.plan([Loop(number, "i", 0, 30, 4, (relu,))], make_device({**LITE_UNITS, "CSTL": 3}))
    judge = Expanded(plan)
    assert run(plan).cycles == step(plan).cycles == judge.run()
    assert run(plan).simulated == 31


def test_loops_without_tasks_and_without_iterations_take_no_time() -> None:
    make = Builder()
    near = make.buffer("n", "L1", 4096)
    tile = view(near, 256, "i8", (256,))
    first = make.task("relu", [tile], [tile])
    waits = Loop(make.loop_number(), "i", 0, 10**9, 1, (Wait((first.number,)),))
    never = make.task("relu", [tile], [tile])
    nothing = Loop(make.loop_number(), "j", 0, -1, 1, (never,))
    last = make.task("relu", [tile], [tile])
    body: list[Item] = [first, waits, nothing, last]
    report = simulate(make.plan(body, make_device()))
    assert report.cycles == 4
    assert [task.count for task in report.tasks] == [1, 0, 1]
    assert report.tasks[1].first_start is None


def test_empty_plans_take_no_time() -> None:
    report = simulate(Builder().plan([]))
    assert (report.cycles, report.ratio, report.instances) == (0, 1.0, 0)


def drifting_plan(trips: int) -> Plan:
    """Two nested loops whose stages are nearly of one length, under windows of many iterations."""
    make = Builder()
    far, near = make.buffer("l", "L2", 1 << 20), make.buffer("n", "L1", 1 << 20)
    load = make.task("transfer", [view(far, 101 * 32)], [view(near, 101 * 32)])
    relu, last = (
        make.task("relu", [tile], [tile], after)
        for tile, after in (
            (view(near, 103 * 256, "i8", (103 * 256,)), [load]),
            (view(near, 107 * 256, "i8", (107 * 256,)), []),
        )
    )
    inner = Loop(make.loop_number(), "j", 0, trips - 1, 13, (load, relu))
    return make.plan([Loop(make.loop_number(), "i", 0, trips - 1, 17, (inner, last))], make_device())


def test_what_finds_no_steady_state_is_stepped_through() -> None:
    """A search of few instances finds nothing; the rest is machine code, and the timeline that of the search."""
    plan = drifting_plan(150)
    steps, machine = prepared(plan)
    plain = run(plan, jump=False, detail=500)
    search = Schedule(steps, Queues(machine, steps), patience=20_000)
    assert search.run() is None
    found = find_schedule(steps, machine, detail=500)
    assert found.simulated == plan.instances() == 45_150
    assert found == plain


def test_what_finds_no_steady_state_within_the_limit_is_an_error() -> None:
    make = Builder()
    near = make.buffer("n", "L1", 4096)
    tile = view(near, 256, "i8", (256,))
    relu = make.task("relu", [tile], [tile])
    plan = make.plan([Loop(make.loop_number(), "i", 0, 10**9, 10**9, (relu,))], make_device())
    with pytest.raises(LamellaError) as caught:
        simulate(plan, Limits(max_expansion=1600))
    assert [item.code for item in caught.value.findings] == ["NEM176"]


def test_deep_nests_need_no_stack() -> None:
    make = Builder()
    near = make.buffer("n", "L1", 4096)
    tile = view(near, 256, "i8", (256,))
    body: list[Item] = [make.task("relu", [tile], [tile])]
    for _ in range(200):
        body = [Loop(make.loop_number(), "i", 0, 0, 1, tuple(body))]
    assert simulate(make.plan(body, make_device())).cycles == 2
