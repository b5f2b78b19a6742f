"""Fusion: an NMU task, elementwise tasks and a store become one chain that hands its values on instead of writing them.

A value may be handed on when its region lies in L1, is dense, is not @materialized on either side, and when nobody else
can see it: every read of these bytes anywhere in the program is fed by a task just before it in its own statement list.
Each task still rounds as it does alone, so the bits are the same; that is why @deterministic does not forbid it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamella.base.dtype import find_in
from lamella.base.shape import bytes_for, element_count, row_major_strides
from lamella.lang.nem.registry import opcode
from lamella.lang.nem.resolved import Index, Item, Loop, Plan, Region, Task
from lamella.plan.bind.offsets import offset_of
from lamella.plan.bind.placement import Placement
from lamella.plan.expand import TaskInstance

Use = tuple[int, int]
"""An input of a task: the task's number and the input's."""
Key = tuple[str, Index, int]


@dataclass(frozen=True, slots=True)
class Link:
    """A value that one task makes and another of the same list takes, alone."""

    maker: Task
    taker: Task
    input: int

    @property
    def is_open(self) -> bool:
        """Whether the value need not be in memory."""
        made, taken = self.maker.outputs[0], self.taker.inputs[self.input]
        return made.buffer.memory == "L1" and not made.materialized and not taken.materialized


def find_chains(
    plan: Plan, nodes: Sequence[TaskInstance], placement: Placement
) -> dict[int, tuple[TaskInstance, ...]]:
    """The chains of a program, by the number of their first node; no node is in two of them."""
    links = {link.maker.number: link for items in _lists(plan) for link in _links(items)}
    fed = {(link.taker.number, link.input) for link in links.values()}
    reads = _Reads(plan, nodes)
    chains = [chain for task in plan.tasks() for chain in _chain(task, links, placement)]
    private = [chain for chain in chains if all(reads.are_all(link, fed) for link in chain)]
    return _instances(private, nodes, placement)


def _lists(plan: Plan) -> Iterator[Sequence[Item]]:
    yield plan.body
    for item, _ in plan.walk():
        if isinstance(item, Loop):
            yield item.body


def _links(items: Sequence[Item]) -> Iterator[Link]:
    """In one list: the value that a task writes, and the one task that reads it before it is written again."""
    waiting: dict[Key, tuple[Task, list[tuple[Task, int]]]] = {}
    for task in (item for item in items if isinstance(item, Task)):
        for number, region in enumerate(task.inputs):
            if _key(region) in waiting:
                waiting[_key(region)][1].append((task, number))
        for region in task.outputs:
            yield from _close(waiting.pop(_key(region), None))
        if len(task.outputs) == 1 and _is_dense(task.outputs[0]):
            waiting[_key(task.outputs[0])] = (task, [])
    for entry in waiting.values():
        yield from _close(entry)


def _close(entry: tuple[Task, list[tuple[Task, int]]] | None) -> Iterator[Link]:
    if entry is not None and len(entry[1]) == 1:
        (taker, number), maker = entry[1][0], entry[0]
        if _fits(maker.outputs[0], taker.inputs[number], taker.opcode):
            yield Link(maker, taker, number)


def _key(region: Region) -> Key:
    return region.buffer.name, region.offset, region.extent


def _is_dense(region: Region) -> bool:
    """Whether the elements of a typed region fill its extent in row-major order."""
    element = None if region.type is None else find_in("nem", region.type.elem)
    if region.type is None or element is None:
        return False
    count = element_count(region.type.shape)
    dense = region.type.strides == row_major_strides(region.type.shape)
    return dense and count * element.bits % 8 == 0 and bytes_for(count, element.bits) == region.extent


def _fits(made: Region, taken: Region, opcode: str) -> bool:
    """Whether the taker reads exactly the elements that were made; a store takes them as bytes."""
    if opcode == "store":
        return True
    if made.type is None or taken.type is None:
        return False
    return (made.type.elem, made.type.shape, made.type.strides) == (
        *(taken.type.elem, taken.type.shape),
        taken.type.strides,
    )


def _chain(head: Task, links: Mapping[int, Link], placement: Placement) -> Iterator[list[Link]]:
    """The chain that begins with a task: NMU, then elementwise tasks, then a store."""
    if placement.costs[head.number].unit != "NMU":
        return
    found: list[Link] = []
    task = head
    while task.number in links and links[task.number].is_open:
        link = links[task.number]
        found.append(link)
        task = link.taker
        if placement.costs[task.number].unit != "CSTL":
            return
        if task.opcode == "store":
            yield from [found] if len(found) > 1 else []
            return
        if not _is_elementwise(task):
            return


def _is_elementwise(task: Task) -> bool:
    known = opcode(task.opcode)
    return known is not None and known.families == ("eltwise",)


class _Reads:
    """The bytes that each input of the program reads, over all its iterations."""

    def __init__(self, plan: Plan, nodes: Iterable[TaskInstance]) -> None:
        self.ranges: dict[Use, tuple[int, int]] = {}
        self.makes: dict[int, tuple[int, int]] = {}
        self.readers: dict[str, list[Use]] = {}
        for task in plan.tasks():
            for number, region in enumerate(task.inputs):
                self.readers.setdefault(region.buffer.name, []).append((task.number, number))
        for node in nodes:
            if node.task is not None:
                self._widen(node.task, node.iteration)

    def _widen(self, task: Task, iteration: Mapping[int, int]) -> None:
        for number, region in enumerate(task.inputs):
            use = (task.number, number)
            if use not in self.ranges or not region.offset.is_constant:
                self.ranges[use] = _around(self.ranges.get(use), region, iteration)
        made = task.outputs[0] if task.outputs else None
        if made is not None and (task.number not in self.makes or not made.offset.is_constant):
            self.makes[task.number] = _around(self.makes.get(task.number), made, iteration)

    def are_all(self, link: Link, fed: set[Use]) -> bool:
        """Whether every read of the bytes that a link's maker writes is fed by its own maker."""
        name = link.maker.outputs[0].buffer.name
        if link.maker.number not in self.makes:
            return False
        first, end = self.makes[link.maker.number]
        near = (use for use in self.readers.get(name, ()) if use in self.ranges)
        return all(use in fed or self.ranges[use][1] <= first or self.ranges[use][0] >= end for use in near)


