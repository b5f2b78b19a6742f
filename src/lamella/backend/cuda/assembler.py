"""Asynchronous assembly of PTX: threads let the driver assemble and keep it, while something else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from lamella.backend.cuda.binaries import BuiltKernel
from lamella.base.child_process import PARKED
from lamella.base.system import count_processors

MOST_ASSEMBLERS = 16

_lock = threading.Lock()
_waiting: dict[bytes, BuiltKernel] = {}
"""Kernels that are not kept yet, by their keys."""
_working: set[Future[None]] = set()
"""What keeps kernels and programs when they are there."""


class Assembler:
    """A pool of threads for the kernels of one program."""

    def __init__(self) -> None:
        threads = min(count_processors(), MOST_ASSEMBLERS)
        self._pool = ThreadPoolExecutor(threads, initializer=_park)

    def begin(self, key: bytes, kernel: BuiltKernel, make: Callable[[], bytes]) -> BuiltKernel:
        """A kernel whose code a thread assembles; others that want the same find it meanwhile."""
        found = BuiltKernel(kernel.entry, self._pool.submit(make))
        with _lock:
            _waiting[key] = found
        return found

    def keep(self, job: Callable[[], None]) -> None:
        """Let a thread keep something once all that began before has been made."""
        done = self._pool.submit(job)
        with _lock:
            _working.add(done)
        done.add_done_callback(_forget)

    def finish(self) -> None:
        """Nothing more begins; what has begun goes on."""
        self._pool.shutdown(wait=False)


def find_waiting(key: bytes) -> BuiltKernel | None:
    """A kernel of this process that is not kept yet."""
    with _lock:
        return _waiting.get(key)


def drop_waiting(key: bytes) -> None:
    """A kernel is kept now, or cannot be made."""
    with _lock:
        _waiting.pop(key, None)


def settle() -> None:
    """Wait until all that was compiled is kept, so that it is found again."""
    with _lock:
        working = tuple(_working)
    wait(working)


def _forget(done: Future[None]) -> None:
    with _lock:
        _working.discard(done)


def _park() -> None:
    """What these threads hold is nothing that a child of this process would wait for."""
    threading.current_thread().name = PARKED
