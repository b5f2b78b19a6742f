"""All pairs of tasks that touch the same bytes in no order, one of them writing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from lamella.base.dim import TooComplex
from lamella.lang.nem.resolved import Index, Variable
from lamella.plan.diophantine import StepBudget
from lamella.plan.hazards.accesses import Accesses, Footprint, OperandAccess, Point, substitute
from lamella.plan.order import LoopExtent, Order, Site
from lamella.plan.ranges import Assignment, search

# --- can two accesses touch the same byte in two iterations that are not ordered? Answers with a ------------


DISTANCE = -1
FEW_DISTANCES = 16


@dataclass(frozen=True, slots=True)
class Meeting:
    """Iterations, as iteration numbers by depth, in which the two accesses overlap."""

    early: Point
    late: Point


class OverlapQueries:
    """Whether two footprints overlap: Diophantine problems, whose answers are kept, for programs repeat themselves."""

    def __init__(self, budget: StepBudget) -> None:
        self._budget = budget
        self._known: dict[object, Meeting | None] = {}

    def in_one_iteration(self, early: Footprint, late: Footprint, first: Mapping[int, int]) -> Meeting | None:
        """Overlap in one iteration of the common loops, which are all loops of `early`.

        `first` limits `late` to so many first iterations at some depths.
        """
        trips = tuple(min(n, first.get(depth, n)) for depth, n in enumerate(late.trips))
        return self._within(early, late, trips, (1 - early.extent, late.extent - 1))

    def apart(self, one: Footprint, other: Footprint) -> Meeting | None:
        """Overlap in one iteration, of two operands of one task, that is not the identical range."""
        if one.extent != other.extent:
            return self.in_one_iteration(one, other, {})
        below = self._within(one, other, other.trips, (1 - one.extent, -1))
        return below or self._within(one, other, other.trips, (1, other.extent - 1))

    def _within(
        self, early: Footprint, late: Footprint, trips: Point, limits: tuple[int, int]
    ) -> Meeting | None:
        """Where the difference of two offsets is within limits; the loops of `early` are common to both."""
        distance = early.offset.plus(late.offset, -1)
        low, high = limits[0] - distance.constant, limits[1] - distance.constant
        common = len(early.trips)
        if not distance.terms:
            return Meeting((0,) * common, (0,) * len(trips)) if low <= 0 <= high else None
        key = distance.terms, trips, common, low, high
        if key not in self._known:
            box = {depth: (0, n - 1) for depth, n in enumerate(trips)}
            found = search(Index(0, distance.terms), box, low, high, self._budget)
            self._known[key] = None if found is None else _split_common(found, common)
        return self._known[key]

    def in_two_iterations(self, early: Footprint, late: Footprint, extent: LoopExtent) -> Meeting | None:
        """Overlap in two iterations of one loop that the window leaves unordered, `late` in the later one."""
        low = 1 - early.extent - early.offset.constant + late.offset.constant
        high = late.extent - 1 - early.offset.constant + late.offset.constant
        shapes = (early.offset.terms, early.trips), (late.offset.terms, late.trips)
        key = shapes, extent.depth, extent.loop.window, low, high
        if key not in self._known:
            self._known[key] = _WindowPair(early, late, extent, self._budget).ask(low, high)
        return self._known[key]


def _split_common(found: Assignment, depth: int) -> Meeting:
    point = tuple(found[variable] for variable in sorted(found))
    return Meeting(point[:depth], point)


class _WindowPair:
    """Two iterations of one loop at a distance below its window; the loops inside are independent."""

    def __init__(self, early: Footprint, late: Footprint, extent: LoopExtent, budget: StepBudget) -> None:
        self._early, self._late, self._depth = early, late, extent.depth
        self._trips = extent.loop.trips
        self._most = min(extent.loop.window, extent.loop.trips) - 1
        self._budget = budget

    def ask(self, low: int, high: int) -> Meeting | None:
        """A meeting with the difference of the offsets in [low, high], the nearest iterations first."""
        if self._most <= FEW_DISTANCES:
            ranges = [(distance, distance) for distance in range(self._most, 0, -1)]
        else:
            ranges = [(1, self._most)]
        while ranges:
            first, last = ranges.pop()
            found = self._search(first, last, low, high)
            if found is None:
                continue
            if found[3 * self._depth] + found[DISTANCE] < self._trips:
                return self._meeting(found)
            # The box allowed what the triangle of iterations does not: look at its halves.
            middle = (first + last) // 2
            ranges += [(middle + 1, last), (first, middle)]
        return None

    def _search(self, first: int, last: int, low: int, high: int) -> Assignment | None:
        early = substitute(Index(0, self._early.offset.terms), self._images(1))
        terms = early.plus(substitute(Index(0, self._late.offset.terms), self._images(2)), -1)
        box = {DISTANCE: (first, last)}
        for side, trips in ((1, self._early.trips), (2, self._late.trips)):
            for depth, count in enumerate(trips):
                box[3 * depth + side * (depth > self._depth)] = (0, count - 1)
        box[3 * self._depth] = (0, self._trips - 1 - first)
        return search(terms, box, low, high, self._budget)

    def _images(self, side: int) -> dict[int, Index]:
        """Shared loops have one variable, this loop one for the earlier iteration, inner loops one per side."""
        trips = self._early.trips if side == 1 else self._late.trips
        images = {
            depth: Index(0, ((Variable(3 * depth + side * (depth > self._depth), ""), 1),))
            for depth in range(len(trips))
        }
        if side == 2:
            later = ((Variable(3 * self._depth, ""), 1), (Variable(DISTANCE, ""), 1))
            images[self._depth] = Index(0, later)
        return images

    def _meeting(self, found: Assignment) -> Meeting:
        points = [
            [found[3 * depth + side * (depth > self._depth)] for depth in range(len(trips))]
            for side, trips in ((1, self._early.trips), (2, self._late.trips))
        ]
        points[1][self._depth] += found[DISTANCE]
        return Meeting(tuple(points[0]), tuple(points[1]))


# --- which footprints may overlap at all: filters that keep the number of questions near the number ---------


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
    accesses: tuple[OperandAccess, ...]
    written: bool


def group_alike(accesses: Sequence[OperandAccess], inside: int) -> list[list[Alike]]:
    """Accesses of one buffer, alike ones together, in groups whose offsets differ by constants.

    Loops outside the depth `inside` are the same for all accesses.
    """
    found: dict[object, dict[tuple[int, int], list[OperandAccess]]] = {}
    for access in accesses:
        footprint = access.footprint
        offset = footprint.offset
        group = found.setdefault((offset.terms, footprint.trips[inside:]), {})
        group.setdefault((offset.constant, footprint.extent), []).append(access)
    return [[_alike(accesses) for accesses in group.values()] for group in found.values()]


def _alike(accesses: list[OperandAccess]) -> Alike:
    return Alike(accesses[0].footprint, tuple(accesses), any(access.write for access in accesses))


def neighbours(groups: list[list[Alike]], budget: StepBudget) -> Iterator[tuple[Alike, Alike]]:
    """Pairs, each also with itself, that may touch the same byte, one writing; TooComplex if groups are too many."""
    for place, one in enumerate(groups):
        budget.spend(len(groups) - place)
        for other in groups[place:]:
            yield from _near(one, other)


class Reached:
    """Per footprint of one buffer: the sites that may touch the same bytes in some iterations."""

    def __init__(self, accesses: Sequence[OperandAccess], budget: StepBudget) -> None:
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


# More findings than anybody reads; the search ends there, so that a program of n tasks on one byte is no n² problem.
MOST_PAIRS = 1000
FEW = 32


@dataclass(frozen=True, slots=True)
class Hazard:
    """Two accesses in two instances, `early` first in program order, that nothing orders."""

    early: OperandAccess
    late: OperandAccess
    early_point: Point
    late_point: Point
    stage: int
    shared: int
    """How many outer loops are in the same iteration for both."""

    @property
    def sites(self) -> tuple[int, int]:
        """The numbers of the two sites, ascending."""
        first, second = self.early.site.index, self.late.site.index
        return min(first, second), max(first, second)

    @property
    def rank(self) -> tuple[int, bool]:
        """The least is reported: the same iteration, then inner loops; nearer iterations before farther ones.

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
class HazardTable:
    """Hazards, one for each pair of accesses, and pairs that could not be decided.

    `stopped` is the access at which there were too many pairs to go on.
    """

    hazards: dict[Key, Hazard]
    unproved: dict[Key, tuple[OperandAccess, OperandAccess]]
    stopped: OperandAccess | None = None
    least_shared: dict[Key, int] = field(default_factory=dict)

    def record(self, hazard: Hazard) -> None:
        """Keep the hazard that is to be reported of a pair of accesses."""
        key = key_of(hazard.early, hazard.late)
        known = self.hazards.get(key)
        if known is None or hazard.rank < known.rank:
            self.hazards[key] = hazard
        self.least_shared[key] = min(hazard.shared, self.least_shared.get(key, hazard.shared))
        self._stop_at(hazard.late)

    def shared(self, hazard: Hazard) -> int:
        """How many outer loops are in the same iteration wherever the two accesses of a hazard are unordered."""
        if self.unproved or self.stopped is not None:
            return 0
        return self.least_shared[key_of(hazard.early, hazard.late)]

    def doubt(self, early: OperandAccess, late: OperandAccess) -> None:
        """Keep a pair that is not proved."""
        self.unproved.setdefault(key_of(early, late), (early, late))
        self._stop_at(late)

    def _stop_at(self, access: OperandAccess) -> None:
        if len(self.hazards) >= MOST_PAIRS or len(self.unproved) >= MOST_PAIRS:
            self.stopped = access