def _around(known: tuple[int, int] | None, region: Region, iteration: Mapping[int, int]) -> tuple[int, int]:
    start = offset_of(region, iteration)
    end = start + region.extent
    return (start, end) if known is None else (min(known[0], start), max(known[1], end))


def _instances(
    chains: Sequence[list[Link]], nodes: Sequence[TaskInstance], placement: Placement
) -> dict[int, tuple[TaskInstance, ...]]:
    """The instances of the chains that can start as one."""
    by_tail = {chain[-1].taker.number: chain for chain in chains}
    latest: dict[int, TaskInstance] = {}
    found: dict[int, tuple[TaskInstance, ...]] = {}
    for node in nodes:
        if node.task is None:
            continue
        latest[node.task.number] = node
        chain = by_tail.get(node.task.number)
        if chain is None:
            continue
        members = tuple(latest[number] for number in [chain[0].maker.number, *_takers(chain)])
        if _start_as_one(members, nodes) and _share_unit(members, placement):
            found[members[0].number] = members
    return found


def _takers(chain: Sequence[Link]) -> list[int]:
    return [link.taker.number for link in chain]


def _share_unit(members: Sequence[TaskInstance], placement: Placement) -> bool:
    """Whether no two members are pinned to different CSTLs."""
    wanted = {placement.wanted_unit(member) for member in members[1:]} - {None}
    return len(wanted) <= 1


def _start_as_one(members: Sequence[TaskInstance], nodes: Sequence[TaskInstance]) -> bool:
    return outside(members, nodes) is not None


def outside(members: Sequence[TaskInstance], nodes: Sequence[TaskInstance]) -> list[int] | None:
    """What a chain waits for besides itself: nodes before its first one; None where it waits for a later task."""
    head = members[0].number
    inside = {member.number for member in members}
    found: dict[int, None] = {}
    todo = [before for member in members for before in member.after]
    seen: set[int] = set()
    while todo:
        number = todo.pop()
        if number in inside or number in seen:
            continue
        seen.add(number)
        if number < head:
            found[number] = None
        elif nodes[number].task is not None:
            return None
        else:
            todo += nodes[number].after
    return sorted(found)
