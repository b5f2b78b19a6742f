"""Arrays that threads fill while something else is done: random numbers, a generator for each array."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np

from lamella.base.arrays import Array
from lamella.base.aside import PARKED
from lamella.base.system import count_processors

LARGE = 1 << 18
"""Numbers that are worth a thread."""
PIECE = 1 << 20
"""Numbers that are drawn at once: few enough that they need no new memory, so many that Python is asked seldom."""


class ArrayFilling:
    """Threads that fill arrays; they run without the lock of Python nearly all of the time."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: list[Future[None]] = []

    def begin(self, job: Callable[[], None]) -> None:
        """Let a thread do something that fills an array."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(count_processors(), initializer=_park)
        self._waiting.append(self._pool.submit(job))

    def wait(self) -> None:
        """Return when all arrays are full; what a thread raised is raised here."""
        if self._pool is None:
            return
        self._pool.shutdown()
        waiting, self._pool, self._waiting = self._waiting, None, []
        for item in waiting:
            item.result()


def _park() -> None:
    """What these threads hold is nothing that a child of this process would wait for."""
    threading.current_thread().name = PARKED


def draw_normal(
    random: np.random.Generator,
    found: Array,
    divisor: float,
    convert: Callable[[Array], Array],
    filling: ArrayFilling | None = None,
) -> None:
    """Fill a dense array with normal numbers, each divided and converted; by a thread where they are many.

    They are the numbers that `random.standard_normal(shape) / divisor` would be.
    """
    job = partial(_draw, random, found.reshape(-1), divisor, convert)
    if filling is None or found.size < LARGE:
        job()
    else:
        filling.begin(job)


def _draw(
    random: np.random.Generator, found: Array, divisor: float, convert: Callable[[Array], Array]
) -> None:
    room = np.empty(min(PIECE, found.size))
    for start in range(0, found.size, PIECE):
        piece = room[: min(PIECE, found.size - start)]
        random.standard_normal(out=piece)
        np.divide(piece, divisor, out=piece)
        found[start : start + piece.size] = convert(piece)
