"""Steady state: finding out that a loop repeats itself with a period, and skipping whole periods of it.

When iterations of loops at nesting depth d have just been opened, the state of the simulation is described relative to
now: lists outside depth d by identity (they must not have changed), iterations at depth d by their distance from the
newest one and the residue that unit indices depend on, everything inside them exactly; queues, units and running tasks
with their remaining times. A description seen before means that the simulation repeats itself: what happened in between
is multiplied, times and iteration numbers are moved on, and the last iterations are simulated in full again.

Tasks of the outside lists may run or wait through a period; the jump then ends before the first of them ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heapify
from typing import TYPE_CHECKING

from lamella.plan.timing.program import APERIODIC
from lamella.plan.timing.state import Activation, HeldToken, Lane, LoopFrame

if TYPE_CHECKING:
    from lamella.plan.timing.schedule import InstanceRecord, Schedule


MARGIN = 2
"""Iterations that are left after a jump, so that no waiter of an outer token is taken for the last one."""
LONGEST_JOURNAL = 1_000_000
FEW_STATES, MANY_STATES = 512, 1 << 14
SPARSEST = 64


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Where the counters stood when a state was described."""

    time: int
    journal: int
    nexts: tuple[int, ...]
    sums: dict[int, tuple[int, ...]]
    tokens: tuple[tuple[HeldToken, int], ...]


@dataclass(slots=True)
class StateHistory:
    """The states seen at one nesting depth while the lists outside stayed the same."""

    identity: tuple[int, ...] = ()
    states: dict[object, Snapshot] = field(default_factory=dict)
    looks: int = 0
    room: int = FEW_STATES

    def is_due(self) -> bool:
        """Whether to look this time: always at first, ever more rarely when nothing repeats."""
        self.looks += 1
        stride = min(SPARSEST, 1 << max(0, self.looks.bit_length() - FEW_STATES.bit_length()))
        return self.looks % stride == 0

    def keep(self, state: object, snapshot: Snapshot) -> None:
        """Remember a state; when there are too many, start over with more room."""
        if len(self.states) >= self.room:
            self.states.clear()
            self.room = min(2 * self.room, MANY_STATES)
        self.states[state] = snapshot


class Recurrence:
    """Watches a schedule for repeating states."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.journal: list[tuple[InstanceRecord, int]] = []
        self.memories: dict[int, StateHistory] = {}

    def look(self) -> None:
        """Compare the present state with earlier ones, from the outermost loop inwards, and jump if it is known."""
        if len(self.journal) > LONGEST_JOURNAL:
            self.journal.clear()
            self.memories.clear()
        for depth in sorted(self.schedule.opened):
            if self._look_at(depth):
                return

    def _look_at(self, depth: int) -> bool:
        outside, loops = _outside(self.schedule.root, depth)
        identity = _identity(outside, loops)
        memory = self.memories.setdefault(depth, StateHistory())
        if memory.identity != identity:
            self.memories[depth] = StateHistory(identity)
            return False
        if not memory.is_due():
            return False
        view = PeriodView(self.schedule, loops)
        state = view.describe()
        known = None if state is None else memory.states.get(state)
        periods = 0 if known is None else self._periods(view, known)
        if known is not None and periods > 0:
            Jump(self, view, known, periods).make()
            self.memories = {other: seen for other, seen in self.memories.items() if other < depth}
        elif state is not None and known is None:
            memory.keep(state, self._snapshot(outside, loops))
        view.unmark()
        return periods > 0

    def _snapshot(self, outside: list[LoopFrame], loops: list[Activation]) -> Snapshot:
        queues = self.schedule.queues
        lanes = () if queues is None else queues.lanes.values()
        return Snapshot(
            self.schedule.now,
            len(self.journal),
            tuple(loop.next for loop in loops),
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

    def __init__(self, schedule: Schedule, loops: list[Activation]) -> None:
        self.schedule = schedule
        self.loops = loops
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
        parts: list[object] = []
        self.active = list(self.loops)
        for position, loop in enumerate(self.active):
            relative = position < len(self.loops)
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


def _residue(loop: Activation) -> tuple[int, int]:
    """What unit indices know of the position of a loop."""
    period = loop.step.period
    first = 0 if loop.step.loop is None else loop.step.loop.first
    return (0, loop.next) if period == APERIODIC else (1, (first + loop.next) % period)


class Jump:
    """Moves a schedule on by whole periods."""

    def __init__(self, recurrence: Recurrence, view: PeriodView, known: Snapshot, periods: int) -> None:
        self.recurrence = recurrence
        self.schedule = recurrence.schedule
        self.view = view
        self.known = known
        self.periods = periods
        self.shift = periods * (self.schedule.now - known.time)

    def make(self) -> None:
        """Multiply what happened since the known state and move everything inside the loops on."""
        self._repeat_counts()
        self._move_loops()
        self._move_events()
        self._move_lanes()
        for token, before in self.known.tokens:
            token.remaining -= self.periods * (before - token.remaining)
        if self.schedule.covered < 0:
            self.schedule.covered = self.schedule.now
        self.schedule.now += self.shift

    def _repeat_counts(self) -> None:
        journal = self.recurrence.journal
        counts: Counter[InstanceRecord] = Counter()
        for record, weight in journal[self.known.journal :]:
            counts[record] += weight * self.periods
        self.schedule.totals.update(counts)
        journal += counts.items()

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
