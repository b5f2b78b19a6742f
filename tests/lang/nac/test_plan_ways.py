"""The ways through a plan, judged by walking all of them: slots, models, reachability, steps and jumps in words."""

from __future__ import annotations

import re
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.nac import assemble, disassemble
from lamella.lang.nac.check import check
from lamella.lang.nac.check.bytecode import PlanStep, decode
from lamella.lang.nac.check.plan import loop_counts, step_bound
from lamella.lang.nac.nodes import Constant, ConstantType, File, Header, Orchestrator

ZERO, TWO, MODEL = 0, 1, 2
POOL = (
    Constant(ZERO, ConstantType.INT64, 0),
    Constant(TWO, ConstantType.INT64, 2),
    Constant(MODEL, ConstantType.STRING, "other.nac"),
)
Walked = tuple[int, frozenset[str]]


@st.composite
def texts(draw: st.DrawFn, depth: int = 0, outer: str = "here") -> list[str]:
    """Lines of a plan on three slots and one model, with loops, branches, breaks and returns.

    A label is named after its place, `outer` being that of the block: drawn names meet now and then.
    """
    lines: list[str] = []
    slots = st.integers(0, 2)
    for number in range(draw(st.integers(0, 4))):
        name = f"{outer}_{number}"
        kind = draw(st.integers(0, 9))
        if kind <= 1:
            lines.append(f"SRC_CONSTANT({draw(slots)}, {draw(st.sampled_from([ZERO, TWO]))})")
        elif kind == 2:
            lines.append(f"SYS_COPY({draw(slots)}, {draw(slots)})")
        elif kind == 3:
            lines.append(f"RES_UNLOAD({draw(st.integers(0, 1))}, {draw(st.integers(0, 1))})")
        elif kind == 4:
            lines.append(f"RES_LOAD_MODEL(0, {MODEL})")
        elif kind == 5:
            lines.append(f"MODEL_RUN_STATIC(0, [{draw(slots)}], [{draw(slots)}])")
        elif kind == 6 and depth < 2:
            lines += [f"FLOW_LOOP_START({draw(slots)})", *draw(texts(depth + 1, name)), "FLOW_LOOP_END()"]
        elif kind == 7:
            inside = draw(texts(depth + 2, name))
            branch = f'FLOW_BRANCH_IF({draw(slots)}, "{name}")'
            label = f'FLOW_LABEL("{name}")'
            lines += [label, *inside, branch] if draw(st.booleans()) else [branch, *inside, label]
        elif kind == 8 and depth == 1:
            lines.append(f"FLOW_BREAK_LOOP_IF({draw(slots)})")
        elif kind == 9:
            lines.append("EXEC_HALT()")
    return lines


def assembled(lines: list[str]) -> File:
    """The file of a plan."""
    pool = [f"{ZERO} = 0", f"{TWO} = 2", f'{MODEL} = "other.nac"']
    file, found = assemble(Source("plan.nacs", "\n".join(["nac 1.6", ".orchestrator", *lines, *pool])))
    assert not errors(found), "\n".join(map(str, found))
    return file


def steps_of(file: File) -> list[PlanStep]:
    """The instructions of a plan."""
    return [item for item in decode(file.orchestrator.bytecode) if isinstance(item, PlanStep)]


def ways(step: PlanStep, steps: list[PlanStep], counts: dict[int, int]) -> list[int]:
    """The bytes where a plan may go on after an instruction."""
    name, number = step.opcode.name, steps.index(step)
    if name == "EXEC_HALT":
        return []
    if name == "FLOW_LOOP_START":
        depth, end = 0, number
        while True:
            depth += {"FLOW_LOOP_START": 1, "FLOW_LOOP_END": -1}.get(steps[end].opcode.name, 0)
            if not depth:
                break
            end += 1
        count = counts.get(step.operands[0][1])
        return ([] if count == 0 else [step.end]) + ([] if count else [steps[end].end])
    return [step.end] if step.target is None else [step.end, step.target]


def walk(steps: list[PlanStep], counts: dict[int, int]) -> tuple[set[int], set[tuple[int, str]]]:
    """All states that any way reaches: the bytes of reached instructions, and what is missing where it is used."""
    by_place = {step.offset: step for step in steps}
    waiting: deque[Walked] = deque([(0, frozenset())])
    seen: set[Walked] = set(waiting)
    missing: set[tuple[int, str]] = set()
    while waiting:
        place, held = waiting.popleft()
        if place not in by_place:
            continue
        step = by_place[place]
        name, values = step.opcode.name, [value for _, value in step.operands]
        reads = {"SYS_COPY": values[1:], "MODEL_RUN_STATIC": values[1:2]}.get(
            name, values[:1] * name.startswith("FLOW")
        )
        used = [f"slot {slot}" for slot in reads if name != "FLOW_LOOP_END"]
        used += ["model 0"] * (name == "MODEL_RUN_STATIC")
        missing |= {(place, item) for item in used if item not in held}
        if name == "RES_UNLOAD":
            held -= {f"{['model', 'slot'][values[0]]} {values[1]}"}
        elif name == "RES_LOAD_MODEL":
            held |= {"model 0"}
        elif name in ("SRC_CONSTANT", "SYS_COPY", "MODEL_RUN_STATIC"):
            held |= {f"slot {values[2] if name == 'MODEL_RUN_STATIC' else values[0]}"}
        for next_ in ways(step, steps, counts):
            if (next_, held) not in seen:
                seen.add((next_, held))
                waiting.append((next_, held))
    return {place for place, _ in seen}, missing


