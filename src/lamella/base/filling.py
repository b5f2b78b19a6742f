"""Arrays that threads fill while something else is done: random numbers, a generator for each array."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
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
    """Threads that fill arrays one after the other; they run without the lock of Python nearly all of the time."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def begin(self, job: Callable[[], None]) -> None:
        """Let a thread do something that fills an array."""
        self._jobs.append(job)
        if len(self._threads) < count_processors():
            # What they hold is no business of a child of this process.
            thread = threading.Thread(target=self._work, name=PARKED, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self) -> None:
        """Return when all arrays are full; what a thread raised is raised here."""
        self._work()
        while self._threads:
            self._threads.pop().join()
        if self._failures:
            raise self._failures.pop()

    def _work(self) -> None:
        while self._jobs:
            try:
                self._jobs.popleft()()
            except IndexError:  # another one took the last
                return
            except BaseException as problem:  # noqa: BLE001: whoever waits is told
                self._failures.append(problem)


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
