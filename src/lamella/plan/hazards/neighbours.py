"""Which footprints may overlap at all: filters that keep the number of questions near the number of overlaps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd

from lamella.plan.hazards.accesses import Access, Footprint


def members(mask: int) -> Iterator[int]:
    """The numbers in a bit set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class Reached:
    """Per footprint of one buffer: the sites whose bytes, over all iterations, may coincide with its own."""

    def __init__(self, accesses: Sequence[Access]) -> None:
        self.writers: dict[Footprint, int] = {}
        self.users: dict[Footprint, int] = {}
        own: dict[Footprint, tuple[int, int]] = {}
        for access in accesses:
            bit = 1 << access.site.index
            writers, users = own.get(access.footprint, (0, 0))
            own[access.footprint] = writers | (bit if access.write else 0), users | bit
        open_now: list[Footprint] = []
        for footprint in sorted(own, key=lambda item: item.low):
            open_now = [other for other in open_now if other.high > footprint.low]
            open_now.append(footprint)
            self._join(footprint, open_now, own)

    def _join(
        self, footprint: Footprint, others: list[Footprint], own: dict[Footprint, tuple[int, int]]
    ) -> None:
        writers, users = own[footprint]
        all_writers = all_users = 0
        for other in others:
            self.writers[other] = self.writers.get(other, 0) | writers
            self.users[other] = self.users.get(other, 0) | users
            all_writers |= own[other][0]
            all_users |= own[other][1]
        self.writers[footprint] |= all_writers
        self.users[footprint] |= all_users


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Accesses inside one loop that touch bytes in the same way."""

    footprint: Footprint
    accesses: list[Access] = field(default_factory=list)

    @property
    def written(self) -> bool:
        """Whether one of them writes."""
        return any(access.write for access in self.accesses)


def group_alike(accesses: Sequence[Access], depth: int) -> list[list[Alike]]:
    """Accesses of one buffer below a depth, alike ones together, in groups whose offsets differ by constants."""
    found: dict[object, dict[tuple[int, int], Alike]] = {}
    for access in accesses:
        footprint = access.footprint
        offset = footprint.offset
        group = found.setdefault((offset.terms, footprint.trips[depth + 1 :]), {})
        alike = group.setdefault((offset.constant, footprint.extent), Alike(footprint))
        alike.accesses.append(access)
    return [list(group.values()) for group in found.values()]


def neighbours(groups: list[list[Alike]]) -> Iterator[tuple[Alike, Alike]]:
    """Pairs, each also with itself, of which one writes and whose offsets are near modulo their coefficients."""
    for place, one in enumerate(groups):
        for other in groups[place:]:
            yield from _near(one, other)


def _near(one: list[Alike], other: list[Alike]) -> Iterator[tuple[Alike, Alike]]:
    """All offsets are congruent to their constants modulo the gcd of the coefficients of both groups."""
    modulus = _divisor(one[0].footprint, other[0].footprint)
    ordered = sorted(one, key=lambda item: _rest(item, modulus))
    rests = [_rest(item, modulus) for item in ordered]
    ranks = {id(item): rank for rank, item in enumerate(one)} if one is other else {}
    longest = max(item.footprint.extent for item in one)
    for place, second in enumerate(other):
        for first in _close(
            ordered, rests, longest, (_rest(second, modulus), second.footprint.extent), modulus
        ):
            if ranks.get(id(first), 0) <= place and (first.written or second.written):
                yield first, second


def _divisor(one: Footprint, other: Footprint) -> int:
    return gcd(*(factor for footprint in (one, other) for _, factor in footprint.offset.terms))


def _rest(item: Alike, modulus: int) -> int:
    constant = item.footprint.offset.constant
    return constant % modulus if modulus else constant


def _close(
    ordered: list[Alike], rests: list[int], longest: int, window: tuple[int, int], modulus: int
) -> Iterator[Alike]:
    """The items whose bytes meet the window [start, start + extent), on a line or, with a modulus, on a circle."""
    start, extent = window
    if modulus and longest + extent > modulus:
        yield from ordered
        return
    for shift in (-modulus, 0, modulus) if modulus else (0,):
        first = bisect_right(rests, start + shift - longest)
        for place in range(first, bisect_left(rests, start + shift + extent)):
            if rests[place] + ordered[place].footprint.extent > start + shift:
                yield ordered[place]
