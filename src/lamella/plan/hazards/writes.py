"""Where a program writes: byte ranges over all iterations, for questions like "is this source ever written"."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

from lamella.lang.nem.resolved import Buffer
from lamella.plan.hazards.accesses import Access


def may_alias(one: Buffer, other: Buffer) -> bool:
    """Whether two different buffers may be the same memory: both imported, of one memory and engine."""
    return one.imported and other.imported and one.name != other.name and one.level == other.level


class Touched:
    """Accesses by the bytes they touch over all iterations, sorted."""

    def __init__(self, accesses: Iterable[Access]) -> None:
        self._by_buffer: dict[str, list[Access]] = {}
        for access in accesses:
            self._by_buffer.setdefault(access.footprint.buffer.name, []).append(access)
        for group in self._by_buffer.values():
            group.sort(key=lambda access: access.footprint.low)
        self._lows = {name: [a.footprint.low for a in group] for name, group in self._by_buffer.items()}
        self._highs = {
            name: list(accumulate((a.footprint.high for a in group), max))
            for name, group in self._by_buffer.items()
        }

    def meeting(self, access: Access) -> Iterator[Access]:
        """The accesses whose bytes may coincide with those of one, itself included."""
        name, footprint = access.footprint.buffer.name, access.footprint
        place = bisect_left(self._lows.get(name, []), footprint.high) - 1
        while place >= 0 and self._highs[name][place] > footprint.low:
            other = self._by_buffer[name][place]
            if other.footprint.meets(footprint):
                yield other
            place -= 1

    def aliasing(self, access: Access) -> bool:
        """Whether a buffer is touched that may be the same memory as that of an access."""
        buffer = access.footprint.buffer
        groups = self._by_buffer.values() if buffer.imported and not access.region.readonly else ()
        return any(may_alias(buffer, group[0].footprint.buffer) for group in groups)


class Writes(Touched):
    """The accesses that write."""

    def __init__(self, accesses: Iterable[Access]) -> None:
        super().__init__(access for access in accesses if access.write)

    def reach(self, access: Access, but: Access | None = None) -> bool:
        """Whether bytes of an access, over all iterations, may be written, by another than `but`."""
        return self.aliasing(access) or any(other is not but for other in self.meeting(access))
