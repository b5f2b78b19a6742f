"""Device memory of launch lists: shared arenas, buffer addresses, and fault flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from lamella.backend.cpu.run.memory import empty_array
from lamella.backend.cuda.arrays import DeviceMemory, PinnedMemory
from lamella.backend.cuda.copies import DeviceCopies
from lamella.backend.cuda.driver import own_stream
from lamella.base.arena import aligned
from lamella.base.arrays import Array, DType
from lamella.base.records import dataclass
from lamella.kernels.arena_plan import ALIGNMENT, place_buffers
from lamella.kernels.launches import ELEMENT_BYTES, BufferView, LaunchList

APART = 256
"""The alignment of the workspace of a library."""


class DeviceArena:
    """An arena that the lists of an executable share; one that grows moves."""

    def __init__(self) -> None:
        self._memory: DeviceMemory | None = None

    def reserve(self, size: int) -> int:
        """The address of at least so many bytes."""
        if self._memory is None or self._memory.size < size:
            own_stream().wait()
            self._memory = None
            self._memory = DeviceMemory(size)
        return self._memory.address

    def release(self) -> None:
        """Give its memory back, when all that was launched is done."""
        if self._memory is not None:
            own_stream().wait()
            self._memory = None


@dataclass(frozen=True, slots=True)
class SharedDeviceMemory:
    """What the launch lists of an executable share: arenas, and copies of arrays."""

    arena: DeviceArena = field(default_factory=DeviceArena)
    once: DeviceArena = field(default_factory=DeviceArena)
    """The arena of lists that run once, with what they read."""
    copies: DeviceCopies = field(default_factory=DeviceCopies)


class DeviceMachine:
    """The memory operations of every machine of launch lists on a GPU."""

    room: SharedDeviceMemory

    def release(self) -> None:
        """Free the memory in which lists worked that run once."""
        self.room.once.release()

    def settle(self) -> None:
        """Copy back states that launches updated."""
        self.room.copies.settle()

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """An array for what comes out of a list."""
        return empty_array(shape, dtype)

    def copy(self, array: Array, room: Array | None = None) -> Array:
        """The numbers of an array where launches can write them: on the device, and on the host when somebody asks."""
        return self.room.copies.put(array, room)

    def keep(self, size: int) -> Array:
        """Bytes for what a list leaves that runs once: they stay on the device."""
        return empty_array((size,), np.dtype(np.uint8))


class ListBuffers:
    """Buffer addresses of a list: those of the outside and those that hold zeros have memory of their own.

    What a list reads that runs once lies in its arena: nobody else reads it.
    """

    def __init__(self, whole: LaunchList, arena: DeviceArena, is_once: bool, workspace: int = 0) -> None:
        self._arena, self._sizes, self._workspace = arena, whole.buffers, workspace
        self._entering = {view.buffer for view in whole.inputs.values()}
        plan = place_buffers(whole, self._entering)
        self._shared, self.shared_bytes = dict(plan.shared), plan.shared_bytes
        for name in sorted(self._entering) if is_once else ():
            self._shared[name] = aligned(self.shared_bytes, ALIGNMENT)
            self.shared_bytes = self._shared[name] + whole.buffers[name].size
        if is_once:
            self._entering = set()
        self.plan = plan
        self._own = DeviceMemory(plan.own_bytes)
        if plan.own_bytes:
            self._own.fill(own_stream())
        self._places = plan.own
        # Memory of the host that is pinned has one address for both sides.
        self._outer = PinnedMemory(plan.outside_bytes) if plan.outside else None
        self._outer_places = plan.outside
        self._outside: dict[str, DeviceMemory] = {}

    def lay(self, name: str, memory: DeviceMemory) -> bool:
        """Let a buffer of the outside lie in some memory; gives whether it lay elsewhere."""
        moved = self._outside.get(name) is not memory
        self._outside[name] = memory
        return moved

    def base(self) -> int:
        """The address of the arena."""
        return self._arena.reserve(self._inside + self._workspace)

    @property
    def workspace(self) -> int:
        """The workspace of a library, behind the buffers."""
        return self.base() + self._inside

    @property
    def _inside(self) -> int:
        return aligned(self.shared_bytes, APART) if self._workspace else self.shared_bytes

    def address(self, view: BufferView) -> int:
        """The device address of a view."""
        return self.start(view.buffer) + view.offset * ELEMENT_BYTES[view.element]

    def start(self, name: str) -> int:
        """The device address of a buffer."""
        if name in self._entering:
            if name not in self._outside:
                self._outside[name] = DeviceMemory(self._sizes[name].size)
            return self._outside[name].address
        if name in self._places:
            return self._own.address + self._places[name]
        if self._outer is not None and name in self._outer_places:
            return self._outer.address + self._outer_places[name]
        return self.base() + self._shared[name]


class ListFlags:
    """Fault flags that launches set: numbers of the host and of the device, copied as one."""

    def __init__(self, faults: Array, tests: Sequence[Array | None]) -> None:
        self._starts, size = [], faults.nbytes
        for item in tests:
            size = -(-size // 8) * 8
            self._starts.append(size)
            size += 0 if item is None else item.nbytes
        self._item, self._size = faults.itemsize, size
        self._held: tuple[DeviceMemory, PinnedMemory] | None = None
        """Memory of both sides, where a launch can find something wrong at all."""

    @property
    def can_be_set(self) -> bool:
        """Whether a launch can find something wrong."""
        return self._held is not None

    def fault(self, number: int) -> int:
        """The address of the fault flag: a step has no value."""
        return self._address() + number * self._item

    def tests(self, number: int) -> int:
        """The address of the flags of failed bounds checks."""
        return self._address() + self._starts[number]

    def _address(self) -> int:
        if self._held is None:
            self._held = DeviceMemory(self._size), PinnedMemory(self._size)
            self._held[0].fill(own_stream())
        return self._held[0].address

    def are_clear(self) -> bool:
        """Whether no launch so far has found something wrong; waits for them where one could."""
        if self._held is None:
            return True
        memory, pinned = self._held
        memory.read(pinned.address, self._size, own_stream())
        own_stream().wait("running a launch list")
        return not pinned.bytes().any()

    def clear(self) -> None:
        """Nothing is wrong any more."""
        if self._held is not None:
            self._held[0].fill(own_stream())
