"""Steady state: finding out that a loop repeats itself with a period, and skipping whole periods of it.

When iterations of loops at nesting depth d have just been opened, the state of the simulation is described relative to
now: lists outside depth d by identity (they must not have changed), iterations at depth d by their distance from the
newest one and the residue that unit indices depend on, everything inside them exactly; queues, units and running tasks
with their remaining times. The same description again means that the simulation repeats itself: what happened meanwhile
is multiplied, times and iteration numbers are moved on, and the last iterations are simulated in full again.

A loop at depth d may stand still while others go on: it lacks a token, or a unit that others keep busy. What it holds
grows older, so relative to now it never looks the same. Loops that did not move lately are therefore described by
identity, like the lists outside; if one of them moves after all, the descriptions differ.

Tasks of the lists outside and of loops that stand still may run or wait through a period; the jump then ends before the
first of them ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heapify
from typing import TYPE_CHECKING, TypeAlias

from lamella.plan.timing.program import APERIODIC
from lamella.plan.timing.state import Activation, HeldToken, Lane, LoopFrame

if TYPE_CHECKING:
    from lamella.plan.timing.schedule import InstanceRecord, Schedule


MARGIN = 2
"""Iterations that are left after a jump, so that no waiter of an outer token is taken for the last one."""
LONGEST_JOURNAL = 4_000_000
Outline: TypeAlias = tuple[int, ...]
"""A few numbers of a state: states that differ in them differ."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state that was described, and where the counters stood."""

    outline: Outline
    state: object
    time: int
    journal: int
    nexts: tuple[int, ...]
    still: frozenset[int]
    """Places of the loops that were taken to stand still."""
    sums: dict[int, tuple[int, ...]]
    tokens: tuple[tuple[HeldToken, int], ...]


@dataclass(slots=True)
class StateHistory:
    """One state of a nesting depth, kept while the lists outside stay the same, and how many were seen since.

    Brent's way to find a cycle: every state is compared with one kept state, which is replaced by the present one after
    1, 2, 4, … states. A cycle of n states that begins after m is found within about three times the larger of both.
    """

    identity: tuple[int, ...] = ()
    kept: Snapshot | None = None
    seen: int = 0
    until: int = 1

    def is_over(self) -> bool:
        """Whether the kept state is to be replaced."""
        if self.seen < self.until:
            return False
        self.until *= 2
        self.seen = 0
        return True


class Journal:
    """What was counted, in order, so that what happened since some moment can be counted again.

    Records are appended to `records`; the repetitions of a jump stand beside them with their place.
    """

    def __init__(self) -> None:
        self.records: list[InstanceRecord] = []
        self._repeated: list[tuple[int, Counter[InstanceRecord]]] = []

    def since(self, place: int) -> Counter[InstanceRecord]:
        """The records since a place."""
        found = Counter(self.records[place:])
        for at, counts in reversed(self._repeated):
            if at < place:
                break
            found.update(counts)
        return found

    def repeat(self, counts: Counter[InstanceRecord], times: int) -> None:
        """Count records so many times more."""
        more = Counter({record: times * count for record, count in counts.items()})
        self._repeated.append((len(self.records), more))


