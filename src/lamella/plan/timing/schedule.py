"""List scheduling of a plan, with the reasons why tasks wait.

Time advances from one end of a task to the next. All ends of a moment are taken first, with the gates they open;
then ready tasks start in the order (ready time, program order), each as soon as an instance of its unit is free, a
token is left where it makes one, and the links it crosses have its bandwidth left; a task that cannot start lets later
ones pass. A unit instance is busy for the whole task; the free instance of least index is taken.

A token is live from the start of its task to the start of the last task or wait that names it; tokens that nothing
waits for are not counted, and the last waiter needs no free token to make its own. When nothing runs and only the token
limit holds tasks back, the first of them starts anyway and is counted as forced, so a plan never hangs.

Waiting of an instance, in this order, each from the moment at which the one before was satisfied:
- window: from the opening of the iteration before to the opening of its own; only for instances that were ready
  when their iteration opened (the first iteration of a loop counts as opened with the list around it);
- dependency: from that opening (or the start of the program) to the end of the last task it waits for, be it by
  deps, wait, `.sync` or the end of a loop;
- unit, token, bandwidth: from then to the start, each stretch named after the first of the three that was missing.
The task waited for is the one whose end opened the window or satisfied the last dependency, or that held the unit
before.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from lamella.plan.timing.periods import LONGEST_JOURNAL, MARGIN, Journal, Recurrence
from lamella.plan.timing.program import ProgramStep, ProgramSteps
from lamella.plan.timing.queues import Queues
from lamella.plan.timing.state import DONE, RUNNING, Activation, Lane, LoopFrame, Order, Pending, Running

DEPENDENCY, WINDOW, UNIT, TOKEN, BANDWIDTH = "dependency", "window", "unit", "token", "bandwidth"
REASONS = (DEPENDENCY, WINDOW, UNIT, TOKEN, BANDWIDTH)
NOBODY = -1
MOST_FRAMES = 125_000
"""Iterations in flight beyond which no steady state is looked for."""
FORCED = -1
"""The task number under which forced starts are counted."""


class TaskWait(NamedTuple):
    """A stretch of waiting: the reason, the number of the task waited for (or NOBODY), and cycles."""

    reason: str
    task: int
    cycles: int


class InstanceRecord(NamedTuple):
    """What one instance did, without its times: the simulation counts equal records."""

    task: int
    place: tuple[int, str]
    instance: int
    waits: tuple[TaskWait, ...]


class UnitStart(NamedTuple):
    """A task on an instance of its units."""

    task: int
    place: tuple[int, str]
    instance: int


class UnitWait(NamedTuple):
    """What a task waited for before it started on an instance: the reason, and the task waited for (or NOBODY)."""

    start: UnitStart
    reason: str
    task: int


class ScheduledInstance(NamedTuple):
    """One task instance on the timeline; `iteration` are the loop variables, outermost first."""

    record: InstanceRecord
    iteration: tuple[int, ...]
    ready: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulation found: how often tasks started where, and the cycles that they waited in all.

    `covered` is the last cycle of which the timeline shows everything.
    """

    cycles: int
    starts: Mapping[UnitStart, int]
    waits: Mapping[UnitWait, int]
    first: Mapping[int, int]
    last: Mapping[int, int]
    timeline: tuple[ScheduledInstance, ...]
    covered: int
    forced: int
    simulated: int


