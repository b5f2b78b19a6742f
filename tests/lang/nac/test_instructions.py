"""The rules of instructions agree with a runtime that gathers arguments as the specification says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.base.diagnostic import errors
from lamella.lang.nac.check import MOST_FINDINGS, check
from lamella.lang.nac.nodes import (
    CONTROL_FLOW,
    INPUT,
    NONE,
    OUTPUT,
    Constant,
    ConstantType,
    File,
    Header,
    Instruction,
    Operation,
    Signature,
)

CONSTANTS = (
    Constant(2, ConstantType.INT64, 1),
    Constant(3, ConstantType.FLOAT64, 2.5),
    Constant(4, ConstantType.STRING, "mean"),
    Constant(5, ConstantType.BOOL, True),
    Constant(6, ConstantType.INT32_LIST, (1, 2)),
    Constant(7, ConstantType.NULL, None),
)
FITTING = {
    **{"i": {2, 5}, "A": {2, 5}, "f": {2, 3, 5}, "b": {2, 5}},
    **{"s": {4}, "S": {6}, "c": {2, 3, 4, 5, 6, 7}},
}
"""The constants above that each code takes."""
SIGNATURES = ("T", "TT", "Ti", "TfA", "Tb", "QKVs", "TS", "cT", "iT")
CUSTOM = 201


@st.composite
def files(draw: st.DrawFn) -> File:
    """Programs that call an operation of their own, mostly rightly."""
    code = [Instruction(INPUT)]
    for _ in range(draw(st.integers(1, 4))):
        code.append(draw(calls(len(code))))
    wrong = draw(st.integers(0, 7)) == 0
    last = draw(st.integers(-len(code) - 2, 1) if wrong else st.integers(-len(code), -1))
    code.append(Instruction(OUTPUT, 0, (), (last,)))
    return File(
        header=Header(inputs=1, outputs=1),
        operations=(Operation(CUSTOM, "own.operation"),),
        signatures=tuple(Signature(place, codes) for place, codes in enumerate(SIGNATURES, 1)),
        constants=CONSTANTS,
        instructions=tuple(code),
    )


@st.composite
def calls(draw: st.DrawFn, index: int) -> Instruction:
    """A call at a place of the program; one in a few has an argument that is wrong."""
    number = draw(st.integers(1, len(SIGNATURES)))
    offsets, constants = [], []
    for code in SIGNATURES[number - 1]:
        if code in FITTING and draw(st.integers(0, 3)):
            offsets.append(0)
            wrong = draw(st.integers(0, 7)) == 0
            constants.append(draw(st.integers(1, 8) if wrong else st.sampled_from(sorted(FITTING[code]))))
        else:
            offsets.append(draw(st.integers(-index, -1)))
    if draw(st.integers(0, 7)) == 0:
        offsets[draw(st.integers(0, len(offsets) - 1))] = draw(st.integers(-index - 2, 2))
    if draw(st.integers(0, 7)) == 0:
        constants = constants[1:] if draw(st.booleans()) else [*constants, 2]
    operation = CUSTOM if draw(st.integers(0, 9)) else draw(st.sampled_from([CUSTOM + 1, NONE]))
    return Instruction(operation, number, tuple(constants), tuple(offsets))


def run(file: File) -> set[str]:
    """Gather the arguments of each instruction one by one; the codes of what is not found."""
    faults: set[str] = set()
    for index, item in enumerate(file.instructions):
        if item.operation >= 10:
            faults |= set() if item.operation == CUSTOM else {"NAC070"}
            faults |= _gather(file, index, item)
        elif item.operation == OUTPUT:
            for offset in item.offsets:
                faults |= _fetch(file, index, offset)
    return faults


def _gather(file: File, index: int, item: Instruction) -> set[str]:
    faults: set[str] = set()
    waiting = list(item.constants)
    values = {constant.id for constant in file.constants}
    for code, offset in zip(SIGNATURES[item.variant - 1], item.offsets, strict=True):
        if offset:
            faults |= _fetch(file, index, offset)
        elif not waiting:
            faults |= {"NAC076", "NAC077"} if code not in FITTING else {"NAC076"}
        else:
            id_ = waiting.pop(0)
            faults |= set() if id_ in values else {"NAC081"}
            faults |= set() if id_ in FITTING.get(code, ()) else {"NAC082" if code in FITTING else "NAC077"}
    return faults | ({"NAC076"} if waiting else set())


def _fetch(file: File, index: int, offset: int) -> set[str]:
    if offset >= 0:
        return {"NAC078"}
    if index + offset < 0:
        return {"NAC079"}
    results = {INPUT: set[str](), NONE: {"NAC072"}, OUTPUT: {"NAC080"}}
    return results.get(file.instructions[index + offset].operation, set())


@given(files())
@settings(max_examples=300)
def test_errors_are_what_a_runtime_cannot_gather(file: File) -> None:
    """An instruction can be wrong in several ways; at least one of them is told."""
    findings = errors(check(file))
    assert {item.code for item in findings} <= run(file)
    assert bool(findings) == bool(run(file))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=4), st.integers(4, 9))
@settings(max_examples=200)
def test_branches_stay_inside_each_other(lengths: list[tuple[int, int]], behind: int) -> None:
    branches = [Instruction(CONTROL_FLOW, 0, pair, (-index,)) for index, pair in enumerate(lengths, 1)]
    code = (Instruction(INPUT), *branches, *[Instruction(INPUT, 2, (1,))] * behind)
    final = Instruction(OUTPUT, 0, (), (-len(code),))
    file = File(header=Header(inputs=1, outputs=1), instructions=(*code, final))
    wrong = {item.span for item in check(file) if item.code in ("NAC094", "NAC095")}
    assert bool(wrong) == (not _nested(lengths, len(file.instructions)))


def _nested(lengths: list[tuple[int, int]], count: int) -> bool:
    """Whether no two branches overlap without one lying inside the other, all inside the program."""
    parts: list[range] = []
    for index, (taken, other) in enumerate(lengths, 1):
        if taken < 0 or other < 0:
            return False
        parts += [range(index, index + 1 + taken + other)]
        parts += [range(index + 1, index + 1 + taken), range(index + 1 + taken, index + 1 + taken + other)]
    inside = all(part.stop <= count for part in parts)
    return inside and all(
        not set(a) & set(b) or set(a) <= set(b) or set(b) <= set(a) for a in parts for b in parts
    )


def test_findings_are_bounded_and_none_hides_an_error() -> None:
    """Thousands of warnings do not keep the one error behind them from being found."""
    lost = (Instruction(NONE),) * (3 * MOST_FINDINGS)
    file = File(header=Header(inputs=1, outputs=1), instructions=(Instruction(INPUT), *lost))
    findings = check(_spread(file))
    assert [item.code for item in findings].count("NAC073") == MOST_FINDINGS
    assert [item.code for item in errors(findings)] == ["NAC086"]


def _spread(file: File) -> File:
    """The same program with different places, since equal findings at one place are one."""
    return replace(
        file,
        instructions=tuple(
            replace(item, span=item.span._replace(start=place, end=place + 1))
            for place, item in enumerate(file.instructions)
        ),
    )


@pytest.mark.parametrize("operation", [1, 4, 5, 8, 9])
def test_unused_system_operations_are_refused(operation: int) -> None:
    code = (Instruction(INPUT), Instruction(operation), Instruction(OUTPUT, 0, (), (-2,)))
    file = File(header=Header(inputs=1, outputs=1), instructions=code)
    assert [item.code for item in check(file)] == ["NAC071"]


def test_a_file_names_standard_ids_as_it_likes() -> None:
    """What CMAP says is stronger than what is standard, also about the number of arguments."""
    code = (Instruction(INPUT), Instruction(14, 1, (), (-1, -1)), Instruction(OUTPUT, 0, (), (-1,)))
    file = File(header=Header(inputs=1, outputs=1), signatures=(Signature(1, "TT"),), instructions=code)
    assert [item.code for item in check(file)] == ["NAC075"]
    assert not check(replace(file, operations=(Operation(14, "own.maximum"),)))
