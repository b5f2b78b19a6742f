"""A word on standard error while something takes a while: only on a terminal, and without loading anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Timer

from lamella.base.child_process import PARKED
from lamella.base.watching import COMPILING

PATIENCE = 0.4
"""Seconds after which a person wonders."""
ERASE = "\r\x1b[K"
BAR = 24
"""The characters of a bar."""


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Say what is going on where it takes longer than a moment, and take the words back in the end.

    While kernels are compiled, how many of them are done stands there.
    """
    if not sys.stderr.isatty():
        yield
        return
    said = Event()

    def say() -> None:
        said.set()
        sys.stderr.write(f"{words} …")
        sys.stderr.flush()

    def look(done: int, total: int) -> None:
        if said.is_set() and total:
            full = BAR * done // total
            bar = "█" * full + "░" * (BAR - full)
            sys.stderr.write(f"{ERASE}compiling kernels {bar} {100 * done // total} %")
            sys.stderr.flush()

    timer = Timer(PATIENCE, say)
    timer.daemon, timer.name = True, PARKED
    timer.start()
    before = COMPILING.set(look)
    try:
        yield
    finally:
        COMPILING.reset(before)
        timer.cancel()
        timer.join()
        if said.is_set():
            sys.stderr.write(ERASE)
            sys.stderr.flush()
