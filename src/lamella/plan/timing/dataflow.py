"""The dataflow of an untiled program: who makes what is read, and which bytes come from outside or leave.

Order is that of the text. A byte that is read before anything wrote it comes from outside: an input or a weight. A byte
whose last access is a write leaves: a result. Everything else lies between two operations and need not cross DDR.
Where a region is not dense, or its place depends on a loop, less is counted than may be needed, never more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, prod
from types import MappingProxyType

from lamella.base import dtype
from lamella.base.shape import row_major_strides
from lamella.lang.nem.registry import opcode
from lamella.lang.nem.resolved import Buffer, Loop, Plan, Region, Task
from lamella.lang.nem.words import MOVES
from lamella.plan.timing.cost import elements
from lamella.plan.timing.shares import covered_share

PICKING = frozenset({"slice", "gather"})
"""Operations that read no more than they write."""
KEEPING = frozenset({"reshape", "transpose", "concat"}) | MOVES
"""Operations without arithmetic that use every byte they read."""

CASTS = frozenset({"cast", "quantize", "dequantize"})


@dataclass(frozen=True, slots=True)
class DataEdge:
    """A task reads `overlap` bytes of what another made; `whole` says that it needs all that the other made."""

    made: int
    user: int
    operand: int
    overlap: int
    whole: bool


@dataclass(slots=True)
class Dataflow:
    """Tasks in order with their edges; bytes by buffer: DDR bytes `read` and `written`, bytes to L1 and back."""

    tasks: list[Task]
    counts: dict[int, int]
    by_number: dict[int, Task]
    buffers: tuple[Buffer, ...] = ()
    producers: dict[int, list[DataEdge]] = field(default_factory=lambda: defaultdict(list))
    users: dict[int, list[DataEdge]] = field(default_factory=lambda: defaultdict(list))
    outside: dict[tuple[int, int], int] = field(default_factory=dict)
    """For each operand that comes from outside, by task and position, the bytes that are needed of it."""
    final: set[int] = field(default_factory=set)
    read: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    loaded: dict[str, int] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    shares: dict[str, Fraction] = field(default_factory=dict)
    """The part of the bytes of a buffer that is stored: less than all where a codec makes them of it."""

    def stored(self, size: int, buffer: Buffer) -> int:
        """What is stored of so many bytes of a buffer."""
        return int(size * self.shares[buffer.name])


def _share(buffer: Buffer, stored: Mapping[str, int]) -> tuple[int, int]:
    if buffer.codec and buffer.size:
        return buffer.stored, buffer.size
    return min(stored.get(buffer.name, buffer.size), buffer.size), max(1, buffer.size)


def find_dataflow(
    plan: Plan, outputs: Collection[str] = (), stored: Mapping[str, int] = MappingProxyType({})
) -> Dataflow:
    """The dataflow of a program; `outputs` are buffers that leave though something reads them, or a kernel made them.

    `stored` are the bytes in which codecs can store buffers, where those are fewer.
    """
    tasks = list(plan.tasks())
    counts = {item.number: _trips(around) for item, around in plan.walk() if isinstance(item, Task)}
    flow = Dataflow(
        [task for task in tasks if counts[task.number]], counts, {task.number: task for task in tasks}
    )
    flow.buffers = tuple(item for item in plan.buffers if item.memory == "DDR")
    flow.shares = {item.name: Fraction(*_share(item, stored)) for item in plan.buffers}
    histories = {buffer.name: _History() for buffer in plan.buffers}
    for task in flow.tasks:
        for operand, region in enumerate(task.inputs):
            _read(flow, histories[region.buffer.name], task, operand, region)
        for region in task.outputs:
            histories[region.buffer.name].write(task, region)
    for buffer in plan.buffers:
        _close(flow, histories[buffer.name], buffer, buffer.name in outputs)
    return flow


def is_free(task: Task) -> bool:
    """Whether a plan may get by without a task: it only moves or rearranges."""
    known = opcode(task.opcode)
    return task.opcode in MOVES or (known is not None and "view" in known.families)


def is_beside(task: Task, region: Region) -> bool:
    """Whether a kernel writes a region beside its first result: scratch, where nobody reads it."""
    return task.opcode == "compute" and region is not task.outputs[0]


def dense_bytes(region: Region) -> int:
    """The bytes of the elements of a region; its extent where it has no type."""
    if region.type is None:
        return region.extent
    element = dtype.find(region.type.elem)
    return min(region.extent, ceil(elements(region) * (8 if element is None else element.bits) / 8))


def _trips(around: tuple[Loop, ...]) -> int:
    return prod(max(0, loop.trips) for loop in around)


# --- accesses of one buffer ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Write:
    """Bytes that a task wrote; `start` is None where the place depends on a loop."""

    task: Task
    start: int | None
    end: int
    bytes: int
    read: bool = False
    beside: bool = False
    """Whether it may be scratch of a kernel: nobody misses it unless its buffer is a result."""

    @property
    def dense(self) -> bool:
        """Whether every byte of the range was written."""
        return self.start is not None and self.bytes == self.end - self.start


@dataclass(slots=True)
class _History:
    """The accesses of a buffer so far; `ranges` are whole ranges from outside, `parts` bytes of sparse ones."""

    writes: list[_Write] = field(default_factory=list)
    ranges: list[tuple[int, int, bool]] = field(default_factory=list)
    parts: list[tuple[int, bool]] = field(default_factory=list)

    def write(self, task: Task, region: Region) -> None:
        """Remember a write; what it covers whole is no longer the last one there."""
        start = region.offset.constant if region.offset.is_constant else None
        end = region.extent if start is None else start + region.extent
        made = _Write(task, start, end, dense_bytes(region), beside=is_beside(task, region))
        if start is not None and made.dense:
            self.writes = [item for item in self.writes if not _inside(item, start, end)]
        self.writes.append(made)

    def writers(self, start: int | None, end: int) -> list[_Write]:
        """The writes that may reach into a range, from all the places where the range or the write is unknown."""
        return [
            item
            for item in self.writes
            if start is None or item.start is None or (item.start < end and start < item.end)
        ]


def _inside(item: _Write, start: int, end: int) -> bool:
    return item.start is not None and start <= item.start and item.end <= end


def _read(flow: Dataflow, history: _History, task: Task, operand: int, region: Region) -> None:
    start = region.offset.constant if region.offset.is_constant else None
    end = region.extent if start is None else start + region.extent
    writers = history.writers(start, end)
    if not writers:
        _read_outside(flow, history, task, operand, region)
        return
    if start is not None and _needed(task, operand, region) == region.extent:
        history.ranges += [(*gap, is_loaded(task, region)) for gap in _gaps(start, end, writers)]
    for item in writers:
        item.read = True
        known = start is not None and item.start is not None
        overlap = min(end, item.end) - max(start or 0, item.start or 0) if known else 0
        single = (
            len(item.task.outputs) == 1 and flow.counts[task.number] == flow.counts[item.task.number] == 1
        )
        whole = (
            single
            and overlap == item.task.outputs[0].extent
            and (not is_free(task) or task.opcode in KEEPING)
        )
        edge = DataEdge(item.task.number, task.number, operand, overlap, whole)
        flow.producers[task.number].append(edge)
        flow.users[item.task.number].append(edge)


def _read_outside(flow: Dataflow, history: _History, task: Task, operand: int, region: Region) -> None:
    needed = _needed(task, operand, region)
    near = is_loaded(task, region)
    flow.outside[task.number, operand] = flow.stored(needed, region.buffer)
    if region.offset.is_constant and needed == region.extent:
        history.ranges.append((region.offset.constant, region.offset.constant + region.extent, near))
    else:
        history.parts.append((needed, near))


def is_loaded(task: Task, region: Region) -> bool:
    """Whether an operand must be in L1: vectors may be read from L2, and what only rearranges may happen there."""
    return not (is_free(task) or may_stay(task)) and (region.type is None or len(region.type.shape) > 1)


def may_stay(task: Task) -> bool:
    """Whether a task that cannot be divided may work where its operands lie: kernels of the VPU, casts by strides."""
    if task.opcode not in CASTS:
        return task.opcode == "compute"
    types = [region.type for region in (*task.inputs, *task.outputs)]
    return any(item is None or item.strides != row_major_strides(item.shape) for item in types)


def _gaps(start: int, end: int, writers: list[_Write]) -> Iterator[tuple[int, int]]:
    """The parts of a range that none of the writes reaches; none where one is at an unknown place."""
    for low, high in sorted(
        (0, 1 << 62) if item.start is None else (item.start, item.end) for item in writers
    ):
        if start < low:
            yield start, low
        start = max(start, high)
    if start < end:
        yield start, end


def _needed(task: Task, operand: int, region: Region) -> int:
    """The bytes of an operand that its task cannot do without."""
    needed = dense_bytes(region)
    if task.opcode in PICKING:
        return min(needed, sum(map(dense_bytes, task.outputs)))
    share = covered_share(task, operand)
    return needed if share == 1 else ceil(share * needed)


def _close(flow: Dataflow, history: _History, buffer: Buffer, leaves: bool) -> None:
    """Sum up what crosses the borders of the network in one buffer."""
    near = [item for item in history.ranges if item[2]]
    flow.loaded[buffer.name] = max([_length(near), *(size for size, near in history.parts if near)])
    read = max([_length(history.ranges), *(size for size, _ in history.parts)])
    last = [item for item in history.writes if leaves or not (item.read or item.beside)]
    flow.final.update(item.task.number for item in last)
    flow.results[buffer.name] = _made([item for item in last if not is_free(item.task)])
    if buffer.memory == "DDR":
        flow.read[buffer.name] = flow.stored(read, buffer)
        flow.written[buffer.name] = _made(last)


def _made(writes: list[_Write]) -> int:
    """How many bytes were written, each counted once."""
    ranges = [(item.start, item.end, True) for item in writes if item.start is not None and item.dense]
    sparse = [item.bytes for item in writes if item.start is None or not item.dense]
    return max([_length(ranges), *sparse])


def _length(ranges: list[tuple[int, int, bool]]) -> int:
    """How many bytes a set of ranges covers."""
    total, reached = 0, 0
    for start, end, _ in sorted(ranges):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
