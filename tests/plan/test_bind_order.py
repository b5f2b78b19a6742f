"""Token bits keep every order that a program fixes, in every interleaving, with as many bits as there are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.lang.nem.resolved import Index, Plan, Resource, Task
from lamella.plan.bind import bind
from lamella.plan.stcb.nodes import Stream
from lamella.plan.stcb.validate import verify_stream
from tests.support.plan.binding import on_engines, precedence, times_of
from tests.support.plan.build import Builder, device, loop, region, wait
from tests.support.plan.programs import Writer

LEAST_BITS = 6
"""DMA, NMU, VPU, SDMA and the two halves of a CSTL: one bit for each queue of an engine is always enough."""


class Ordered(Writer):
    """Programs whose tasks differ in unit and order alone."""

    def task(self, tokens: list[Task], loops: list[tuple[int, int, int]]) -> Task:
        opcode = self.random.choice(("transfer", "transfer", "gemm", "relu", "store", "quantize"))
        one = region(self.buffers[0], 0, 1)
        return self.build.task(opcode, [one], [one], self.some(tokens, 0), sync=self.random.random() < 0.08)


def program(seed: int, engines: int, bits: int) -> Plan:
    return replace(
        on_engines(Ordered(seed).plan(), engines, seed), device=device(engines=engines, tokens=bits)
    )


def bound(plan: Plan) -> Stream:
    stream, findings = bind(plan)
    assert stream is not None, [str(item) for item in findings]
    return stream


def broken(plan: Plan, stream: Stream, seed: int | None) -> list[tuple[int, int]]:
    """The pairs whose order a run did not keep."""
    times = times_of(stream, seed)
    return [(first, second) for first, second in precedence(plan) if times[first][1] > times[second][0]]


@given(st.integers(0, 10**9), st.integers(1, 3), st.integers(LEAST_BITS, 20), st.integers(0, 10**6))
def test_every_order_of_the_program_is_kept(seed: int, engines: int, bits: int, order: int) -> None:
    plan = program(seed, engines, bits)
    stream = bound(plan)
    assert not verify_stream(stream)
    assert all(bit < bits for _, record in stream.records() for bit in (*record.wait, *record.set))
    assert not broken(plan, stream, None)
    for turn in range(3):
        assert not broken(plan, stream, order + turn)


def pipeline(window: int, bits: int, trips: int = 12) -> Plan:
    """Load, compute, store in a window; loads on two DMAs, the rest on two CSTLs."""
    build = Builder()
    memory = build.buffer("M", 8)
    here = region(memory, 0, 1)
    number = build.loop_number()
    load = build.task("transfer", [here], [here])
    compute = build.task("relu", [here], [here], [load])
    back = build.task("store", [here], [here], [compute])
    return build.plan([loop(number, 0, trips - 1, window, [load, compute, back])], device(tokens=bits))


@pytest.mark.parametrize("window", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("bits", [3, 4, 6, 8, 16, 32])
def test_windows_fit_or_are_serialised(window: int, bits: int) -> None:
    plan = pipeline(window, bits)
    stream, findings = bind(plan)
    assert stream is not None
    assert not verify_stream(stream)
    used = {bit for _, record in stream.records() for bit in record.set}
    assert len(used) <= bits
    assert {finding.code for finding in findings} <= {"NEM183"}
    for seed in range(6):
        assert not broken(plan, stream, seed)


def test_what_does_not_fit_is_told_with_numbers() -> None:
    stream, findings = bind(pipeline(8, 3))
    assert stream is not None
    assert [finding.code for finding in findings] == ["NEM183"]
    words = findings[0].message.split()
    assert int(words[0]) > 3
    assert int(words[words.index("waits") - 1]) > 0
    free, nothing = bind(pipeline(8, 32))
    assert free is not None
    assert not nothing


def test_a_bank_smaller_than_the_units_in_use_is_refused() -> None:
    stream, findings = bind(pipeline(2, 1))
    assert stream is None
    assert [finding.code for finding in findings] == ["NEM157"]
    assert "must be at least" in findings[0].message


def crossed(count: int, bits: int) -> Plan:
    """Loads on two DMAs, and stores that wait for them in the opposite order."""
    build = Builder()
    near, far = build.buffer("M", 64), build.buffer("N", 64)
    loads = [
        build.task(
            "transfer", [region(far, n, 1)], [region(near, n, 1)], resource=Resource("DMA", Index(n % 2))
        )
        for n in range(count)
    ]
    stores = [
        build.task("store", [region(near, n, 1)], [region(far, 32 + n, 1)], [loads[n]]) for n in range(count)
    ]
    return build.plan([*loads, *reversed(stores)], device(tokens=bits))


@pytest.mark.parametrize("count", [2, 5, 12, 20])
def test_a_refused_bank_is_told_the_size_that_is_enough(count: int) -> None:
    refused, findings = bind(crossed(count, 1))
    assert refused is None
    least = int(findings[0].message.split()[-1])
    assert bind(crossed(count, least))[0] is not None
    assert bind(crossed(count, least - 1))[0] is None


def test_the_order_of_a_queue_needs_no_bit() -> None:
    build = Builder()
    here = region(build.buffer("M", 8), 0, 1)
    tasks: list[Task] = []
    for _ in range(5):
        tasks.append(build.task("gemm", [here], [here], tasks[-1:]))
    stream, _ = bind(build.plan(tasks, device(tokens=16)))
    assert stream is not None
    assert not [record for _, record in stream.records() if record.wait or record.set or record.clear]


def test_what_brings_an_order_along_is_waited_for_once() -> None:
    build = Builder()
    here = region(build.buffer("M", 8), 0, 1)
    load = build.task("transfer", [here], [here])
    product = build.task("gemm", [here], [here], [load])
    last = build.task("relu", [here], [here], [load, product])
    stream, _ = bind(build.plan([load, product, wait(load, product), last], device(tokens=16)))
    assert stream is not None
    waits = {record.op: len(record.wait) for _, record in stream.records()}
    assert waits == {"transfer": 0, "gemm": 1, "relu": 1, "reset": 0}


def test_engines_tell_each_other_through_the_bank_of_the_one_that_waits() -> None:
    build = Builder()
    here = region(build.buffer("M", 8), 0, 1)
    first = replace(build.task("transfer", [here], [here]), engine=0)
    second = replace(build.task("transfer", [here], [here], [first]), engine=1)
    third = replace(build.task("transfer", [here], [here], [second]), engine=0)
    stream, _ = bind(build.plan([first, second, third], device(engines=2, tokens=16)))
    assert stream is not None
    one, three, _ = stream.engines[0]
    two, _ = stream.engines[1]
    assert one.remote == ((1, two.wait[0]),)
    assert two.remote == ((0, three.wait[0]),)
    assert not one.set
    assert not two.set


def test_a_long_loop_without_tasks_costs_nothing() -> None:
    build = Builder()
    here = region(build.buffer("M", 8), 0, 1)
    load = build.task("transfer", [here], [here])
    last = build.task("gemm", [here], [here])
    idle = loop(build.loop_number(), 0, 10**9, 2, [wait(load)])
    stream, _ = bind(build.plan([load, idle, last], device(tokens=16)))
    assert stream is not None
    assert [(record.op, record.wait) for _, record in stream.records()] == [
        ("transfer", ()),
        ("gemm", (0,)),
        ("reset", ()),
    ]
