"""Liveness over a straight order: the live range of a value goes from its first definition to its last use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

Name = TypeVar("Name", bound=Hashable)

BEFORE = -1
"""The position before the first step: where inputs, weights and states are defined."""


class LiveRange(NamedTuple):
    """The first and the last step, both included, at which a value is alive."""

    first: int
    last: int

    def joined(self, other: LiveRange) -> LiveRange:
        """The range of values that share their memory."""
        return LiveRange(min(self.first, other.first), max(self.last, other.last))

    def until(self, last: int) -> LiveRange:
        """The range, alive at least until a step."""
        return LiveRange(self.first, max(self.last, last))


def last_uses(steps: Iterable[Iterable[Name]]) -> dict[Name, int]:
    """The last step that uses each name, by the names that the steps use, in order."""
    last: dict[Name, int] = {}
    for number, names in enumerate(steps):
        for name in names:
            last[name] = number
    return last


def live_ranges(
    steps: Iterable[tuple[Iterable[Name], Iterable[Name]]], before: Iterable[Name] = ()
) -> dict[Name, LiveRange]:
    """The live range of each name that is there before or that a step defines; a step is its uses and definitions.

    A use of another name is one of something outside and says nothing here.
    """
    defined = dict.fromkeys(before, BEFORE)
    last = dict(defined)
    for number, (uses, definitions) in enumerate(steps):
        for name in uses:
            if name in last:
                last[name] = number
        for name in definitions:
            defined.setdefault(name, number)
            last[name] = number  # a value that nothing uses still takes memory while its step runs
    return {name: LiveRange(first, last[name]) for name, first in defined.items()}


def changes(
    ranges: Iterable[tuple[Name, int, int]],
) -> Iterator[tuple[int, list[Name], list[Name]]]:
    """The moments at which something begins or ends to live, in order, with what does; ends are exclusive."""
    begun: defaultdict[int, list[Name]] = defaultdict(list)
    ended: defaultdict[int, list[Name]] = defaultdict(list)
    for name, first, end in ranges:
        begun[first].append(name)
        ended[end].append(name)
    for moment in sorted({*begun, *ended}):
        yield moment, begun.get(moment, []), ended.get(moment, [])
