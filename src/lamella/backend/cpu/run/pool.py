"""Threads that share out work-groups: they look for work for a moment, then sleep. Launch lists walk over them.

Each thread has local memory of its own, allocated once and grown where a kernel needs more.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lamella.backend.cpu.jit import LoadedCode, ObjectCache, build, open_cache
from lamella.backend.cpu.run.loops import (
    ALONE_SYMBOLS,
    CLOSED,
    FUTEX,
    LINE,
    PART_LINES,
    PARTS,
    SCRATCH,
    SPINS,
    STATE,
    SYMBOLS,
    write_alone,
    write_loops,
)
from lamella.base.child_process import PARKED
from lamella.base.errors import InputError
from lamella.base.records import dataclass
from lamella.base.system import count_processors

# --- local memory ---------------------------------------------------------------------------------------------


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


class ThreadArena(threading.local):
    """The arena of whichever thread asks: each sees its own."""

    def __init__(self) -> None:
        self.arena = Arena()


# --- A pool for systems whose sleeping calls we do not know: threads wait for their turn in Python ----------


KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


CHUNKS_PER_THREAD = 8


def chunk_of(groups: int, threads: int) -> int:
    """How many work-groups a thread takes at once: few enough that all end at about the same time."""
    return max(1, groups // (CHUNKS_PER_THREAD * threads))


@dataclass(slots=True, eq=False)
class _Task:
    """Work-groups that are shared out in chunks."""

    kernel: int
    arguments: bytes
    groups: int
    chunk: int
    next: int = 0
    inside: int = 0


class ThreadPool:
    """A pool whose threads wait on a condition."""

    def __init__(self, threads: int) -> None:
        self._busy = threading.Lock()
        self._turn = threading.Condition()
        self._task: _Task | None = None
        self._ended = False
        self._arenas = [Arena() for _ in range(threads)]
        for arena in self._arenas[1:]:
            threading.Thread(target=self._work, args=(arena,), name=PARKED, daemon=True).start()
        atexit.register(self.stop)

    def run(self, kernel: int, arguments: bytes, groups: int, local_bytes: int) -> bool:
        """Run all work-groups of the kernel at an address; False where the pool is busy and nothing was done."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            for arena in self._arenas:
                arena.reserve(local_bytes)
            task = _Task(kernel, arguments, groups, chunk_of(groups, len(self._arenas)))
            self._announce(task)
            self._share(task, self._arenas[0])
            with self._turn:
                self._task = None
                self._turn.wait_for(lambda: not task.inside)
        finally:
            self._busy.release()
        return True

    def stop(self) -> None:
        """End the threads."""
        with self._turn:
            self._ended = True
            self._turn.notify_all()

    def _announce(self, task: _Task) -> None:
        with self._turn:
            self._task = task
            self._turn.notify_all()

    def _work(self, arena: Arena) -> None:
        task: _Task | None = None
        while True:
            task = self._enter(task)
            if task is None:
                return
            self._share(task, arena)
            with self._turn:
                task.inside -= 1
                self._turn.notify_all()

    def _enter(self, last: _Task | None) -> _Task | None:
        """Wait for another task than the last one; None is the end."""
        with self._turn:
            self._turn.wait_for(lambda: self._ended or self._task not in (None, last))
            task = None if self._ended else self._task
            if task is not None:
                task.inside += 1
            return task

    def _share(self, task: _Task, arena: Arena) -> None:
        """Take chunks of work-groups until none is left."""
        call = KERNEL(task.kernel)
        while True:
            with self._turn:
                first = task.next
                task.next += task.chunk
            if first >= task.groups:
                return
            call(task.arguments, first, min(first + task.chunk, task.groups), task.groups, arena.address)


SPIN_S = 50e-6
TRIAL = 500
MOST_THREADS = 1024
PATIENCE_S = 2.0

_DISPATCH = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_void_p,
)
_WALK = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_WALK_ALONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_WORKER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
_STOP = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_SPIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class WorkGroupPool(Protocol):
    """Whoever runs the work-groups of a kernel on several threads."""

    def run(self, kernel: int, arguments: bytes, groups: int, local_bytes: int) -> bool:
        """Run all work-groups of the kernel at an address; False where the pool is busy and nothing was done."""

    def stop(self) -> None:
        """End the threads."""


