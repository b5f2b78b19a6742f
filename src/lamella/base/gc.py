"""Pausing the cyclic garbage collector while large trees are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Do not look for cycles while a tree without cycles is built.

    The collector would walk all that is built so far again and again: reading a long program takes up to three times as
    long with it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
