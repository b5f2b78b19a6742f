"""How a caller looks at the steps of a run: a wrapper around what is iterated, such as a progress bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Progress(Protocol):
    """Passes the items on, and sees them pass."""

    def __call__(self, items: Iterable[T], total: int, /) -> Iterable[T]:
        """The items as they come, of which there are `total`."""


def no_progress(items: Iterable[T], total: int, /) -> Iterable[T]:
    """The items, and nobody looks."""
    return items
