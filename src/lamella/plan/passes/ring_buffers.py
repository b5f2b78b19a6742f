"""Buffers of which each iteration of a loop uses a slot of its own.

A ring has `modulus` slots of `slot` bytes: every access to the buffer lies in the loop and at
`((i + c) mod modulus) · slot + rest`, with `rest` inside the slot. A buffer whose accesses do not move with i is a ring
of one slot. Whatever an iteration reads of its slot it has written before, so nothing is carried from one iteration to
another, and a ring with more slots gives the same bytes.

Buffers of L2 are seen from outside. One is a ring only where it is *in transit*: no region of it is named outside of
loops, and whatever an iteration writes to it the same iteration reads again, to take it further. What such a buffer
holds at the end is the last tile, which has been delivered; with more slots it lies in another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamella.base.dtype import find_in
from lamella.base.shape import bytes_for, element_count, row_major_strides
from lamella.lang.nem.resolved import Atom, Buffer, Index, Loop, Operation, Plan, Region, Task, Variable
from lamella.lang.nem.words import MOVES
from lamella.plan.ranges import bounds

LEVELS = ("L1", "L2")
"""Memories in which rings are."""


@dataclass(frozen=True, slots=True)
class RingUse:
    """An operand of a task in a slot: `rest` is its offset there, `loops` are the loops inside the ring's loop."""

    task: Task
    operand: int
    write: bool
    region: Region
    rest: Index
    loops: tuple[Loop, ...]

    def hull(self) -> tuple[int, int]:
        """The bytes of all iterations of the inner loops, the end excluded."""
        low, high = bounds(self.rest, {loop.number: (loop.first, loop.last) for loop in self.loops})
        return low, high + self.region.extent


@dataclass(frozen=True, slots=True)
class Ring:
    """A buffer with its slots and all that uses it; `turns` is False where no `mod` stands in the text yet."""

    buffer: Buffer
    turns: bool
    modulus: int
    slot: int
    uses: tuple[RingUse, ...]


def find_rings(plan: Plan, loop: Loop) -> list[Ring]:
    """The rings of a loop in L1, and those in L2 that are in transit; buffers of DDR keep their size."""
    used: dict[str, list[tuple[RingUse, tuple[Loop, ...]]]] = {}
    for task, around in _executed(plan):
        for use in _uses(task):
            used.setdefault(use.region.buffer.name, []).append((use, around))
    written = frozenset(
        region.buffer.name
        for task, around in _executed(plan)
        if any(item.number == loop.number for item in around)
        for region in task.outputs
    )
    ports = {region.buffer.name for region in plan.regions.values() if region.buffer.memory == "L2"}
    found = (_find_ring(group, loop, written) for name, group in used.items() if name not in ports)
    return [ring for ring in found if ring is not None]


def _executed(plan: Plan) -> Iterator[tuple[Task, tuple[Loop, ...]]]:
    for item, around in plan.walk():
        if isinstance(item, Task) and all(loop.trips > 0 for loop in around):
            yield item, around


def _uses(task: Task) -> Iterator[RingUse]:
    for write, regions in ((False, task.inputs), (True, task.outputs)):
        for operand, region in enumerate(regions):
            if region.buffer.memory in LEVELS and not region.buffer.imported:
                yield RingUse(task, operand, write, region, region.offset, ())


def _find_ring(
    group: Sequence[tuple[RingUse, tuple[Loop, ...]]], loop: Loop, written: frozenset[str]
) -> Ring | None:
    uses: list[RingUse] = []
    turns: set[_SlotCycle] = set()
    for use, around in group:
        numbers = [item.number for item in around]
        turned = _turn(use.region, loop)
        if turned is None or loop.number not in numbers:
            return None
        turns.add(turned[0])
        inner = around[numbers.index(loop.number) + 1 :]
        uses.append(RingUse(use.task, use.operand, use.write, use.region, turned[1], inner))
    if len(turns) != 1 or all(_reloads(use.task, loop, written) for use in uses if use.write):
        return None
    turn = turns.pop()
    if not all(_stays(use, turn.slot) for use in uses) or not _writes_first(uses):
        return None
    if uses[0].region.buffer.memory == "L2" and not _takes_further(uses):
        return None
    return Ring(uses[0].region.buffer, turn.constant is not None, turn.modulus, turn.slot, tuple(uses))


@dataclass(frozen=True, slots=True)
class _SlotCycle:
    """`((i + constant) mod modulus) · slot`; no constant where nothing turns."""

    constant: int | None
    modulus: int
    slot: int


