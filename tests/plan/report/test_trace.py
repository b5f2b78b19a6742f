"""The trace is what Perfetto expects: named tracks, slices that never overlap, arrows between slices, counters."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

import pytest

from lamella.lang.nem.resolved import Plan
from lamella.plan.report import chrome_trace
from lamella.plan.timing import TimingReport, simulate
from tests.support.plan.timing_plans import RandomPlan, conv_pipeline

Event = Mapping[str, object]


def events(trace: Mapping[str, object], phase: str) -> list[dict[str, object]]:
    """The events of one phase, after a trip through JSON."""
    read = json.loads(json.dumps(trace, allow_nan=False))
    return [event for event in read["traceEvents"] if event["ph"] == phase]


def track(event: Event) -> tuple[object, object]:
    """The process and thread of an event."""
    return event["pid"], event["tid"]


def number(event: Event, key: str) -> int:
    """A whole number of an event."""
    found = event[key]
    assert isinstance(found, int)
    return found


def check_trace(trace: Mapping[str, object]) -> None:
    """Everything that must hold of any trace."""
    slices = defaultdict(list)
    for event in events(trace, "X"):
        assert number(event, "dur") >= 0
        slices[track(event)].append((number(event, "ts"), number(event, "ts") + number(event, "dur")))
    named = {track(event) for event in events(trace, "M") if event["name"] == "thread_name"}
    assert set(slices) <= named
    for spans in slices.values():
        spans.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
    starts, ends = events(trace, "s"), events(trace, "f")
    assert [event["id"] for event in starts] == [event["id"] for event in ends]
    assert len({number(event, "id") for event in starts}) == len(starts)
    for event in starts:
        assert any(start <= number(event, "ts") < end for start, end in slices[track(event)])
    for event in ends:
        assert event["bp"] == "e"
        assert number(event, "ts") in {start for start, _ in slices[track(event)]}
    for first, second in zip(starts, ends, strict=True):
        assert number(first, "ts") < number(second, "ts")
    for event in events(trace, "C"):
        values = event["args"]
        assert isinstance(values, dict)
        assert all(value >= 0 for value in values.values())


def test_the_worked_example_is_sound(conv_relu: tuple[TimingReport, Plan]) -> None:
    trace = chrome_trace(*conv_relu)
    check_trace(trace)
    names = [event["name"] for event in events(trace, "X")]
    assert names.count("load_x") == 4
    assert len(names) == 20
    # per tile: two loads to the conv, conv to relu, relu to store
    assert len(events(trace, "s")) == 16
    assert max(number(event, "ts") + number(event, "dur") for event in events(trace, "X")) == 17312


def test_processes_and_threads_are_named(conv_relu: tuple[TimingReport, Plan]) -> None:
    told = [(event["name"], event["args"]) for event in events(chrome_trace(*conv_relu), "M")]
    assert ("process_name", {"name": "device npm_lite"}) in told
    assert ("process_name", {"name": "engine 0"}) in told
    for unit in ("NMU[0]", "CSTL[0]", "CSTL[1]", "DMA[0]", "DMA[1]", "sDMA[0]"):
        assert ("thread_name", {"name": unit}) in told


def test_says_how_long_a_cycle_is(conv_relu: tuple[TimingReport, Plan]) -> None:
    other = chrome_trace(*conv_relu)["otherData"]
    assert isinstance(other, dict)
    assert other["time"] == "1 cycle of the device is 1 µs of this trace"
    assert other["cycles"] == 17312


def test_a_slice_tells_its_line_iteration_and_waits(conv_relu: tuple[TimingReport, Plan]) -> None:
    report, plan = conv_relu
    convolution = next(task for task in plan.tasks() if task.opcode == "conv2d")
    found = [
        event["args"]
        for event in events(chrome_trace(report, plan), "X")
        if event["name"] == convolution.title
    ]
    assert [told["iteration"] for told in found if isinstance(told, dict)] == ["i=0", "i=1", "i=2", "i=3"]
    first = found[0]
    assert isinstance(first, dict)
    assert first["line"] == convolution.span.line
    assert first["waited: dependency"] == "2308 cycles for load_w"


def test_a_cut_timeline_says_so() -> None:
    plan = conv_pipeline(tiles=1000, window=2)
    trace = chrome_trace(simulate(plan, detail=50), plan)
    check_trace(trace)
    other = trace["otherData"]
    assert isinstance(other, dict)
    assert "first 50 of 5 000 task instances" in other["cut"]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_give_sound_traces(seed: int) -> None:
    plan = RandomPlan(seed).plan()
    report = simulate(plan)
    trace = chrome_trace(report, plan)
    check_trace(trace)
    assert len(events(trace, "X")) == report.instances


def test_every_debug_name_and_profile_tag_appears(named: tuple[TimingReport, Plan]) -> None:
    text = json.dumps(chrome_trace(*named))
    for thing in ("task", "loop", "region", "buffer"):
        assert f"{thing}_name" in text
        assert f"{thing}_tag" in text
