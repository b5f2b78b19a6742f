"""The pass that gives each alloca its place in local memory: the lowest that is free for as long as it lives."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace

from lamella.base.diagnostic import LamellaError
from lamella.kernels.build import regions
from lamella.kernels.locals import STACK_OFFSET, local_size
from lamella.kernels.rewrite import change_functions, rewrite
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import (
    Alloca,
    Dictionary,
    Entry,
    Function,
    LifetimeStop,
    Program,
    Region,
    Statement,
)
from lamella.lang.tensor.rules import running as rules

ENDLESS = 1 << 62


def place_locals(program: Program, target: Target) -> Program:
    """A program whose allocas have places; a kernel that needs more than the target has raises that as a finding."""
    return change_functions(program, lambda function: _place(function, target))


def _place(function: Function, target: Target) -> Function:
    places = _Stack(function.name, target)
    _walk(function.body, places)

    def visit(region: Region, _: bool) -> Region:
        return replace(region, statements=tuple(_placed(item, places.offsets) for item in region.statements))

    return replace(function, body=rewrite(function.body, visit)) if places.offsets else function


def _placed(statement: Statement, offsets: dict[str, int]) -> Statement:
    alloca = statement.instruction
    if not isinstance(alloca, Alloca) or not statement.results:
        return statement
    given = Dictionary() if alloca.attributes is None else alloca.attributes
    kept = [entry for entry in given.entries if entry.key != STACK_OFFSET]
    entries = sorted(
        [*kept, Entry(STACK_OFFSET, offsets[statement.results[0].name])], key=lambda item: item.key
    )
    return replace(statement, instruction=replace(alloca, attributes=replace(given, entries=tuple(entries))))


def _walk(body: Region, stack: _Stack) -> None:
    """Follow the text: what a region allocates is free again at its end."""
    frames = [(iter(body.statements), 0)]
    while frames:
        statements, mark = frames[-1]
        statement = next(statements, None)
        if statement is None:
            stack.release(mark)
            frames.pop()
            continue
        match statement.instruction:
            case Alloca() as alloca if statement.results:
                stack.take(statement, alloca)
            case LifetimeStop(operand=operand):
                stack.free(operand.name)
            case instruction:
                inner = reversed(regions(instruction))
                frames += [(iter(region.statements), len(stack.taken)) for region in inner]


@dataclass(slots=True)
class _Stack:
    """Local memory: which bytes are free, and what lives in the others."""

    name: str
    target: Target
    gaps: list[tuple[int, int]] = field(default_factory=lambda: [(0, ENDLESS)])
    """Free bytes from begin to end, in order."""
    live: dict[str, tuple[int, int]] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    """What was allocated in the regions around the statement at hand, in order."""
    offsets: dict[str, int] = field(default_factory=dict)

    def release(self, mark: int) -> None:
        """Free what was allocated since a number of others were."""
        while len(self.taken) > mark:
            self.free(self.taken.pop())

    def free(self, name: str) -> None:
        """The end of a life; one that has ended already stays so."""
        place = self.live.pop(name, None)
        if place is not None:
            self._open(*place)

    def take(self, statement: Statement, alloca: Alloca) -> None:
        """The lowest place that is free and aligned."""
        size, name = local_size(alloca.type), statement.results[0].name
        alignment = self._alignment(alloca)
        room = -(-size // alignment) * alignment  # what padding would leave free fits nothing
        begin = self._close(room, alignment) if size else 0
        limit = self.target.local_bytes
        if begin + size > limit:
            values = {"name": self.name, "bytes": begin + size, "target": self.target.name, "limit": limit}
            raise LamellaError([rules.LOCAL_LIMIT.at(statement.span, hint=None, labels=(), **values)])
        self.offsets[name] = begin
        if size:
            self.live[name] = (begin, begin + room)
            self.taken.append(name)

    def _alignment(self, alloca: Alloca) -> int:
        asked = None if alloca.attributes is None else alloca.attributes.find("alignment")
        element = BYTES[alloca.type.element]
        return max(self.target.default_alignment, element, asked if isinstance(asked, int) else 1)

    def _close(self, size: int, alignment: int) -> int:
        """Take bytes out of the first gap that has them; the last one always does."""
        for position, (begin, end) in enumerate(self.gaps):
            start = -(-begin // alignment) * alignment
            if start + size <= end:
                rest = [item for item in ((begin, start), (start + size, end)) if item[0] < item[1]]
                self.gaps[position : position + 1] = rest
                return start
        return ENDLESS

    def _open(self, begin: int, end: int) -> None:
        """Give bytes back; gaps that touch become one."""
        position = bisect_left(self.gaps, (begin, end))
        if position < len(self.gaps) and self.gaps[position][0] == end:
            end = self.gaps.pop(position)[1]
        if position and self.gaps[position - 1][1] == begin:
            position -= 1
            begin = self.gaps.pop(position)[0]
        self.gaps.insert(position, (begin, end))
