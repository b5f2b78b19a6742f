"""A driver of GPUs that computes nothing: memory is that of the host, and launches are noted.

What is copied where, what is launched in which order and what is compiled can be judged with it on any machine.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest

from lamella.backend.cuda import driver, greedy

ATTRIBUTES = {16: 132, 75: 9, 76: 0, 97: 232448, 38: 60 << 20}
ALIGNMENT = 256
ERRORS = {
    2: b"CUDA_ERROR_OUT_OF_MEMORY",
    201: b"CUDA_ERROR_INVALID_CONTEXT",
    101: b"CUDA_ERROR_INVALID_DEVICE",
    700: b"CUDA_ERROR_ILLEGAL_ADDRESS",
    803: b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
}
INVALID_CONTEXT, ILLEGAL_ADDRESS = 201, 700
FREE = ("cuInit", "cuDriver", "cuDevice", "cuCtxSetCurrent", "cuGetError")
"""How functions begin that need no context in the thread that calls them."""


class _Function:
    """A function of the library, whose types may be set."""

    argtypes: object = None
    restype: object = None

    def __init__(self, work: Callable[..., int | None]) -> None:
        self._work = work

    def __call__(self, *given: Any) -> int:
        return self._work(*given) or 0


class FakeDriver:
    """The library as `driver.functions` loads it."""

    def __init__(self) -> None:
        self.launches: list[tuple[str, int]] = []
        """Symbols of kernels that ran, with their blocks."""
        self.to_device = self.to_host = self.filled = 0
        """Bytes that were copied, and that were made zero."""
        self.streams: set[int] = set()
        """Streams that are there."""
        self.graphs = 0
        """Launch graphs that were made."""
        self.waits: list[int | None] = []
        """Streams that were waited for; None for all of them."""
        self.elsewhere: dict[int, int] = {}
        """Addresses of other devices, by their numbers; those below 0 are of none."""
        self.version, self.devices = 13000, 1
        self.attributes = dict(ATTRIBUTES)
        self.failures: dict[str, int] = {}
        """Functions that fail, with their codes."""
        self.lacking: set[str] = set()
        """Functions that are not there."""
        self.breaks_at: int | None = None
        """The launch that touches memory which it must not."""
        self._numbers = count(16)
        self._here = threading.local()
        """The context of each thread."""
        self._memory: dict[int, Any] = {}
        self._symbols: dict[int, str] = {}
        self._recorded: list[tuple[str, int]] | None = None
        self._made: dict[int, list[tuple[str, int]]] = {}
        self._linked = threading.local()

    # --- what the tests look at, each called as the driver is ---------------------------------------------------

    def bind(self) -> Any:
        """The library, whose functions know this object."""
        owner = self

        class Library:
            def __getattr__(self, name: str) -> _Function:
                if name in owner.lacking:
                    raise AttributeError(name)
                found = getattr(owner, f"do_{name.removesuffix('_v2')}", None)

                def work(*given: Any) -> int | None:
                    is_lost = not name.startswith(FREE) and not hasattr(owner._here, "context")
                    code = INVALID_CONTEXT if is_lost else owner.failures.get(name)
                    return code or (found and found(*given))

                return _Function(work)

        return Library()

    def _number(self, place: Any) -> int:
        place._obj.value = next(self._numbers)
        return int(place._obj.value)

    def do_cuDriverGetVersion(self, place: Any) -> None:
        place._obj.value = self.version

    def do_cuGetErrorName(self, code: int, place: Any) -> None:
        place._obj.value = ERRORS.get(code)

    def do_cuDeviceGetCount(self, place: Any) -> None:
        place._obj.value = self.devices

    def do_cuDeviceGetAttribute(self, place: Any, code: int, _: object) -> None:
        place._obj.value = self.attributes[code]

    def do_cuDevicePrimaryCtxRetain(self, place: Any, _: object) -> None:
        self._number(place)

    def do_cuMemGetInfo(self, free: Any, total: Any) -> None:
        free._obj.value = total._obj.value = 1 << 33

    def do_cuMemAlloc(self, place: Any, size: int) -> None:
        room = np.zeros(size + ALIGNMENT, np.uint8)
        place._obj.value = -(-room.ctypes.data // ALIGNMENT) * ALIGNMENT
        self._memory[place._obj.value] = room

    def do_cuMemFree(self, address: int) -> int | None:
        self._memory.pop(address, None)
        return None

    def do_cuMemHostAlloc(self, place: Any, size: int, _: int) -> None:
        self.do_cuMemAlloc(place, size)

    def do_cuMemFreeHost(self, address: int) -> int | None:
        return self.do_cuMemFree(address)

    def do_cuMemcpyHtoDAsync(self, target: int, source: int, size: int, _: object) -> None:
        self.to_device += size
        ctypes.memmove(target, source, size)

    def do_cuMemcpyDtoHAsync(self, target: int, source: int, size: int, _: object) -> None:
        self.to_host += size
        ctypes.memmove(target, source, size)

    def do_cuMemcpyDtoDAsync(self, target: int, source: int, size: int, _: object) -> None:
        ctypes.memmove(target, source, size)

    def do_cuMemsetD8Async(self, target: int, value: int, size: int, _: object) -> None:
        self.filled += size
        ctypes.memset(target, value, size)

    def do_cuCtxSetCurrent(self, context: int) -> None:
        self._here.context = context

    def do_cuCtxSynchronize(self) -> None:
        self.waits.append(None)

    def do_cuStreamSynchronize(self, stream: int) -> int:
        self.waits.append(stream)
        is_broken = self.breaks_at is not None and len(self.launches) > self.breaks_at
        return ILLEGAL_ADDRESS if is_broken else 0

    def do_cuPointerGetAttribute(self, place: Any, _: int, address: int) -> int:
        place._obj.value = self.elsewhere.get(address, 0)
        return int(place._obj.value < 0)

    def do_cuStreamCreate(self, place: Any, _: int) -> None:
        self.streams.add(self._number(place))

    def do_cuStreamDestroy(self, stream: int) -> None:
        self.streams.remove(stream)

    def do_cuStreamBeginCapture(self, *_: object) -> None:
        self._recorded = []

    def do_cuStreamEndCapture(self, _: object, place: Any) -> None:
        self._made[self._number(place)], self._recorded = self._recorded or [], None

    def do_cuGraphInstantiateWithFlags(self, place: Any, graph: Any, _: int) -> None:
        self.graphs += 1
        self._made[self._number(place)] = self._made[graph.value]

    def do_cuGraphLaunch(self, graph: int, _: object) -> None:
        self.launches += self._made[graph]

    def do_cuLinkAddData(self, _: object, __: int, given: Any, size: int, *___: object) -> None:
        self._linked.content = ctypes.create_string_buffer(given.raw[:size], size)

    def do_cuLinkComplete(self, _: object, place: Any, size: Any) -> None:
        place._obj.value = ctypes.addressof(self._linked.content)
        size._obj.value = len(self._linked.content)

    def do_cuLibraryLoadData(self, place: Any, content: bytes, *_: object) -> None:
        self._number(place)

    def do_cuLibraryGetModule(self, place: Any, _: object) -> None:
        self._number(place)

    def do_cuModuleGetFunction(self, place: Any, module: int, name: bytes) -> int | None:
        self._symbols[self._number(place)] = name.decode()
        return None

    def do_cuLaunchKernelEx(self, config: Any, kernel: int, arguments: Any, *_: object) -> int | None:
        row = self._symbols[kernel], int(config._obj.x)
        (self.launches if self._recorded is None else self._recorded).append(row)
        return None


@contextmanager
def fake_device(driver_: FakeDriver | None = None) -> Iterator[FakeDriver]:
    """Let this process have a GPU that computes nothing."""
    found, load = driver_ or FakeDriver(), ctypes.CDLL
    caches = (driver.functions, driver._open, driver._made_stream, greedy._kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ctypes, "CDLL", lambda name, *_: found.bind() if name == driver.LIBRARY else load(name, *_)
        )
        for item in caches:
            item.cache_clear()
        driver.functions()
    try:
        yield found
    finally:
        gc.collect()  # what lies in this memory is given back to this driver
        for item in caches:
            item.cache_clear()