def key_of(one: OperandAccess, other: OperandAccess) -> Key:
    """A pair of accesses whatever their order."""
    first = one.site.index, one.write, one.operand
    second = other.site.index, other.write, other.operand
    return (first, second) if first <= second else (second, first)


class Finder:
    """Compares accesses: in the same iteration, then in different iterations of each loop, inner loops first."""

    def __init__(self, order: Order, accesses: Accesses, questions: OverlapQueries, most_pairs: int) -> None:
        self._order, self._accesses, self._questions = order, accesses, questions
        self._pairs = StepBudget(most_pairs, most_pairs)
        self.found = HazardTable({}, {})
        self._by_buffer: dict[str, list[OperandAccess]] = {}
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
            except TooComplex:
                self.found.stopped = access

    def _conflicting(self, access: OperandAccess, unordered: int) -> int:
        """The sites that touch the buffer so that order matters; bytes are looked at where they are many."""
        name, wanted = access.footprint.buffer.name, not access.write
        mask = self._masks.get((name, wanted), 0)
        if (mask & unordered).bit_count() <= FEW:
            return mask
        if name not in self._reached:
            self._reached[name] = Reached(self._by_buffer[name], self._pairs)
        reached = self._reached[name]
        return (reached.writers if wanted else reached.users)[access.footprint]

    def _compare(self, others: Sequence[OperandAccess], late: OperandAccess) -> None:
        self._pairs.spend(len(others))
        for early in others:
            if (early.write or late.write) and early.footprint.meets(late.footprint):
                self._ask_one(early, late)

    def _ask_one(self, early: OperandAccess, late: OperandAccess) -> None:
        first = self._order.first_iterations(early.site, late.site)
        try:
            met = self._questions.in_one_iteration(early.footprint, late.footprint, first)
        except TooComplex:
            self.found.doubt(early, late)
            return
        if met is not None:
            self.found.record(Hazard(early, late, met.early, met.late, 0, len(early.footprint.trips)))

    # --- different iterations ---

    def look_across(self) -> None:
        """Compare what several iterations of a loop in flight touch."""
        for stage, extent in enumerate(self._order.loops, 1):
            if extent.loop.window > 1 and extent.loop.trips > 1:
                for accesses in self._inside(extent):
                    self._across(accesses, extent, stage)

    def _inside(self, extent: LoopExtent) -> Iterator[list[OperandAccess]]:
        """The accesses inside a loop, those of one buffer together, where one of them writes."""
        by_buffer: dict[str, list[OperandAccess]] = {}
        for touched in self._accesses.of[extent.first : extent.end]:
            for access in touched:
                by_buffer.setdefault(access.footprint.buffer.name, []).append(access)
        return (group for group in by_buffer.values() if any(access.write for access in group))

    def _across(self, accesses: list[OperandAccess], extent: LoopExtent, stage: int) -> None:
        try:
            for one, other in neighbours(group_alike(accesses, extent.depth + 1), self._pairs):
                if self.found.stopped is not None:
                    return
                self._pairs.spend()
                self._ask(one, other, extent, stage)
                if one is not other:
                    self._ask(other, one, extent, stage)
        except TooComplex:
            self.found.stopped = accesses[0]

    def _ask(self, early: Alike, late: Alike, extent: LoopExtent, stage: int) -> None:
        """Ask once for all accesses that are alike."""
        try:
            met = self._questions.in_two_iterations(early.footprint, late.footprint, extent)
        except TooComplex:
            self.found.doubt(early.accesses[0], late.accesses[0])
            return
        if met is None:
            return
        for first in early.accesses:
            for second in late.accesses:
                if self.found.stopped is not None:
                    return
                if first.write or second.write:
                    self.found.record(Hazard(first, second, met.early, met.late, stage, extent.depth))
