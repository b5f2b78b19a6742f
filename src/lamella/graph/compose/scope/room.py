"""Room for functions that call each other as deep as a text nests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lamella.base.limits import Limits

FRAMES = 60
"""Calls of ours for one level of nesting, at most."""


@contextmanager
def recursion_room(limits: Limits) -> Iterator[None]:
    """Raise the interpreter's limit of recursion by what the limit of nesting can ask for."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + FRAMES * limits.max_depth)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
