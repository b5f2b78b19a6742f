"""Which footprints may overlap at all: filters that keep the number of questions near the number of overlaps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from lamella.plan.diophantine import Budget
from lamella.plan.hazards.accesses import Access, Footprint


def members(mask: int) -> Iterator[int]:
    """The numbers in a bit set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Accesses inside one loop that touch bytes in the same way."""

    footprint: Footprint
    accesses: tuple[Access, ...]
    written: bool


def group_alike(accesses: Sequence[Access], inside: int) -> list[list[Alike]]:
    """Accesses of one buffer, alike ones together, in groups whose offsets differ by constants.

    Loops outside the depth `inside` are the same for all accesses.
    """
    found: dict[object, dict[tuple[int, int], list[Access]]] = {}
    for access in accesses:
        footprint = access.footprint
        offset = footprint.offset
        group = found.setdefault((offset.terms, footprint.trips[inside:]), {})
        group.setdefault((offset.constant, footprint.extent), []).append(access)
    return [[_alike(accesses) for accesses in group.values()] for group in found.values()]


def _alike(accesses: list[Access]) -> Alike:
    return Alike(accesses[0].footprint, tuple(accesses), any(access.write for access in accesses))


def neighbours(groups: list[list[Alike]], budget: Budget) -> Iterator[tuple[Alike, Alike]]:
    """Pairs, each also with itself, that may touch the same byte, one writing; Exhausted if groups are too many."""
    for place, one in enumerate(groups):
        budget.spend(len(groups) - place)
        for other in groups[place:]:
            yield from _near(one, other)


class Reached:
    """Per footprint of one buffer: the sites that may touch the same bytes in some iterations."""

    def __init__(self, accesses: Sequence[Access], budget: Budget) -> None:
        self.writers: dict[Footprint, int] = {}
        self.users: dict[Footprint, int] = {}
        groups = group_alike(accesses, 0)
        own = {id(alike): _sites(alike) for group in groups for alike in group}
        for group in groups:
            for alike in group:
                self.writers[alike.footprint] = self.users[alike.footprint] = 0
        for one, other in neighbours(groups, budget):
            for first, second in ((one, other), (other, one)):
                self.writers[first.footprint] |= own[id(second)][0]
                self.users[first.footprint] |= own[id(second)][1]


def _sites(alike: Alike) -> tuple[int, int]:
    """The sites that write, and all."""
    writers = users = 0
    for access in alike.accesses:
        users |= 1 << access.site.index
        writers |= access.write << access.site.index
    return writers, users


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
            if ranks.get(id(first), 0) > place or not (first.written or second.written):
                continue
            if first.footprint.meets(second.footprint):
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
