"""How early a weight may be preloaded: as long as the program needs no more memory for it than it needs anyway.

What it needs anyway is the peak of the schedule that preloads each run of loads at the latest computing tick. A run
moves to an earlier tick, at most three computing ones and twelve in all, and never to or before that of the run before
it, while the bytes alive in between stay below that peak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate


class Lives:
    """When results are alive, in moments: each tick has one while it executes and one after its commands."""

    __slots__ = ("begin", "end")

    def __init__(self, count: int) -> None:
        self.begin = [self.executing(index) for index in range(count)]
        self.end = [2 * count] * count

    @staticmethod
    def executing(tick: int) -> int:
        """The moment at which an instruction has made its result."""
        return 2 * tick

    @staticmethod
    def settled(tick: int) -> int:
        """The moment after the commands of a tick."""
        return 2 * tick + 1


class Memory:
    """The bytes that are alive at each moment."""

    __slots__ = ("alive", "most", "sizes")

    def __init__(self, sizes: Mapping[int, int], lives: Lives) -> None:
        changes = [0] * (2 * len(lives.begin) + 1)
        for index, (begin, end) in enumerate(zip(lives.begin, lives.end, strict=True)):
            size = sizes.get(index, 0)
            changes[begin] += size
            changes[end] -= size
        self.alive = list(accumulate(changes))
        self.most = max(self.alive)
        self.sizes = sizes

    def advance(self, run: range, window: Sequence[int]) -> int:
        """Preload a run of loads as early as the memory allows; the tick, which is one of `window`, nearest first."""
        size = sum(self.sizes.get(load, 0) for load in run)
        chosen = window[0]
        for tick in window[1:]:
            between = range(Lives.settled(tick), Lives.settled(chosen))
            if any(self.alive[moment] + size > self.most for moment in between):
                break
            for moment in between:
                self.alive[moment] += size
            chosen = tick
        return chosen