class FutexPool:
    """A pool whose threads sleep on a word of memory."""

    def __init__(self, threads: int, cache: ObjectCache | None) -> None:
        self._helpers = threads - 1
        self._code = build(write_loops(platform.machine()), SYMBOLS, cache)
        self._dispatch = _DISPATCH(self._code.address("dispatch"))
        self._walk = _WALK(self._code.address("walk"))
        self._lock = threading.Lock()
        self._own = Arena()
        self._arenas = [Arena() for _ in range(self._helpers)]
        self._space = Arena()
        self._lines = SCRATCH + -(-8 * self._helpers // LINE) * LINE
        self._board = self._space.reserve(self._lines + LINE * threads)
        self._clear_board()
        self._threads = [self._start(index) for index in range(self._helpers)]
        self._process = os.getpid()
        atexit.register(self.stop)

    def _clear_board(self) -> None:
        ctypes.memset(self._board, 0, self._lines + LINE * (self._helpers + 1))
        ctypes.c_int32.from_address(self._board + STATE).value = CLOSED
        ctypes.c_int64.from_address(self._board + SPINS).value = self._count_spins()
        ctypes.c_int64.from_address(self._board + PARTS).value = self._helpers + 1
        ctypes.c_int64.from_address(self._board + PART_LINES).value = self._board + self._lines

    def _count_spins(self) -> int:
        """How often a thread can look within the time that it should."""
        spin = _SPIN(self._code.address("spin"))
        elapsed = min(self._time(spin) for _ in range(3))
        return max(1, min(100 * TRIAL, int(TRIAL * SPIN_S / max(elapsed, 1e-9))))

    def _time(self, spin: Callable[[int, int], None]) -> float:
        start = time.perf_counter()
        spin(self._board, TRIAL)
        return time.perf_counter() - start

    def _start(self, index: int) -> threading.Thread:
        loop = _WORKER(self._code.address("worker"))
        thread = threading.Thread(target=loop, args=(self._board, index, 0), name=PARKED, daemon=True)
        thread.start()
        return thread

    def run(self, kernel: int, arguments: bytes, groups: int, local_bytes: int) -> bool:
        """Run all work-groups of the kernel at an address; False where the pool is busy and nothing was done."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            scratch = self._reserve(local_bytes)
            chunk, helpers = chunk_of(groups, self._helpers + 1), min(self._helpers, groups - 1)
            self._dispatch(self._board, kernel, arguments, groups, chunk, helpers, scratch)
        finally:
            self._lock.release()
        return True

    def walk(self, rows: int, count: int, local_bytes: int, times: int) -> bool:
        """Run the launches of a table at an address; False where the pool is busy and nothing was done."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._walk(self._board, rows, count, self._helpers, self._reserve(local_bytes), times)
        finally:
            self._lock.release()
        return True

    def _reserve(self, size: int) -> int:
        """Local memory for every thread; nobody is inside a task now, so it may move."""
        if size > self._own.size:
            for index, arena in enumerate(self._arenas):
                place = ctypes.c_void_p.from_address(self._board + SCRATCH + 8 * index)
                place.value = arena.reserve(size)
        return self._own.reserve(size)

    def stop(self) -> None:
        """End the threads; a child of a fork has none."""
        if self._process != os.getpid():
            return
        _STOP(self._code.address("stop"))(self._board)
        for thread in self._threads:
            thread.join(PATIENCE_S)


def count_threads() -> int:
    """How many threads kernels run on: `$LAMELLA_THREADS`, else the processors that this process may use."""
    named = os.environ.get("LAMELLA_THREADS", "").strip()
    if not named:
        return min(MOST_THREADS, count_processors())
    if not (named.isascii() and named.isdigit() and len(named) < 10 and int(named)):
        hint = "it is a positive number of threads"
        raise InputError(f"the variable LAMELLA_THREADS is '{named[:40]}'", hint=hint)
    return min(MOST_THREADS, int(named))


def checked_threads(threads: int) -> int:
    """A number of threads that somebody asks for."""
    if isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"kernels cannot run on {threads} threads", hint=f"from 1 to {MOST_THREADS}")
    return threads


def shared_pool(threads: int) -> WorkGroupPool | None:
    """The pool of this process for a number of threads; None for one thread, which needs no pool."""
    return None if threads < 2 else _make_pool(os.getpid(), threads)


@cache
def _make_pool(process: int, threads: int) -> WorkGroupPool:
    """A pool for a process: threads do not survive a fork, so a child makes its own."""
    if sys.platform == "linux" and platform.machine() in FUTEX:
        return FutexPool(threads, open_cache())
    return ThreadPool(threads)


@cache
def alone_code() -> LoadedCode:
    """What one thread needs for launch lists, as machine code."""
    return build(write_alone(), ALONE_SYMBOLS, open_cache())


class ListWalker:
    """Runs launch lists: on the pool where a launch is worth it, else here."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.fill = alone_code().address("fill")
        self._alone = _WALK_ALONE(alone_code().address("walk_alone"))
        self._own = ThreadArena()

    def run(self, rows: int, count: int, shared: bool, local_bytes: int, times: int = 0) -> None:
        """Run the launches of a table at an address, which says of each whether it is shared."""
        if shared and self.threads > 1:
            pool = shared_pool(self.threads)
            if isinstance(pool, FutexPool) and pool.walk(rows, count, local_bytes, times):
                return
        scratch = self._own.arena.reserve(local_bytes) if local_bytes else None
        if count:
            self._alone(rows, count, scratch, times)


class KernelLauncher:
    """Runs one kernel: on the pool where there is more than one work-group, else here."""

    __slots__ = ("_address", "_call", "_local_bytes", "_own", "_threads")

    def __init__(self, address: int, local_bytes: int, threads: int) -> None:
        self._address = address
        self._call = KERNEL(address)
        self._local_bytes = local_bytes
        self._threads = threads
        self._own = ThreadArena()

    @property
    def address(self) -> int:
        """Where the code begins."""
        return self._address

    @property
    def local_bytes(self) -> int:
        """The local memory of a work-group."""
        return self._local_bytes

    def run(self, arguments: bytes, groups: int) -> None:
        """Run all work-groups, in any order; the arguments are the slots of the calling convention."""
        if groups > 1 and self._threads > 1:
            pool = shared_pool(self._threads)
            if pool is not None and pool.run(self._address, arguments, groups, self._local_bytes):
                return
        if groups:
            scratch = self._own.arena.reserve(self._local_bytes) if self._local_bytes else None
            self._call(arguments, 0, groups, groups, scratch)
