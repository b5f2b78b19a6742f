"""Progress on standard error: only on a terminal, and only for what takes a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from lamella.cli.waiting import PATIENCE

T = TypeVar("T")


def show_progress(items: Iterable[T], total: int) -> Iterator[T]:
    """The items as they come; where a person is looking and has waited a moment, counted on a bar."""
    if not sys.stderr.isatty():
        yield from items
        return
    rest, start = iter(items), time.monotonic()
    for done, item in enumerate(rest, 1):
        yield item
        if time.monotonic() - start >= PATIENCE:
            console = Console(stderr=True)
            yield from track(rest, "running", total, completed=done, console=console, transient=True)
