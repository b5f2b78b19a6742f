"""Overlap of the operands of one task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import Diagnostic, Label, Rule
from lamella.base.limits import hint_for
from lamella.lang.nem.registry import opcode
from lamella.lang.nem.resolved import Task
from lamella.lang.nem.rules import NOT_PROVED, OVERLAPPING_MOVE, OVERLAPPING_OUTPUT
from lamella.plan.feasible import Exhausted
from lamella.plan.hazards.accesses import Access, Accesses
from lamella.plan.hazards.questions import Meeting, Questions
from lamella.plan.hazards.words import IRREGULAR, show_bytes, show_iterations

MOVES = ("transfer", "store")


def check_operands(accesses: Accesses, questions: Questions) -> Iterator[Diagnostic]:
    """A move keeps off its own source unless @memmove; an output meets only identical inputs, elementwise."""
    for touched in accesses.of:
        if len(touched) < 2 or (touched[0].site.task.memmove and touched[0].site.task.opcode in MOVES):
            continue
        for one, other in _meeting(touched):
            output, second = (one, other) if one.write else (other, one)
            finding = _check_pair(output, second, questions)
            if finding is not None:
                yield finding


def _meeting(touched: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    """Pairs of operands, one of them an output, whose bytes over all iterations meet."""
    open_now: list[Access] = []
    for access in sorted(touched, key=lambda item: (item.footprint.buffer.name, item.footprint.low)):
        open_now = [other for other in open_now if other.footprint.meets(access.footprint)]
        yield from ((other, access) for other in open_now if other.write or access.write)
        open_now.append(access)


def _check_pair(output: Access, other: Access, questions: Questions) -> Diagnostic | None:
    task = output.site.task
    free = _may_coincide(task, output, other)
    try:
        if free:
            met = questions.apart(output.footprint, other.footprint)
        else:
            met = questions.in_one_iteration(output.footprint, other.footprint, {})
    except Exhausted:
        what = f"that {output.what} of {task.opcode} keeps off {other.what}"
        return NOT_PROVED.at(output.span, hint=hint_for("max_pairs"), what=what, cause=IRREGULAR)
    return None if met is None else _report(output, other, met)


def _may_coincide(task: Task, output: Access, other: Access) -> bool:
    """An elementwise task may work in place: the same bytes, read as the same elements."""
    known = opcode(task.opcode)
    if known is None or "eltwise" not in known.families or other.write:
        return False
    one, two = output.region.type, other.region.type
    return (
        one is None or two is None or (one.elem, one.shape, one.strides) == (two.elem, two.shape, two.strides)
    )


def _report(output: Access, other: Access, met: Meeting) -> Diagnostic:
    task = output.site.task
    rule: Rule = OVERLAPPING_MOVE if task.opcode in MOVES else OVERLAPPING_OUTPUT
    first, second = output.first_byte(met.late), other.first_byte(met.late)
    end = min(first + output.footprint.extent, second + other.footprint.extent)
    return rule.at(
        output.span,
        labels=[Label(other.span, f"{other.what} is here")],
        opcode=task.opcode,
        output=output.what.partition(" ")[2],
        other=other.what,
        range=show_bytes(max(first, second), end),
        buffer=output.footprint.buffer.name,
        iterations=show_iterations((output.site, met.late)),
    )
