"""Blocks of instructions: what they take and give, as files of their own, and two of them side by side."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.lang.nac.blocks import block_problem, extract_block, find_block
from lamella.lang.nac.check import check
from lamella.lang.nac.nodes import (
    INPUT,
    OUTPUT,
    Constant,
    ConstantType,
    File,
    Header,
    Input,
    Instruction,
    Parameter,
    Signature,
)
from tests.support.backend.mep.fakes import RecordingHost, run

ADD, SUB, NEG = 11, 12, 14
WEIGHTS = {1: 3.0, 2: -0.5}


@st.composite
def files(draw: st.DrawFn) -> File:
    """Programs of additions and negations on inputs, weights and constants."""
    code: list[Instruction] = [Instruction(INPUT)]
    results = [0]
    for index in range(1, draw(st.integers(2, 12))):
        kind = draw(st.integers(0, 6))
        if kind == 0:
            code.append(Instruction(INPUT))
        elif kind == 1:
            code.append(Instruction(INPUT, 1, (draw(st.sampled_from([1, 2])),)))
        elif kind == 2:
            code.append(Instruction(NEG, 1, (), (draw(st.sampled_from(results)) - index,)))
        elif kind == 3:
            code.append(Instruction(ADD, 3, (2,), (draw(st.sampled_from(results)) - index, 0)))
        else:
            offsets = tuple(draw(st.sampled_from(results)) - index for _ in range(2))
            code.append(Instruction(draw(st.sampled_from([ADD, SUB])), 2, (), offsets))
        results.append(index)
    end = len(code)
    outputs = tuple(draw(st.sampled_from(results)) - end for _ in range(draw(st.integers(1, 2))))
    code.append(Instruction(OUTPUT, 0, (), outputs))
    inputs = [index for index, item in enumerate(code) if (item.operation, item.variant) == (INPUT, 0)]
    return File(
        Header(inputs=len(inputs), outputs=len(outputs)),
        signatures=(Signature(1, "T"), Signature(2, "TT"), Signature(3, "Tf")),
        constants=(Constant(2, ConstantType.FLOAT64, 0.25),),
        instructions=tuple(code),
        parameters=(Parameter(1, "a"), Parameter(2, "b")),
        inputs=tuple(Input(index, f"x{index}") for index in inputs),
    )


def evaluate(file: File, inputs: Sequence[float]) -> tuple[dict[int, float], list[float]]:
    """The results of all instructions and of the outputs, one instruction after the other."""
    given, found, outputs = iter(inputs), dict[int, float](), list[float]()
    for index, item in enumerate(file.instructions):
        values = [found[index + offset] for offset in item.offsets if offset] + [0.25] * (0 in item.offsets)
        if item.operation == INPUT:
            found[index] = WEIGHTS[item.constants[0]] if item.variant else next(given)
        elif item.operation == OUTPUT:
            outputs = values
        elif item.operation == NEG:
            found[index] = -values[0]
        else:
            found[index] = values[0] + (values[1] if item.operation == ADD else -values[1])
    return found, outputs


@given(files(), st.data())
def test_a_block_computes_what_the_whole_does(file: File, data: st.DataObject) -> None:
    inputs = [float(2 + index) for index in range(file.header.inputs)]
    whole, _ = evaluate(file, inputs)
    first = data.draw(st.integers(0, len(file.instructions) - 1))
    last = data.draw(st.integers(first, len(file.instructions) - 1))
    block, alone = find_block(file, first, last), extract_block(file, first, last)
    assert not block_problem(file, first, last)
    assert not [
        item for item in check(alone) if item.severity == "error" and item.code not in ("NAC138", "NAC086")
    ]
    _, given = evaluate(alone, [whole[index] for index in block.takes])
    assert given == [whole[index] for index in block.gives]
    assert len(alone.inputs) == alone.header.inputs == len(block.takes)


@given(files(), st.data())
def test_blocks_give_all_that_later_ones_take(file: File, data: st.DataObject) -> None:
    """Cut anywhere into blocks, the pieces together are the whole."""
    count = len(file.instructions)
    cuts = sorted(data.draw(st.sets(st.integers(1, count - 1), max_size=4)))
    inputs = iter([float(2 + index) for index in range(file.header.inputs)])
    whole, outputs = evaluate(file, [float(2 + index) for index in range(file.header.inputs)])
    known: dict[int, float] = {}
    for first, end in zip([0, *cuts], [*cuts, count], strict=True):
        block = find_block(file, first, end - 1)
        for index in block.takes:
            if index not in known:
                assert (file.instructions[index].operation, file.instructions[index].variant) == (INPUT, 0)
                known[index] = next(inputs)
        _, given = evaluate(extract_block(file, first, end - 1), [known[index] for index in block.takes])
        known.update(zip(block.gives, given, strict=True))
    wanted = [count - 1 + offset for offset in file.instructions[-1].offsets]
    assert [known.get(index, whole[index]) for index in wanted] == outputs
    assert all(known[index] == whole[index] for index in known)


def test_what_is_no_block() -> None:
    branch = File(instructions=(Instruction(INPUT), Instruction(6, 0, (1, 1), (-1,))))
    assert block_problem(branch, 0, 2) == "runs instructions 0 to 2 of a model that has 2"
    assert block_problem(branch, 1, 0) == "runs instructions 1 to 0 of a model that has 2"
    assert "branches begin" in block_problem(branch, 0, 1)
    assert not block_problem(branch, 0, 0)


PARALLEL = """RES_LOAD_MODEL(0, 0)
    RES_LOAD_MODEL(1, 1)
    SRC_CONSTANT(0, 2)
    SRC_CONSTANT(1, 3)
    MODEL_RUN_PARALLEL(0, 0, 1, [0], [1], 1, 3, 9, [1, 0], [0, 2])
    EXEC_RETURN([0, 1, 2])
    0 = "self"
    1 = "other.nac"
    2 = [1.0, 2.0]
    3 = 5"""


def test_two_blocks_run_at_once() -> None:
    """Each waits for the other; both read before either writes."""
    meeting = threading.Barrier(2, timeout=20)
    threads: set[int] = set()

    def block(first: int, last: int, values: Sequence[Array]) -> Sequence[Array]:
        meeting.wait()
        threads.add(threading.get_ident())
        return [value * (first + last) for value in values]

    host = RecordingHost(block=block)
    first, second, third = run(PARALLEL, host).values
    assert np.asarray(second).tolist() == [1.0, 2.0]
    assert np.asarray(first).tolist() == 60
    assert np.asarray(third).tolist() == [12.0, 24.0]
    assert len(threads) == 2
    assert sorted(host.touched) == ["block 0 1", "block 3 9", "model other.nac"]


def test_what_fails_in_a_thread_is_told() -> None:
    def block(first: int, last: int, values: Sequence[Array]) -> Sequence[Array]:
        if first:
            raise InputError("its weights are missing")
        return list(values)

    with pytest.raises(LamellaError, match="runs instructions 3 to 9 of model 1: its weights are missing"):
        run(PARALLEL, RecordingHost(block=block))


def test_one_block() -> None:
    plan = 'RES_LOAD_MODEL(0, 0)\nSRC_CONSTANT(0, 1)\nMODEL_RUN_BLOCK(0, 0, 1, [0], [1])\nEXEC_RETURN([1])\n0 = "self"'
    host = RecordingHost(block=lambda first, last, values: [-values[0]])
    (found,) = run(f"{plan}\n1 = [1, 2]", host).values
    assert np.asarray(found).tolist() == [-1, -2]
    with pytest.raises(LamellaError, match="NAC246"):
        run(f"{plan}\n1 = [1, 2]", RecordingHost(block=lambda first, last, values: []))
