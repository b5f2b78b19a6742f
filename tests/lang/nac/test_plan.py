"""Plans of the orchestrator: nested loops and jumps between instructions are right, anything else is found."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamella.lang.nac.check import check
from lamella.lang.nac.check.bytecode import PlanStep, decode
from lamella.lang.nac.nodes import Array, Constant, ConstantType, File, Header, Orchestrator

LOOP_START, LOOP_END, BRANCH, BREAK = 0xA0, 0xA1, 0xA8, 0xA9
SET = bytes.fromhex("04000000")
"""SRC_CONSTANT: slot 0 becomes constant 0."""


def codes(bytecode: bytes, version: str = "1.6") -> set[str]:
    """The findings of a plan with three constants in a file with one array."""
    pool = (Constant(0, ConstantType.INT64, 3), Constant(1, ConstantType.STRING, "model.nac"))
    table = (Array("table", 9, (1,), b"\1"),)
    plan = Orchestrator(bytecode, (*pool, Constant(2, ConstantType.STRING, "table")))
    file = File(header=Header(version), orchestrator=plan, arrays=table)
    return {item.code for item in check(file)}


@dataclass
class Plan:
    """Bytecode while it is written, with what a judge needs to know of it."""

    data: bytearray = field(default_factory=lambda: bytearray(SET))
    starts: dict[int, tuple[int, ...]] = field(default_factory=lambda: {0: ()})
    """Where instructions begin, and the loops around each, outermost first."""
    branches: list[int] = field(default_factory=list)

    def put(self, code: bytes, loops: tuple[int, ...]) -> int:
        """Write an instruction and give its place."""
        place = len(self.data)
        self.starts[place] = loops
        self.data += code
        return place


Body = list[object]
BODIES: st.SearchStrategy[Body] = st.recursive(
    st.lists(st.sampled_from(["copy", "branch", "break"]), max_size=3),
    lambda inner: st.lists(st.one_of(st.sampled_from(["copy", "branch", "break"]), inner), max_size=4),
    max_leaves=8,
)


def write_body(plan: Plan, body: Body, loops: tuple[int, ...] = ()) -> None:
    """Write instructions and loops; a branch leads to the end of the instruction itself, a break behind its loop."""
    breaks: list[int] = []
    for item in body:
        if isinstance(item, list):
            place = plan.put(bytes([LOOP_START, 0]), loops)
            write_body(plan, item, (*loops, place))
        elif item == "copy":
            plan.put(bytes([0x59, 1, 0]), loops)
        elif item == "branch":
            plan.branches.append(plan.put(bytes([BRANCH, 0, 0, 0]), loops))
        elif loops:
            breaks.append(plan.put(bytes([BREAK, 0, 0, 0]), loops))
    if loops:
        end = plan.put(bytes([LOOP_END, 0, 0]), loops)
        plan.data[end + 1 : end + 3] = (loops[-1] + 2 - end - 3).to_bytes(2, "little", signed=True)
        for place in breaks:
            plan.data[place + 2 : place + 4] = (end + 3 - place - 4).to_bytes(2, "little", signed=True)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans that are right."""
    plan = Plan()
    write_body(plan, draw(BODIES))
    plan.put(b"\xff", ())
    return plan


@given(plans())
def test_nested_plans_have_nothing_wrong(plan: Plan) -> None:
    assert codes(bytes(plan.data)) == set()
    assert [item.offset for item in decode(bytes(plan.data)) if isinstance(item, PlanStep)] == sorted(
        plan.starts
    )


@given(plans(), st.data())
def test_branches_lead_to_instructions_of_the_same_loop(plan: Plan, data: st.DataObject) -> None:
    assume(plan.branches)
    place = data.draw(st.sampled_from(plan.branches))
    target = data.draw(st.integers(-2, len(plan.data) + 2))
    plan.data[place + 2 : place + 4] = (target - place - 4).to_bytes(2, "little", signed=True)
    places = {**plan.starts, len(plan.data): ()}
    if target not in places:
        assert codes(bytes(plan.data)) == {"NAC168"}
    else:
        wrong = {"NAC170"} if places[target] != plan.starts[place] else set()
        assert codes(bytes(plan.data)) - {"NAC244"} == wrong
        assert ("NAC244" in codes(bytes(plan.data))) == (not wrong and target <= place)


@given(plans(), st.data())
def test_plans_that_are_cut_short_are_found(plan: Plan, data: st.DataObject) -> None:
    end = data.draw(st.integers(1, len(plan.data) - 1))
    found = codes(bytes(plan.data[:end]))
    assert ("NAC167" in found) == (end not in plan.starts)
    assert ("NAC173" in found) == (end in plan.starts)


@given(st.binary(max_size=60), st.sampled_from(["1.6", "1.8"]))
def test_any_bytes_are_answered(data: bytes, version: str) -> None:
    steps = list(decode(data))
    ends = [item.end for item in steps if isinstance(item, PlanStep)]
    assert [0, *ends][: len(steps)] == [item.offset for item in steps]
    codes(data, version)


@pytest.mark.parametrize(
    ("text", "version", "found"),
    [
        ("05 01 ff", "1.8", set()),
        ("14 01 0200 ff", "1.8", set()),
        ("14 01 0000 ff", "1.8", {"NAC240"}),
        ("14 01 0200 ff", "1.6", {"NAC166"}),
        ("02 01 00 0000 ff", "1.6", set()),
        ("02 01 02 0000 ff", "1.6", {"NAC172"}),
        ("02 01 02 0000 ff", "1.8", set()),
        ("2a 01 0100 02 00 00 ff", "1.6", set()),
        ("2a 01 0100 02 00 07 ff", "1.6", {"NAC174"}),
        ("38 01 01 00 00 00 ff", "1.6", set()),
        ("38 02 01 00 00 ff", "1.6", {"NAC172"}),
        ("38 02 01 00 00 ff", "1.8", set()),
        ("39 00 01 02 00 00 00 ff", "1.6", set()),
        ("3a 00 01 00 ff", "1.6", set()),
        ("3a 01 01 00 00 ff", "1.6", set()),
        ("10 00 0100 80 00 01 00 02 01 02 fe 02 01 02", "1.6", set()),
        ("10 00 0100 80 01 00 00 ff", "1.6", {"NAC175"}),
        ("10 00 0100 82 00 00 01 00 01 00 03 00 00 0000 0000 ff", "1.8", set()),
        ("10 00 0100 82 00 00 01 00 01 00 03 00 00 0900 0000 ff", "1.8", {"NAC169"}),
        ("f0 00 00 00 00 ff", "1.6", set()),
        ("f0 00 03 00 00 ff", "1.6", {"NAC172"}),
        ("a9 00 0000 ff", "1.6", {"NAC170"}),
        ("71 00 00 00 01 ff", "1.8", set()),
    ],
)
def test_operands_follow_their_opcodes(text: str, version: str, found: set[str]) -> None:
    assert codes(SET + bytes.fromhex(text), version) == found
