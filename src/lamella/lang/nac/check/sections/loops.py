"""Jumps of a plan lead to instructions, and loops are nested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.nac.check.sections.decode import Step
from lamella.lang.nac.check.sections.opcodes import BRANCH, BREAK, LOOP_END, LOOP_START
from lamella.lang.nac.rules import sections as rules


@dataclass(frozen=True, slots=True)
class _Loops:
    """For each place where an instruction begins, the loop around it; for each loop, where it ends.

    A loop is known by the byte where its start instruction begins; -1 is no loop.
    """

    around: dict[int, int]
    ends: dict[int, int]
    alone: list[tuple[Step, str]]
    """Starts without an end and ends without a start, with what is wrong with them."""


def check_jumps(steps: Sequence[Step], span: Span) -> Iterator[Diagnostic]:
    """Every jump leads to an instruction of the same loop; loops close where they began; breaks leave their loop."""
    loops = _read_loops(steps)
    for step, problem in loops.alone:
        yield rules.PLAN_LOOP.at(span, name=step.opcode.name, offset=step.offset, problem=problem)
    for step in steps:
        if step.target is None:
            continue
        if step.target not in loops.around:
            yield rules.PLAN_JUMP.at(span, name=step.opcode.name, offset=step.offset, target=step.target)
            continue
        problem = _problem(loops, step, step.target)
        if problem:
            yield rules.PLAN_LOOP.at(span, name=step.opcode.name, offset=step.offset, problem=problem)


def _read_loops(steps: Sequence[Step]) -> _Loops:
    loops = _Loops({}, {}, [])
    open_: list[Step] = []
    for step in steps:
        loops.around[step.offset] = open_[-1].offset if open_ else -1
        if step.code == LOOP_START:
            open_.append(step)
        elif step.code == LOOP_END and open_:
            loops.ends[open_.pop().offset] = step.end
        elif step.code == LOOP_END:
            loops.alone.append((step, "ends no loop"))
    if steps:
        loops.around[steps[-1].end] = -1
    loops.alone.extend((step, "begins a loop that does not end") for step in open_)
    return loops


def _problem(loops: _Loops, step: Step, target: int) -> str:
    """What is wrong with a jump to an instruction, as the rest of a sentence; nothing where it is right."""
    loop = loops.around[step.offset]
    if step.code == BRANCH:
        return "" if loops.around[target] == loop else "jumps into a loop or out of one"
    if loop < 0:
        return "is in no loop" if step.code == BREAK else ""
    wanted = loops.ends.get(loop) if step.code == BREAK else _body(loop)
    if wanted is None or target == wanted:
        return ""
    return f"jumps to byte {target}; its loop {'is left at' if step.code == BREAK else 'begins at'} byte {wanted}"


def _body(loop: int) -> int:
    """The first byte behind the start of a loop, which is an opcode and a slot."""
    return loop + 2
