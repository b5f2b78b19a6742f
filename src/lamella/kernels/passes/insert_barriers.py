"""The pass that puts barriers where work-items would else see memory too early or too late.

Between two statements of a collective region a barrier is needed where one writes what the other accesses and no
barrier of that memory lies between them, on some way from one to the other; a loop leads from its end to its begin.
SPMD regions are left as they are: their barriers are the program's own, and count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lamella.kernels.build import regions
from lamella.kernels.hazards import Cell, Memories, conflict, find_memories
from lamella.kernels.rewrite import change_functions, rewrite, with_regions
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import (
    Barrier,
    For,
    Foreach,
    Function,
    If,
    Instruction,
    Program,
    Region,
    Statement,
)

Accesses: TypeAlias = Mapping[Cell, int]


def insert_barriers(program: Program, _: Target) -> Program:
    """A program in which conflicting statements of collective regions are separated by barriers."""
    return change_functions(program, _insert)


def _insert(function: Function) -> Function:
    work = _Barriers(find_memories(function))
    return replace(function, body=rewrite(function.body, work.visit))


@dataclass(frozen=True, slots=True)
class Summary:
    """What statements do to memory as one: how each memory is accessed before a barrier and behind the last.

    `through` tells for global and for local memory whether some way leads past all barriers.
    """

    first: Accesses = field(default_factory=dict)
    last: Accesses = field(default_factory=dict)
    through: tuple[bool, bool] = (True, True)


NOTHING = Summary()


def _join(left: Accesses, right: Accesses) -> dict[Cell, int]:
    found = dict(left)
    for cell, kind in right.items():
        found[cell] = found.get(cell, 0) | kind
    return found


def _passing(accesses: Accesses, through: tuple[bool, bool]) -> dict[Cell, int]:
    """The accesses to memory that no barrier closes."""
    return {cell: kind for cell, kind in accesses.items() if through[cell.is_local]}


def _follow(before: Summary, behind: Summary) -> Summary:
    """What two pieces of a program do one after the other."""
    if behind is NOTHING or before is NOTHING:
        return before if behind is NOTHING else behind
    through = (before.through[0] and behind.through[0], before.through[1] and behind.through[1])
    first = _join(before.first, _passing(behind.first, before.through))
    return Summary(first, _join(_passing(before.last, behind.through), behind.last), through)


@dataclass(slots=True)
class _Barriers:
    """The pass on one function, region by region from the inside out."""

    memories: Memories
    summaries: dict[int, Summary] = field(default_factory=dict)
    """What regions do, by their identity: each stays alive in the one around it."""
    kept: list[Region] = field(default_factory=list)

    def visit(self, region: Region, spmd: bool) -> Region:
        """The region with its barriers."""
        path, found = NOTHING, []
        for statement in region.statements:
            if isinstance(statement.instruction, For) and not spmd:
                statement = self._separate_trips(statement, statement.instruction)
            summary = self._summary(statement.instruction)
            barrier = None if spmd else _needed(path.last, summary.first)
            if barrier is not None:
                path = _follow(path, _closed_by(barrier))
                found.append(Statement((), barrier, statement.span))
            path = _follow(path, summary)
            found.append(statement)
        return self._keep(_with(region, found), path)

    def _keep(self, region: Region, summary: Summary) -> Region:
        self.kept.append(region)
        self.summaries[id(region)] = summary
        return region

    def _separate_trips(self, statement: Statement, loop: For) -> Statement:
        """A loop whose trips do not disturb each other: where they would, each begins with a barrier."""
        summary = self.summaries[id(loop.body)]
        barrier = _needed(summary.last, summary.first)
        if barrier is None:
            return statement
        body = _with(loop.body, [Statement((), barrier, statement.span), *loop.body.statements])
        self._keep(body, _follow(_closed_by(barrier), summary))
        return replace(statement, instruction=with_regions(loop, [body]))

    def _summary(self, instruction: Instruction) -> Summary:
        if isinstance(instruction, Barrier):
            return _closed_by(instruction)
        inner = [self.summaries[id(region)] for region in regions(instruction)]
        if not inner:
            accesses: dict[Cell, int] = {}
            for cell, kind in self.memories.accesses(instruction):
                accesses[cell] = accesses.get(cell, 0) | kind
            return Summary(accesses, accesses) if accesses else NOTHING
        if isinstance(instruction, If) and len(inner) == 2:
            return _either(*inner)
        if isinstance(instruction, For | Foreach | If):  # it may be that its region is never run
            return replace(inner[0], through=(True, True))
        return inner[0]


def _needed(before: Accesses, behind: Accesses) -> Barrier | None:
    """The barrier that separates accesses from those that follow; None where nothing conflicts."""
    spaces = {cell.is_local for cell, kind in behind.items() if conflict(before.get(cell, 0), kind)}
    return Barrier(False in spaces, True in spaces) if spaces else None


def _either(left: Summary, right: Summary) -> Summary:
    through = (left.through[0] or right.through[0], left.through[1] or right.through[1])
    return Summary(_join(left.first, right.first), _join(left.last, right.last), through)


def _closed_by(barrier: Barrier) -> Summary:
    return Summary(through=(not barrier.on_global, not barrier.on_local))


def _with(region: Region, statements: Sequence[Statement]) -> Region:
    return replace(region, statements=tuple(statements))
