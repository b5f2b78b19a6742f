"""A pool for systems whose sleeping calls we do not know: threads wait for their turn in Python."""

from __future__ import annotations

import atexit
import ctypes
import threading
from dataclasses import dataclass

from lamella.backend.cpu.run.arena import Arena

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


class TurnPool:
    """A pool whose threads wait on a condition."""

    def __init__(self, threads: int) -> None:
        self._busy = threading.Lock()
        self._turn = threading.Condition()
        self._task: _Task | None = None
        self._ended = False
        self._arenas = [Arena() for _ in range(threads)]
        for arena in self._arenas[1:]:
            threading.Thread(target=self._work, args=(arena,), name="lamella", daemon=True).start()
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
