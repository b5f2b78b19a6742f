"""Progress on standard error: only on a terminal, and only for what takes a while."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")
FEW = 5000


def watch(items: Iterable[T], total: int) -> Iterator[T]:
    """The items as they come, counted on a bar where a person is looking."""
    if total < FEW or not sys.stderr.isatty():
        yield from items
        return
    console = Console(stderr=True)
    yield from track(items, "running", total, console=console, transient=True)
