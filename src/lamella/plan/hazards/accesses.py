"""What the tasks of a plan touch: bytes of a buffer as a function of the iteration.

Offsets are rewritten in iteration numbers: variable d is the number, from 0, of the iteration of the d-th loop around
the task. So tasks of different loops that touch bytes in the same way have equal offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from lamella.base.dim import TooComplex
from lamella.base.source import Span
from lamella.lang.nem.resolved import Atom, Buffer, Index, Loop, Operation, Region, Task, Variable
from lamella.plan.diophantine import StepBudget
from lamella.plan.order import Order, Site
from lamella.plan.ranges import bounds, extremes

Point = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Footprint:
    """The bytes [offset, offset + extent) of a buffer; all iterations together stay in [low, high)."""

    buffer: Buffer
    offset: Index
    extent: int
    trips: Point
    low: int
    high: int

    def meets(self, other: Footprint) -> bool:
        """Whether some bytes of all iterations may coincide."""
        return self.low < other.high and other.low < self.high and self.buffer.name == other.buffer.name


@dataclass(frozen=True, slots=True, eq=False)
class OperandAccess:
    """One operand of one task."""

    site: Site
    region: Region
    footprint: Footprint
    write: bool
    operand: int

    @property
    def span(self) -> Span:
        """Where the operand stands."""
        return operand_span(self.site.task, self.write, self.operand)

    @property
    def what(self) -> str:
        """The operand as a sentence calls it."""
        name = f"'{self.region.name}'" if self.region.name else str(self.operand + 1)
        return f"{'output' if self.write else 'input'} {name}"

    def first_byte(self, point: Point) -> int:
        """The offset in one iteration, given by iteration numbers."""
        return self.footprint.offset.at(dict(enumerate(point)))


def operand_span(task: Task, write: bool, operand: int) -> Span:
    """The place of an operand of a task, or of the task where the text has none."""
    operands = task.node.outputs if write else task.node.inputs
    return operands[operand].span if operand < len(operands) else task.span


def iteration_at(loops: tuple[Loop, ...], point: Point) -> dict[int, int]:
    """The loop variables, by loop number, of an iteration given by iteration numbers."""
    return {loop.number: loop.first + number for loop, number in zip(loops, point, strict=True)}


class Accesses:
    """The accesses of all sites; `suspects` are regions left out, for they may leave their buffer."""

    def __init__(self, order: Order, budget: StepBudget) -> None:
        self._budget = budget
        self._known: dict[tuple[str, int, Index, int], Footprint | None] = {}
        self._ranges: dict[object, tuple[int, int] | None] = {}
        self.suspects: list[Region] = []
        self.of: list[tuple[OperandAccess, ...]] = [tuple(self._touch(site)) for site in order.sites]

    def _touch(self, site: Site) -> list[OperandAccess]:
        found = []
        task = site.task
        for write, regions in ((False, task.inputs), (True, task.outputs)):
            for operand, region in enumerate(regions):
                footprint = self._footprint(region, site.loops)
                if footprint is None:
                    self.suspects.append(region)
                else:
                    found.append(OperandAccess(site, region, footprint, write, operand))
        return found

    def _footprint(self, region: Region, loops: tuple[Loop, ...]) -> Footprint | None:
        place = loops[-1].number if loops else -1
        key = region.buffer.name, place, region.offset, region.extent
        if key not in self._known:
            self._known[key] = self._make(region, loops)
        return self._known[key]

    def _make(self, region: Region, loops: tuple[Loop, ...]) -> Footprint | None:
        offset = region.offset if region.offset.is_constant else number_iterations(region.offset, loops)
        trips = tuple(loop.trips for loop in loops)
        ends = self._range(offset, trips)
        if ends is None:
            return None
        low, high = offset.constant + ends[0], offset.constant + ends[1] + region.extent
        if low < 0 or high > region.buffer.size:
            return None
        return Footprint(region.buffer, offset, region.extent, trips, low, high)

    def _range(self, offset: Index, trips: Point) -> tuple[int, int] | None:
        """Least and greatest offset from the constant; None where an iteration divides by zero."""
        if offset.is_constant:
            return 0, 0
        key = offset.terms, trips
        if key not in self._ranges:
            self._ranges[key] = self._ends(Index(0, offset.terms), trips)
        return self._ranges[key]

    def _ends(self, index: Index, trips: Point) -> tuple[int, int] | None:
        box = {depth: (0, count - 1) for depth, count in enumerate(trips)}
        try:
            (low, _), (high, _) = extremes(index, box, self._budget)
        except TooComplex:
            return bounds(index, box)
        except ZeroDivisionError:
            return None
        return low, high


def number_iterations(index: Index, loops: tuple[Loop, ...]) -> Index:
    """An index in iteration numbers by depth instead of loop variables."""
    images: dict[int, Index] = {}
    for depth, loop in enumerate(loops):
        variable: tuple[tuple[Atom, int], ...] = ((Variable(depth, ""), 1),)
        images[loop.number] = Index(loop.first, variable if loop.trips > 1 else ())
    return substitute(index, images)


def substitute(index: Index, images: Mapping[int, Index]) -> Index:
    """An index with its variables replaced by other indices."""
    total = Index(index.constant)
    for atom, factor in index.terms:
        if isinstance(atom, Variable):
            total = total.plus(images[atom.loop], factor)
        else:
            inner = Operation(atom.sign, substitute(atom.left, images), substitute(atom.right, images))
            total = total.plus(Index(0, ((inner, 1),)), factor)
    return total


# --- where a program writes: byte ranges over all iterations, for questions like "is this source ------------


def may_alias(one: Buffer, other: Buffer) -> bool:
    """Whether two different buffers may be the same memory: both imported, of one memory and engine."""
    return one.imported and other.imported and one.name != other.name and one.level == other.level


class Touched:
    """Accesses by the bytes they touch over all iterations, sorted."""

    def __init__(self, accesses: Iterable[OperandAccess]) -> None:
        self._by_buffer: dict[str, list[OperandAccess]] = {}
        for access in accesses:
            self._by_buffer.setdefault(access.footprint.buffer.name, []).append(access)
        for group in self._by_buffer.values():
            group.sort(key=lambda access: access.footprint.low)
        self._lows = {name: [a.footprint.low for a in group] for name, group in self._by_buffer.items()}
        self._highs = {
            name: list(accumulate((a.footprint.high for a in group), max))
            for name, group in self._by_buffer.items()
        }

    def meeting(self, access: OperandAccess) -> Iterator[OperandAccess]:
        """The accesses whose bytes may coincide with those of one, itself included."""
        name, footprint = access.footprint.buffer.name, access.footprint
        place = bisect_left(self._lows.get(name, []), footprint.high) - 1
        while place >= 0 and self._highs[name][place] > footprint.low:
            other = self._by_buffer[name][place]
            if other.footprint.meets(footprint):
                yield other
            place -= 1

    def aliasing(self, access: OperandAccess) -> bool:
        """Whether a buffer is touched that may be the same memory as that of an access."""
        buffer = access.footprint.buffer
        groups = self._by_buffer.values() if buffer.imported and not access.region.readonly else ()
        return any(may_alias(buffer, group[0].footprint.buffer) for group in groups)


class Writes(Touched):
    """The accesses that write."""

    def __init__(self, accesses: Iterable[OperandAccess]) -> None:
        super().__init__(access for access in accesses if access.write)

    def reach(self, access: OperandAccess, but: OperandAccess | None = None) -> bool:
        """Whether bytes of an access, over all iterations, may be written, by another than `but`."""
        return self.aliasing(access) or any(other is not but for other in self.meeting(access))
