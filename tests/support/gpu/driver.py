"""The emulated CUDA driver: PTX that it is given is run, on memory of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.backend.fake_driver import FakeDriver, fake_device
from tests.support.gpu.code import Code, Launch
from tests.support.gpu.counts import Counts
from tests.support.gpu.machine import run_launch
from tests.support.gpu.matrices import TensorMap
from tests.support.gpu.memory import DeviceFault, DeviceMemory, copy_bytes, fill_bytes
from tests.support.gpu.ptx import read_ptx

VERSION = 13990
"""A version of CUDA that no driver has, so that its code is not kept for one that is there."""
CLUSTER, EARLY = 4, 6
"""Attributes of a launch."""
MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76
"""Attributes of a device that tests may change before it is opened: its multiprocessors and its capability."""
ELEMENTS = {0: 1, 6: 2, 7: 4, 9: 2}


class EmulatedDriver(FakeDriver):
    """The library, whose kernels compute."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.version, self.seed = VERSION, seed
        self.counts: dict[str, Counts] | None = None
        """What kernels cost, by their symbols, where that is to be counted; then few blocks of each launch run."""
        self.memory = DeviceMemory()
        self._modules: dict[int, dict[str, Code]] = {}
        self._kernels: dict[int, Code] = {}
        self._shared: dict[int, int] = {}
        self._recording: list[Callable[[], None]] | None = None
        self._works: dict[int, list[Callable[[], None]]] = {}
        self._clock = 0.0
        self._moments: dict[int, float] = {}

    def _do(self, work: Callable[[], None]) -> None:
        """Do something, now or whenever the graph that is recorded is launched."""
        if self._recording is None:
            work()
        else:
            self._recording.append(work)

    def do_cuMemAlloc(self, place: Any, size: int) -> None:
        place._obj.value = self.memory.allocate(size)

    def do_cuMemFree(self, address: int) -> int:
        return 0 if self.memory.free(address) else 1

    def do_cuMemFreeHost(self, address: int) -> int:
        return self.do_cuMemFree(address)

    def _copy(self, target: int, source: int, size: int, on_device: tuple[int, ...]) -> None:
        for address in on_device:
            if size and not self.memory.holds(address, size):
                raise DeviceFault(f"a copy of {size} bytes leaves its memory of the device")
        self._do(lambda: copy_bytes(target, source, size))
        self._do(self.memory.settle)

    def do_cuMemcpyHtoDAsync(self, target: int, source: int, size: int, _: object) -> None:
        self.to_device += size
        self._copy(target, source, size, (target,))

    def do_cuMemcpyDtoHAsync(self, target: int, source: int, size: int, _: object) -> None:
        self.to_host += size
        self._copy(target, source, size, (source,))

    def do_cuMemcpyDtoDAsync(self, target: int, source: int, size: int, _: object) -> None:
        self._copy(target, source, size, (target, source))

    def do_cuMemsetD8Async(self, target: int, value: int, size: int, _: object) -> None:
        self.filled += size
        if size and not self.memory.holds(target, size):
            raise DeviceFault(f"{size} bytes that are to be filled leave their memory of the device")
        self._do(lambda: fill_bytes(target, value, size))
        self._do(self.memory.settle)

    def do_cuPointerGetAttribute(self, place: Any, code: int, address: int) -> int:
        if address not in self.elsewhere and not self.memory.holds(address, 1):
            return 1
        return super().do_cuPointerGetAttribute(place, code, address)

    def do_cuStreamBeginCapture(self, *_: object) -> None:
        super().do_cuStreamBeginCapture()
        self._recording = []

    def do_cuStreamEndCapture(self, stream: object, place: Any) -> None:
        super().do_cuStreamEndCapture(stream, place)
        self._works[place._obj.value], self._recording = self._recording or [], None

    def do_cuGraphInstantiateWithFlags(self, place: Any, graph: Any, flags: int) -> None:
        super().do_cuGraphInstantiateWithFlags(place, graph, flags)
        self._works[place._obj.value] = self._works[graph.value]

    def do_cuGraphLaunch(self, graph: int, stream: object) -> None:
        super().do_cuGraphLaunch(graph, stream)
        for work in self._works[graph]:
            work()

    def do_cuEventCreate(self, place: Any, _: int) -> None:
        self._number(place)

    def do_cuEventRecord(self, event: int, _: object) -> None:
        self._moments[event] = self._clock

    def do_cuEventElapsedTime(self, place: Any, first: int, last: int) -> None:
        place._obj.value = self._moments.get(last, 0.0) - self._moments.get(first, 0.0)

    def do_cuTensorMapEncodeTiled(self, target: int, kind: int, rank: int, address: int, *given: Any) -> int:
        shape, strides, box, *_ = given
        if (
            rank != 2
            or address % 16
            or strides[0] % 16
            or box[0] * ELEMENTS[kind] > 128
            or not 0 < box[1] <= 256
        ):
            return 1
        made = TensorMap(address, ELEMENTS[kind], (shape[0], shape[1]), strides[0], (box[0], box[1]))
        ctypes.memmove(target, made.encode(kind), 128)
        return 0

    def do_cuLibraryLoadData(self, place: Any, content: bytes, *_: object) -> None:
        module = read_ptx(content.rstrip(b"\0").decode())
        constants = {}
        for name, words in module.constants.items():
            constants[name] = self.memory.allocate(len(words))
            self.memory.view(constants[name], len(words))[...] = list(words)
        found = {name: Code(entry, constants, self.memory) for name, entry in module.entries.items()}
        self._modules[self._number(place)] = found

    def do_cuLibraryGetModule(self, place: Any, library: Any) -> None:
        place._obj.value = library.value

    def do_cuModuleGetFunction(self, place: Any, module: int, name: bytes) -> int | None:
        found = self._modules[module].get(name.decode())
        if found is None:
            return 500
        super().do_cuModuleGetFunction(place, module, name)
        self._kernels[place._obj.value] = found
        return 0

    def do_cuFuncSetAttribute(self, kernel: Any, _: int, size: int) -> int:
        self._shared[getattr(kernel, "value", kernel)] = size
        return int(size > self.attributes[97])

    def do_cuLaunchKernelEx(self, config: Any, kernel: int, arguments: Any, *_: object) -> int:
        super().do_cuLaunchKernelEx(config, kernel, arguments)
        told, code = config._obj, self._kernels[kernel]
        attributes = {
            told.attributes[number].id: int(told.attributes[number].value[0]) for number in range(told.count)
        }
        cluster, is_early = attributes.get(CLUSTER, 1), bool(attributes.get(EARLY))
        values = tuple(
            ctypes.cast(arguments[place], ctypes.POINTER(ctypes.c_uint64))[0]
            for place in range(len(code.entry.parameters))
        )
        if (
            told.local_bytes + code.entry.shared_bytes > max(49152, self._shared.get(kernel, 0))
            or told.x % cluster
            or not told.x
        ):
            return 1
        launch = Launch(
            int(told.x), (int(told.rows), int(told.columns)), int(told.local_bytes), cluster, values, is_early
        )
        self._clock += 0.01
        counts = None if self.counts is None else self.counts.setdefault(code.entry.name, Counts())
        self._do(lambda: run_launch(code, launch, self.seed, counts))
        return 0


@contextmanager
def emulated_device(seed: int = 0) -> Iterator[EmulatedDriver]:
    """Let this process have a GPU that computes."""
    found = EmulatedDriver(seed)
    with fake_device(found):
        yield found
