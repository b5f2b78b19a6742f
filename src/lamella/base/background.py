"""Work of threads while something else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from lamella.base.child_process import PARKED
from lamella.base.system import count_processors


class Background:
    """Threads for what runs without the lock of Python nearly all of the time."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: list[Future[None]] = []

    def begin(self, job: Callable[[], None]) -> None:
        """Let a thread do something."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(count_processors(), initializer=_park)
        self._waiting.append(self._pool.submit(job))

    def wait(self) -> None:
        """Return when all of it is done; what a thread raised is raised here."""
        if self._pool is None:
            return
        self._pool.shutdown()
        waiting, self._pool, self._waiting = self._waiting, None, []
        for item in waiting:
            item.result()


def _park() -> None:
    """What these threads hold is nothing that a child of this process would wait for."""
    threading.current_thread().name = PARKED
