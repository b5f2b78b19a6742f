"""Token and bandwidth limits of a device, worked out by hand."""

from __future__ import annotations

from lamella.lang.nem.resolved import Plan, Task, Wait
from lamella.plan.timing import TimingReport, simulate
from tests.support.plan.timing_plans import LITE_UNITS, Builder, make_device, view

NINE = 2048
"""Elements that take CSTL nine cycles."""


def relus(make: Builder, count: int, deps: list[Task] | None = None) -> list[Task]:
    near = make.buffer(f"n{make.tasks}", "L1", 4096)
    tile = view(near, NINE, "i8", (NINE,))
    return [make.task("relu", [tile], [tile], deps or ()) for _ in range(count)]


def with_tokens(plan_tokens: int, cstl: int = 4) -> tuple[Builder, dict[str, dict[str, int]], dict[str, int]]:
    return Builder(), {"SEQ": {"max_active_tokens": plan_tokens}}, {**LITE_UNITS, "CSTL": cstl}


def run_fan(tokens: int) -> TimingReport:
    """Four tasks at once whose tokens one more task waits for."""
    make, keys, units = with_tokens(tokens)
    first = relus(make, 4)
    return simulate(make.plan([*first, *relus(make, 1, first)], make_device(units, keys)))


def test_enough_tokens_hold_nothing_back() -> None:
    report = run_fan(4)
    assert (report.cycles, report.forced, report.waited["token"]) == (18, 0, 0)


def test_too_few_tokens_force_starts_one_after_another() -> None:
    """Two start; the others can only start when nothing runs any more, and are counted."""
    report = run_fan(2)
    assert (report.cycles, report.forced) == (9 + 9 + 9 + 9, 2)
    assert [task.waited["token"] for task in report.tasks] == [0, 0, 9, 18, 0]
    assert report.tasks[2].blockers[0].title == "SEQ of engine 0"


def test_a_chain_needs_one_token() -> None:
    """The start of the only waiter frees the token that it needs itself."""
    make, keys, units = with_tokens(1)
    chain = relus(make, 1)
    for _ in range(3):
        chain += relus(make, 1, chain[-1:])
    report = simulate(make.plan([*chain, Wait((chain[-1].number,))], make_device(units, keys)))
    assert (report.cycles, report.forced, report.waited["token"]) == (36, 0, 0)


def test_tokens_nobody_waits_for_are_free() -> None:
    make, keys, units = with_tokens(1)
    report = simulate(make.plan(relus(make, 4), make_device(units, keys)))
    assert (report.cycles, report.forced) == (9, 0)


def loads(rate: int | None) -> Plan:
    make = Builder()
    far, near = make.buffer("l", "L2", 1 << 16), make.buffer("n", "L1", 1 << 16)
    tasks = [make.task("transfer", [view(far, 3200)], [view(near, 3200)]) for _ in range(2)]
    keys = {"SEQ": {} if rate is None else {"l2_bytes_per_cycle": rate}}
    return make.plan(tasks, make_device(keys=keys))


def test_bandwidth_is_shared_by_transfers() -> None:
    """Two channels of 32 bytes a cycle: side by side on 64, one after the other on 40, slower on 16."""
    assert simulate(loads(None)).cycles == simulate(loads(64)).cycles == 104
    narrow = simulate(loads(40))
    assert narrow.cycles == 2 * 104
    assert narrow.tasks[1].waited == {
        "dependency": 0,
        "window": 0,
        "unit": 0,
        "token": 0,
        "bandwidth": 104,
    }
    assert narrow.tasks[1].blockers[0].title == "L2"
    assert simulate(loads(16)).cycles == 2 * (200 + 4)
