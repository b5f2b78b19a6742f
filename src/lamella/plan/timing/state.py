"""The moving parts of a simulation: iterations in flight, queues before the units, units, tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.plan.timing.program import ProgramStep, ProgramSteps

DONE, RUNNING = -2, -1
"""States of a step; any other counts what it still waits for."""
UNIT, TOKEN, BANDWIDTH = 0, 1, 2
"""Why a ready task does not start: the index of the reason in a lane's sums."""

Order: TypeAlias = tuple[int, ...]
"""Program order of an instance: step index, iteration, step index, … from the outermost list inwards."""


@dataclass(slots=True, eq=False)
class HeldToken:
    """A live token: how many waiters have not started, and those of them that stand in a queue."""

    engine: int
    remaining: int
    queued: dict[Pending, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class LoopFrame:
    """One run of a statement list: the program or an iteration.

    `base` is the time from which dependency waits count, `window` how long the loop window held this iteration back
    and `cause` the task whose end opened it. `version` changes with every change of the steps' states.
    """

    steps: ProgramSteps
    serial: int
    parent: Activation | None
    trip: int
    order: Order
    state: list[int]
    left: int
    base: int
    window: int = 0
    cause: int = -1
    version: int = 0
    active: Activation | None = None
    listeners: dict[int, list[tuple[LoopFrame, int]]] = field(default_factory=dict)
    tokens: dict[int, HeldToken] = field(default_factory=dict)
    mark: int = -1
    """The place of the frame in the state that is being described; -1 outside of it."""

    def outward(self, lists: int) -> LoopFrame:
        """The frame so many statement lists further out."""
        frame = self
        while lists and frame.parent is not None:
            frame = frame.parent.frame
            lists -= 1
        return frame

    def values(self) -> dict[int, int]:
        """The loop variables here, by loop number."""
        found: dict[int, int] = {}
        frame = self
        while frame.parent is not None:
            loop = frame.parent.step.loop
            if loop is not None:
                found[loop.number] = loop.first + frame.trip
            frame = frame.parent.frame
        return found


@dataclass(slots=True, eq=False)
class Activation:
    """A loop being run: iterations before `floor` are complete, those before `next` have been opened."""

    step: ProgramStep
    frame: LoopFrame
    serial: int
    trips: int
    window: int
    opened: int
    next: int = 0
    floor: int = 0
    frames: dict[int, LoopFrame] = field(default_factory=dict)
    complete: set[int] = field(default_factory=set)

    @property
    def depth(self) -> int:
        """How many loops there are from the outermost one to this one."""
        return self.frame.steps.depth + 1

    def may_open(self) -> bool:
        """Whether the next iteration exists and the window lets it start."""
        return self.next < self.trips and self.next < self.floor + self.window

    def close(self, trip: int) -> None:
        """Mark an iteration complete."""
        del self.frames[trip]
        self.complete.add(trip)
        while self.floor in self.complete:
            self.complete.remove(self.floor)
            self.floor += 1


@dataclass(slots=True, eq=False)
class Units:
    """The instances of one unit class; `place` is the engine and the unit type."""

    place: tuple[int, str]
    count: int
    busy: set[int] = field(default_factory=set)
    last: dict[int, int] = field(default_factory=dict)
    """The task that ran last on an instance."""
    lowest: int = 0
    lanes: dict[int, list[Lane]] = field(default_factory=dict)
    """The lanes before these units, by pinned instance (-1: any)."""

    def pick(self, pin: int) -> int:
        """The instance a task gets: the pinned one, else the free one of least index; -1 when none is free."""
        if pin >= 0:
            return -1 if pin in self.busy else pin
        if len(self.busy) >= self.count:
            return -1
        while self.lowest in self.busy:
            self.lowest += 1
        return self.lowest

    def release(self, instance: int) -> None:
        """Free an instance."""
        self.busy.discard(instance)
        if instance < self.lowest:
            self.lowest = instance


@dataclass(slots=True, eq=False)
class Lane:
    """Ready tasks that are alike in what they need: unit class, pinned instance, a token or none, bandwidth.

    What blocks the first blocks them all, so the lane sums up the cycles spent on each reason.
    """

    number: int
    units: Units
    pin: int
    taker: int
    """The engine whose free token each task needs, or -1."""
    links: tuple[tuple[str, int], ...]
    heap: list[tuple[int, Order, Pending]] = field(default_factory=list)
    sums: list[int] = field(default_factory=lambda: [0, 0, 0])
    reason: int = UNIT
    since: int = 0

    def sync(self, now: int) -> None:
        """Bring the sums up to a time."""
        self.sums[self.reason] += now - self.since
        self.since = now


@dataclass(slots=True, eq=False)
class Pending:
    """A ready task in a lane; `before` are the lane's sums when it came, less what it waited in an earlier lane."""

    frame: LoopFrame
    step: ProgramStep
    ready: int
    cause: int
    lane: Lane
    before: list[int]

    def waited(self) -> list[int]:
        """Cycles waited for each reason, up to the last sync of the lane."""
        sums, before = self.lane.sums, self.before
        return [sums[0] - before[0], sums[1] - before[1], sums[2] - before[2]]


@dataclass(slots=True, eq=False)
class Running:
    """A task on a unit."""

    frame: LoopFrame
    step: ProgramStep
    units: Units | None
    instance: int
    end: int
