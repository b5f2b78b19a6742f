"""Launch lists as machine code walks them: one table of launches, one arena, one native call.

Every launch is proved, or replaced by one that tests its accesses, when the list is made; a run writes the addresses
of what comes from outside into the slots of the launches, and calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lamella.backend.cpu.jit import code_error
from lamella.backend.cpu.run.file_moves import FileMoves
from lamella.backend.cpu.run.memory import KeptRoom, SharedArena, allocate_bytes, empty_array
from lamella.backend.cpu.run.pool import ListWalker
from lamella.backend.cpu.run.prepared import PreparedLaunch, address_of
from lamella.base.arrays import Array
from lamella.base.errors import Unsupported
from lamella.base.mapping import allocate_in_file
from lamella.base.records import dataclass
from lamella.graph.model import Streaming
from lamella.kernels.arena_plan import place_buffers
from lamella.kernels.launches import (
    ELEMENT_BYTES,
    BufferView,
    Launch,
    LaunchList,
    LaunchTime,
    verify_views,
)

WORD = 8
SHARED_BYTES = 1 << 18
"""A launch that touches less memory is done before another thread has heard of it."""
MOST_SHARED = 1 << 40
"""Work-groups beyond this are not multiplied by a number of threads."""
FILL_BYTES = 1 << 16
"""What one work-group fills."""
Integers = npt.NDArray[np.int64]


# --- the table of launches -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Address:
    """A slot that holds the address of a view: its buffer, and the bytes from the beginning of it."""

    slot: int
    buffer: str
    offset: int
    alignment: int


class LaunchSource(Protocol):
    """What has the machine code of launches: kernels that prove each, or a store of launches that were proved."""

    @property
    def walker(self) -> ListWalker:
        """What runs launch lists."""

    def prepare_all(
        self, launches: Sequence[Launch], faults: Array
    ) -> Iterator[tuple[Launch, PreparedLaunch | None]]:
        """Each launch with its code and slots; None for those that fill, `faults` has a place for each.

        Unsupported: one is neither proved to stay in its memory nor can be tested.
        """


class _LaunchTable:
    """The rows of a list and the slots of its launches; addresses are left open."""

    def __init__(self, source: LaunchSource, launches: Sequence[Launch]) -> None:
        self.addresses: list[_Address] = []
        self.code: list[object] = []
        """What the machine code lives as long as."""
        self.local_bytes = 0
        self.faults = np.zeros(max(1, len(launches)), np.int32)
        self.flags: list[Array] = [self.faults]
        """What launches write that find something wrong."""
        self.prepared: list[PreparedLaunch | None] = []
        self._walker = source.walker
        self._words: list[Integers] = []
        self._next = 0
        rows = [self._add(*item) for item in source.prepare_all(launches, self.faults)]
        self.slots = np.concatenate([*self._words, np.zeros(1, np.int64)])
        self.rows = np.array([*rows, (0, 0, 0, 0)], np.int64)
        self.rows[:, 1] = self.rows[:, 1] * WORD + address_of(self.slots)
        self.is_shared = bool(self.rows[:, 3].any())

    def has_fault(self) -> bool:
        """Whether launches found something wrong, which is forgotten then."""
        found = any(map(np.count_nonzero, self.flags))  # `flags.any()` takes ten times as long
        if found:
            for flags in self.flags:
                flags[...] = 0
        return found

    def _add(self, launch: Launch, made: PreparedLaunch | None) -> tuple[int, int, int, int]:
        """A row: the address of the kernel, the first of its slots, its work-groups, whether threads share them."""
        first = self._next
        self.prepared.append(made)
        if made is None:
            address, groups = self._walker.fill, max(1, reach_of(launch.arguments[0]) // FILL_BYTES)
            self._note(launch.arguments[0], first, 1)
            self._append(np.array([0, reach_of(launch.arguments[0])], np.int64))
        else:
            address, groups = self._place(launch, made, first), launch.groups
        touched = sum(map(reach_of, launch.arguments))
        shared = 1 < groups <= MOST_SHARED and touched >= SHARED_BYTES and self._walker.threads > 1
        return address, first, groups, int(shared)

    def _place(self, launch: Launch, made: PreparedLaunch, first: int) -> int:
        for place, slot, alignment in made.places:
            if place < len(launch.arguments):
                self._note(launch.arguments[place], first + slot, alignment)
        self.code.append(made.code)
        self.flags += [] if made.tests is None else [made.tests]
        self.local_bytes = max(self.local_bytes, made.local_bytes)
        self._append(np.frombuffer(made.slots, np.int64))
        return made.address

    def _note(self, view: BufferView, slot: int, alignment: int) -> None:
        self.addresses.append(
            _Address(slot, view.buffer, view.offset * ELEMENT_BYTES[view.element], alignment)
        )

    def _append(self, words: Integers) -> None:
        self._words.append(words)
        self._next += len(words)


def reach_of(view: BufferView) -> int:
    """The bytes from the first element of a view to the end of its last."""
    return view.reach


# --- lists ---------------------------------------------------------------------------------------------------


class _OutsideBuffer:
    """A buffer whose memory a call brings, with the slots that hold its address."""

    __slots__ = ("address", "alignment", "offsets", "size", "slots")

    def __init__(self, size: int, addresses: Sequence[_Address]) -> None:
        self.size = size
        self.alignment = math.lcm(1, *(item.alignment for item in addresses))
        self.slots = np.array([item.slot for item in addresses], np.int64)
        self.offsets = np.array([item.offset for item in addresses], np.int64)
        self.address = -1

    def takes(self, array: Array) -> bool:
        """Whether an array can be this buffer as it lies in memory."""
        if array.nbytes != self.size:
            raise code_error(f"an array of {array.nbytes} bytes for a buffer of {self.size}")
        if not array.flags.c_contiguous:
            return False
        address = address_of(array)
        return address == self.address or not (self.size and address % self.alignment)


def _bind(table: _LaunchTable, outside: Mapping[str, _OutsideBuffer], buffer: str, array: Array) -> None:
    """Let launches find a buffer in an array."""
    found, address = outside[buffer], address_of(array)
    if found.address != address:
        table.slots[found.slots] = found.offsets + address
        found.address = address


class NativeList:
    """A launch list ready to run. Unsupported: a launch is neither proved nor can it be tested."""

    def __init__(self, source: LaunchSource, whole: LaunchList, arena: SharedArena) -> None:
        verify_views(whole)
        self.whole = whole
        self._walker = source.walker
        self._arena = arena
        self._base = 0
        self._table = table = _LaunchTable(source, whole.launches)
        self._settled, self._end = find_settled(whole, table.prepared), len(whole.launches)
        self._rows, self._row_bytes = address_of(table.rows), table.rows.strides[0]
        self._direct = _find_direct(whole)
        entering = {view.buffer for view in whole.inputs.values()}
        plan = place_buffers(whole, {*entering, *self._direct.values()})
        self._shared, self._own = plan.shared, allocate_bytes(plan.own_bytes)
        self._outer = allocate_in_file(plan.outside_bytes)
        self.arena_bytes, self.outside_bytes, self.blocks = plan.shared_bytes, plan.outside_bytes, plan.blocks
        by_buffer: dict[str, list[_Address]] = {}
        for item in table.addresses:
            by_buffer.setdefault(item.buffer, []).append(item)
        self._outside = {
            name: _OutsideBuffer(whole.buffers[name].size, by_buffer.get(name, ()))
            for name in {*entering, *self._direct.values()}
        }
        outer = {
            name: self._outer[start : start + whole.buffers[name].size]
            for name, start in plan.outside.items()
        }
        self._moves = FileMoves(whole, outer, partial(_bind, table, self._outside))
        self._held: list[Array] = []
        """What is bound, or copies of it."""
        self._fixed: dict[str, Array] = {}
        self._entering = dict(whole.inputs)
        """The inputs that every run is given."""
        inside = [item for item in table.addresses if item.buffer in plan.shared]
        self._inside = np.array([item.slot for item in inside], np.int64)
        table.slots[self._inside] = [plan.shared[item.buffer] + item.offset for item in inside]
        for places, room in ((plan.own, self._own), (plan.outside, self._outer)):
            for item in table.addresses:
                if item.buffer in places:
                    table.slots[item.slot] = address_of(room) + places[item.buffer] + item.offset

    @property
    def prepared(self) -> Sequence[PreparedLaunch | None]:
        """The code and the slots of each launch; None for those that fill."""
        return self._table.prepared

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Let all later runs read arrays that they are not given: these live as long as no others are bound."""
        views = self.whole.inputs
        read = {name: array for name, array in inputs.items() if name in views}
        self._held = [self._enter(views[name].buffer, array) for name, array in read.items()]
        for array, held in zip(read.values(), self._held, strict=True):
            if held is not array:
                array.flags.writeable = False  # nobody tells when somebody writes into what was copied once
        self._fixed = read
        self._entering = {name: view for name, view in views.items() if name not in read}

    def stream(self, policies: Mapping[str, Streaming]) -> None:
        """Let inputs that lie in files, and what launches put there, be in memory only around their uses."""
        self._moves.plan(policies)

    def run(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], times: list[LaunchTime] | None = None
    ) -> bool:
        """Run all launches; False where one found something wrong, and the outputs mean nothing.

        Arrays are as large as their tensors. Outputs are dense, and overlap no input.
        """
        self._settle()
        held = {name: self._enter(view.buffer, inputs[name]) for name, view in self._entering.items()}
        found = {name: self._leave(buffer, outputs[name]) for name, buffer in self._direct.items()}
        # Nearly nothing lies in files, and of a small network the calls around its launches are most of the time.
        moves = self._moves if self._moves.are_planned else None
        walk = self._walk_on if moves is None else self._walk
        if moves is not None:
            moves.enter(held)
        walk(0, self._settled, times)
        is_right = not self._table.has_fault()
        if is_right:
            walk(self._settled, self._end, times)
        if moves is not None:
            moves.leave(self._end if is_right else None)
        if not is_right:
            return False
        for name, view in self.whole.outputs.items():
            if name not in found:
                self._copy(view, outputs[name], {**self._fixed, **inputs}, found)
            elif found[name] is not outputs[name]:
                np.copyto(outputs[name], found[name])
        del held
        return True

    def _settle(self) -> None:
        """Move to where the arena lies now."""
        self._arena.reserve(self.arena_bytes)
        if self._base != self._arena.address:
            self._table.slots[self._inside] += self._arena.address - self._base
            self._base = self._arena.address

    def _enter(self, buffer: str, array: Array) -> Array:
        """Let launches read an array, or a copy of it where it cannot be used as it lies; it must live until then."""
        outside = self._outside[buffer]
        if not outside.takes(array):
            room = allocate_bytes(outside.size).view(array.dtype).reshape(array.shape)
            np.copyto(room, array)
            array = room
        _bind(self._table, self._outside, buffer, array)
        return array

    def _leave(self, buffer: str, array: Array) -> Array:
        """Let launches write an array, or another one that is copied to it."""
        outside = self._outside[buffer]
        if not outside.takes(array):
            array = allocate_bytes(outside.size).view(array.dtype).reshape(array.shape)
        _bind(self._table, self._outside, buffer, array)
        return array

    def _walk(self, first: int, end: int, times: list[LaunchTime] | None) -> None:
        """Run launches, with pauses in which memory of files comes and goes."""
        for start, stop in pairwise((first, *self._moves.pauses(first, end), end)):
            self._moves.move(start)
            self._walk_on(start, stop, times)

    def _walk_on(self, first: int, end: int, times: list[LaunchTime] | None) -> None:
        table, count = self._table, end - first
        if not count:
            return
        rows = self._rows + first * self._row_bytes
        if times is None:
            self._walker.run(rows, count, table.is_shared, table.local_bytes)
            return
        stamps = np.zeros((count + 1, 2), np.int64)
        self._walker.run(rows, count, table.is_shared, table.local_bytes, address_of(stamps))
        moments = stamps @ np.array([1.0, 1e-9])
        seconds = np.diff(stamps, axis=0) @ np.array([1.0, 1e-9])
        for number, launch in enumerate(self.whole.launches[first:end]):
            times.append(
                LaunchTime(
                    launch.operator,
                    launch.kernel or "fill",
                    float(seconds[number]),
                    float(moments[number]),
                    launch.groups,
                    sum(map(reach_of, launch.arguments)),
                    launch.origin,
                )
            )

    def _copy(
        self, view: BufferView, target: Array, inputs: Mapping[str, Array], written: Mapping[str, Array]
    ) -> None:
        """Copy what is no array of its own: an input that comes out again, or two outputs that share memory."""
        twin = next((name for name, buffer in self._direct.items() if buffer == view.buffer), None)
        entered = next((name for name, item in self.whole.inputs.items() if item.buffer == view.buffer), None)
        if twin is not None:
            source = written[twin]
        elif entered is not None:
            source = inputs[entered]
        else:
            source = self._arena.view(self._shared[view.buffer], target.nbytes)
        dense = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        np.copyto(target, dense.view(target.dtype).reshape(target.shape))


