"""Memory over time, counted cycle by cycle from the timeline."""

from __future__ import annotations

from dataclasses import replace

from lamella.lang.nem.resolved import Plan
from lamella.plan.timing import TimingReport, simulate
from tests.support.plan.timing_plans import Builder, RandomPlan, conv_pipeline, make_device, view


def touched(report: TimingReport, plan: Plan) -> dict[str, tuple[int, int]]:
    """First start and last end of what touches each buffer, from the timeline."""
    tasks = {task.number: task for task in plan.tasks()}
    spans: dict[str, tuple[int, int]] = {}
    for item in report.timeline:
        task = tasks[item.record.task]
        for region in (*task.inputs, *task.outputs):
            start, end = spans.get(region.buffer.name, (item.start, item.end))
            spans[region.buffer.name] = min(start, item.start), max(end, item.end)
    return spans


def test_peaks_are_those_of_the_timeline() -> None:
    for seed in range(30):
        plan = RandomPlan(seed, trips=3).plan()
        report = simulate(plan)
        spans = touched(report, plan)
        for memory in report.memory:
            sizes = {item.name: item.size for item in plan.buffers if item.level == memory.level}
            held = [(spans[name], size) for name, size in sizes.items() if name in spans]
            moments = sorted({start for (start, _), _ in held})
            in_use = [sum(size for (start, end), size in held if start <= at < end) for at in moments]
            assert memory.peak == max(in_use, default=0)
            if in_use:
                assert memory.peak_at == moments[in_use.index(memory.peak)]
                assert sum(item.buffer.size for item in memory.holders) == memory.peak
                assert memory.steps[-1][1] == 0
            assert memory.declared == sum(sizes.values())


def test_levels_and_capacities() -> None:
    report = simulate(conv_pipeline())
    shown = {item.level: (item.peak, item.capacity) for item in report.memory}
    assert shown == {"L2": (240_128, 1_048_576), "L1[0]": (156_672, 524_288)}


def test_without_a_device_nothing_limits_a_memory() -> None:
    generic = replace(conv_pipeline(), device=None)
    assert {item.capacity for item in simulate(generic).memory} == {None}


def test_buffers_that_nothing_touches_are_declared_but_not_held() -> None:
    make = Builder()
    used, unused = make.buffer("a", "L1", 100), make.buffer("b", "L1", 50)
    tile = view(used, 10, "i8", (10,))
    report = simulate(make.plan([make.task("relu", [tile], [tile])], make_device()))
    (memory,) = report.memory
    assert (memory.peak, memory.declared) == (used.size, used.size + unused.size)
    assert [item.buffer for item in memory.held] == [used]
