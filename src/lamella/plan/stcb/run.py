"""How the engines take a stream: the execution model, without what the tasks compute.

Each unit of an engine has a queue, filled from the engine's stream in order. A record starts when it is at the head of
its queue, the unit is done with the one before, and its wait bits are set; at its start it clears its clear bits, at
its completion it sets its set bits. Records bound by a chain start and complete as one. A reset stands in all queues of
its engine. Nothing else orders records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from lamella.plan.stcb.nodes import RESET, Repeat, Stream, TaskRecord, groups

Bit = tuple[int, int]
"""A token bit: the engine whose bank it lies in, and its number."""


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Records that start and complete as one, with the queues they lie in and the bits they use."""

    engine: int
    records: tuple[TaskRecord, ...]
    queues: tuple[int, ...]
    wait: tuple[Bit, ...]
    clear: tuple[Bit, ...]
    set: tuple[Bit, ...]
    place: int = 0
    """Of its first record in the period that it belongs to, where it is repeated."""
    repeat: Repeat | None = None


@dataclass(frozen=True, slots=True)
class Queues:
    """A stream cut into groups; `order` holds, for each queue, the numbers of its groups.

    All copies of a repeated group are one object, each under a number of its own: `copies` says which copy that is.
    """

    groups: Sequence[RecordGroup]
    order: Sequence[Sequence[int]]
    copies: Mapping[int, int] = field(default_factory=dict)

    def records(self, number: int) -> tuple[TaskRecord, ...]:
        """The records of a group, with the addresses of its copy."""
        group, copy = self.groups[number], self.copies.get(number, 0)
        if group.repeat is None or not copy:
            return group.records
        repeat = group.repeat
        return tuple(repeat.copy(group.place + i, record, copy) for i, record in enumerate(group.records))

    def title(self, number: int) -> str:
        """How messages name a group."""
        return f"record {self.records(number)[0].seq} of engine {self.groups[number].engine}"


def queue_up(stream: Stream) -> Queues:
    """Fill the queues of all units."""
    filling = _Filling()
    for engine, records in enumerate(stream.engines):
        filling.names = {}
        place = 0
        for repeat in stream.repeats_of(engine):
            filling.put(filling.cut(engine, records[place : repeat.first]))
            period = filling.cut(engine, records[repeat.first : repeat.end], repeat)
            for copy in range(repeat.count):
                filling.put(period, copy)
            place = repeat.end
        filling.put(filling.cut(engine, records[place:]))
    return Queues(filling.made, filling.order, filling.copies)


class _Filling:
    """Queues while they are filled."""

    def __init__(self) -> None:
        self.made: list[RecordGroup] = []
        self.order: list[list[int]] = []
        self.copies: dict[int, int] = {}
        self.names: dict[str, int] = {}

    def cut(
        self, engine: int, records: tuple[TaskRecord, ...], repeat: Repeat | None = None
    ) -> list[RecordGroup]:
        """The groups of records."""
        found: list[RecordGroup] = []
        place = 0
        for members in groups(records):
            for record in members:
                if record.op != RESET and str(record.unit) not in self.names:
                    self.names[str(record.unit)] = len(self.order)
                    self.order.append([])
            group = _group(engine, members, _queues_of(members, self.names))
            found.append(group if repeat is None else replace(group, place=place, repeat=repeat))
            place += len(members)
        return found

    def put(self, items: list[RecordGroup], copy: int = 0) -> None:
        """Put groups into their queues."""
        for group in items:
            if copy:
                self.copies[len(self.made)] = copy
            for queue in group.queues:
                self.order[queue].append(len(self.made))
            self.made.append(group)


def _queues_of(members: tuple[TaskRecord, ...], names: dict[str, int]) -> tuple[int, ...]:
    if members[0].op == RESET:
        return tuple(names.values())
    return tuple(dict.fromkeys(names[str(record.unit)] for record in members))


def _group(engine: int, members: tuple[TaskRecord, ...], queues: tuple[int, ...]) -> RecordGroup:
    return RecordGroup(
        engine,
        members,
        queues,
        tuple(dict.fromkeys((engine, bit) for record in members for bit in record.wait)),
        tuple(dict.fromkeys((engine, bit) for record in members for bit in record.clear)),
        tuple([(engine, bit) for record in members for bit in record.set] + _remote(members)),
    )


def _remote(members: Sequence[TaskRecord]) -> list[Bit]:
    return [bit for record in members for bit in record.remote]


class QueueMachine:
    """The state of the queues and bits: which groups may start, and what a start and a completion change."""

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self.bits: set[Bit] = set()
        self.left = len(queues.groups)
        self._heads = [0] * len(queues.order)
        self._blocked: dict[Bit, set[int]] = {}
        self.ready: deque[int] = deque()
        self._look([number for number, group in enumerate(queues.groups) if not group.queues])
        self._look([order[0] for order in queues.order if order])

    def start(self, number: int) -> bool:
        """Start a ready group, which clears its bits; False where one that it waits for was cleared meanwhile."""
        self.ready.remove(number)
        group = self.queues.groups[number]
        if not self.bits.issuperset(group.wait):
            self._look([number])
            return False
        self.bits.difference_update(group.clear)
        return True

    def complete(self, number: int) -> None:
        """Set the bits of a group that was started and let its queues move on."""
        group = self.queues.groups[number]
        self.left -= 1
        self.bits.update(group.set)
        seen: list[int] = []
        for queue in group.queues:
            self._heads[queue] += 1
            seen += self.queues.order[queue][self._heads[queue] : self._heads[queue] + 1]
        for bit in group.set:
            seen += self._blocked.pop(bit, ())
        self._look(seen)

    def _look(self, numbers: Sequence[int]) -> None:
        """Find which of these groups became ready; the others wait for a bit or for their turn."""
        for number in dict.fromkeys(numbers):
            group = self.queues.groups[number]
            if number in self.ready or not self._at_heads(number, group):
                continue
            missing = next((bit for bit in group.wait if bit not in self.bits), None)
            if missing is None:
                self.ready.append(number)
            else:
                self._blocked.setdefault(missing, set()).add(number)

    def _at_heads(self, number: int, group: RecordGroup) -> bool:
        order = self.queues.order
        return all(
            self._heads[queue] < len(order[queue]) and order[queue][self._heads[queue]] == number
            for queue in group.queues
        )


def order_of(queues: Queues, random: Random | None = None) -> Iterator[tuple[int, bool]]:
    """One legal order of events, (group, True) for a start and (group, False) for a completion.

    Without a source of randomness each group completes at once and the order is the same each time. It ends early where
    all that is left waits for bits that nobody sets.
    """
    machine = QueueMachine(queues)
    running: list[int] = []
    while machine.ready or running:
        if running and (random is None or random.randrange(len(running) + len(machine.ready)) < len(running)):
            number = running.pop(0 if random is None else random.randrange(len(running)))
            yield number, False
            machine.complete(number)
            continue
        number = machine.ready[0] if random is None else random.choice(machine.ready)
        if machine.start(number):
            yield number, True
            running.append(number)
