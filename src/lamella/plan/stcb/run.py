"""How the engines take a stream: the execution model, without what the tasks compute.

Each unit of an engine has a queue, filled from the engine's stream in order. A record starts when it is at the head of
its queue, the unit is done with the one before, and its wait bits are set; at its start it clears its clear bits, at
its completion it sets its set bits. Records bound by a chain start and complete as one. A reset stands in all queues of
its engine. Nothing else orders records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from lamella.plan.stcb.nodes import RESET, Stream, TaskRecord, groups

Bit = tuple[int, int]
"""A token bit: the engine whose bank it lies in, and its number."""


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Records that start and complete as one, with the queues they lie in and the bits they use."""

    number: int
    engine: int
    records: tuple[TaskRecord, ...]
    queues: tuple[int, ...]
    wait: tuple[Bit, ...]
    clear: tuple[Bit, ...]
    set: tuple[Bit, ...]

    @property
    def title(self) -> str:
        """How messages name it."""
        return f"record {self.records[0].seq} of engine {self.engine}"


@dataclass(frozen=True, slots=True)
class Queues:
    """A stream cut into groups; `order` holds, for each queue, the numbers of its groups."""

    groups: tuple[RecordGroup, ...]
    order: tuple[tuple[int, ...], ...]


def queue_up(stream: Stream) -> Queues:
    """Fill the queues of all units."""
    made: list[RecordGroup] = []
    order: list[list[int]] = []
    for engine, records in enumerate(stream.engines):
        names: dict[str, int] = {}
        for members in groups(records):
            for record in members:
                if record.op != RESET and str(record.unit) not in names:
                    names[str(record.unit)] = len(order)
                    order.append([])
            queues = _queues_of(members, names)
            for queue in queues:
                order[queue].append(len(made))
            made.append(_group(len(made), engine, members, queues))
    return Queues(tuple(made), tuple(map(tuple, order)))


def _queues_of(members: tuple[TaskRecord, ...], names: dict[str, int]) -> tuple[int, ...]:
    if members[0].op == RESET:
        return tuple(names.values())
    return tuple(dict.fromkeys(names[str(record.unit)] for record in members))


def _group(number: int, engine: int, members: tuple[TaskRecord, ...], queues: tuple[int, ...]) -> RecordGroup:
    return RecordGroup(
        number,
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
        self._look([group.number for group in queues.groups if not group.queues])
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
            if number in self.ready or not self._at_heads(group):
                continue
            missing = next((bit for bit in group.wait if bit not in self.bits), None)
            if missing is None:
                self.ready.append(number)
            else:
                self._blocked.setdefault(missing, set()).add(number)

    def _at_heads(self, group: RecordGroup) -> bool:
        order = self.queues.order
        return all(
            self._heads[queue] < len(order[queue]) and order[queue][self._heads[queue]] == group.number
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
