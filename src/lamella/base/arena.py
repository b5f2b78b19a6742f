"""Arena allocation: addresses for live ranges, so that no two blocks that are alive at once share a byte."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from lamella.base import dim
from lamella.base.dim import Extent
from lamella.base.records import dataclass

ENDLESS = 1 << 128
"""Behind the last byte of an arena that grows as it must."""


def aligned(address: int, alignment: int) -> int:
    """The next multiple of an alignment."""
    return -(-address // alignment) * alignment


class Arena:
    """A free list: the bytes that nothing uses, as gaps in order of their addresses; the last one has no end."""

    def __init__(self, most_gaps: int = ENDLESS) -> None:
        self.gaps: list[tuple[int, int]] = [(0, ENDLESS)]
        self._most_gaps = most_gaps
        """Gaps that padding may leave behind: forgetting more keeps a search for one linear."""

    def first_fit(self, size: int, alignment: int) -> int:
        """Take the lowest bytes that are free and aligned; their address."""
        for number, (begin, end) in enumerate(self.gaps):
            start = aligned(begin, alignment)
            if start + size <= end:
                return self._take(number, start, size)
        return ENDLESS

    def best_fit(self, size: int, alignment: int) -> int:
        """Take bytes of the smallest gap that has them, the arena growing only where none does; their address."""
        fits = [
            (end - begin, number)
            for number, (begin, end) in enumerate(self.gaps)
            if aligned(begin, alignment) + size <= end
        ]
        if not fits:
            return ENDLESS
        _, number = min(fits)
        return self._take(number, aligned(self.gaps[number][0], alignment), size)

    def _take(self, number: int, start: int, size: int) -> int:
        begin, end = self.gaps[number]
        # Only the padding before a block at the end is forgotten: a gap between blocks may still be asked for.
        forgets = end == ENDLESS and len(self.gaps) > self._most_gaps
        rest = ((begin, start if not forgets else begin), (start + size, end))
        self.gaps[number : number + 1] = [gap for gap in rest if gap[0] < gap[1]]
        return start

    def free(self, begin: int, end: int) -> None:
        """Give bytes back; gaps that touch become one."""
        position = bisect_left(self.gaps, (begin, end))
        if position < len(self.gaps) and self.gaps[position][0] == end:
            end = self.gaps.pop(position)[1]
        if position and self.gaps[position - 1][1] == begin:
            position -= 1
            begin = self.gaps.pop(position)[0]
        self.gaps.insert(position, (begin, end))


class LiveBlock(NamedTuple):
    """A piece of memory and the steps, both included, between which it is alive."""

    name: str
    size: Extent
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """The offset of each block in its arena, and how large the arena must be."""

    offsets: dict[str, Extent]
    total: Extent


def allocate_in_line(blocks: Iterable[LiveBlock], alignment: int) -> Allocation:
    """Each block behind the one before it: for what stays alive to the end."""
    offsets: dict[str, Extent] = {}
    total: Extent = 0
    for block in blocks:
        offsets[block.name] = total
        total = dim.add(total, _padded(block.size, alignment))
    return Allocation(offsets, total)


def allocate(blocks: Iterable[LiveBlock], alignment: int) -> Allocation:
    """Blocks in the order in which they begin to live, each in the smallest gap between those alive then."""
    ordered = sorted(blocks, key=lambda item: item.first)
    known = [(item, item.size) for item in ordered if isinstance(item.size, int)]
    if len(known) == len(ordered):
        return _allocate_known(known, alignment)
    return _share_slots(ordered, alignment)


def _padded(size: Extent, alignment: int) -> Extent:
    return dim.mul(dim.ceil_divide(size, alignment), alignment)


def _allocate_known(blocks: Sequence[tuple[LiveBlock, int]], alignment: int) -> Allocation:
    offsets: dict[str, Extent] = {}
    arena = Arena()
    alive: list[tuple[int, int, int, int]] = []
    total = 0
    for number, (block, size) in enumerate(blocks):
        # Blocks come in the order of their first steps: whatever ended before this one is dead for all that follow.
        while alive and alive[0][0] < block.first:
            arena.free(*heappop(alive)[2:])
        length = aligned(size, alignment)
        start = arena.best_fit(length, alignment) if length else 0
        offsets[block.name] = start
        if length:
            heappush(alive, (block.last, number, start, start + length))
        total = max(total, start + length)
    return Allocation(offsets, total)


@dataclass(slots=True)
class _Slot:
    size: Extent
    offset: Extent
    last: int


def _share_slots(blocks: Sequence[LiveBlock], alignment: int) -> Allocation:
    """Sizes are expressions: a block takes the slot of one that is dead, where it is never larger."""
    offsets: dict[str, Extent] = {}
    slots: list[_Slot] = []
    total: Extent = 0
    for block in blocks:
        size = _padded(block.size, alignment)
        dead = [item for item in slots if item.last < block.first]
        fits = [item for item in dead if item.size == size] or [
            item for item in dead if dim.less_equal(size, item.size) is True
        ]
        if fits:
            slot = fits[0]
            slot.last = block.last
        else:
            slot = _Slot(size, total, block.last)
            slots.append(slot)
            total = dim.add(total, size)
        offsets[block.name] = slot.offset
    return Allocation(offsets, total)
