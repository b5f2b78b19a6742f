"""Memory of launch lists: an arena that they share, blocks on huge pages for what stays, aligned arrays for results."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from lamella.backend.cpu.run.prepared import address_of
from lamella.base.arrays import Array
from lamella.kernels.arena_plan import ALIGNMENT

HUGE = 1 << 21
"""The bytes of a huge page."""
BLOCK_BYTES = 1 << 26
"""What is kept shares blocks of so many bytes."""


class SharedArena:
    """Memory that the lists of an executable use one after the other; it grows, and then lies elsewhere."""

    def __init__(self) -> None:
        self._memory: Array = np.zeros(0, np.uint8)
        self.address = self.size = 0

    def reserve(self, size: int) -> None:
        """Have at least so many bytes; what was there before is lost where it has to grow."""
        if size > self.size:
            self._memory = allocate_bytes(size)
            self.address, self.size = address_of(self._memory), len(self._memory)

    def release(self) -> None:
        """Give its memory back."""
        self._memory = np.zeros(0, np.uint8)
        self.address = self.size = 0

    def view(self, offset: int, size: int) -> Array:
        """Some of its bytes."""
        return self._memory[offset : offset + size]


class KeptRoom:
    """Memory for what runs leave once and all later ones read, in blocks on huge pages that many arrays share.

    An array of 3 MB alone lies on one huge page and 250 small ones: half of the time in which weights are packed is
    what the system needs to give small pages.
    """

    def __init__(self) -> None:
        self._block: Array = np.zeros(0, np.uint8)
        self._used = 0

    def take(self, size: int) -> Array:
        """So many bytes at a multiple of 64; they live as long as the array, and others of their block."""
        start = -(-self._used // ALIGNMENT) * ALIGNMENT
        if start + size > len(self._block):
            # What nobody touches of a block takes no memory.
            start, self._block = 0, allocate_bytes(max(size, BLOCK_BYTES))
        self._used = start + size
        return self._block[start : start + size]


def allocate_bytes(size: int) -> Array:
    """Bytes at a multiple of 64; many of them on huge pages where the system gives some."""
    if size < HUGE:
        return _cut(np.zeros(size + ALIGNMENT, np.uint8), size, ALIGNMENT)
    # Memory that processes may share, which is what `mmap` gives unless it is told otherwise, has pages of its own.
    own = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
    room = mmap.mmap(-1, size + HUGE, **own)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            room.madvise(mmap.MADV_HUGEPAGE)
    return _cut(np.frombuffer(room, np.uint8), size, HUGE)


def _cut(room: Array, size: int, alignment: int) -> Array:
    start = -address_of(room) % alignment
    return room[start : start + size]


def empty_array(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """An array for results, at a multiple of 64 bytes."""
    count = math.prod(shape)
    if count * dtype.itemsize < ALIGNMENT:
        return np.empty(shape, dtype)
    extra = ALIGNMENT // dtype.itemsize
    room = np.empty(count + extra, dtype)
    start = -address_of(room) % ALIGNMENT // dtype.itemsize
    return room[start : start + count].reshape(shape)
