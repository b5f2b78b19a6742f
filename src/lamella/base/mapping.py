"""Arrays in the pages of a mapped file: which are, whether the file still holds them, and giving their memory back."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

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


class FileMemory(mmap.mmap):
    """Memory in a file without a name, which holds what is written: its pages can be given back at any time."""

    descriptor: int


def _no_room(problem: OSError) -> InputError:
    reason = problem.strerror or type(problem).__name__
    return InputError(
        f"there is no room for memory in files: {reason}", hint="TMPDIR names another folder for them"
    )


def _new_memory(size: int) -> FileMemory:
    try:
        with TemporaryFile() as file:
            file.truncate(size)
            memory = FileMemory(file.fileno(), size)
            memory.descriptor = os.dup(file.fileno())
    except OSError as problem:
        raise _no_room(problem) from None
    weakref.finalize(memory, os.close, memory.descriptor)
    return memory


class _FileRoom:
    """Memory in files that many arrays share, so that files are few; what nobody writes takes no place on a disk."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._memory: weakref.ref[FileMemory] | None = None
        self._used = 0

    def take(self, size: int) -> Array:
        """So many bytes from the begin of a page on; they live as long as the array."""
        with self._busy:
            memory = None if self._memory is None else self._memory()
            if memory is None or self._used + size > len(memory):
                memory, self._used = _new_memory(max(size, FILE_BYTES)), 0
                self._memory = weakref.ref(memory)
            start = self._used
            self._used += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            return np.frombuffer(memory, np.uint8)[start : start + size]


FILE_BYTES = 1 << 26
"""What arrays in files share: so many bytes each."""
_ROOM = _FileRoom()


def allocate_in_file(size: int) -> Array:
    """Bytes at the begin of a page that lie in a file without a name: the system may take their memory at any time."""
    return _ROOM.take(size) if size else np.zeros(0, np.uint8)


def copy_to_file(array: Array) -> Array:
    """A copy of an array whose memory lies in a file without a name."""
    found: Array = allocate_in_file(array.nbytes).view(array.dtype).reshape(array.shape)
    write_through(found, array)
    return found


def write_through(array: Array, numbers: Array) -> None:
    """Give an array that lies in a file other numbers: through the file, which is much faster than page by page."""
    memory = map_of(array)
    if not isinstance(memory, FileMemory) or not array.flags.c_contiguous or array.dtype != numbers.dtype:
        np.copyto(array, numbers)
        return
    place = _address(array) - _address(np.frombuffer(memory, np.uint8))
    left = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data
    try:
        while left:
            count = os.pwrite(memory.descriptor, left, place)
            left, place = left[count:], place + count
    except OSError as problem:
        raise _no_room(problem) from None


def release_pages(array: Array) -> None:
    """Give back the memory of an array that a file can give again: whoever touches it reads it from there."""
    found = map_of(array)
    if isinstance(found, FileMemory) or (found is not None and is_unwritable(array)):
        _advise(array, found, "MADV_DONTNEED")


def fetch_pages(array: Array) -> None:
    """Ask for the memory of an array that lies in a file: it is read on the side."""
    found = map_of(array)
    if found is not None:
        _advise(array, found, "MADV_WILLNEED")


def enter_pages(array: Array, is_written: bool = False) -> None:
    """Have the memory of an array that lies in a file, all at once and not page by page as it is touched."""
    found = map_of(array)
    if found is not None:
        with suppress(OSError):  # an older system does not know the words
            _advise(array, found, "MADV_POPULATE_WRITE" if is_written else "MADV_POPULATE_READ")


WORDS = {"MADV_POPULATE_READ": 22, "MADV_POPULATE_WRITE": 23}
"""What Linux can be told that Python has no names for yet."""


def _advise(array: Array, memory: mmap.mmap, word: str) -> None:
    """Tell the system about the whole pages of an array, where it can be told."""
    advice = getattr(mmap, word, WORDS.get(word) if sys.platform == "linux" else None)
    if advice is None:
        return
    start = _address(array) - _address(np.frombuffer(memory, np.uint8))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        memory.madvise(advice, first, size)


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
        elif area and words[:2] == ["Anonymous:", "0"]:
            first, last = (int(word, 16) for word in area.split("-"))
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED
            )


def release_heap() -> None:
    """Give back the memory that was freed and that the library of C keeps for the next who asks for some."""
    if sys.platform == "win32":
        return  # the process has no name there for all that it has loaded
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not every library has it
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
