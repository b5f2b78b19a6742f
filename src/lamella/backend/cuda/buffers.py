"""The memory of launch lists on a GPU: one arena for all lists of an executable, and flags that launches set."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.backend.cuda.arrays import DeviceMemory, PinnedMemory
from lamella.backend.cuda.driver import own_stream
from lamella.base.arrays import Array
from lamella.kernels.launches import ELEMENT_BYTES, BufferView, LaunchList
from lamella.kernels.placing import place_buffers

APART = 256
"""Bytes of which the start of what a library uses is a multiple."""


class DeviceArena:
    """Memory that the lists of an executable share; one that grows moves."""

    def __init__(self) -> None:
        self._memory: DeviceMemory | None = None

    def reserve(self, size: int) -> int:
        """The address of at least so many bytes."""
        if self._memory is None or self._memory.size < size:
            own_stream().wait()
            self._memory = None
            self._memory = DeviceMemory(size)
        return self._memory.address


class ListBuffers:
    """Where the buffers of a list lie: those of the outside and those that hold zeros have memory of their own."""

    def __init__(self, whole: LaunchList, arena: DeviceArena, workspace: int = 0) -> None:
        self._arena, self._sizes, self._workspace = arena, whole.buffers, workspace
        self._entering = {view.buffer for view in whole.inputs.values()}
        plan = place_buffers(whole, self._entering)
        self._shared, self.shared_bytes = plan.shared, plan.shared_bytes
        self.plan = plan
        self._own = DeviceMemory(plan.own_bytes)
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
        """Where the arena lies now."""
        return self._arena.reserve(self._inside + self._workspace)

    @property
    def workspace(self) -> int:
        """Where what a library uses beside its matrices lies: behind the buffers."""
        return self.base() + self._inside

    @property
    def _inside(self) -> int:
        return -(-self.shared_bytes // APART) * APART

    def address(self, view: BufferView) -> int:
        """Where a view begins on the device."""
        return self.start(view.buffer) + view.offset * ELEMENT_BYTES[view.element]

    def start(self, name: str) -> int:
        """Where a buffer begins on the device."""
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
    """What launches write that find something wrong: numbers of the host and of the device, copied as one."""

    def __init__(self, faults: Array, tests: Sequence[Array | None]) -> None:
        self.can_be_set = False
        self._starts, size = [], faults.nbytes
        for item in tests:
            size = -(-size // 8) * 8
            self._starts.append(size)
            size += 0 if item is None else item.nbytes
        self._item, self._size = faults.itemsize, size
        self._memory, self._pinned = DeviceMemory(size), PinnedMemory(size)
        self._memory.fill(own_stream())

    def fault(self, number: int) -> int:
        """Where a launch says that a step has no value."""
        self.can_be_set = True
        return self._memory.address + number * self._item

    def tests(self, number: int) -> int:
        """Where a launch says that a test has failed."""
        self.can_be_set = True
        return self._memory.address + self._starts[number]

    def are_clear(self) -> bool:
        """Whether no launch so far has found something wrong; waits for them where one could."""
        if not self.can_be_set:
            return True
        self._memory.read(self._pinned.address, self._size, own_stream())
        own_stream().wait("running a launch list")
        return not self._pinned.bytes().any()

    def clear(self) -> None:
        """Nothing is wrong any more."""
        self._memory.fill(own_stream())
