"""The kernels of a program on a GPU, called like functions of Python.

Arguments are verified and every access is proved as on the processor, before anything is copied. Arrays of the host
are copied to the device and back; those of the device are used where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeGuard, cast

import numpy as np

from lamella.backend.arguments import Arrays, written_parameters
from lamella.backend.cpu.compiled import EmittedProgram
from lamella.backend.cpu.convention import slots_of
from lamella.backend.cpu.jit import Processor, readable_assembly
from lamella.backend.cpu.run.kernels import CompiledKernels, LaunchCompiler, with_axes
from lamella.backend.cpu.run.launch import (
    GroupTables,
    PackedArguments,
    bounds_of,
    reach_of,
)
from lamella.backend.cpu.run.prepared import address_of
from lamella.backend.cuda.arrays import DeviceArray, DeviceMemory, lies_on_device, to_device
from lamella.backend.cuda.device_code import DeviceCode
from lamella.backend.cuda.driver import Stream, device, own_stream
from lamella.backend.cuda.modules import DeviceKernel, load_kernels
from lamella.backend.cuda.tensor_maps import with_maps
from lamella.backend.named import Groups, take_grid
from lamella.base.arrays import Array
from lamella.base.errors import InputError, Unsupported
from lamella.base.limits import DEFAULT, Limits
from lamella.base.records import dataclass, replace
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Function, Group

ALIGNMENT = 256
"""What memory of the device begins at a multiple of."""


class CudaKernels(CompiledKernels):
    """The kernels of a program on a GPU: `kernels.name(A, B, groups=n)` runs one, arrays being updated in place."""

    def __init__(
        self,
        compiled: EmittedProgram,
        code: DeviceCode,
        *,
        limits: Limits = DEFAULT,
        proved: bool = False,
        ways: LaunchCompiler | None = None,
    ) -> None:
        super().__init__(compiled, code, limits=limits, threads=1, proved=proved, ways=ways)
        self._device_code = code

    def call(self, name: str, arguments: Sequence[object] = (), groups: Groups = 1) -> None:
        """Run a kernel for a number of work-groups; arrays of the host are copied, those of the device are not."""
        device()
        super().call(name, [_described(item) for item in arguments], groups)

    def _run_interpreted(self, name: str, arguments: Sequence[object], groups: Groups) -> None:
        """Run a launch by the letter, which reads arrays of the host alone."""
        if any(map(_is_on_device, arguments)):
            raise InputError(
                "a launch that only the interpreter can test has arrays of the device",
                hint="copy them to the host",
            )
        super()._run_interpreted(name, arguments, groups)

    def bind(self, name: str, arguments: Sequence[object] = (), groups: Groups = 1) -> BoundLaunch:
        """A launch on arrays of the device, to be run many times; Unsupported where it is not proved.

        What lies on the host is copied now, and so must not be written.
        """
        device()
        function, given = self._find(name), [_described(item) for item in arguments]
        grid = take_grid(function, groups)
        _, packer, runner = self._ready[name]
        if len(packer.parameters) > len(function.parameters):
            given = with_axes(function, given, grid)
        packed = packer.pack(given, grid.total)
        if packed.doubts is not None:
            raise Unsupported("it is not proved that it stays inside its arrays")
        ready = DeviceCall(np.frombuffer(packed.slots, np.int64), own_stream())
        ready.place(packer.function, given, packed.tables)
        if ready.comes_back:
            raise InputError(
                f"@{function.name} is to write an array of the host whenever it is launched",
                hint="lamella.backend.cuda.to_device makes arrays of the device",
            )
        return BoundLaunch(self._device_code.kernels[runner.address], ready, grid.total)

    def wait(self) -> None:
        """Return when all code is assembled; InputError where the driver refuses some of it."""
        for kernel in self._device_code.kernels.values():
            kernel.wait()

    def bring(self) -> None:
        """Bring all code to the device now, not when it is launched."""
        load_kernels(self._device_code.kernels.values())

    @cached_property
    def asm(self) -> str:
        """The PTX."""
        target = self._ways.target or find_target("cuda")
        machine = Processor(target.triple, target.cpu, target.features)
        return readable_assembly(self._compiled.text, machine)

    def _launch(self, name: str, packed: PackedArguments, arguments: Sequence[object], groups: int) -> None:
        _, packer, runner = self._ready[name]
        if not groups:
            return
        kernel = self._device_code.kernels[runner.address]
        ready = DeviceCall(np.frombuffer(packed.slots, np.int64), own_stream())
        ready.place(packer.function, arguments, packed.tables)
        ready.run(kernel, groups)


def _described(argument: object) -> object:
    """An array of the device as NumPy is told of it, in a group too; anything else as it is."""
    if isinstance(argument, np.ndarray):
        return argument
    if isinstance(argument, list | tuple):
        return [_described(item) for item in argument]
    if isinstance(argument, Arrays):
        return replace(argument, items=[cast(Array, _described(item)) for item in argument.items])
    return _OnDevice.of(to_device(argument)) if lies_on_device(argument) else argument


def _is_on_device(argument: object) -> bool:
    items = argument.items if isinstance(argument, Arrays) else argument
    return isinstance(items, _OnDevice) or (isinstance(items, list) and any(map(_is_on_device, items)))


class _OnDevice(np.ndarray):
    """The description of an array of the device, which keeps that alive."""

    @classmethod
    def of(cls, array: DeviceArray) -> _OnDevice:
        found = array.stand_in().view(cls)
        found.array = array
        return found

    array: DeviceArray


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes of the host that an array of a launch spans."""

    start: int
    end: int
    is_written: bool


