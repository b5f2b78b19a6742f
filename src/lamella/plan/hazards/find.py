"""All pairs of tasks that touch the same bytes in no order, one of them writing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamella.plan.diophantine import Budget, Exhausted
from lamella.plan.hazards.accesses import Access, Accesses, Point
from lamella.plan.hazards.neighbours import Alike, Reached, group_alike, members, neighbours
from lamella.plan.hazards.questions import Questions
from lamella.plan.order import Extent, Order, Site

# More findings than anybody reads; the search ends there, so that a program of n tasks on one byte is no n² problem.
MOST_PAIRS = 1000
FEW = 32


@dataclass(frozen=True, slots=True)
class Hazard:
    """Two accesses in two instances, `early` first in program order, that nothing orders."""

    early: Access
    late: Access
    early_point: Point
    late_point: Point
    stage: int

    @property
    def sites(self) -> tuple[int, int]:
        """The numbers of the two sites, ascending."""
        first, second = self.early.site.index, self.late.site.index
        return min(first, second), max(first, second)

    @property
    def rank(self) -> tuple[int, bool]:
        """The least is told: the same iteration, then inner loops; nearer iterations before farther ones.

        Near are the last statements of an iteration and the first ones of a later iteration.
        """
        return self.stage, self.early.site.index <= self.late.site.index

    @property
    def kind(self) -> str:
        """RAW, WAR or WAW, by program order."""
        if self.early.write:
            return "WAW" if self.late.write else "RAW"
        return "WAR"

    @property
    def range(self) -> tuple[int, int]:
        """The bytes that both touch, the end excluded."""
        first, second = self.early.first_byte(self.early_point), self.late.first_byte(self.late_point)
        end = min(first + self.early.footprint.extent, second + self.late.footprint.extent)
        return max(first, second), end


Key = tuple[tuple[int, bool, int], tuple[int, bool, int]]


@dataclass(slots=True)
class Found:
    """Hazards, one for each pair of accesses, and pairs that could not be decided.

    `stopped` is the access at which there were too many pairs to go on.
    """

    hazards: dict[Key, Hazard]
    unproved: dict[Key, tuple[Access, Access]]
    stopped: Access | None = None

    def record(self, hazard: Hazard) -> None:
        """Keep the hazard that is to be told of a pair of accesses."""
        key = key_of(hazard.early, hazard.late)
        known = self.hazards.get(key)
        if known is None or hazard.rank < known.rank:
            self.hazards[key] = hazard
        self._stop_at(hazard.late)

    def doubt(self, early: Access, late: Access) -> None:
        """Keep a pair that is not proved."""
        self.unproved.setdefault(key_of(early, late), (early, late))
        self._stop_at(late)

    def _stop_at(self, access: Access) -> None:
        if len(self.hazards) >= MOST_PAIRS or len(self.unproved) >= MOST_PAIRS:
            self.stopped = access


def key_of(one: Access, other: Access) -> Key:
    """A pair of accesses whatever their order."""
    first = one.site.index, one.write, one.operand
    second = other.site.index, other.write, other.operand
    return (first, second) if first <= second else (second, first)


class Finder:
    """Compares accesses: in the same iteration, then in different iterations of each loop, inner loops first."""

    def __init__(self, order: Order, accesses: Accesses, questions: Questions, most_pairs: int) -> None:
        self._order, self._accesses, self._questions = order, accesses, questions
        self._pairs = Budget(most_pairs, most_pairs)
        self.found = Found({}, {})
        self._by_buffer: dict[str, list[Access]] = {}
        self._masks: dict[tuple[str, bool], int] = {}
        self._reached: dict[str, Reached] = {}
        for access in (access for touched in accesses.of for access in touched):
            name, bit = access.footprint.buffer.name, 1 << access.site.index
            self._by_buffer.setdefault(name, []).append(access)
            for key in {(name, access.write), (name, False)}:
                self._masks[key] = self._masks.get(key, 0) | bit

    # --- the same iteration ---

    def look_at(self, site: Site, unordered: int) -> None:
        """Compare a site with earlier ones that are not always before it in the same iteration."""
        for access in self._accesses.of[site.index]:
            try:
                for index in members(unordered & self._conflicting(access, unordered)):
                    if self.found.stopped is not None:
                        return
                    self._compare(self._accesses.of[index], access)
            except Exhausted:
                self.found.stopped = access

    def _conflicting(self, access: Access, unordered: int) -> int:
        """The sites that touch the buffer so that order matters; bytes are looked at where they are many."""
        name, wanted = access.footprint.buffer.name, not access.write
        mask = self._masks.get((name, wanted), 0)
        if (mask & unordered).bit_count() <= FEW:
            return mask
        if name not in self._reached:
            self._reached[name] = Reached(self._by_buffer[name], self._pairs)
        reached = self._reached[name]
        return (reached.writers if wanted else reached.users)[access.footprint]

    def _compare(self, others: Sequence[Access], late: Access) -> None:
        self._pairs.spend(len(others))
        for early in others:
            if (early.write or late.write) and early.footprint.meets(late.footprint):
                self._ask_one(early, late)

    def _ask_one(self, early: Access, late: Access) -> None:
        first = self._order.first_iterations(early.site, late.site)
        try:
            met = self._questions.in_one_iteration(early.footprint, late.footprint, first)
        except Exhausted:
            self.found.doubt(early, late)
            return
        if met is not None:
            self.found.record(Hazard(early, late, met.early, met.late, 0))

    # --- different iterations ---

    def look_across(self) -> None:
        """Compare what several iterations of a loop in flight touch."""
        for stage, extent in enumerate(self._order.loops, 1):
            if extent.loop.window > 1 and extent.loop.trips > 1:
                for accesses in self._inside(extent):
                    self._across(accesses, extent, stage)

    def _inside(self, extent: Extent) -> Iterator[list[Access]]:
        """The accesses inside a loop, those of one buffer together, where one of them writes."""
        by_buffer: dict[str, list[Access]] = {}
        for touched in self._accesses.of[extent.first : extent.end]:
            for access in touched:
                by_buffer.setdefault(access.footprint.buffer.name, []).append(access)
        return (group for group in by_buffer.values() if any(access.write for access in group))

    def _across(self, accesses: list[Access], extent: Extent, stage: int) -> None:
        try:
            for one, other in neighbours(group_alike(accesses, extent.depth + 1), self._pairs):
                if self.found.stopped is not None:
                    return
                self._pairs.spend()
                self._ask(one, other, extent, stage)
                if one is not other:
                    self._ask(other, one, extent, stage)
        except Exhausted:
            self.found.stopped = accesses[0]

    def _ask(self, early: Alike, late: Alike, extent: Extent, stage: int) -> None:
        """Ask once for all accesses that are alike."""
        try:
            met = self._questions.in_two_iterations(early.footprint, late.footprint, extent)
        except Exhausted:
            self.found.doubt(early.accesses[0], late.accesses[0])
            return
        if met is None:
            return
        for first in early.accesses:
            for second in late.accesses:
                if self.found.stopped is not None:
                    return
                if first.write or second.write:
                    self.found.record(Hazard(first, second, met.early, met.late, stage))