def _turn(region: Region, loop: Loop) -> tuple[_SlotCycle, Index] | None:
    """The part of an offset that moves with a loop, and the rest; None where it moves in another way."""
    moving = [term for term in region.offset.terms if loop.number in Index(0, (term,)).loops()]
    if not moving:
        return _SlotCycle(None, 1, region.buffer.size), region.offset
    turn = _mod_turn(*moving[0], loop) if len(moving) == 1 else None
    if turn is None or turn.modulus * turn.slot > region.buffer.size:
        return None
    rest = tuple(term for term in region.offset.terms if term is not moving[0])
    return turn, Index(region.offset.constant, rest)


def _mod_turn(atom: Atom, slot: int, loop: Loop) -> _SlotCycle | None:
    if not isinstance(atom, Operation) or atom.sign != "mod" or not atom.right.is_constant or slot <= 0:
        return None
    left, modulus = atom.left, atom.right.constant
    plain = len(left.terms) == 1 and left.terms[0] == (Variable(loop.number, ""), 1)
    if not plain or modulus <= 0 or left.constant + loop.first < 0:
        return None
    return _SlotCycle(left.constant, modulus, slot)


def _reloads(task: Task, loop: Loop, written: frozenset[str]) -> bool:
    """Whether a task moves the same bytes to the same place in every iteration: that needs no slot of its own.

    What the loop itself writes, a tile in transit, is not the same in every iteration.
    """
    fixed = all(loop.number not in region.offset.loops() for region in (*task.inputs, *task.outputs))
    return task.opcode in MOVES and fixed and not any(item.buffer.name in written for item in task.inputs)


# --- what is read was written -------------------------------------------------------------------------------


def _stays(use: RingUse, slot: int) -> bool:
    """Whether a use stays in its slot; offsets that move with loops outside are not judged."""
    if not use.rest.loops() <= {loop.number for loop in use.loops}:
        return False
    low, high = use.hull()
    return low >= 0 and high <= slot


def _writes_first(uses: Sequence[RingUse]) -> bool:
    """Whether all that is read was written before; the uses of a task come with its inputs first."""
    writes: list[RingUse] = []
    for use in uses:
        if use.write:
            writes.append(use)
        elif not _is_covered(use, writes):
            return False
    return True


def _takes_further(uses: Sequence[RingUse]) -> bool:
    """Whether every byte that is written is read behind it in the same iteration: nothing is left there for others."""
    for position, use in enumerate(uses):
        if use.write:
            low, high = use.hull()
            for start, end in sorted(later.hull() for later in uses[position + 1 :] if not later.write):
                if start <= low:
                    low = max(low, end)
            if low < high:
                return False
    return True


def _is_covered(read: RingUse, writes: Sequence[RingUse]) -> bool:
    """Whether the bytes of a read are written before it in the same iteration.

    One write does it that goes along with the read through the same inner loops, or several that are complete before.
    """
    # The write that matters is mostly the latest.
    if any(_goes_along(read, write) for write in reversed(writes)):
        return True
    numbers = {loop.number for loop in read.loops}
    complete = [write for write in writes if not any(loop.number in numbers for loop in write.loops)]
    low, high = read.hull()
    for start, end in sorted(_interval(write) for write in complete):
        if start <= low:
            low = max(low, end)
    return low >= high


def _goes_along(read: RingUse, write: RingUse) -> bool:
    if read.loops != write.loops or read.rest.terms != write.rest.terms:
        return False
    distance = read.rest.constant - write.rest.constant
    return distance >= 0 and distance + read.region.extent <= _written(write)


def _interval(write: RingUse) -> tuple[int, int]:
    """The bytes that a write fills without gaps over all its inner iterations; empty where there may be gaps."""
    low, _ = write.hull()
    reach = _written(write)
    trips = {loop.number: loop.trips for loop in write.loops}
    for atom, factor in sorted(write.rest.terms, key=lambda term: abs(term[1])):
        if not isinstance(atom, Variable) or abs(factor) > reach:
            return low, low
        reach += abs(factor) * (trips[atom.loop] - 1)
    return low, low + reach


def _written(use: RingUse) -> int:
    """How many bytes from its offset on a write certainly fills: moves write what they read."""
    if use.task.opcode in MOVES:
        return use.task.inputs[0].extent
    type_ = use.region.type
    element = None if type_ is None else find_in("nem", type_.elem)
    if type_ is None or element is None or type_.strides != row_major_strides(type_.shape):
        return 0
    return bytes_for(element_count(type_.shape), element.bits)
