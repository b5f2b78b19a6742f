"""The published pipelines, with the cycles that the specification's numbers give."""

from __future__ import annotations

import pytest

from lamella.plan.timing import simulate
from tests.support.plan.timing_plans import conv_pipeline, gemm_ring


def test_each_task_costs_what_the_table_says() -> None:
    report = simulate(conv_pipeline())
    assert {task.title: task.cycles for task in report.tasks} == {
        "load X": 516,
        "load W": 2308,
        "conv": 3530,
        "relu": 99,
        "store": 785,
    }


@pytest.mark.parametrize(
    ("window", "hoisted", "cycles", "binding"),
    [
        (1, False, 26_888, "critical_path"),
        (1, True, 21_512, "critical_path"),
        (2, False, 17_312, "head_work_tail"),
        (2, True, 17_312, "head_work_tail"),
    ],
)
def test_worked_convolution(window: int, hoisted: bool, cycles: int, binding: str) -> None:
    report = simulate(conv_pipeline(window=window, hoisted=hoisted))
    assert (report.cycles, report.binding.name, report.ratio) == (cycles, binding, 1.0)


def test_head_work_tail_is_head_plus_work_plus_tail() -> None:
    bounds = {bound.name: bound for bound in simulate(conv_pipeline(window=2)).bounds}
    assert bounds["head_work_tail"].cycles == 2308 + 4 * 3530 + 884
    assert bounds["head_work_tail"].what == "NMU"


def test_long_convolution_reaches_its_bound() -> None:
    report = simulate(conv_pipeline(tiles=128, window=2, hoisted=True))
    assert report.cycles == report.binding.cycles == 455_032


@pytest.mark.parametrize("cstl", [2, 4])
def test_gemm_ring_reaches_its_bound(cstl: int) -> None:
    report = simulate(gemm_ring(cstl=cstl))
    assert report.cycles == report.binding.cycles == 10_806
    assert report.binding.cycles == 2052 + 8 * 1026 + 33 + 513


def test_ten_million_iterations_are_not_expanded() -> None:
    report = simulate(conv_pipeline(tiles=10**7, window=2), detail=100)
    assert report.cycles == 2308 + 10**7 * 3530 + 884
    assert report.instances == 5 * 10**7
    assert report.simulated < 1000


def test_waits_of_the_worked_convolution() -> None:
    """By hand, two in flight: the second W load waits for a DMA, conv for loads and NMU, relu for conv."""
    tasks = {task.title: task for task in simulate(conv_pipeline(window=2)).tasks}
    assert tasks["load X"].waited["unit"] == 516
    assert tasks["load W"].waited["unit"] == 2 * 516
    assert tasks["load X"].waited["window"] == tasks["load W"].waited["window"] == 6722 + 3530
    assert tasks["conv"].waited["dependency"] == 2308 + 3340 + 2 * 2308
    assert [item.title for item in tasks["conv"].blockers] == ["load W", "conv on NMU[0]"]
    assert tasks["relu"].waited["unit"] == tasks["store"].waited["unit"] == 0
