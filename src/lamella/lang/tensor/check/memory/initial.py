"""Local memory that is read before anything was written to it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from lamella.base.diagnostic import Diagnostic
from lamella.lang.tensor.check.memory.bounds import Place
from lamella.lang.tensor.check.memory.state import Loop, State
from lamella.lang.tensor.rules import memory as rules


@dataclass(slots=True)
class Allocation:
    """Local memory: the loops it stands in, where it was written to."""

    loops: int
    writes: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class EarlyRead:
    """A read that no write precedes in the text."""

    allocation: Allocation
    finding: Diagnostic
    loop: Loop | None
    """The outermost loop around it that the memory outlives."""
    is_first: bool
    """Whether its first trip is sure to read."""


class LocalMemory:
    """Follows the local memory of a function."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._allocations: dict[int, Allocation] = {}
        self._early: list[EarlyRead] = []

    def allocate(self, root: int) -> None:
        """Local memory begins undefined."""
        self._allocations[root] = Allocation(len(self._state.loops))

    def write(self, root: int) -> None:
        """Something is written; how much of it is not followed."""
        if root in self._allocations:
            self._allocations[root].writes.append(self._state.position)

    def read(self, root: int, place: Place, instruction: str) -> None:
        """Something is read."""
        found = self._allocations.get(root)
        if found is None or found.writes or self._state.dead:
            return
        around = self._state.loops[found.loops :]
        finding = rules.UNINITIALISED.at(place.span, instruction=instruction, name=place.name)
        loop = around[0] if around else None
        is_first = len(around) == 1 and around[0].depth == self._state.depth
        self._early.append(EarlyRead(found, finding, loop, is_first))

    def findings(self) -> list[Diagnostic]:
        """Reads of what nobody has written; a later write in a loop may have come a trip before."""
        return [item.finding for item in self._early if item.is_first or not _is_written_in(item)]


def _is_written_in(item: EarlyRead) -> bool:
    if item.loop is None:
        return False
    writes = item.allocation.writes
    end = item.loop.end
    after = bisect_right(writes, item.loop.start)
    return after < len(writes) and (end is None or writes[after] <= end)
