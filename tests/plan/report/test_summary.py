"""The summary says the numbers of the report, in words a person understands."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lamella.lang.nem.resolved import Plan
from lamella.plan.report import MOST_TASKS, summarise, summary
from lamella.plan.report.build import count, in_bytes, percent
from lamella.plan.timing import TimingReport, simulate
from tests.support.plan.report.scenes import make_scene
from tests.support.plan.timing_plans import Builder, conv_pipeline, make_device


def test_every_number_of_the_report_is_there(conv_relu: tuple[TimingReport, Plan]) -> None:
    report, plan = conv_relu
    text = summary(report, plan)
    told = report.to_json()
    bounds, memory = told["bounds"], told["memory"]
    assert isinstance(bounds, dict)
    assert isinstance(memory, dict)
    assert len(bounds) == 5
    for value in (told["cycles"], *bounds.values()):
        assert isinstance(value, int)
        assert count(value) in text
    for level in memory.values():
        assert in_bytes(level["peak"]) in text
    for task in plan.tasks():
        assert task.title in text
    assert "1.000" in text
    assert re.search(r"binding", text)


def test_says_what_is_included(conv_relu: tuple[TimingReport, Plan]) -> None:
    text = summary(*conv_relu)
    for word in ("fill", "drain", "bank conflicts", "Defaults"):
        assert word in text


def test_defaults_are_named(conv_relu: tuple[TimingReport, Plan]) -> None:
    text = summary(*conv_relu)
    for key in ("NMU.latency", "DMA.bytes_per_cycle", "CSTL.elems_per_cycle"):
        assert key in text


def test_profile_tags_are_summed() -> None:
    text = summarise(make_scene())
    row = next(line for line in text.splitlines() if line.split()[:1] == ["work"] and len(line.split()) == 6)
    assert row.split()[1:] == ["12", "120", "100.0", "%", "21"]


def test_a_long_list_is_cut_and_says_so() -> None:
    scene = make_scene()
    many = replace(scene, tasks=scene.tasks * MOST_TASKS)
    assert f"… {2 * MOST_TASKS} more tasks" in summarise(many)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_bars_show_shares(share: float) -> None:
    scene = make_scene()
    track = replace(scene.tracks[0], busy=round(share * scene.cycles), utilisation=share)
    text = summarise(replace(scene, tracks=(track,)))
    row = next(line for line in text.splitlines() if line.startswith("  DMA[0]"))
    assert row.count("█") == 24 * share
    assert percent(share) in row


def test_hostile_names_cannot_steer_the_terminal(hostile: tuple[TimingReport, Plan]) -> None:
    assert all(line.isprintable() for line in summary(*hostile).splitlines())


def test_every_debug_name_and_profile_tag_appears(named: tuple[TimingReport, Plan]) -> None:
    text = summary(*named)
    for word in (
        f"{thing}_{what}" for thing in ("task", "loop", "buffer", "region") for what in ("name", "tag")
    ):
        assert word in text


def test_clock_and_energy_of_the_device_are_used() -> None:
    keys = {"SEQ": {"clock_khz": 500_000, "fj_per_cycle": 1000}, "DMA": {"fj_per_byte": 2000}}
    plan = conv_pipeline(tiles=4, window=2, device=make_device(keys=keys))
    report = simulate(plan)
    text = summary(report, plan)
    assert report.cycles == 17312
    # 2 ns a cycle; 1 pJ a cycle, and 2 pJ for each of the 4 · (16 384 + 73 728) bytes loaded
    assert "34.62 µs  at 500 MHz" in text
    assert "738.2 nJ" in text
    assert "no clock" not in text
    assert "no energy" not in text


def test_a_program_without_tasks_has_a_summary() -> None:
    plan = Builder().plan([])
    text = summary(simulate(plan), plan)
    assert re.search(r"cycles +0$", text, re.MULTILINE)
    assert "1.000" in text
