"""Addresses: every buffer gets its bytes, aligned as it asks, for the whole program.

First fit, the largest buffer first; where taking the strictest alignment first needs less, that order is used. DDR
is as large as its buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lamella.base.arena import Arena
from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import LARGEST
from lamella.lang.nem.device import ResolvedTopology
from lamella.lang.nem.resolved import Buffer
from lamella.lang.nem.rules import ADDRESS_SPACE

MOST_GAPS = 256
"""How many gaps are remembered, which keeps the search linear in the number of buffers."""


def assign_addresses(
    buffers: Iterable[Buffer], topology: ResolvedTopology
) -> tuple[Mapping[str, int], list[Diagnostic]]:
    """The address of each buffer in its memory, by name, and the buffers that do not fit."""
    levels: dict[str, list[Buffer]] = {}
    for buffer in buffers:
        levels.setdefault(buffer.level, []).append(buffer)
    found: dict[str, int] = {}
    findings: list[Diagnostic] = []
    for level, members in levels.items():
        placed = pack(members)
        found |= placed
        findings += _overflow(members, placed, level, capacity(members[0].memory, topology))
    return found, findings


def capacity(memory: str, topology: ResolvedTopology) -> int:
    """Bytes of a memory; DDR has no end."""
    sizes = {"L1": topology.l1_size_bytes, "L2": topology.l2_size_bytes}
    return sizes.get(memory, LARGEST)


def pack(buffers: Sequence[Buffer]) -> dict[str, int]:
    """Addresses in one memory, by the better of the two orders."""
    by_size = _first_fit(sorted(buffers, key=lambda item: -item.size))
    by_alignment = _first_fit(sorted(buffers, key=lambda item: (-item.align, -item.size)))
    return min(by_size, by_alignment, key=lambda placed: end_of(buffers, placed))


def end_of(buffers: Iterable[Buffer], placed: Mapping[str, int]) -> int:
    """The first byte behind the last buffer."""
    return max((placed[item.name] + item.size for item in buffers), default=0)


def _first_fit(buffers: Iterable[Buffer]) -> dict[str, int]:
    """Buffers live as long as the program: only what alignment leaves between them is filled again."""
    arena = Arena(MOST_GAPS)
    return {buffer.name: arena.first_fit(buffer.size, buffer.align) for buffer in buffers}


def _overflow(
    buffers: Sequence[Buffer], placed: Mapping[str, int], level: str, available: int
) -> list[Diagnostic]:
    """The first buffer, by address, that ends behind the memory; the others follow from it."""
    needed = end_of(buffers, placed)
    outside = [item for item in buffers if placed[item.name] + item.size > available]
    outside.sort(key=lambda item: placed[item.name])
    return [
        ADDRESS_SPACE.at(item.span, buffer=item.name, level=level, needed=needed, available=available)
        for item in outside[:1]
    ]
