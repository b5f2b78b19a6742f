"""Long loops are bound without unrolling: the order of the program, its bytes, and what a reader refuses."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT
from lamella.base.source import Source
from lamella.lang.nem.resolved import Index, Loop, Operation, Plan, Task, Variable
from lamella.pipeline.nem.program import check_program
from lamella.plan.bind import bind
from lamella.plan.bind.repeat import advance
from lamella.plan.expand import expand
from lamella.plan.stcb import from_bytes, from_json, list_stream, to_bytes, to_json
from lamella.plan.stcb.nodes import Stream
from lamella.plan.stcb.validate import verify_stream
from tests.support.plan.binding import Bound, device_text, equals_program, on_engines, times_of
from tests.support.plan.build import device, region
from tests.support.plan.programs import Writer

FOLDED = replace(DEFAULT, max_unrolled=0)


def folded(plan: Plan) -> Stream:
    stream, findings = bind(plan, limits=FOLDED)
    assert stream is not None, [str(item) for item in findings]
    return stream


# --- order ---------------------------------------------------------------------------------------------------


class Short(Writer):
    """Programs whose tasks differ in unit and order alone."""

    def task(self, tokens: list[Task], loops: list[tuple[int, int, int]]) -> Task:
        opcode = self.random.choice(("transfer", "gemm", "relu", "store", "quantize"))
        one = region(self.buffers[0], 0, 1)
        return self.build.task(opcode, [one], [one], self.some(tokens, 0))


def lengthened(plan: Plan, seed: int, most: int) -> Plan:
    """The plan with many iterations of the loops at its top, and so many instances at most."""
    chooser, body = random.Random(seed), []
    for item in plan.body:
        if isinstance(item, Loop) and item.trips > 0:
            inner = [part for part in item.body if isinstance(part, Loop) and part.trips > 0]
            if inner and chooser.random() < 0.6:
                longer = _longer(plan, inner[0], chooser, most // 3)
                parts = tuple(longer if part is inner[0] else part for part in item.body)
                item = replace(item, last=item.first + min(item.trips, 3) - 1, body=parts)
            else:
                item = _longer(plan, item, chooser, most)
        body.append(item)
    return replace(plan, body=tuple(body))


def _longer(plan: Plan, loop: Loop, chooser: random.Random, most: int) -> Loop:
    each = replace(plan, body=(loop,)).instances() // loop.trips
    trips = min(chooser.randint(40, 400), max(1, most // max(1, each)))
    return replace(loop, last=loop.first + trips - 1)


def broken(plan: Plan, stream: Stream, seed: int | None) -> list[int]:
    """The task instances that began before something that the program puts before them was complete."""
    times, done, place, found = times_of(stream, seed), dict[int, int](), 0, list[int]()
    for node in expand(plan):
        before = max((done[number] for number in node.after), default=-1)
        done[node.number] = before
        if node.task is not None:
            start, done[node.number] = times[place]
            found += [place] if start < before else []
            place += 1
    return found


@given(st.integers(0, 10**9), st.integers(1, 3), st.integers(6, 20))
def test_every_order_of_the_program_is_kept(seed: int, engines: int, bits: int) -> None:
    short = on_engines(Short(seed).plan(), engines, seed)
    plan = replace(lengthened(short, seed, 800), device=device(engines=engines, tokens=bits))
    stream = folded(plan)
    assert sorted(record.seq for _, record in stream.records()) == list(range(stream.count()))
    assert stream.count() == plan.instances() + len(stream.engines)
    assert not verify_stream(stream)
    assert not broken(plan, stream, None)
    assert not broken(plan, stream, seed)


# --- bytes ---------------------------------------------------------------------------------------------------

RINGS = """
const T = {trips}
const B = 16
buffer X : DDR (size=(T + 4) * B, import)
buffer W : DDR (size=64, import)
buffer M : L2 (size=3 * B)
buffer V : L2 (size=64)
buffer A : L1 (size=4 * B)
buffer Y : DDR (size=T * B)
buffer Z : L2 (size=64)
w = transfer.async(dst=V, src=W)
loop i in [0..T - 1] @max_in_flight({window}):
    let a = region(A, (i mod 4) * B, B) elem=i8, shape=[16], layout=C
    m = transfer.async(dst=region(M, (i mod 3) * B, B), src=region(X, (i / 2 + (i mod 2) * 2) * B, B))
    l = transfer.async(dst=a, src=region(M, (i mod 3) * B, B), deps=[m])
    r = neg.async in a out a deps=[l]
    store.async(dst=region(Y, i * B, B), src=a, deps=[r])
endloop
transfer.async(dst=Z, src=V, deps=[w])
loop k in [0..1]:
    loop j in [0..T / 2]:
        transfer.async(dst=region(Z, ((j + k) mod 4) * B, B), src=region(Y, (T - 1 - j - k) * B, B))
    endloop