@given(texts())
def test_what_the_verifier_finds_is_on_some_way(lines: list[str]) -> None:
    file = assembled([*lines, "EXEC_HALT()"])
    steps = steps_of(file)
    reached, missing = walk(steps, constants(steps))
    told: set[tuple[int, str]] = set()
    dead: set[int] = set()
    for item in check(file):
        place = re.search(r"at byte (\d+)", item.message)
        assert place is not None
        if item.code in ("NAC174", "NAC175"):
            continue
        what = re.search(r"(?:slot|model) \d", item.message)
        if item.code in ("NAC241", "NAC242") and what is not None:
            told.add((int(place[1]), what[0]))
        if item.code == "NAC243":
            count = re.search(r"and (\d+) behind", item.message)
            number = [step.offset for step in steps].index(int(place[1]))
            assert count is not None
            dead |= {step.offset for step in steps[number : number + int(count[1]) + 1]}
    written = {f"slot {value}" for step in steps for value in filled(step)}
    written |= {"model 0"} if any(step.opcode.name == "RES_LOAD_MODEL" for step in steps) else set()
    assert told == {(place, what) for place, what in missing if what in written}
    assert dead == {step.offset for step in steps} - reached


def filled(step: PlanStep) -> list[int]:
    """The slots that an instruction fills."""
    values = [value for _, value in step.operands]
    places = {"SRC_CONSTANT": values[:1], "SYS_COPY": values[:1], "MODEL_RUN_STATIC": values[2:]}
    return places.get(step.opcode.name, [])


def constants(steps: list[PlanStep]) -> dict[int, int]:
    """Slots that never hold anything but one integer."""
    found: dict[int, set[int]] = {}
    for step in steps:
        is_constant = step.opcode.name == "SRC_CONSTANT"
        for slot in filled(step):
            found.setdefault(slot, set()).add({ZERO: 0, TWO: 2}[step.operands[1][1]] if is_constant else -1)
    return {slot: min(items) for slot, items in found.items() if len(items) == 1 and min(items) >= 0}


@given(texts())
def test_jumps_in_words_are_jumps_in_numbers(lines: list[str]) -> None:
    file = assembled([*lines, "EXEC_HALT()"])
    again, found = assemble(Source("plan.nacs", disassemble(file)))
    assert not errors(found)
    assert again == file
    assert len(file.orchestrator.lines) == len(steps_of(file))


def bound(lines: list[str]) -> object:
    """The most steps of a plan."""
    file = assembled(lines)
    steps = steps_of(file)
    return step_bound(
        steps, loop_counts(steps, {item.id: item.value for item in file.orchestrator.constants})
    )


def test_steps_are_bounded_where_loops_are_counted() -> None:
    twice = ["SRC_CONSTANT(0, 1)", "FLOW_LOOP_START(0)", "SYS_COPY(1, 0)", "FLOW_LOOP_END()", "EXEC_HALT()"]
    assert bound(twice) == 2 + 2 * 2 + 1
    nested = [*twice[:2], "FLOW_LOOP_START(0)", "SYS_COPY(1, 0)", "FLOW_LOOP_END()", *twice[3:]]
    assert bound(nested) == 2 + 2 * (1 + 2 * 2 + 1) + 1
    deep = ["SRC_CONSTANT(0, 1)", *["FLOW_LOOP_START(0)"] * 500, *["FLOW_LOOP_END()"] * 500, "EXEC_HALT()"]
    assert bound(deep) == (1 << 63) - 1
    open_ = bound(["SRC_CONSTANT(0, 1)", "SRC_CONSTANT(0, 0)", *twice[1:]])
    assert not isinstance(open_, int)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            'FLOW_BRANCH_IF(0, "there")',
            "FLOW_BRANCH_IF jumps to the label 'there', which the plan does not have",
        ),
        ('FLOW_LABEL("here")', "FLOW_LABEL takes one name that no other label has"),
        ("FLOW_LABEL()", "FLOW_LABEL takes one name that no other label has"),
        ("FLOW_LOOP_END()", "FLOW_LOOP_END takes 1 operand; 0 are given"),
        ("FLOW_BREAK_LOOP_IF(0)", "FLOW_BREAK_LOOP_IF takes 2 operands; 1 is given"),
    ],
)
def test_words_that_lead_nowhere(line: str, reason: str) -> None:
    text = f'nac 1.6\n.orchestrator\nFLOW_LABEL("here")\n{line}\nEXEC_HALT()\n'
    found = assemble(Source("text.nacs", text)).findings
    assert [(item.code, item.span.line, item.message) for item in found] == [("NAC196", 4, reason)]


def test_tangled_plans_are_verified_in_time() -> None:
    """Many branches back, and slots that are emptied one after the other."""
    body = b"".join(b"\x04" + bytes([slot, 0, 0]) for slot in range(256))
    for number in range(12000):
        body += b"\x1f\x01" + bytes([number % 256]) + b"\xa8\x00" + (-7).to_bytes(2, "little", signed=True)
    file = File(Header("1.6"), orchestrator=Orchestrator(body + b"\xff", POOL))
    assert {item.code for item in check(file)} <= {"NAC241", "NAC244", "NAC174"}
