"""All pairs of tasks that touch the same bytes in no order, one of them writing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamella.plan.feasible import Exhausted
from lamella.plan.hazards.accesses import Access, Accesses, Point
from lamella.plan.hazards.neighbours import Alike, Reached, group_alike, members, neighbours
from lamella.plan.hazards.questions import Meeting, Questions
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


@dataclass(slots=True)
class Found:
    """Hazards, and pairs of accesses that could not be decided, by the numbers of the two sites."""

    hazards: dict[tuple[int, int], Hazard]
    unproved: dict[tuple[int, int], tuple[Access, Access]]

    @property
    def full(self) -> bool:
        """Whether the search may end."""
        return len(self.hazards) >= MOST_PAIRS or len(self.unproved) >= MOST_PAIRS


class Finder:
    """Compares accesses; the first hazard of a pair of tasks is kept: same iteration first, inner loops next."""

    def __init__(self, order: Order, accesses: Accesses, questions: Questions) -> None:
        self._order, self._accesses, self._questions = order, accesses, questions
        self.found = Found({}, {})
        self._by_buffer: dict[str, list[Access]] = {}
        self._masks: dict[tuple[str, bool], int] = {}
        self._reached: dict[str, Reached] = {}
        self._ranks: dict[tuple[int, int], tuple[int, bool]] = {}
        for access in (access for touched in accesses.of for access in touched):
            name, bit = access.footprint.buffer.name, 1 << access.site.index
            self._by_buffer.setdefault(name, []).append(access)
            for key in {(name, access.write), (name, False)}:
                self._masks[key] = self._masks.get(key, 0) | bit

    # --- the same iteration ---

    def look_at(self, site: Site, unordered: int) -> None:
        """Compare a site with earlier ones that are not always before it in the same iteration."""
        for access in self._accesses.of[site.index]:
            if self.found.full:
                return
            for index in members(unordered & self._conflicting(access, unordered)):
                self._compare(self._accesses.of[index], access)

    def _conflicting(self, access: Access, unordered: int) -> int:
        """The sites that touch the buffer so that order matters; bytes are looked at where they are many."""
        name, wanted = access.footprint.buffer.name, not access.write
        mask = self._masks.get((name, wanted), 0)
        if (mask & unordered).bit_count() <= FEW:
            return mask
        if name not in self._reached:
            self._reached[name] = Reached(self._by_buffer[name])
        reached = self._reached[name]
        return (reached.writers if wanted else reached.users)[access.footprint]

    def _compare(self, others: Sequence[Access], late: Access) -> None:
        for early in others:
            if (early.write or late.write) and early.footprint.meets(late.footprint):
                first = self._order.first_iterations(early.site, late.site)
                try:
                    met = self._questions.in_one_iteration(early.footprint, late.footprint, first)
                except Exhausted:
                    self._doubt(early, late)
                    continue
                if met is not None:
                    self._record(early, late, met, 0)

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
        for one, other in neighbours(group_alike(accesses, extent.depth)):
            if self.found.full:
                return
            if one.footprint.meets(other.footprint):
                self._ask(one, other, extent, stage)
                if one is not other:
                    self._ask(other, one, extent, stage)

    def _ask(self, early: Alike, late: Alike, extent: Extent, stage: int) -> None:
        """Ask once for all accesses that are alike."""
        try:
            met = self._questions.in_two_iterations(early.footprint, late.footprint, extent)
        except Exhausted:
            self._doubt(early.accesses[0], late.accesses[0])
            return
        if met is None:
            return
        for first in early.accesses:
            for second in late.accesses:
                if self.found.full:
                    return
                if first.write or second.write:
                    self._record(first, second, met, stage)

    # --- results ---

    def _record(self, early: Access, late: Access, met: Meeting, stage: int) -> None:
        pair = _pair(early, late)
        # Of two directions the nearer one: the last statements of one iteration against the first of a later one.
        rank = stage, early.site.index <= late.site.index
        if pair not in self._ranks or rank < self._ranks[pair]:
            self._ranks[pair] = rank
            self.found.hazards[pair] = Hazard(early, late, met.early, met.late)

    def _doubt(self, early: Access, late: Access) -> None:
        self.found.unproved.setdefault(_pair(early, late), (early, late))


def _pair(early: Access, late: Access) -> tuple[int, int]:
    first, second = early.site.index, late.site.index
    return min(first, second), max(first, second)