class Schedule:
    """Runs the steps of a plan; without queues every task starts as soon as it is ready (infinite units).

    What no steady state shortens to `patience` instances is given up.
    """

    def __init__(
        self,
        steps: ProgramSteps,
        queues: Queues | None,
        detail: int = 0,
        jump: bool = True,
        patience: int = sys.maxsize,
    ) -> None:
        self.queues = queues
        self.detail = detail
        self.patience = patience
        self.now = 0
        self.serial = 0
        self.started = 0
        self.in_flight = 0
        self.events: list[tuple[int, Order, Running]] = []
        self.totals: Counter[InstanceRecord] = Counter()
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.timeline: list[ScheduledInstance] = []
        self.covered = -1
        self.opened: set[int] = set()
        self.cause = NOBODY
        self.complete: list[tuple[LoopFrame, int]] = []
        self.entered: list[Activation] = []
        self.journal = Journal()
        self.recurrence = Recurrence(self) if jump else None
        self.root = LoopFrame(steps, 0, None, 0, (), list(steps.needs), len(steps.steps), 0)

    def run(self) -> Simulation | None:
        """Simulate to the end; None where patience is at its end before."""
        self._begin(self.root)
        self._settle()
        while True:
            self._launch()
            if self.started > self.patience or self.in_flight > MOST_FRAMES:
                return None
            if self.recurrence is not None and self.opened and self.started >= self.detail:
                self.recurrence.look()
            elif len(self.journal.records) > LONGEST_JOURNAL:
                self.settle_journal()
            self.opened.clear()
            if not self.events:
                break
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                self._end(heappop(self.events)[2])
        self.settle_journal()
        return self._outcome()

    def _outcome(self) -> Simulation:
        forced = self.totals.pop(_FORCED_START, 0)
        covered = self.now if self.covered < 0 else self.covered
        starts: Counter[UnitStart] = Counter()
        waits: Counter[UnitWait] = Counter()
        for (task, place, instance, stretches), count in self.totals.items():
            start = UnitStart(task, place, instance)
            starts[start] += count
            for reason, blocker, cycles in stretches:
                waits[UnitWait(start, reason, blocker)] += count * cycles
        return Simulation(
            self.now,
            starts,
            waits,
            self.first,
            self.last,
            tuple(self.timeline),
            covered,
            forced,
            self.started,
        )

    # --- starting -------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        """Start every task that may start now."""
        queues = self.queues
        if queues is None or not queues.waiting:
            return
        self._launch_from(queues, queues.candidates())
        while queues.waiting and not self.events:
            chosen = queues.choose_forced()
            if chosen is None:
                break
            self.journal.records.append(_FORCED_START)
            self._start(queues, *chosen)
            self._launch_from(queues, queues.candidates())
        queues.record_reasons(self.now)

    def _launch_from(self, queues: Queues, lanes: dict[int, Lane]) -> None:
        """Start the first of the tasks that may start, again and again; a lane that cannot move is left aside."""
        while lanes:
            best = instance = None
            for lane in list(lanes.values()):
                head = queues.head(lane)
                if head is None:
                    del lanes[lane.number]
                elif best is None or head < best:
                    found = queues.admit(lane)
                    if found >= 0:
                        best, instance = head, found
                    else:
                        del lanes[lane.number]
            if best is None or instance is None:
                return
            self._start(queues, best[2], instance)
            if queues.freed:
                lanes.update(queues.freed)
                queues.freed.clear()

    def _start(self, queues: Queues, entry: Pending, instance: int) -> None:
        lane, step = entry.lane, entry.step
        if step.cost is None or step.task is None:
            return
        end = self.now + step.cost.cycles
        holder = lane.units.last.get(instance, NOBODY)
        running = queues.start(entry, instance, self.now, end)
        record = InstanceRecord(step.task.number, lane.units.place, instance, self._waits(entry, holder))
        self.journal.records.append(record)
        if len(self.timeline) < self.detail:
            iteration = tuple(entry.frame.values().values())[::-1]
            self.timeline.append(ScheduledInstance(record, iteration, entry.ready, self.now, end))
        elif self.covered < 0:
            self.covered = self.now
        self._run(running, step.task.number)

    def _waits(self, entry: Pending, holder: int) -> tuple[TaskWait, ...]:
        """The stretches of waiting of an instance that starts now."""
        frame = entry.frame
        held = entry.ready - frame.base
        waits = []
        if held:
            waits.append(TaskWait(DEPENDENCY, entry.cause, held))
        elif frame.window:
            waits.append(TaskWait(WINDOW, frame.cause, frame.window))
        unit, token, bandwidth = entry.waited()
        if unit:
            waits.append(TaskWait(UNIT, holder, unit))
        if token:
            waits.append(TaskWait(TOKEN, NOBODY, token))
        if bandwidth:
            waits.append(TaskWait(BANDWIDTH, NOBODY, bandwidth))
        return tuple(waits)

    def _run(self, running: Running, number: int) -> None:
        frame, step = running.frame, running.step
        frame.state[step.index] = RUNNING
        frame.version += 1
        self.first.setdefault(number, self.now)
        self.last[number] = max(self.last.get(number, 0), running.end)
        heappush(self.events, (running.end, (*frame.order, step.index), running))
        self.started += 1

    def settle_journal(self) -> None:
        """Add up what was counted so far."""
        self.totals.update(self.journal.since(0))
        self.journal = Journal()

    # --- ending ---------------------------------------------------------------------------------------------

    def _end(self, running: Running) -> None:
        if self.queues is not None:
            self.queues.finish(running)
        task = running.step.task
        self.cause = NOBODY if task is None else task.number
        self.complete.append((running.frame, running.step.index))
        self._settle()

    def _settle(self) -> None:
        """Complete steps, and all that becomes complete or ready through them."""
        while self.complete or self.entered:
            if self.entered:
                self._open(self.entered.pop())
                continue
            frame, index = self.complete.pop()
            frame.state[index] = DONE
            frame.version += 1
            frame.left -= 1
            for later in frame.steps.steps[index].feeds:
                self._satisfy(frame, later)
            for listener, later in frame.listeners.pop(index, ()):
                self._satisfy(listener, later)
            if frame.left == 0 and frame.parent is not None:
                self._close(frame, frame.parent)

    def _satisfy(self, frame: LoopFrame, index: int) -> None:
        frame.state[index] -= 1
        frame.version += 1
        if frame.state[index] == 0:
            self._ready(frame, frame.steps.steps[index])

    def _ready(self, frame: LoopFrame, step: ProgramStep) -> None:
        if step.task is not None and step.cost is not None:
            if self.queues is None:
                self._run(Running(frame, step, None, 0, self.now + step.cost.cycles), step.task.number)
            else:
                self.queues.add(frame, step, step.cost, self.now, self.cause)
        elif step.loop is not None:
            self.serial += 1
            loop = step.loop
            frame.active = Activation(step, frame, self.serial, loop.trips, max(1, loop.window), self.now)
            self.entered.append(frame.active)
        else:
            if self.queues is not None:
                self.queues.release_tokens(frame, step, self.now)
            self.complete.append((frame, step.index))

    # --- iterations -----------------------------------------------------------------------------------------

    def _close(self, frame: LoopFrame, loop: Activation) -> None:
        """An iteration is complete: open the next ones, or end the loop."""
        loop.close(frame.trip)
        self.in_flight -= 1
        if loop.floor == loop.trips:
            loop.frame.active = None
            self.complete.append((loop.frame, loop.step.index))
        else:
            self.entered.append(loop)

    def _open(self, loop: Activation) -> None:
        """Open the iterations that the window lets start."""
        steps = loop.step.body
        while steps is not None and loop.may_open() and self.in_flight <= MOST_FRAMES:
            frame = self._frame(loop, steps)
            loop.opened = self.now
            loop.frames[loop.next] = frame
            loop.next += 1
            self.in_flight += 1
            if loop.trips - loop.next > MARGIN:
                self.opened.add(loop.depth)
            self._begin(frame)

    def _frame(self, loop: Activation, steps: ProgramSteps) -> LoopFrame:
        """The next iteration of a loop."""
        trip, around = loop.next, loop.frame
        self.serial += 1
        order = (*around.order, loop.step.index, trip)
        frame = LoopFrame(
            steps, self.serial, loop, trip, order, list(steps.needs), len(steps.steps), self.now
        )
        if trip == 0:
            frame.base, frame.window, frame.cause = around.base, around.window, around.cause
        else:
            frame.window, frame.cause = self.now - loop.opened, self.cause
        return frame

    def _begin(self, frame: LoopFrame) -> None:
        """Let the first steps of a list become ready."""
        steps = frame.steps
        for index, outward, there in steps.listens:
            place = frame.outward(outward)
            if place.state[there] == DONE:
                frame.state[index] -= 1
            else:
                place.listeners.setdefault(there, []).append((frame, index))
        for index in steps.starts:
            if frame.state[index] == 0:
                self._ready(frame, steps.steps[index])


_FORCED_START = InstanceRecord(FORCED, (0, ""), 0, ())
