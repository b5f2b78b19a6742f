"""Arrays in the pages of a mapped file: which are, whether the file still holds them, and giving their memory back."""

from __future__ import annotations

import mmap
from collections.abc import Iterable

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError


def _memory_of(array: Array) -> object:
    """What an array is a view of, whatever views lie between."""
    found: object = array
    while isinstance(found, np.ndarray):
        found = found.base
    return found


def map_of(array: Array) -> mmap.mmap | None:
    """The mapped file that an array lies in; None for all others."""
    memory = _memory_of(array)
    found = memory.obj if isinstance(memory, memoryview) else memory
    return found if isinstance(found, mmap.mmap) else None


def is_unwritable(array: Array) -> bool:
    """Whether an array is a view of memory that nobody in this process can write: bytes, or a read-only map."""
    memory = _memory_of(array)
    if isinstance(memory, memoryview):
        # A read-only view of something that can be written says nothing of it, so it is the owner that counts.
        return memory.readonly and isinstance(memory.obj, bytes | mmap.mmap)
    return isinstance(memory, bytes)


def check_maps(maps: Iterable[mmap.mmap]) -> None:
    """Refuse files that have become shorter since they were mapped: touching what they lost would end the process."""
    for item in maps:
        if item.size() < len(item):
            raise InputError(
                f"a file of weights was {len(item)} bytes long when it was opened, and now {item.size()}"
            )


def release_pages(array: Array) -> None:
    """Give back the memory of an array that a file can give again: whoever touches it reads it from there."""
    found = map_of(array)
    if found is None or not is_unwritable(array) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = _address(array) - _address(np.frombuffer(found, np.uint8))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        found.madvise(mmap.MADV_DONTNEED, first, size)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
