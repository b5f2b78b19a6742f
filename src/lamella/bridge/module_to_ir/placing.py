"""Where buffers lie in a pool: no two that are in use at once share a byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lamella.base import dim
from lamella.base.dim import Extent

ALIGNMENT = 64
"""Every buffer begins at a multiple of so many bytes."""


@dataclass(frozen=True, slots=True)
class Life:
    """A piece of memory and the ops, both included, between which it is in use."""

    name: str
    bytes: Extent
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Where each piece lies, and how large the pool must be."""

    offsets: dict[str, Extent]
    total: Extent


def aligned(size: Extent) -> Extent:
    """A size rounded up to the next place where a buffer may begin."""
    return dim.mul(dim.ceil_divide(size, ALIGNMENT), ALIGNMENT)


def line_up(lives: Iterable[Life]) -> Placed:
    """Each piece behind the one before it: for what stays to the end."""
    offsets: dict[str, Extent] = {}
    total: Extent = 0
    for life in lives:
        offsets[life.name] = total
        total = dim.add(total, aligned(life.bytes))
    return Placed(offsets, total)


def place(lives: Sequence[Life]) -> Placed:
    """Pieces in the order in which they begin, each where it fits between those that are in use then."""
    ordered = sorted(lives, key=lambda item: item.first)
    known = [(item, item.bytes) for item in ordered if isinstance(item.bytes, int)]
    return _fit(known) if len(known) == len(ordered) else _share(ordered)


def _fit(lives: Sequence[tuple[Life, int]]) -> Placed:
    """Sizes are known: the smallest gap that is large enough."""
    offsets: dict[str, Extent] = {}
    used: list[tuple[int, int, int]] = []
    total = 0
    for life, size in lives:
        length = -(-size // ALIGNMENT) * ALIGNMENT
        used = [item for item in used if item[2] >= life.first]
        start = _gap(used, length)
        offsets[life.name] = start
        used.append((start, start + length, life.last))
        used.sort()
        total = max(total, start + length)
    return Placed(offsets, total)


def _gap(used: Sequence[tuple[int, int, int]], length: int) -> int:
    """The start of the smallest gap for so many bytes, behind all where there is none."""
    best, start, end = -1, -1, 0
    for begin, stop, _ in used:
        gap = begin - end
        if gap >= length and (start < 0 or gap < best):
            best, start = gap, end
        end = max(end, stop)
    return end if start < 0 else start


@dataclass(slots=True)
class _Slot:
    size: Extent
    offset: Extent
    last: int


def _share(lives: Sequence[Life]) -> Placed:
    """Sizes are expressions: a piece takes the place of one that is over, where it is never larger."""
    offsets: dict[str, Extent] = {}
    slots: list[_Slot] = []
    total: Extent = 0
    for life in lives:
        size = aligned(life.bytes)
        free = [item for item in slots if item.last < life.first]
        fits = [item for item in free if item.size == size] or [
            item for item in free if dim.less_equal(size, item.size) is True
        ]
        if fits:
            slot = fits[0]
            slot.last = life.last
        else:
            slot = _Slot(size, total, life.last)
            slots.append(slot)
            total = dim.add(total, size)
        offsets[life.name] = slot.offset
    return Placed(offsets, total)
