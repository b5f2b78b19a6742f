"""Memory of the emulated GPU: addresses are those of this process, accesses are checked to the byte."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamella.base.arrays import Array

GRANULE = 256
"""What an allocation begins at, and the room that is left behind each."""
ROOM = 6 << 30
NO_NUMBER = 0xFF
LOCAL, SHARED = 1 << 56, 2 << 56
"""Where memory of threads, and of blocks, lies among addresses that say nothing of their kind."""
WINDOW = 1024
"""Where local memory of a block begins: no access is at 0 by accident."""


class DeviceFault(Exception):
    """What a GPU would have stopped at, or computed wrongly without a word."""


@dataclass(slots=True)
class Turn:
    """A launch in the order of the stream, which may begin before its predecessor has ended (dependent launch)."""

    number: int
    ended: int
    """The last launch that has ended for certain when this one begins, with all before it."""
    has_waited: bool
    """Whether some thread has waited for those in front."""
    lets_next: bool = False
    """Whether the next one may begin before this one ends,"""
    settles: bool = False
    """and whether all in front have ended then: no thread says so before it has waited."""


class DeviceMemory:
    """Global memory, mapped and never touched but where it is used."""

    def __init__(self) -> None:
        self._room = mmap.mmap(-1, ROOM, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.bytes = np.frombuffer(self._room, np.uint8)
        self.base = self.bytes.ctypes.data
        self.words: dict[int, Array] = {size: self.bytes.view(f"u{size}") for size in (1, 2, 4, 8)}
        self._valid = np.zeros(ROOM // GRANULE, np.uint16)
        """Bytes of each granule that belong to somebody."""
        self._sizes: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self._next = GRANULE
        self._writers = np.zeros(ROOM // 4, np.int32)
        """The last launch that wrote each word."""
        self._last = Turn(0, 0, True)

    def allocate(self, size: int) -> int:
        """Memory that holds no number; its address."""
        granules = -(-size // GRANULE)
        waiting = self._free.get(granules)
        if waiting:
            start = waiting.pop()
        else:
            start, self._next = self._next, self._next + (granules + 1) * GRANULE
            if self._next > ROOM:
                raise DeviceFault("this GPU has no memory left")
        self.bytes[start : start + size] = NO_NUMBER
        first = start // GRANULE
        self._valid[first : first + granules] = GRANULE
        if size % GRANULE:
            self._valid[first + granules - 1] = size % GRANULE
        self._sizes[self.base + start] = size
        return self.base + start

    def free(self, address: int) -> bool:
        """Give memory back; False where it is none."""
        size = self._sizes.pop(address, None)
        if size is None:
            return False
        start, granules = address - self.base, -(-size // GRANULE)
        self._valid[start // GRANULE : start // GRANULE + granules] = 0
        self._free.setdefault(granules, []).append(start)
        return True

    def holds(self, address: int, size: int) -> bool:
        """Whether a range belongs to somebody."""
        start = address - self.base
        if not 0 <= start <= ROOM - size:
            return False
        first, last = start // GRANULE, (start + size - 1) // GRANULE
        whole = (self._valid[first:last] == GRANULE).all()
        return bool(whole) and (start + size - 1) % GRANULE < self._valid[last]

    def places(self, addresses: Array, size: int, parts: int = 1) -> Array:
        """Where accesses of so many elements lie among words of their size."""
        starts = addresses.astype(np.int64) - self.base
        whole = size * parts
        if (starts % whole).any():
            raise DeviceFault(f"an access of {whole} bytes is not at a multiple of that")
        inside = (starts >= 0) & (starts < ROOM)
        if not inside.all():
            raise DeviceFault(f"address {int(addresses[~inside][0]):#x} is no memory of the device")
        held = (starts % GRANULE) + whole <= self._valid[starts // GRANULE]
        if not held.all():
            wrong = int(addresses[~held][0])
            raise DeviceFault(f"address {wrong:#x} is outside of all allocations{self._near(wrong)}")
        return starts // size

    def _near(self, address: int) -> str:
        before = max((item for item in self._sizes if item <= address), default=None)
        if before is None:
            return ""
        return f": {address - before - self._sizes[before]} bytes behind one of {self._sizes[before]} bytes"

    # --- launches that begin early ------------------------------------------------------------------------------

    def begin(self, is_early: bool) -> Turn:
        """The next launch in the order of the stream."""
        last = self._last
        ended = last.number
        if is_early and last.lets_next:
            ended = last.number - 1 if last.settles else last.ended
        self._last = Turn(last.number + 1, ended, not is_early)
        return self._last

    def settle(self) -> None:
        """Something that is no launch: all before it has ended, and it when the next one begins."""
        self.begin(False)

    def judge_early(self, places: Array, size: int, turn: Turn) -> None:
        """Refuse to read what launches write that may not have ended (a race)."""
        for shift in range(0, size, 4):
            late = self._writers[(places + shift) >> 2] > turn.ended
            if late.any():
                where = int(places[late][0]) + self.base
                writer = int(self._writers[(where - self.base + shift) >> 2])
                raise DeviceFault(
                    f"{where:#x} is read before the wait by launch {turn.number}, and written by launch {writer}, "
                    f"when only those up to {turn.ended} have ended"
                )

    def note_writer(self, places: Array, size: int, turn: Turn) -> None:
        """Who has written words."""
        for shift in range(0, size, 4):
            self._writers[(places + shift) >> 2] = turn.number

    def view(self, address: int, size: int) -> Any:
        """Bytes of a range."""
        if not self.holds(address, size):
            raise DeviceFault(
                f"{size} bytes at {address:#x} are outside of all allocations{self._near(address)}"
            )
        start = address - self.base
        return self.bytes[start : start + size]


def copy_bytes(target: int, source: int, size: int) -> None:
    """Copy memory of this process."""
    ctypes.memmove(target, source, size)


def fill_bytes(target: int, value: int, size: int) -> None:
    """Fill memory of this process."""
    ctypes.memset(target, value, size)
