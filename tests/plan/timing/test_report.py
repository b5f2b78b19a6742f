"""The report and its JSON form."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from lamella.lang.nem.resolved import Index, Loop, Resource
from lamella.plan.timing import simulate
from tests.support.plan.timing_plans import LITE_UNITS, Builder, RandomPlan, conv_pipeline, make_device, view

BINDING_KEYS = ("cycles", "bounds", "binding", "ratio", "units", "memory", "tasks")


def test_json_has_the_binding_schema() -> None:
    found = json.loads(json.dumps(simulate(conv_pipeline(window=2)).to_json(instances=True)))
    assert tuple(found)[: len(BINDING_KEYS)] == BINDING_KEYS
    assert set(found["bounds"]) == {"unit", "head_work_tail", "critical_path", "link", "roofline"}
    assert found["binding"] in found["bounds"]
    assert found["units"]["NMU[0]"] == 4 * 3530 / 17312
    assert {key: found["memory"]["L1[0]"][key] for key in ("peak", "capacity")} == {
        "peak": 156672,
        "capacity": 524288,
    }
    assert [task["title"] for task in found["tasks"]] == ["load X", "load W", "conv", "relu", "store"]
    assert len(found["timeline"]) == found["instances"] == 20
    assert "timeline" not in simulate(conv_pipeline()).to_json()


def test_totals_are_the_sums_of_the_timeline() -> None:
    for seed in range(30):
        plan = RandomPlan(seed, trips=4).plan()
        report = simulate(plan)
        busy: Counter[tuple[int, str, int]] = Counter()
        waited: Counter[tuple[int, str]] = Counter()
        for item in report.timeline:
            busy[(*item.record.place, item.record.instance)] += item.end - item.start
            for wait in item.record.waits:
                waited[item.record.task, wait.reason] += wait.cycles
        assert {(u.engine, u.unit, u.instance): u.busy for u in report.units if u.busy} == busy
        for task in report.tasks:
            for reason, cycles in task.waited.items():
                assert waited[task.number, reason] == cycles
            assert sum(item.cycles for item in task.blockers) == sum(task.waited.values())
            assert task.count == sum(item.record.task == task.number for item in report.timeline)


def test_instances_wait_from_opening_to_start_without_gaps() -> None:
    """Outside loops an instance has waited for exactly the cycles before its start."""
    for seed in range(40):
        plan = RandomPlan(seed, trips=1).plan()
        tops = {item.number for item in plan.body if not isinstance(item, Loop) and hasattr(item, "number")}
        for item in simulate(plan).timeline:
            if item.record.task in tops:
                assert sum(wait.cycles for wait in item.record.waits) == item.start


def test_profile_tags_are_added_up() -> None:
    report = simulate(conv_pipeline(window=2))
    (tag,) = report.tags()
    loads = [task for task in report.tasks if task.title.startswith("load")]
    assert (tag.tag, tag.count, tag.busy) == ("load", 8, sum(task.busy for task in loads))
    assert tag.waited["window"] == sum(task.waited["window"] for task in loads)


def test_tasks_inherit_the_tag_of_their_loop() -> None:
    plan = conv_pipeline()
    loop = plan.body[0]
    assert isinstance(loop, Loop)
    tagged = replace(plan, body=(replace(loop, profile="layer1"),))
    profiles = {task.title: task.profile for task in simulate(tagged).tasks}
    assert profiles["conv"] == "layer1"
    assert profiles["load X"] == "load"


def test_clock_turns_cycles_into_time() -> None:
    assert simulate(conv_pipeline()).microseconds is None
    fast = make_device(keys={"SEQ": {"clock_khz": 1_000_000}})
    assert simulate(conv_pipeline(device=fast)).microseconds == 26_888 / 1000


def test_energy_is_work_times_price() -> None:
    assert simulate(conv_pipeline()).energy is None
    keys = {"NMU": {"fj_per_mac": 3}, "DMA": {"fj_per_byte": 50}, "SEQ": {"fj_per_cycle": 7}}
    report = simulate(conv_pipeline(device=make_device(keys=keys)))
    expected = 4 * (3 * 14_450_688 + 50 * (16384 + 73728)) + 7 * 26_888
    assert report.energy == expected
    assert report.to_json()["energy_pj"] == expected / 1000


def test_units_of_several_engines_are_told_apart() -> None:
    make = Builder()
    tiles = [view(make.buffer(f"n{k}", "L1", 4096, k), 256, "i8", (256,)) for k in range(2)]
    relus = [make.task("relu", [tile], [tile], engine=k) for k, tile in enumerate(tiles)]
    report = simulate(make.plan(relus, make_device(engines=2)))
    units = {unit.name(report.engines): unit.busy for unit in report.units}
    assert (units["E0.CSTL[0]"], units["E1.CSTL[0]"], units["sDMA[0]"]) == (2, 2, 0)
    assert [task.unit for task in report.tasks] == ["E0.CSTL", "E1.CSTL"]


def test_large_devices_list_only_units_that_ran() -> None:
    make = Builder()
    tile = view(make.buffer("n", "L1", 4096), 256, "i8", (256,))
    relu = make.task("relu", [tile], [tile], resource=Resource("CSTL", Index(10**9 - 1)))
    report = simulate(make.plan([relu], make_device({**LITE_UNITS, "CSTL": 10**9})))
    assert [unit.name(1) for unit in report.units] == ["CSTL[999999999]"]


def test_reports_of_plans_without_loops_are_complete() -> None:
    report = simulate(conv_pipeline(tiles=1))
    assert report.is_complete
    assert report.covered == report.cycles
