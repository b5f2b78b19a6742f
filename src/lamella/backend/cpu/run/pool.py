"""A pool of threads that share out work-groups: they look for work for a moment, then sleep until there is some.

Workers are threads of Python that stay in machine code, where they do not hold the interpreter's lock. A call runs
to its end before the interpreter sees a signal: Ctrl-C is heard when the kernel has ended. A second caller does not
wait for the pool but runs its work-groups itself.
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

from lamella.backend.cpu.jit import ObjectCache, build, open_cache
from lamella.backend.cpu.run.arena import Arena, OwnArena
from lamella.backend.cpu.run.loops import CLOSED, FUTEX, SCRATCH, SETTINGS, STATE, SYMBOLS, write_loops
from lamella.backend.cpu.run.turns import KERNEL, TurnPool, chunk_of
from lamella.base.errors import InputError

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
_WORKER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
_STOP = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_SPIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class Pool(Protocol):
    """Whoever runs the work-groups of a kernel on several threads."""

    def run(self, kernel: int, arguments: bytes, groups: int, local_bytes: int) -> bool:
        """Run all work-groups of the kernel at an address; False where the pool is busy and nothing was done."""

    def stop(self) -> None:
        """End the threads."""


class SleepingPool:
    """A pool whose threads sleep on a word of memory."""

    def __init__(self, threads: int, cache: ObjectCache | None) -> None:
        self._helpers = threads - 1
        self._code = build(write_loops(platform.machine()), SYMBOLS, cache)
        self._dispatch = _DISPATCH(self._code.address("dispatch"))
        self._lock = threading.Lock()
        self._own = Arena()
        self._arenas = [Arena() for _ in range(self._helpers)]
        self._space = Arena()
        self._board = self._space.reserve(SCRATCH + 8 * self._helpers)
        self._clear_board()
        self._threads = [self._start(index) for index in range(self._helpers)]
        self._process = os.getpid()
        atexit.register(self.stop)

    def _clear_board(self) -> None:
        ctypes.memset(self._board, 0, SCRATCH + 8 * self._helpers)
        ctypes.c_int32.from_address(self._board + STATE).value = CLOSED
        ctypes.c_int64.from_address(self._board + SETTINGS).value = self._count_spins()

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
        thread = threading.Thread(target=loop, args=(self._board, index, 0), name="lamella", daemon=True)
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
        return min(MOST_THREADS, len(os.sched_getaffinity(0)))
    if not (named.isascii() and named.isdigit() and len(named) < 10 and int(named)):
        hint = "it is a positive number of threads"
        raise InputError(f"the variable LAMELLA_THREADS is '{named[:40]}'", hint=hint)
    return min(MOST_THREADS, int(named))


def checked_threads(threads: int) -> int:
    """A number of threads that somebody asks for."""
    if isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"kernels cannot run on {threads} threads", hint=f"from 1 to {MOST_THREADS}")
    return threads


def shared_pool(threads: int) -> Pool | None:
    """The pool of this process for a number of threads; None for one thread, which needs no pool."""
    return None if threads < 2 else _make_pool(os.getpid(), threads)


@cache
def _make_pool(process: int, threads: int) -> Pool:
    """A pool for a process: threads do not survive a fork, so a child makes its own."""
    if sys.platform == "linux" and platform.machine() in FUTEX:
        return SleepingPool(threads, open_cache())
    return TurnPool(threads)


class Runner:
    """Runs one kernel: on the pool where there is more than one work-group, else here."""

    __slots__ = ("_address", "_call", "_local_bytes", "_own", "_threads")

    def __init__(self, address: int, local_bytes: int, threads: int) -> None:
        self._address = address
        self._call = KERNEL(address)
        self._local_bytes = local_bytes
        self._threads = threads
        self._own = OwnArena()

    def run(self, arguments: bytes, groups: int) -> None:
        """Run all work-groups, in any order; the arguments are the slots of the calling convention."""
        if groups > 1 and self._threads > 1:
            pool = shared_pool(self._threads)
            if pool is not None and pool.run(self._address, arguments, groups, self._local_bytes):
                return
        if groups:
            scratch = self._own.arena.reserve(self._local_bytes) if self._local_bytes else None
            self._call(arguments, 0, groups, groups, scratch)
