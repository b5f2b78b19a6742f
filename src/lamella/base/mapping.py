"""Arrays in the pages of a mapped file: which are, whether the file still holds them, and giving their memory back."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.paths import read_text


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


def release_library(name: str) -> None:
    """Give back the memory of a loaded library that its file can give again, where somebody touches it.

    That is what nobody can write and nobody has written: code and constants, no addresses that were filled in.
    """
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    try:
        lines = read_text(Path("/proc/self/smaps")).splitlines()
    except LamellaError:
        return  # a system that does not tell
    area = ""
    for line in lines:
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            kept = words[1] in ("r--p", "r-xp") and words[-1].endswith(f"/{name}")
            area = words[0] if kept else ""
        elif area and words[:2] == ["Private_Dirty:", "0"]:
            first, last = (int(word, 16) for word in area.split("-"))
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED
            )


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
