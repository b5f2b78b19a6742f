"""Delta debugging: a small subset of items that fails as all of them do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
MOST_RUNS = 200
"""Subsets that are tried."""


def ddmin(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A subset of items that fails, and that no part of is known to: complements of ever smaller chunks are tried."""
    left = list(items)
    chunks, runs = 2, 0
    while len(left) > 1 and runs < MOST_RUNS:
        size = max(1, len(left) // chunks)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            runs += 1
            if rest and fails(rest):
                left, chunks = rest, max(chunks - 1, 2)
                break
        else:
            if size == 1:
                break
            chunks = min(chunks * 2, len(left))
    return left