def find_settled(whole: LaunchList, prepared: Sequence[PreparedLaunch | None]) -> int:
    """The first launch that overwrites something for good; Unsupported where one behind it may find a mistake."""
    buffers = {whole.inputs[name].buffer for name in whole.overwritten}
    for number, launch in enumerate(whole.launches):
        if any(launch.arguments[place].buffer in buffers for place in launch.writes):
            rest = zip(whole.launches[number:], prepared[number:], strict=True)
            if any(item.has_fault or (made is not None and made.tests is not None) for item, made in rest):
                raise Unsupported("it may fail after it has changed a state")
            return number
    return len(whole.launches)


def _find_direct(whole: LaunchList) -> dict[str, str]:
    """The outputs that launches can write where the caller wants them, with their buffers."""
    entering = {view.buffer for view in whole.inputs.values()}
    found: dict[str, str] = {}
    for name, view in whole.outputs.items():
        fills = view.offset == 0 and reach_of(view) == whole.buffers[view.buffer].size
        if fills and view.buffer not in entering and view.buffer not in found.values():
            found[name] = view.buffer
    return found


@dataclass(frozen=True, slots=True)
class NativeMachine:
    """What runs the launch lists of an executable on the processor: its code, and the arena that lists share."""

    source: LaunchSource
    arena: SharedArena
    once: SharedArena = field(default_factory=SharedArena)
    """The arena of lists that run once."""
    kept: KeptRoom = field(default_factory=KeptRoom)
    """Where what they leave is kept."""

    def compile(self, whole: LaunchList, once: bool = False) -> NativeList:
        """Make a list runnable."""
        return NativeList(self.source, whole, self.once if once else self.arena)

    def release(self) -> None:
        """Give back the memory in which lists worked that run once."""
        self.once.release()

    def settle(self) -> None:
        """States are updated where they lie."""

    def empty(self, shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
        """An array for what comes out of a list."""
        return empty_array(shape, dtype)

    def copy(self, array: Array, room: Array | None = None) -> Array:
        """The numbers of an array where launches can write them: in the room that they had, where it is given."""
        found = empty_array(array.shape, array.dtype) if room is None else room
        np.copyto(found, array)
        return found

    def keep(self, size: int) -> Array:
        """Bytes for what a list leaves that runs once."""
        return self.kept.take(size)
