"""Letting the cyclic garbage collector work less: what compilers build has next to no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Do not look for cycles while a tree without cycles is built, nor in it as soon as it is built.

    The collector would walk all that is built so far again and again: reading a long program takes up to three times as
    long with it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            _age()
            gc.enable()


_frozen: list[int] = []
"""How many objects somebody else has frozen, once that was seen: they would thaw, and to count them is a walk."""


def _age() -> None:
    """Count all objects among the oldest, whose cycles a full collection finds, without a walk over them."""
    if _frozen:
        return
    if count := gc.get_freeze_count():
        _frozen.append(count)
        return
    gc.freeze()
    gc.unfreeze()


RELAXED = (400_000, 10, 100)
"""New objects before a collection, and collections before an older generation is walked too."""


def relax_gc() -> None:
    """Look for cycles seldom, in a process that is ours: with Python's numbers a fifth of compiling goes into that."""
    gc.set_threshold(*RELAXED)
