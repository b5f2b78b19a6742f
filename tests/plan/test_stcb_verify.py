"""The proof of a stream: what it accepts means one thing in every interleaving, and what is ambiguous it refuses."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lamella.backend.npu.stream import compile_stream
from lamella.base.diagnostic import LamellaError
from lamella.plan.stcb.nodes import RESET, MappedBuffer, Stream, StreamUnit, StridedAccess, TaskRecord
from lamella.plan.stcb.run import Bit, QueueMachine, Queues, order_of, queue_up
from lamella.plan.stcb.validate import verify_stream

DMA, NMU, VPU = StreamUnit("DMA", 0), StreamUnit("NMU", 0), StreamUnit("VPU", 0)
BYTE = StridedAccess("L2", 0, (1,), (1,))


def record(
    seq: int, unit: StreamUnit, wait: tuple[int, ...] = (), sets: tuple[int, ...] = (), clear: bool = True
) -> TaskRecord:
    return TaskRecord(seq, unit, "transfer", wait, sets, wait if clear else (), src=(BYTE,), dst=(BYTE,))


def stream(*records: TaskRecord, bits: int = 4) -> Stream:
    end = TaskRecord(len(records), StreamUnit("SEQ", 0), RESET)
    return Stream("s", "d", bits, (MappedBuffer(0, "M", "L2", 0, 0, 8),), ((*records, end),))


def messages(*records: TaskRecord) -> list[str]:
    return [finding.message for finding in verify_stream(stream(*records))]


def test_a_bit_goes_back_and_forth() -> None:
    assert not messages(
        record(0, DMA, (), (0,)),
        record(1, NMU, (0,), (1,)),
        record(2, DMA, (1,), (0,)),
        record(3, NMU, (0,)),
    )


def test_a_second_set_may_come_too_early() -> None:
    found = messages(
        record(0, DMA, (), (0,)), record(1, NMU, (0,)), record(2, DMA, (), (0,)), record(3, NMU, (0,))
    )
    assert found == ["record 2 of engine 0 sets bit 0 of engine 0, which is still set"] or found == [
        "record 2 of engine 0 may set bit 0 before record 1 of engine 0 has cleared it"
    ]


def test_another_unit_may_take_the_first_set_for_its_own() -> None:
    found = messages(
        record(0, DMA, (), (0,)), record(1, NMU, (0,), (1,)), record(2, DMA, (1,), (0,)), record(3, VPU, (0,))
    )
    assert found == ["record 3 of engine 0 may take an earlier set of bit 0 for its own"]


def test_two_waits_do_not_vouch_for_each_other() -> None:
    """VPU waits for two bits that were both set before: neither proves that the other is the new one."""
    found = messages(
        record(0, DMA, (), (0, 1)),
        record(1, NMU, (0, 1), (2,)),
        record(2, DMA, (2,), (0, 1)),
        record(3, VPU, (0, 1)),
    )
    assert found == ["record 3 of engine 0 may take an earlier set of bit 0, 1 for its own"]


def test_a_waiter_that_may_come_after_the_clear() -> None:
    found = messages(record(0, DMA, (), (0,)), record(1, NMU, (0,), clear=False), record(2, VPU, (0,)))
    assert found == ["record 2 of engine 0 may clear bit 0 before record 1 of engine 0 has seen it"]


def test_a_stream_that_cannot_end() -> None:
    stuck = stream(record(0, DMA, (0,), (1,)), record(1, NMU, (1,), (0,)))
    assert [finding.code for finding in verify_stream(stuck)] == ["NEM188"]
    assert "never ends" in verify_stream(stuck)[0].message
    with pytest.raises(LamellaError, match="3 of 3 tasks wait"):
        compile_stream(stuck)()


def test_clearing_needs_waiting() -> None:
    assert messages(replace(record(0, DMA), clear=(0,))) == [
        "record 0 of engine 0 clears bit 0 without waiting for it"
    ]


# --- the verifier against many runs -------------------------------------------------------------------------


def random_stream(seed: int) -> Stream:
    """Records that wait for and set bits at random."""
    chooser = random.Random(seed)
    units = [StreamUnit("DMA", 0), StreamUnit("NMU", 0), StreamUnit("VPU", 0)][: chooser.randint(2, 3)]
    made = []
    for number in range(chooser.randint(2, 7)):
        wait = tuple(sorted(chooser.sample(range(3), chooser.choice((0, 0, 1, 1, 2)))))
        sets = tuple(sorted(chooser.sample(range(3), chooser.choice((0, 1, 1, 2)))))
        clear = wait if chooser.random() < 0.9 else ()
        made.append(replace(record(number, chooser.choice(units), wait, sets), clear=clear))
    return stream(*made, bits=3)


def matching(queues: Queues, chooser: random.Random | None) -> dict[tuple[int, Bit], int] | str:
    """Which set each wait saw in one run, or what went wrong in it."""
    setter: dict[Bit, int] = {}
    seen: dict[tuple[int, Bit], int] = {}
    done = 0
    for number, starts in order_of(queues, chooser):
        group = queues.groups[number]
        if starts:
            seen |= {(number, bit): setter[bit] for bit in group.wait}
            for bit in group.clear:
                setter.pop(bit, None)
            continue
        if any(bit in setter for bit in group.set):
            return "a bit was set twice"
        setter |= dict.fromkeys(group.set, number)
        done += 1
    return seen if done == len(queues.groups) else "stopped"


def test_what_is_proved_is_the_same_in_every_run() -> None:
    accepted = refused = ambiguous = 0
    for seed in range(3000):
        queues = queue_up(random_stream(seed))
        runs = [matching(queues, None), *(matching(queues, random.Random(turn)) for turn in range(12))]
        alike = all(run == runs[0] and not isinstance(run, str) for run in runs)
        if verify_stream(random_stream(seed)):
            refused += 1
            ambiguous += not alike
        else:
            accepted += 1
            assert alike, seed
    assert accepted > 100
    # Most of what is refused does go wrong within twelve runs: the proof is not merely timid.
    assert ambiguous > 0.8 * refused


def test_a_bit_that_is_cleared_meanwhile_sends_a_ready_record_back() -> None:
    queues = queue_up(stream(record(0, DMA, (), (0,)), record(1, NMU, (0,)), record(2, VPU, (0,))))
    machine = QueueMachine(queues)
    assert machine.start(0)
    machine.complete(0)
    assert sorted(machine.ready) == [1, 2]
    assert machine.start(1)
    assert not machine.start(2)
    assert not machine.ready
