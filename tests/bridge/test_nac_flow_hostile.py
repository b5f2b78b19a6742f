"""Blocks that nobody meant: whatever their lengths are, a program runs or is refused, and nothing recurses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.dtype import BOOL, F32
from lamella.bridge.nac_to_graph import InputType, nac_to_graph
from lamella.graph.verify import verify
from lamella.lang.nac import check
from lamella.lang.nac import nodes as n
from lamella.lang.nac.nodes import CONTROL_FLOW, CONVERGENCE, INPUT, OUTPUT, Instruction
from lamella.lang.nac.operations import SUBGRAPH
from lamella.lang.nac.schedule import plan_memory
from tests.bridge.test_nac_flow import machine_of

NEG, ADD = 14, 11
SIGNATURES = (n.Signature(1, "T"), n.Signature(2, "TT"))
TYPES = {"c": InputType(BOOL, ()), "x": InputType(F32, (3,))}


def file_of(code: list[Instruction]) -> n.File:
    """A file of one output whose first inputs are a condition and a tensor."""
    inputs = (n.Input(0, "c"), n.Input(1, "x"))
    header = n.Header(internal=True, inputs=2, outputs=1)
    return n.File(header, signatures=SIGNATURES, instructions=tuple(code), inputs=inputs)


def hand(offset: int) -> Instruction:
    """Hand one result over."""
    return Instruction(OUTPUT, SUBGRAPH, (), (offset,))


def sound() -> list[Instruction]:
    """A branch that holds a convergence and another branch, and one convergence behind it."""
    return [
        *(Instruction(INPUT), Instruction(INPUT)),
        Instruction(CONTROL_FLOW, 0, (6, 5), (-2,)),
        Instruction(CONVERGENCE, 40, (2, 1), (-2,)),
        *(Instruction(NEG, 1, (), (-3,)), hand(-1)),
        hand(-5),
        *(Instruction(NEG, 1, (), (-4,)), hand(-1)),
        Instruction(CONTROL_FLOW, 0, (1, 2), (-9,)),
        hand(-9),
        *(Instruction(ADD, 2, (), (-10, -10)), hand(-1)),
        hand(-4),
        Instruction(CONVERGENCE, 0, (1, 1), (-13,)),
        *(hand(-13), hand(-2)),
        Instruction(OUTPUT, 0, (), (-3,)),
    ]


def fixed() -> list[Instruction]:
    """`sound` with its results selected where they are used."""
    code = sound()
    # What a branch gives is a tuple; a block and a convergence take its first tensor.
    code[16] = hand(-14)
    return code


def test_the_program_is_sound() -> None:
    assert not errors(check(file_of(fixed())))
    assert not verify_graph(file_of(fixed()))


def verify_graph(file: n.File) -> list[object]:
    """What is wrong with the graph of a file."""
    model = nac_to_graph(file, inputs=TYPES).model
    return list(verify(model.graph, model.library))


CHANGES = st.tuples(
    st.integers(0, 17), st.sampled_from(("C", "D", "B")), st.integers(-9, 9), st.integers(0, 2)
)


@given(st.lists(CHANGES, min_size=1, max_size=3))
def test_changed_programs_run_or_are_refused(changes: list[tuple[int, str, int, int]]) -> None:
    code = fixed()
    for index, field, value, place in changes:
        item = code[index]
        if field == "B":
            code[index] = replace(item, variant=value % 10)
            continue
        values = list(item.constants if field == "C" else item.offsets)
        if place < len(values):
            values[place] = value
        changed = tuple(values)
        code[index] = replace(item, constants=changed) if field == "C" else replace(item, offsets=changed)
    file = file_of(code)
    wrong = errors(check(file))
    try:
        found = nac_to_graph(file, inputs=TYPES)
    except LamellaError:
        return
    assert not wrong
    assert not verify(found.model.graph, found.model.library)
    planned = replace(file, schedule=plan_memory(file))
    assert not errors(check(planned))
    machine = machine_of(planned, inputs=TYPES)
    for choice in (False, True):
        assert machine(c=np.array(choice), x=np.ones(3, np.float32))


@pytest.mark.parametrize("operation", [CONTROL_FLOW, CONVERGENCE])
def test_blocks_far_inside_each_other_are_refused_once(operation: int) -> None:
    """Ten thousand levels: the finding stands where the limit is passed."""
    depth = 10_000
    code = [Instruction(INPUT), Instruction(INPUT)]
    for level in range(depth, 0, -1):
        code.append(Instruction(operation, 0, (3 * level - 2, 1), (-len(code),)))
    for _ in range(2 * depth):
        code.append(hand(1 - len(code)))
    code.append(Instruction(OUTPUT, 0, (), (1 - len(code),)))
    file = file_of(code)
    assert [item.code for item in check(file) if item.code == "NAC273"] == ["NAC273"]
    with pytest.raises(LamellaError) as problem:
        nac_to_graph(file, inputs=TYPES)
    assert "NAC273" in {item.code for item in problem.value.findings}


def test_blocks_without_instructions_are_counted_once_each() -> None:
    code = [Instruction(INPUT), Instruction(INPUT)]
    code += [Instruction(CONVERGENCE, 0, (0,) * 30_000, (-1,)) for _ in range(4)]
    code.append(Instruction(OUTPUT, 0, (), (-1,)))
    assert [item.code for item in check(file_of(code))] == ["NAC265"] * 4
