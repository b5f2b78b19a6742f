"""A word on standard error while something takes a while: only on a terminal, and without loading anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Timer

PATIENCE = 1.0
"""Seconds after which a person wonders."""
ERASE = "\r\x1b[K"


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Say what is going on where it takes longer than a moment, and take the words back in the end."""
    if not sys.stderr.isatty():
        yield
        return
    said = Event()

    def say() -> None:
        said.set()
        sys.stderr.write(f"{words} …")
        sys.stderr.flush()

    timer = Timer(PATIENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set():
            sys.stderr.write(ERASE)
            sys.stderr.flush()
