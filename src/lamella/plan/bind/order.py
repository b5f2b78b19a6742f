"""Order: which dependencies of a program need a token once every unit takes its records in order.

A clock says, for each queue, how many of its items are complete. What an item is guaranteed by its queue costs nothing;
each dependency that is left is met by a wait for one other item, the latest first, as that one often brings the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lamella.plan.expand import Node
from lamella.plan.stcb.verify import Clock, join


@dataclass(frozen=True, slots=True)
class Item:
    """Task instances that start and complete as one, with the queues that take them and the nodes they wait for."""

    number: int
    engine: int
    queues: tuple[int, ...]
    members: tuple[Node, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Serial:
    """An order added for want of tokens: an item starts when all that stand `depth` or more before it are complete."""

    depth: int
    whole_device: bool


@dataclass(slots=True)
class Order:
    """For each item what its queues guarantee and what is complete with it; the waits between items."""

    base: list[Clock] = field(default_factory=list)
    done: list[Clock] = field(default_factory=list)
    place: list[tuple[int, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    added: int = 0

    def is_before(self, number: int, clock: Clock) -> bool:
        """Whether an item is complete by a clock."""
        queue, position = self.place[number]
        return clock[queue] >= position


def order_items(nodes: Sequence[Node], items: Sequence[Item], queues: int, serial: Serial | None) -> Order:
    """Find the waits of all items, in the order in which they stand in the streams."""
    walk = _Walk(items, queues, serial)
    first = {item.members[0].number: item for item in items}
    inside = {member.number for item in items for member in item.members[1:]}
    for node in nodes:
        if node.number in first:
            walk.take(first[node.number])
        elif node.number not in inside:
            walk.clocks[node.number] = walk.gather(node.after)
    return walk.order


class _Walk:
    """Goes through the program once; `clocks` are those of nodes, gates included."""

    def __init__(self, items: Sequence[Item], queues: int, serial: Serial | None) -> None:
        self.items = items
        self.serial = serial
        self.zero: Clock = [0] * queues
        self.order = Order()
        self.clocks: dict[int, Clock] = {}
        self.last: list[Clock] = [self.zero] * queues
        self.contents: list[list[int]] = [[] for _ in range(queues)]
        self.prefixes: dict[int, list[Clock]] = {}

    def gather(self, numbers: Sequence[int]) -> Clock:
        """What is complete when all these nodes are."""
        clocks = [self.clocks[number] for number in numbers]
        return clocks[0] if len(clocks) == 1 else join(clocks, len(self.zero))

    def take(self, item: Item) -> None:
        """Give one item its waits and its clock."""
        base = join([self.last[queue] for queue in item.queues], len(self.zero))
        required = self.gather(item.after)
        held = required if self.serial is None else join([required, self._held_back(item)], len(self.zero))
        earlier = len(self.order.waits)
        done = list(self._wait(item, base, held))
        makers = [maker for maker, _ in self.order.waits[earlier:]]
        self.order.added += sum(not self.order.is_before(maker, required) for maker in makers)
        for queue in item.queues:
            self.contents[queue].append(item.number)
            done[queue] = len(self.contents[queue])
        self._remember(item, base, done)

    def _wait(self, item: Item, known: Clock, required: Clock) -> Clock:
        """Add the waits that lead from what is known to what is required."""
        missing = [queue for queue, count in enumerate(required) if count > known[queue]]
        makers = {self.contents[queue][required[queue] - 1] for queue in missing}
        for maker in sorted(makers, reverse=True):
            if not self.order.is_before(maker, known):
                self.order.waits.append((maker, item.number))
                known = join([known, self.order.done[maker]], len(self.zero))
        return known

    def _held_back(self, item: Item) -> Clock:
        if self.serial is None:
            return self.zero
        prefix = self.prefixes.setdefault(self._line(item), [self.zero])
        return prefix[max(0, len(prefix) - self.serial.depth)]

    def _line(self, item: Item) -> int:
        """The items that are held back by each other: those of an engine, or all."""
        return -1 if self.serial is not None and self.serial.whole_device else item.engine

    def _remember(self, item: Item, base: Clock, done: Clock) -> None:
        self.order.base.append(base)
        self.order.done.append(done)
        self.order.place.append((item.queues[0], done[item.queues[0]]))
        for queue in item.queues:
            self.last[queue] = done
        for member in item.members:
            self.clocks[member.number] = done
        if self.serial is not None:
            prefix = self.prefixes[self._line(item)]
            prefix.append(join([prefix[-1], done], len(self.zero)))
