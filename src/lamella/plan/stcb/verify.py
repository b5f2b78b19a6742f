"""The proof that a stream means one thing: whatever the units' speeds, each wait sees the set that it is meant to see.

A bit goes through epochs: one set, the waits for it, one clear. Which set a wait belongs to is read off one run. All
runs agree with it when, for each epoch after the first,
- the record that cleared the bit before is complete before the record that sets it again starts, or is that record,
- that record is also complete before any waiter of the new epoch starts, by order that does not lean on this wait:
  by the queue, or by other waits of the same record that are proved first; else a waiter could take the old set for
  its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import NOWHERE
from lamella.lang.nem.rules import BAD_STREAM
from lamella.plan.stcb.nodes import Stream
from lamella.plan.stcb.run import Bit, Group, Queues, order_of, queue_up

Clock = list[int]
"""For each queue, how many of its groups are known to be complete."""


@dataclass(slots=True)
class _Epoch:
    """One use of a bit: who sets it, who waits for it, who clears it."""

    clock: Clock
    before: int | None
    waiters: list[int] = field(default_factory=list)
    clearer: int | None = None


def verify_stream(stream: Stream) -> list[Diagnostic]:
    """Findings where a bit is ambiguous or the stream cannot come to its end; none where it is proved."""
    queues = queue_up(stream)
    proof = _Proof(queues)
    for number, starts in order_of(queues):
        if starts:
            proof.take(queues.groups[number])
    problems = proof.problems
    if not problems and len(proof.places) < len(queues.groups):
        stuck = next(group for group in queues.groups if group.number not in proof.places)
        problems = [f"the stream never ends: {stuck.title} waits for bits that nothing left can set"]
    return [BAD_STREAM.at(NOWHERE, problem=problem) for problem in problems[:20]]


class _Proof:
    """Follows one run and proves, group by group, that every other run agrees with it."""

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self.last: list[Clock] = [[0] * len(queues.order) for _ in queues.order]
        self.places: dict[int, tuple[int, int]] = {}
        self.taken = [0] * len(queues.order)
        self.epochs: dict[Bit, _Epoch] = {}
        self.problems: list[str] = []

    def take(self, group: Group) -> None:
        """One group starts and completes."""
        known = self._start(group)
        for bit in group.clear:
            self._clear(group, bit, known)
        before = list(known)
        self.places[group.number] = (0, 0)
        for queue in group.queues:
            self.taken[queue] += 1
            known[queue] = self.taken[queue]
            self.places[group.number] = (queue, self.taken[queue])
        for bit in group.set:
            self._set(group, bit, before, known)
        for queue in group.queues:
            self.last[queue] = known

    def _start(self, group: Group) -> Clock:
        """What is complete when a group starts; waits count once nothing earlier can be mistaken for their set."""
        known = join([self.last[queue] for queue in group.queues], len(self.taken))
        unproved = list(group.wait)
        while unproved:
            safe = [bit for bit in unproved if self._is_fresh(bit, known)]
            if not safe:
                names = ", ".join(str(bit) for _, bit in unproved)
                self.problems.append(f"{group.title} may take an earlier set of bit {names} for its own")
                safe = unproved
            known = join([known, *(self.epochs[bit].clock for bit in safe)], len(self.taken))
            unproved = [bit for bit in unproved if bit not in safe]
        for bit in group.wait:
            self.epochs[bit].waiters.append(group.number)
        return known

    def _is_fresh(self, bit: Bit, known: Clock) -> bool:
        before = self.epochs[bit].before
        return before is None or self._is_complete(before, known)

    def _is_complete(self, number: int, known: Clock) -> bool:
        queue, place = self.places[number]
        return known[queue] >= place

    def _clear(self, group: Group, bit: Bit, known: Clock) -> None:
        epoch = self.epochs.get(bit)
        if epoch is None or bit not in group.wait:
            self.problems.append(f"{group.title} clears bit {bit[1]} without waiting for it")
            return
        epoch.clearer = group.number
        for waiter in epoch.waiters:
            if waiter != group.number and not self._is_complete(waiter, known):
                title = self.queues.groups[waiter].title
                self.problems.append(f"{group.title} may clear bit {bit[1]} before {title} has seen it")

    def _set(self, group: Group, bit: Bit, known: Clock, done: Clock) -> None:
        epoch = self.epochs.get(bit)
        before = None if epoch is None else epoch.clearer
        if epoch is not None and before is None:
            self.problems.append(f"{group.title} sets bit {bit[1]} of engine {bit[0]}, which is still set")
        elif before is not None and before != group.number and not self._is_complete(before, known):
            title = self.queues.groups[before].title
            self.problems.append(f"{group.title} may set bit {bit[1]} before {title} has cleared it")
        self.epochs[bit] = _Epoch(done, before)


def join(clocks: list[Clock], size: int) -> Clock:
    """What is known to who knows all of these."""
    found = [0] * size
    for clock in clocks:
        found = list(map(max, found, clock))
    return found
