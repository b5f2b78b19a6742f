"""Launch lists on a GPU: one arena, one table of slots, and after the first run one graph of launches.

What a call hands over is copied to the device, and what it takes out is copied back; weights stay there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from lamella.backend.cpu.compiled import maps_offset
from lamella.backend.cpu.run.lists import empty_array, reach_of
from lamella.backend.cpu.run.prepared import PreparedLaunch, address_of
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.cuda.arrays import DeviceMemory, PinnedMemory
from lamella.backend.cuda.driver import Event, LaunchGraph, call, device, own_stream
from lamella.backend.cuda.kernels import DeviceCode
from lamella.backend.cuda.maps import with_maps
from lamella.backend.cuda.modules import DeviceKernel
from lamella.base.arrays import Array, DType
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.launches import ELEMENT_BYTES, BufferView, Launch, LaunchList, LaunchTime
from lamella.kernels.placing import place_buffers


@dataclass(slots=True)
class _DeviceLaunch:
    """A launch with its slots, whose addresses are on the device; None for the kernel of one that fills."""

    kernel: DeviceKernel | None
    slots: Array
    groups: int
    place: int = 0
    """Where its slots lie in the table, in bytes."""


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


class _Buffers:
    """Where the buffers of a list lie: those of the outside and those that hold zeros have memory of their own."""

    def __init__(self, whole: LaunchList, arena: DeviceArena) -> None:
        self._arena = arena
        entering = {view.buffer for view in whole.inputs.values()}
        plan = place_buffers(whole, entering)
        self._shared, self.shared_bytes = plan.shared, plan.shared_bytes
        self.plan = plan
        self._own = DeviceMemory(plan.own_bytes)
        self._own.fill(own_stream())
        self._places = plan.own
        # Memory of the host that is pinned has one address for both sides.
        self._outer = PinnedMemory(plan.outside_bytes) if plan.outside else None
        self._outer_places = plan.outside
        self._outside = {name: DeviceMemory(whole.buffers[name].size) for name in entering}

    def base(self) -> int:
        """Where the arena lies now."""
        return self._arena.reserve(self.shared_bytes)

    def address(self, view: BufferView) -> int:
        """Where a view begins on the device."""
        return self.start(view.buffer) + view.offset * ELEMENT_BYTES[view.element]

    def start(self, name: str) -> int:
        """Where a buffer begins on the device."""
        if name in self._outside:
            return self._outside[name].address
        if name in self._places:
            return self._own.address + self._places[name]
        if self._outer is not None and name in self._outer_places:
            return self._outer.address + self._outer_places[name]
        return self.base() + self._shared[name]


class CudaList:
    """A launch list ready to run. Unsupported: a launch is neither proved nor can it be tested."""

    def __init__(self, source: ProvingSource, whole: LaunchList, arena: DeviceArena) -> None:
        self.whole = whole
        self._stream = own_stream()
        self._buffers = _Buffers(whole, arena)
        plan = self._buffers.plan
        self.arena_bytes, self.outside_bytes, self.blocks = plan.shared_bytes, plan.outside_bytes, plan.blocks
        self._faults = np.zeros(max(1, len(whole.launches)), np.int32)
        self._flags: list[tuple[Array, DeviceMemory]] = []
        """What launches write that find something wrong: on the host, and on the device."""
        self._prepared = list(source.prepare_all(whole.launches, self._faults))
        self._fault_memory = self._flag(self._faults)
        self._tests = [
            None if made is None or made.tests is None else self._flag(made.tests)
            for _, made in self._prepared
        ]
        self._table: DeviceMemory | None = None
        self._base = -1
        self._launches: list[_DeviceLaunch] = []
        self._graph: LaunchGraph | None = None
        self._fixed: set[str] = set()
        written = {launch.arguments[place].buffer for launch in whole.launches for place in launch.writes}
        self._updated = [name for name, view in whole.inputs.items() if view.buffer in written]

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Let all later runs read arrays that they are not given."""
        device()
        read = {name: array for name, array in inputs.items() if name in self.whole.inputs}
        for name, array in read.items():
            self._enter(name, array)
            array.flags.writeable = False  # nobody tells when somebody writes into what was copied once
        self._fixed = set(read)
        self._stream.wait()

    def run(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], times: list[LaunchTime] | None = None
    ) -> bool:
        """Run all launches; False where one found something wrong, and the outputs mean nothing."""
        device()  # whichever thread this is
        self._settle()
        held = [self._enter(name, inputs[name]) for name in self.whole.inputs if name not in self._fixed]
        if times is not None:
            self._run_timed(times)
        elif self._graph is None:
            self._record()
            self._graph = LaunchGraph(self._stream, self._record) if self._launches else None
        else:
            self._graph.launch()
        for host, memory in self._flags:
            memory.read(address_of(host), host.nbytes, self._stream)
        self._stream.wait("running a launch list")
        del held
        if any(host.any() for host, _ in self._flags):
            self._clear()
            return False
        self._leave(inputs, outputs)
        return True

    def _clear(self) -> None:
        for host, memory in self._flags:
            host[...] = 0
            memory.fill(self._stream)

    def _flag(self, host: Array) -> DeviceMemory:
        memory = DeviceMemory(host.nbytes)
        memory.fill(self._stream)
        self._flags.append((host, memory))
        return memory

    # --- inputs and outputs ----------------------------------------------------------------------------------

    def _enter(self, name: str, array: Array) -> Array:
        """Copy an array to its buffer; gives what must live until it is there."""
        dense = np.ascontiguousarray(array)
        place = self._buffers.start(self.whole.inputs[name].buffer)
        if dense.nbytes:
            call("cuMemcpyHtoDAsync_v2", place, address_of(dense), dense.nbytes, self._stream.handle)
        return dense

    def _leave(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        waiting = []
        for name, view in self.whole.outputs.items():
            waiting.append(self._read(view, outputs[name]))
        for name in self._updated:
            if name in inputs:
                waiting.append(self._read(self.whole.inputs[name], inputs[name]))
        self._stream.wait()
        for room, target in waiting:
            if room is not target:
                np.copyto(target, room)

    def _read(self, view: BufferView, target: Array) -> tuple[Array, Array]:
        room = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        if room.nbytes:
            call(
                "cuMemcpyDtoHAsync_v2",
                address_of(room),
                self._buffers.address(view),
                room.nbytes,
                self._stream.handle,
            )
        return room, target

    # --- the table of slots ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Write where everything lies into the slots, where the arena has moved."""
        if self._base == self._buffers.base():
            return
        self._base, self._graph = self._buffers.base(), None
        self._launches = [
            self._place(number, launch, made) for number, (launch, made) in enumerate(self._prepared)
        ]
        rows, size = [], 0
        for item in self._launches:
            words = with_maps(item.slots, None if item.kernel is None else item.kernel.pipeline)
            item.place, whole = size, maps_offset(-(-len(words) // 8))
            rows.append(words.tobytes().ljust(whole, b"\0"))
            size += whole
        table = np.frombuffer(b"".join(rows) or b"\0", np.uint8)
        self._table = DeviceMemory(table.nbytes)
        self._table.write(address_of(table), table.nbytes, self._stream)
        self._stream.wait()

    def _place(self, number: int, launch: Launch, made: PreparedLaunch | None) -> _DeviceLaunch:
        if made is None:
            view = launch.arguments[0]
            return _DeviceLaunch(None, np.array([self._buffers.address(view), reach_of(view)], np.int64), 1)
        code, slots = made.code, np.frombuffer(made.slots, np.int64).copy()
        if not isinstance(code, DeviceCode):
            raise Unsupported("it is no kernel of the device")
        for place, slot, _ in made.places:
            if place < len(launch.arguments):
                slots[slot] = self._buffers.address(launch.arguments[place])
            elif launch.has_fault and place == len(launch.arguments):
                slots[slot] = self._fault_memory.address + number * self._faults.itemsize
            else:
                tests = self._tests[number]
                slots[slot] = 0 if tests is None else tests.address
        return _DeviceLaunch(code.kernels[made.address], slots, launch.groups)

    def _record(self) -> None:
        for item in self._launches:
            self._launch(item)

    def _launch(self, item: _DeviceLaunch) -> None:
        if item.kernel is None:
            address, size = item.slots.tolist()
            if size:
                call("cuMemsetD8Async", address, 0, size, self._stream.handle)
        elif self._table is not None and item.groups:
            item.kernel.launch(self._stream, self._table.address + item.place, item.groups)

    def _run_timed(self, times: list[LaunchTime]) -> None:
        """Run launch by launch with a moment between."""
        moments = [Event() for _ in range(len(self._launches) + 1)]
        moments[0].record(self._stream)
        for item, moment in zip(self._launches, moments[1:], strict=True):
            self._launch(item)
            moment.record(self._stream)
        total = 0.0
        for number, launch in enumerate(self.whole.launches):
            seconds = moments[number + 1].seconds_since(moments[number])
            size = sum(map(reach_of, launch.arguments))
            name = launch.kernel or "fill"
            times.append(
                LaunchTime(launch.operator, name, seconds, total, launch.groups, size, launch.origin)
            )
            total += seconds


@dataclass(frozen=True, slots=True)
class CudaMachine:
    """What runs the launch lists of an executable on a GPU."""

    source: ProvingSource
    arena: DeviceArena = field(default_factory=DeviceArena)

    def compile(self, whole: LaunchList, once: bool = False) -> CudaList:
        """Make a list runnable."""
        return CudaList(self.source, whole, self.arena)

    def release(self) -> None:
        """The arena is shared by all lists, and stays."""

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """An array for what comes out of a list."""
        return empty_array(shape, dtype)

    def keep(self, size: int) -> Array:
        """Bytes for what a list leaves that runs once."""
        return empty_array((size,), np.dtype(np.uint8))