endloop
"""


def rings(trips: int, window: int, dma: int = 2) -> Plan:
    """A pipeline through rings, a token that is held across it, and a loop that counts down inside another."""
    text = device_text(DMA=dma) + RINGS.format(trips=trips, window=window)
    program = check_program(Source("rings", text), Path("rings.nem"))
    assert program.plan is not None, [str(item) for item in program.findings]
    return program.plan


@pytest.mark.parametrize(("trips", "window", "dma"), [(190, 3, 2), (163, 2, 3)])
def test_a_repeated_stream_gives_the_bytes_of_the_program(trips: int, window: int, dma: int) -> None:
    plan = rings(trips, window, dma)
    stream = folded(plan)
    assert [item.variable for item in stream.repeats] == [0, 1, 1]
    assert sum(map(len, stream.engines)) < stream.count() / 2
    assert from_bytes(to_bytes(stream)) == stream == from_json(to_json(stream))
    assert equals_program(Bound(plan, stream, []), range(1))


def test_a_million_instances_are_few_records() -> None:
    plan = rings(195_000, 3)
    stream, findings = bind(plan)
    assert stream is not None, findings
    assert stream.count() == plan.instances() + 1 > 970_000
    assert len(to_bytes(stream)) < 100_000
    assert any(line.startswith("  repeat ") for line in list_stream(stream))


def test_more_than_a_reader_takes_is_refused() -> None:
    stream, findings = bind(rings(2_000_000, 3), limits=replace(DEFAULT, max_total_bytes=1 << 40))
    assert stream is None
    assert [item.code for item in findings] == ["NEM176"]


# --- what grows steadily ---------------------------------------------------------------------------------------

OUTER, INNER = Variable(0, "i"), Variable(1, "j")
linear = st.builds(
    lambda c, i, j: Index(c, tuple((a, f) for a, f in ((OUTER, i), (INNER, j)) if f)),
    *(st.integers(0, 30), st.integers(0, 6), st.integers(0, 3)),
)


def deeper(inner: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
    atom = st.builds(
        lambda sign, left, right: Operation(sign, left, Index(right)),
        *(st.sampled_from(("mod", "/")), inner, st.integers(1, 7)),
    )
    return st.builds(lambda base, a, f: base.plus(Index(0, ((a, f),))), linear, atom, st.integers(1, 5))


@given(st.recursive(linear, deeper, max_leaves=4))
def test_what_grows_steadily_does(index: Index) -> None:
    found = advance(index, 0, {0: (0, 60), 1: (0, 5)})
    assert found is not None
    period, growth = found
    for j in range(3):
        for i in range(40):
            assert index.at({0: i + period, 1: j}) == index.at({0: i, 1: j}) + growth


def test_what_turns_round_does_not() -> None:
    below = Index(-3, ((OUTER, 1),))
    box = {0: (0, 60), 1: (0, 5)}
    assert advance(Index(0, ((Operation("mod", below, Index(4)), 1),)), 0, box) is None
    assert (
        advance(Index(0, ((Operation("*", Index(0, ((OUTER, 1),)), Index(0, ((INNER, 1),))), 1),)), 0, box)
        is None
    )


# --- readers ---------------------------------------------------------------------------------------------------


@cache
def written() -> str:
    """A stream with repeats, as text."""
    return to_json(folded(rings(200, 1)))


SIMPLE = """
buffer X : DDR (size=640, import)
buffer M : L2 (size=16)
buffer Y : L2 (size=640)
loop i in [0..39]:
    l = transfer.async(dst=M, src=region(X, i * 16, 16))
    transfer.async(dst=region(Y, i * 16, 16), src=M, deps=[l])
endloop
"""


@cache
def simple() -> bytes:
    """A short stream with a repeat."""
    program = check_program(Source("simple", device_text() + SIMPLE), Path("simple.nem"))
    assert program.plan is not None
    stream = folded(program.plan)
    assert stream.repeats
    return to_bytes(stream)


@settings(max_examples=150)
@given(st.integers(0, 1 << 20), st.integers(1, 255), st.integers(0, 40))
def test_any_changed_byte_is_read_or_refused(place: int, change: int, behind: int) -> None:
    """The last bytes of the file are the repeat; half of the changes are made there."""
    data = bytearray(simple())
    data[-1 - behind if place % 2 else place % len(data)] ^= change
    try:
        stream = from_bytes(bytes(data), replace(DEFAULT, max_records=2000))
    except LamellaError:
        return
    assert to_bytes(stream) == bytes(data)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("count", 1, "repeat nothing"),
        ("count", 10**12, "max_records"),
        ("first", 10**6, "does not stand by itself"),
        ("length", 0, "repeat nothing"),
        ("seq_step", 0, "does not count"),
        ("seq_step", 1, "given twice"),
        ("variable", 2**40, "does not count"),
        ("variable_step", 2**62, "does not count"),
        ("steps", [[0]], "does not stand by itself"),
        ("engine", 3, "not in order"),
    ],
)
def test_a_wrong_repeat_is_refused(field: str, value: object, message: str) -> None:
    top = json.loads(written())
    top["repeats"][0][field] = value
    with pytest.raises(LamellaError, match=message):
        from_json(json.dumps(top))


def test_copies_that_leave_their_buffer_are_refused() -> None:
    top = json.loads(written())
    steps = top["repeats"][0]["steps"]
    top["repeats"][0]["steps"] = [[step * 1000 for step in item] for item in steps]
    with pytest.raises(LamellaError, match=r"lie in no buffer|into another"):
        from_json(json.dumps(top))
