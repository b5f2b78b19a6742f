"""Performance counters of the emulated GPU: warp instructions, memory sectors, bank conflicts of shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lamella.base.arrays import Array

SECTOR, WORD, BANKS = 32, 4, 32


@dataclass(slots=True)
class Counts:
    """What the blocks of a kernel that ran have cost, all launches together."""

    launches: int = 0
    groups: int = 0
    """Blocks of all launches,"""
    blocks: int = 0
    """and those of them that ran."""
    threads: int = 0
    """Threads of a block."""
    instructions: int = 0
    """Of warps."""
    wanted: int = 0
    """Bytes of global memory that lanes load and store,"""
    sectors: int = 0
    """and pieces of 32 bytes that their warps touch with that."""
    turns: int = 0
    """Turns of local memory,"""
    least_turns: int = 0
    """and those that it would take if no lanes wanted the same bank."""

    def touch(self, places: Array, size: int, lanes: Array) -> None:
        """Count an access of global memory, by its addresses (coalescing)."""
        self.wanted += len(places) * size
        self.sectors += len(np.unique((lanes // 32 << 42) | (places // SECTOR)))

    def take(self, places: Array, size: int, lanes: Array) -> None:
        """Count an access of shared memory (bank conflicts); of wide ones fewer lanes are served at once."""
        words = max(1, size // WORD)
        group = lanes * words // 32
        each = (places // WORD)[:, None] + np.arange(words)
        wanted = np.unique((np.repeat(group, words) << 32) | each.reshape(-1))
        banks, found = np.unique((wanted >> 32) * BANKS + wanted % BANKS, return_counts=True)
        starts = np.flatnonzero(np.diff(banks // BANKS, prepend=-1))
        self.turns += int(np.maximum.reduceat(found, starts).sum()) if len(starts) else 0
        self.least_turns += len(starts)
