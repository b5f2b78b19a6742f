"""Ready tasks before the units they need: who may start now, and what holds back the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from typing import TypeAlias

from lamella.plan.timing.cost import Cost, MachineModel
from lamella.plan.timing.program import ProgramStep, ProgramSteps
from lamella.plan.timing.state import (
    BANDWIDTH,
    TOKEN,
    UNIT,
    HeldToken,
    Lane,
    LoopFrame,
    Order,
    Pending,
    Running,
    Units,
)


@dataclass(slots=True)
class _OpenList:
    """A list that is being walked: where the walk stands, and for each token the last gate that waits for it."""

    steps: ProgramSteps
    at: int = 0
    ends: dict[int, int] = field(default_factory=dict)


def most_tokens(steps: ProgramSteps) -> Counter[int]:
    """For each engine, how many tokens can be live at once at the very most: below its limit nobody needs to count.

    A token is live from the start of its task to the start of the last step that waits for it. Gates (loops,
    waits and `.sync`) cut a list into segments, which run one after the other. Tokens inside a loop are dead
    when it ends. A token of the list itself is live from the segment of its task to that of the gate that
    waits for it last; where the last one to wait is no gate, which nothing forces to start, to the end of the
    list.
    """
    return _walk(steps, [])


def _walk(steps: ProgramSteps, around: list[_OpenList]) -> Counter[int]:
    lists = [*around, _OpenList(steps)]
    inside: dict[int, Counter[int]] = {}
    for step in steps.steps:
        lists[-1].at = step.index
        for outward, index in step.tokens:
            place = lists[-1 - outward]
            gate = place.at if outward or step.gate else len(place.steps.steps)
            place.ends[index] = max(place.ends.get(index, 0), gate)
        if step.body is not None and step.loop is not None:
            flight = min(step.loop.window, step.loop.trips)
            found = _walk(step.body, lists)
            inside[step.index] = Counter({engine: flight * count for engine, count in found.items()})
    return _largest(lists[-1], inside)


def _largest(held: _OpenList, inside: dict[int, Counter[int]]) -> Counter[int]:
    """The largest number of tokens in any segment of a list, with those of the loop that closes it."""
    steps = held.steps.steps
    before = [0, *accumulate(int(step.gate) for step in steps)]
    segments = before[-1] + 1
    changes: dict[int, list[int]] = {}
    for step in steps:
        for engine, count in _own(step, inside).items():
            lasting = held.ends.get(step.index, step.index) if step.task is not None else step.index
            row = changes.setdefault(engine, [0] * (segments + 1))
            row[before[step.index]] += count
            row[before[min(lasting, len(steps))] + 1] -= count
    return Counter({engine: max(accumulate(row)) for engine, row in changes.items()})


def _own(step: ProgramStep, inside: dict[int, Counter[int]]) -> Counter[int]:
    if step.task is not None:
        return Counter({step.task.engine or 0: 1}) if step.waiters else Counter()
    return inside.get(step.index, Counter())


Head: TypeAlias = tuple[int, Order, Pending]
"""The first entry of a lane: ready time, program order, which no two entries share, and the entry."""


class Queues:
    """The lanes, units, tokens and links of a device during one simulation."""

    def __init__(self, machine: MachineModel, steps: ProgramSteps) -> None:
        self.machine = machine
        limit = machine.tokens
        most = max(most_tokens(steps).values(), default=0)
        self.token_limit = limit if limit is not None and most > limit else None
        self.limited = self.token_limit is not None or bool(machine.links)
        self.live: dict[int, int] = {}
        self.used = dict.fromkeys(machine.links, 0)
        self.units: dict[tuple[int, str], Units] = {}
        self.lanes: dict[object, Lane] = {}
        self._lane_of: dict[ProgramStep, Lane] = {}
        """The lanes of steps whose unit index is the same in every iteration."""
        self.dirty: dict[int, Lane] = {}
        """Lanes whose situation may have changed since they were last looked at."""
        self.freed: dict[int, Lane] = {}
        """Lanes that may be able to move after a start has freed a token, by number."""
        self.waiting = 0

    # --- arriving -------------------------------------------------------------------------------------------

    def add(self, frame: LoopFrame, step: ProgramStep, cost: Cost, now: int, cause: int) -> None:
        """Put a task that has just become ready into its lane."""
        lane = self._lane_of.get(step)
        if lane is None:
            lane = self._find_lane(frame, step, cost, now)
        lane.sync(now)
        entry = Pending(frame, step, now, cause, lane, list(lane.sums))
        heappush(lane.heap, (now, (*frame.order, step.index), entry))
        self.dirty[lane.number] = lane
        self.waiting += 1
        if lane.taker >= 0:
            for token in self._tokens(frame, step):
                token.queued[entry] = None
                self._promote(token, now)

    def _find_lane(self, frame: LoopFrame, step: ProgramStep, cost: Cost, now: int) -> Lane:
        engine = (step.task.engine or 0) if step.task is not None and step.waiters else -1
        taker = engine if self.token_limit is not None else -1
        lane = self._lane(cost, self._pin(frame, step, cost), taker, now)
        resource = None if step.task is None else step.task.resource
        if resource is None or resource.index.is_constant:
            self._lane_of[step] = lane
        return lane

    def _pin(self, frame: LoopFrame, step: ProgramStep, cost: Cost) -> int:
        resource = None if step.task is None else step.task.resource
        if resource is None:
            return -1
        if resource.index.is_constant:
            return resource.index.constant % cost.instances
        try:
            return resource.index.at(frame.values()) % cost.instances
        except ZeroDivisionError:
            return -1

    def _lane(self, cost: Cost, pin: int, taker: int, now: int) -> Lane:
        key = (cost.place, pin, taker, cost.links)
        lane = self.lanes.get(key)
        if lane is None:
            units = self.units.get(cost.place)
            if units is None:
                units = self.units[cost.place] = Units(cost.place, cost.instances)
            lane = Lane(len(self.lanes), units, pin, taker, cost.links, since=now)
            self.lanes[key] = lane
            units.lanes.setdefault(pin, []).append(lane)
        return lane

    # --- starting -------------------------------------------------------------------------------------------

    def candidates(self) -> dict[int, Lane]:
        """The lanes that may be able to move, by number."""
        self.freed.clear()
        return (
            {lane.number: lane for lane in self.lanes.values() if lane.heap} if self.limited else self.dirty
        )

    def choose_forced(self) -> tuple[Pending, int] | None:
        """The first waiting task, for when nothing runs and the token limit holds back all of them."""
        heads = [head for head in map(self.head, self.lanes.values()) if head is not None]
        if not heads:
            return None
        entry = min(heads)[2]
        return entry, entry.lane.units.pick(entry.lane.pin)

    @staticmethod
    def head(lane: Lane) -> Head | None:
        """The first entry of a lane; entries that moved to another lane are dropped."""
        heap = lane.heap
        while heap and heap[0][2].lane is not lane:
            heappop(heap)
        return heap[0] if heap else None

    def admit(self, lane: Lane) -> int:
        """The instance that the first task of a lane may start on, or -1."""
        instance = lane.units.pick(lane.pin)
        if instance < 0 or not self.limited:
            return instance
        return -1 if self._starved(lane) or self._jammed(lane) else instance

    def _starved(self, lane: Lane) -> bool:
        limit = self.token_limit
        return limit is not None and lane.taker >= 0 and self.live.get(lane.taker, 0) >= limit

    def _jammed(self, lane: Lane) -> bool:
        return any(self.used[level] + rate > self.machine.links[level] for level, rate in lane.links)

    def record_reasons(self, now: int) -> None:
        """Note why each lane does not move."""
        if self.limited:
            for lane in self.lanes.values():
                reason = UNIT
                if lane.heap and lane.units.pick(lane.pin) >= 0:
                    reason = TOKEN if self._starved(lane) else BANDWIDTH
                if reason != lane.reason:
                    lane.sync(now)
                    lane.reason = reason
        self.dirty.clear()

    def start(self, entry: Pending, instance: int, now: int, end: int) -> Running:
        """Take a task out of its lane and give it its unit, token and bandwidth."""
        lane = entry.lane
        lane.sync(now)
        heappop(lane.heap)
        self.waiting -= 1
        lane.units.busy.add(instance)
        for level, rate in lane.links:
            self.used[level] += rate
        if self.token_limit is not None:
            self.release_tokens(entry.frame, entry.step, now, entry)
            self._take_token(entry)
        return Running(entry.frame, entry.step, lane.units, instance, end)

    def finish(self, running: Running) -> None:
        """Free the unit and the bandwidth of a task that has ended."""
        units, step = running.units, running.step
        if units is None or step.task is None or step.cost is None:
            return
        units.release(running.instance)
        units.last[running.instance] = step.task.number
        for level, rate in step.cost.links:
            self.used[level] -= rate
        for pin in (-1, running.instance):
            for lane in units.lanes.get(pin, ()):
                self.dirty[lane.number] = lane

    # --- tokens ---------------------------------------------------------------------------------------------

    def _tokens(self, frame: LoopFrame, step: ProgramStep) -> list[HeldToken]:
        """The live tokens that a step waits for."""
        places = [(frame.outward(outward), index) for outward, index in step.tokens]
        return [place.tokens[index] for place, index in places if index in place.tokens]

    def _take_token(self, entry: Pending) -> None:
        step = entry.step
        if step.task is not None and step.waiters:
            engine = step.task.engine or 0
            entry.frame.tokens[step.index] = HeldToken(engine, step.waiters)
            self.live[engine] = self.live.get(engine, 0) + 1

    def release_tokens(
        self, frame: LoopFrame, step: ProgramStep, now: int, entry: Pending | None = None
    ) -> None:
        """A waiter starts: tokens that it was the last to wait for die."""
        if self.token_limit is None:
            return
        for outward, index in step.tokens:
            place = frame.outward(outward)
            token = place.tokens.get(index)
            if token is None:
                continue
            token.remaining -= 1
            if entry is not None:
                token.queued.pop(entry, None)
            if token.remaining == 0:
                del place.tokens[index]
                self.live[token.engine] -= 1
                self.freed.update((lane.number, lane) for lane in self.lanes.values() if lane.taker >= 0)
            else:
                self._promote(token, now)

    def _promote(self, token: HeldToken, now: int) -> None:
        """The last waiter of a token needs no free token to start, because it frees one: it changes lanes."""
        if token.remaining != 1 or not token.queued:
            return
        entry = next(iter(token.queued))
        old, cost = entry.lane, entry.step.cost
        if cost is None or old.taker != token.engine:
            return
        old.sync(now)
        waited = entry.waited()
        lane = self._lane(cost, old.pin, -1, now)
        lane.sync(now)
        entry.lane = lane
        entry.before = [total - spent for total, spent in zip(lane.sums, waited, strict=True)]
        heappush(lane.heap, (entry.ready, (*entry.frame.order, entry.step.index), entry))
        self.dirty[lane.number] = lane
        self.freed[lane.number] = lane