class Recurrence:
    """Watches a schedule for repeating states."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.memories: dict[int, StateHistory] = {}

    def look(self) -> None:
        """Compare the present state with the kept ones, from the outermost loop inwards, and jump if it is known."""
        if len(self.schedule.journal.records) > LONGEST_JOURNAL:
            self.schedule.settle_journal()
            self.memories.clear()
        for depth in sorted(self.schedule.opened):
            if self._look_at(depth):
                return

    def _look_at(self, depth: int) -> bool:
        outside, loops = _outside(self.schedule.root, depth)
        identity = _identity(outside, loops)
        memory = self.memories.get(depth)
        if memory is None or memory.identity != identity:
            self.memories[depth] = StateHistory(identity)
            return False
        kept = memory.kept
        still = frozenset[int]() if kept is None else kept.still
        outline = self._outline(loops, still)
        if kept is not None and kept.outline == outline and self._compare(depth, memory, kept, loops):
            return True
        memory.seen += 1
        if memory.is_over():
            memory.kept = self._snapshot(outside, loops, kept)
        return False

    def _compare(self, depth: int, memory: StateHistory, kept: Snapshot, loops: list[Activation]) -> bool:
        """Jump if the present state is the kept one and whole periods are left."""
        view = PeriodView(self.schedule, loops, kept.still)
        periods = self._periods(view, kept) if view.describe() == kept.state else 0
        if periods > 0:
            Jump(self.schedule, view, kept, periods).make()
            self.memories = {other: seen for other, seen in self.memories.items() if other < depth}
        view.unmark()
        return periods > 0

    def _outline(self, loops: list[Activation], still: frozenset[int]) -> Outline:
        schedule = self.schedule
        now, events = schedule.now, schedule.events
        found = [schedule.in_flight, len(events)]
        for place, loop in enumerate(loops):
            found += (loop.next, 0) if place in still else (now - loop.opened, len(loop.frames))
        if schedule.queues is not None:
            found += (len(lane.heap) for lane in schedule.queues.lanes.values())
        return tuple(found)

    def _snapshot(
        self, outside: list[LoopFrame], loops: list[Activation], kept: Snapshot | None
    ) -> Snapshot | None:
        """The present state; loops that have not moved since the state that was kept are taken to stand still."""
        nexts = tuple(loop.next for loop in loops)
        still = frozenset[int]()
        if kept is not None:
            pairs = enumerate(zip(nexts, kept.nexts, strict=True))
            still = frozenset(place for place, (after, before) in pairs if after == before)
        view = PeriodView(self.schedule, loops, still)
        state = view.describe()
        view.unmark()
        if state is None:
            return None
        queues = self.schedule.queues
        lanes = () if queues is None else queues.lanes.values()
        return Snapshot(
            self._outline(loops, still),
            state,
            self.schedule.now,
            len(self.schedule.journal.records),
            nexts,
            still,
            {lane.number: tuple(lane.sums) for lane in lanes},
            tuple((token, token.remaining) for frame in outside for token in frame.tokens.values()),
        )

    def _periods(self, view: PeriodView, known: Snapshot) -> int:
        """How many whole periods may be skipped."""
        now = self.schedule.now
        pairs = zip(view.loops, known.nexts, strict=True)
        room = [
            (loop.trips - loop.next - MARGIN) // (loop.next - before)
            for loop, before in pairs
            if loop.next > before
        ]
        room += [
            (end - now - 1) // (now - known.time)
            for end, _, running in self.schedule.events
            if running.frame.mark < 0
        ]
        return min(room, default=0)


def _outside(root: LoopFrame, depth: int) -> tuple[list[LoopFrame], list[Activation]]:
    """The frames outside the loops at a depth, and these loops."""
    found = [root]
    layer = [root]
    for _ in range(depth - 1):
        layer = [
            inner
            for frame in layer
            if frame.active is not None
            for _, inner in sorted(frame.active.frames.items())
        ]
        found += layer
    return found, [frame.active for frame in layer if frame.active is not None]


def _identity(outside: list[LoopFrame], loops: list[Activation]) -> tuple[int, ...]:
    """Numbers that are the same only while the lists outside do not change."""
    parts = [loop.serial for loop in loops]
    for frame in outside:
        parts += (frame.serial, frame.version)
    return tuple(parts)


class PeriodView:
    """The state of a schedule relative to now, seen from the loops at one depth."""

    def __init__(self, schedule: Schedule, loops: list[Activation], still: frozenset[int]) -> None:
        self.schedule = schedule
        self.loops = loops
        self.still = still
        self.inside: list[LoopFrame] = []
        self.active: list[Activation] = []

    def describe(self) -> object | None:
        """The state as a value; None when an older task of the lists outside makes it unrepeatable."""
        frames = self._describe_loops()
        running = self._describe_running()
        queues = self.schedule.queues
        if queues is None:
            return (frames, running)
        lanes: list[object] = []
        for lane in queues.lanes.values():
            lane.sync(self.schedule.now)
            if lane.heap:
                entries = self._describe_lane(lane)
                if entries is None:
                    return None
                lanes.append((lane.number, entries))
        live = tuple(sorted(queues.live.items()))
        last = tuple(tuple(sorted(units.last.items())) for units in queues.units.values())
        return (frames, running, tuple(lanes), live, last)

    def unmark(self) -> None:
        """Forget the places that frames were given."""
        for frame in self.inside:
            frame.mark = -1

    def _describe_loops(self) -> tuple[object, ...]:
        now = self.schedule.now
        parts: list[object] = [_identify(self.loops[place]) for place in sorted(self.still)]
        outer = [loop for place, loop in enumerate(self.loops) if place not in self.still]
        self.active = list(outer)
        for position, loop in enumerate(self.active):
            relative = position < len(outer)
            at = _residue(loop) if relative else loop.next
            parts.append((loop.frame.mark, loop.step.index, at, now - loop.opened, len(loop.frames)))
            for trip, frame in sorted(loop.frames.items()):
                frame.mark = len(self.inside)
                self.inside.append(frame)
                parts.append((trip - loop.next, now - frame.base, frame.window, frame.cause, *frame.state))
                parts += [(index, token.remaining) for index, token in sorted(frame.tokens.items())]
                if frame.active is not None:
                    self.active.append(frame.active)
        return tuple(parts)

    def _describe_running(self) -> tuple[object, ...]:
        now = self.schedule.now
        inside: list[object] = []
        outside: list[tuple[int, int, int]] = []
        for end, _, running in sorted(self.schedule.events):
            frame, index = running.frame, running.step.index
            if frame.mark >= 0:
                inside.append((end - now, frame.mark, index, running.instance))
            else:
                outside.append((frame.serial, index, running.instance))
        return (tuple(inside), tuple(sorted(outside)))

    def _describe_lane(self, lane: Lane) -> tuple[object, ...] | None:
        entries: list[object] = []
        overtaking = False
        for _, _, entry in sorted(lane.heap):
            if entry.lane is not lane:
                continue
            frame, index = entry.frame, entry.step.index
            if frame.mark >= 0:
                entries.append(
                    (frame.mark, index, self.schedule.now - entry.ready, *entry.waited(), entry.cause)
                )
                overtaking = True
            elif overtaking:
                return None
            else:
                entries.append((-1, frame.serial, index))
        return tuple(entries)


def _identify(loop: Activation) -> tuple[int, ...]:
    """Numbers that are the same only while nothing inside a loop changes."""
    parts: list[int] = []
    todo = [loop]
    for inner in todo:
        parts += (inner.serial, inner.next)
        for frame in inner.frames.values():
            parts += (frame.serial, frame.version)
            if frame.active is not None:
                todo.append(frame.active)
    return tuple(parts)


def _residue(loop: Activation) -> tuple[int, int]:
    """What unit indices know of the position of a loop."""
    period = loop.step.period
    first = 0 if loop.step.loop is None else loop.step.loop.first
    return (0, loop.next) if period == APERIODIC else (1, (first + loop.next) % period)


class Jump:
    """Moves a schedule on by whole periods."""

    def __init__(self, schedule: Schedule, view: PeriodView, known: Snapshot, periods: int) -> None:
        self.schedule = schedule
        self.view = view
        self.known = known
        self.periods = periods
        self.shift = periods * (self.schedule.now - known.time)

    def make(self) -> None:
        """Multiply what happened since the known state and move everything inside the loops on."""
        journal = self.schedule.journal
        journal.repeat(journal.since(self.known.journal), self.periods)
        self._move_loops()
        self._move_events()
        self._move_lanes()
        for token, before in self.known.tokens:
            token.remaining -= self.periods * (before - token.remaining)
        if self.schedule.covered < 0:
            self.schedule.covered = self.schedule.now
        self.schedule.now += self.shift

    def _move_loops(self) -> None:
        for loop, before in zip(self.view.loops, self.known.nexts, strict=True):
            ahead = self.periods * (loop.next - before)
            loop.next += ahead
            loop.floor += ahead
            loop.complete = {trip + ahead for trip in loop.complete}
            loop.frames = {trip + ahead: frame for trip, frame in loop.frames.items()}
            for trip, frame in loop.frames.items():
                frame.trip = trip
        for loop in self.view.active:
            loop.opened += self.shift
        for frame in self.view.inside:
            frame.base += self.shift
            if frame.parent is not None:
                frame.order = (*frame.parent.frame.order, frame.parent.step.index, frame.trip)

    def _move_events(self) -> None:
        moved = []
        for end, order, running in self.schedule.events:
            if running.frame.mark < 0:
                moved.append((end, order, running))
            else:
                running.end = end + self.shift
                moved.append((running.end, (*running.frame.order, running.step.index), running))
        heapify(moved)
        self.schedule.events = moved

    def _move_lanes(self) -> None:
        queues = self.schedule.queues
        for lane in () if queues is None else queues.lanes.values():
            before = self.known.sums.get(lane.number, (0, 0, 0))
            grown = [self.periods * (now - then) for now, then in zip(lane.sums, before, strict=True)]
            lane.sums = [total + more for total, more in zip(lane.sums, grown, strict=True)]
            lane.since += self.shift
            self._move_entries(lane, grown)

    def _move_entries(self, lane: Lane, grown: list[int]) -> None:
        moved = []
        for ready, order, entry in lane.heap:
            if entry.lane is not lane:
                continue
            if entry.frame.mark < 0:
                moved.append((ready, order, entry))
                continue
            entry.ready += self.shift
            entry.before = [total + more for total, more in zip(entry.before, grown, strict=True)]
            moved.append((entry.ready, (*entry.frame.order, entry.step.index), entry))
        heapify(moved)
        lane.heap = moved
