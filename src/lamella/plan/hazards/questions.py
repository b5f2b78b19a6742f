"""Can two accesses touch the same byte in two iterations that are not ordered? Answers with a witness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamella.lang.nem.resolved import Index, Variable
from lamella.plan.diophantine import Budget
from lamella.plan.hazards.accesses import Footprint, Point, substitute
from lamella.plan.order import Extent
from lamella.plan.ranges import Assignment, search

DISTANCE = -1
FEW_DISTANCES = 16


@dataclass(frozen=True, slots=True)
class Meeting:
    """Iterations, as iteration numbers by depth, in which the two accesses overlap."""

    early: Point
    late: Point


class Questions:
    """Asks, and remembers the answers: programs repeat themselves."""

    def __init__(self, budget: Budget) -> None:
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

    def in_two_iterations(self, early: Footprint, late: Footprint, extent: Extent) -> Meeting | None:
        """Overlap in two iterations of one loop that the window leaves unordered, `late` in the later one."""
        low = 1 - early.extent - early.offset.constant + late.offset.constant
        high = late.extent - 1 - early.offset.constant + late.offset.constant
        shapes = (early.offset.terms, early.trips), (late.offset.terms, late.trips)
        key = shapes, extent.depth, extent.loop.window, low, high
        if key not in self._known:
            self._known[key] = _Window(early, late, extent, self._budget).ask(low, high)
        return self._known[key]


def _split_common(found: Assignment, depth: int) -> Meeting:
    point = tuple(found[variable] for variable in sorted(found))
    return Meeting(point[:depth], point)


class _Window:
    """Two iterations of one loop at a distance below its window; the loops inside are independent."""

    def __init__(self, early: Footprint, late: Footprint, extent: Extent, budget: Budget) -> None:
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