class DeviceCall:
    """One launch on arrays of the host and of the device: what is copied there, and back."""

    def __init__(self, slots: Array, stream: Stream) -> None:
        self._slots = slots.copy()
        self._stream = stream
        self._held: list[object] = []
        self._back: list[tuple[DeviceMemory, int, int, int]] = []
        """Memory of the device, and where in it lies what is copied back to an address: bytes of a size."""
        self._places: dict[tuple[int, int], int] = {}
        """Where parts of the memory of the host lie on the device."""

    def place(self, function: Function, arguments: Sequence[object], tables: Sequence[GroupTables]) -> None:
        """Copy what lies on the host, and write where it lies now into the slots."""
        self._held.append(list(arguments))  # memory of the device stays as long as this
        self._bring(list(_parts_of(function, arguments, tables)))
        waiting, slot = iter(tables), 0
        for parameter, argument in zip(function.parameters, arguments, strict=True):
            if isinstance(parameter.type, Group):
                self._place_group(slot, next(waiting))
            elif _is_on_host(argument):
                part = _part_of(argument, False)
                self._slots[slot] = self._places[part.start, part.end]
            slot += len(slots_of(parameter))

    @property
    def comes_back(self) -> bool:
        """Whether anything is to be copied back to the host."""
        return bool(self._back)

    def _bring(self, parts: Sequence[_Part]) -> None:
        """Copy parts that share bytes as one: each array sees what is written through another."""
        together: list[_Part] = []
        end = 0
        for part in sorted(parts, key=lambda item: item.start):
            if together and part.start >= end:
                self._copy_parts(together)
                together = []
            end = max(end, part.end) if together else part.end
            together.append(part)
        if together:
            self._copy_parts(together)

    def _copy_parts(self, parts: Sequence[_Part]) -> None:
        start, end = parts[0].start, max(item.end for item in parts)
        # What begins within another array keeps what divides its address; one that is alone needs no shift for that.
        shift = start % ALIGNMENT if len(parts) > 1 else 0
        memory = DeviceMemory(shift + end - start)
        memory.write(start, end - start, self._stream, shift)
        self._held.append(memory)
        if any(item.is_written for item in parts):
            self._back.append((memory, shift, start, end - start))
        for item in parts:
            self._places[item.start, item.end] = memory.address + shift + item.start - start

    def _place_group(self, slot: int, tables: GroupTables) -> None:
        moved = np.zeros(max(1, len(tables.addresses)), np.int64)
        for place, (item, own, end) in enumerate(_members_of(tables)):
            moved[place] = own if isinstance(item, _OnDevice) else self._places[own, end]
        self._slots[slot] = self._copy_array(moved)
        for column in range(tables.entries.shape[1]):
            self._slots[slot + 1 + column] = self._copy_array(tables.entries[:, column].copy())

    def _copy_array(self, array: Array) -> int:
        self._held.append(array)
        memory = DeviceMemory(array.nbytes)
        memory.write(address_of(array), array.nbytes, self._stream)
        self._held.append(memory)
        return memory.address

    def slots_for(self, kernel: DeviceKernel) -> int:
        """The device address of the slots of a kernel."""
        return self._copy_array(with_maps(self._slots, kernel.pipeline))

    def run(self, kernel: DeviceKernel, groups: int) -> None:
        """Launch, wait, and copy back what is written."""
        kernel.launch(self._stream, self.slots_for(kernel), groups)
        self._stream.wait(f"running @{kernel.name}")
        for memory, offset, address, size in self._back:
            memory.read(address, size, self._stream, offset)
        self._stream.wait()


def _parts_of(
    function: Function, arguments: Sequence[object], tables: Sequence[GroupTables]
) -> Iterator[_Part]:
    """What the arrays of the host span."""
    written, waiting = written_parameters(function), iter(tables)
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        is_written = parameter.value.name in written
        if isinstance(parameter.type, Group):
            for item, own, end in _members_of(next(waiting)):
                if not isinstance(item, _OnDevice):
                    yield _Part(own, end, is_written)
        elif _is_on_host(argument):
            yield _part_of(argument, is_written)


def _is_on_host(argument: object) -> TypeGuard[Array]:
    return isinstance(argument, np.ndarray) and not isinstance(argument, _OnDevice)


def _part_of(array: Array, is_written: bool) -> _Part:
    start = address_of(array)
    return _Part(start, start + reach_of(array), is_written)


def _members_of(tables: GroupTables) -> Iterator[tuple[object, int, int]]:
    """The arrays of a group, where each begins, and where it ends when the offset has moved it on."""
    _, highs = bounds_of(tables)
    for item, own, high in zip(tables.given.items, tables.addresses.tolist(), highs.tolist(), strict=True):
        yield item, own, max(own, high)


class BoundLaunch:
    """A launch whose arguments are on the device."""

    def __init__(self, kernel: DeviceKernel, call: DeviceCall, groups: int) -> None:
        self._kernel, self._call, self._groups = kernel, call, groups
        self._slots = call.slots_for(kernel)

    def launch(self) -> None:
        """Run it behind what the stream of this package was given before; nobody waits."""
        if self._groups:
            self._kernel.launch(own_stream(), self._slots, self._groups)

    def wait(self) -> None:
        """Wait until all launches so far are done, before somebody else reads what they write."""
        own_stream().wait(f"running @{self._kernel.name}")
