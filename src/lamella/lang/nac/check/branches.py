"""Branches: the lengths of CONTROL_FLOW stay inside the program and inside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nac.nodes import CONTROL_FLOW, Instruction
from lamella.lang.nac.rules import instructions as rules


def check_branches(instructions: Sequence[Instruction]) -> Iterator[Diagnostic]:
    """Both branches fit behind their instruction; a branch inside another one ends inside it."""
    around: list[int] = []  # where the branches end that are open here, the innermost last
    for index, item in enumerate(instructions):
        while around and around[-1] <= index:
            around.pop()
        if item.operation != CONTROL_FLOW:
            continue
        taken, other = _lengths(item)
        lengths, left = f"{taken} and {other}", len(instructions) - index - 1
        end = index + 1 + taken + other
        if taken < 0 or other < 0 or taken + other > left:
            yield rules.BRANCH_RANGE.at(item.span, lengths=lengths, left=left)
        elif around and end > around[-1]:
            yield rules.BRANCH_CROSSES.at(item.span, lengths=lengths, end=around[-1])
        else:
            around += [end, end - other] if other else [end]


def _lengths(item: Instruction) -> tuple[int, int]:
    """How many instructions the two branches have."""
    taken, other = (*item.constants, 0, 0)[:2]
    return taken, other
