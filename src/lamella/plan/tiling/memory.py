"""Placement in L2: activations by their live ranges, weights in what they leave free, early where there is room.

Time counts in stages. Every block that a stage cannot do without (its activations, its weights, its staging rings)
has a place from the beginning, found offline, the largest block first. Weights may also come earlier: then they take
any gap that nothing needs from the stage at which they are fetched to the one that uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lamella.base.arena import aligned

ALIGN = 64


@dataclass(slots=True, eq=False)
class LiveBytes:
    """Bytes of L2 from one stage to another, both included."""

    name: str
    size: int
    first: int
    last: int
    offset: int = -1

    def meets(self, other: LiveBytes) -> bool:
        """Whether both are alive at some stage."""
        return self.first <= other.last and other.first <= self.last


def place(blocks: Sequence[LiveBytes], others: Sequence[LiveBytes], available: int) -> int:
    """Give each block the lowest offset that is free while it lives, the largest first; the bytes needed.

    Those of the first list come first, so that the others find one large gap above them; only where that needs more
    than is available are all sorted together.
    """
    top = _place([*_largest_first(blocks), *_largest_first(others)])
    return top if top <= available else _place(_largest_first([*blocks, *others]))


def _largest_first(blocks: Sequence[LiveBytes]) -> list[LiveBytes]:
    return sorted(blocks, key=lambda item: (-item.size, item.first, item.name))


def _place(blocks: Sequence[LiveBytes]) -> int:
    done: list[LiveBytes] = []
    top = 0
    for block in blocks:
        block.offset = lowest(block, done)
        top = max(top, block.offset + block.size)
        done.append(block)
    return top


def lowest(block: LiveBytes, others: Iterable[LiveBytes]) -> int:
    """The lowest offset at which a block keeps off the others that are alive with it."""
    offset = 0
    for other in sorted((item for item in others if item.meets(block)), key=lambda item: item.offset):
        if other.offset >= offset + block.size:
            break
        offset = max(offset, aligned(other.offset + other.size, ALIGN))
    return offset
