"""Local memory of work-groups: each thread has its own, allocated once and grown where a kernel needs more."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from lamella.base.errors import InputError

ALIGNMENT = 128


class Arena:
    """Bytes that begin at a multiple of 128."""

    __slots__ = ("_memory", "address", "size")

    def __init__(self) -> None:
        self._memory: npt.NDArray[np.uint8] | None = None
        self.address = 0
        self.size = 0

    def reserve(self, size: int) -> int:
        """The address of at least so many bytes; what was there before is lost where it has to grow."""
        if size > self.size:
            self._memory = None
            self._memory = _allocate(size + ALIGNMENT)
            self.address = -(-self._memory.ctypes.data // ALIGNMENT) * ALIGNMENT
            self.size = size
        return self.address


def _allocate(size: int) -> npt.NDArray[np.uint8]:
    try:
        return np.empty(size, np.uint8)
    except (MemoryError, ValueError):
        raise InputError(f"there are no {size} bytes for the local memory of a work-group") from None


class OwnArena(threading.local):
    """The arena of whichever thread asks: each sees its own."""

    def __init__(self) -> None:
        self.arena = Arena()
