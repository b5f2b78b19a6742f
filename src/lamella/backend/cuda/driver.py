"""The CUDA driver API through ctypes: device, memory, streams, events, modules, graphs; nothing else is needed.

Everything runs in the primary context of the device, which other libraries of the process share: their pointers are
ours. A call that fails is a finding in the driver's own words, with what was being done.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from lamella.base.child_process import PARKED
from lamella.base.errors import InputError
from lamella.base.records import dataclass

LIBRARY = "libcuda.so.1"
OLDEST = 12000
"""The version of CUDA that the driver must know: that of the first one that takes launches with attributes."""
OLDEST_TEXT = {"sm_90a": 12030}
"""The same where the PTX of a device needs a later one."""
OUT_OF_MEMORY, NO_DEVICE = 2, 100
LEAST, TENSOR_CORES, HOPPER = (7, 5), 8, (9, 0)
"""The first capability that has all instructions, the first whose tensor cores take bf16, and the one with warpgroups
and a copy engine."""
POINTER, SIZE, INT, UNSIGNED = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint
ADDRESS = ctypes.c_uint64
OPTIONS = (UNSIGNED, POINTER, POINTER)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (UNSIGNED,),
    "cuDriverGetVersion": (POINTER,),
    "cuDeviceGetCount": (POINTER,),
    "cuDeviceGet": (POINTER, INT),
    "cuDeviceGetName": (POINTER, INT, INT),
    "cuDeviceGetAttribute": (POINTER, INT, INT),
    "cuDevicePrimaryCtxRetain": (POINTER, INT),
    "cuCtxSetCurrent": (POINTER,),
    "cuCtxSynchronize": (),
    "cuPointerGetAttribute": (POINTER, INT, ADDRESS),
    "cuMemGetInfo_v2": (POINTER, POINTER),
    "cuMemAlloc_v2": (POINTER, SIZE),
    "cuMemFree_v2": (ADDRESS,),
    "cuMemHostAlloc": (POINTER, SIZE, UNSIGNED),
    "cuMemFreeHost": (POINTER,),
    "cuMemcpyHtoDAsync_v2": (ADDRESS, POINTER, SIZE, POINTER),
    "cuMemcpyDtoHAsync_v2": (POINTER, ADDRESS, SIZE, POINTER),
    "cuMemcpyDtoDAsync_v2": (ADDRESS, ADDRESS, SIZE, POINTER),
    "cuMemsetD8Async": (ADDRESS, ctypes.c_ubyte, SIZE, POINTER),
    "cuStreamCreate": (POINTER, UNSIGNED),
    "cuStreamDestroy_v2": (POINTER,),
    "cuStreamSynchronize": (POINTER,),
    "cuStreamWaitEvent": (POINTER, POINTER, UNSIGNED),
    "cuStreamBeginCapture_v2": (POINTER, INT),
    "cuStreamEndCapture": (POINTER, POINTER),
    "cuEventCreate": (POINTER, UNSIGNED),
    "cuEventDestroy_v2": (POINTER,),
    "cuEventRecord": (POINTER, POINTER),
    "cuEventSynchronize": (POINTER,),
    "cuEventElapsedTime": (POINTER, POINTER, POINTER),
    "cuGraphInstantiateWithFlags": (POINTER, POINTER, ctypes.c_ulonglong),
    "cuGraphLaunch": (POINTER, POINTER),
    "cuGraphExecDestroy": (POINTER,),
    "cuGraphDestroy": (POINTER,),
    "cuLibraryLoadData": (POINTER, POINTER, POINTER, POINTER, UNSIGNED, POINTER, POINTER, UNSIGNED),
    "cuLibraryGetModule": (POINTER, POINTER),
    "cuLibraryUnload": (POINTER,),
    "cuModuleGetFunction": (POINTER, POINTER, ctypes.c_char_p),
    "cuFuncSetAttribute": (POINTER, INT, INT),
    "cuLaunchKernel": (POINTER, *(UNSIGNED,) * 7, POINTER, POINTER, POINTER),
    "cuLaunchKernelEx": (POINTER, POINTER, POINTER, POINTER),
    "cuLinkCreate_v2": (*OPTIONS, POINTER),
    "cuLinkAddData_v2": (POINTER, INT, POINTER, SIZE, ctypes.c_char_p, *OPTIONS),
    "cuLinkComplete": (POINTER, POINTER, POINTER),
    "cuLinkDestroy": (POINTER,),
    "cuTensorMapEncodeTiled": (
        POINTER,
        INT,
        UNSIGNED,
        ADDRESS,
        *(POINTER,) * 4,
        *(INT,) * 4,
    ),
    "cuGetErrorName": (INT, POINTER),
    "cuGetErrorString": (INT, POINTER),
}
"""The parameters of each function that we call."""
LAST_KERNELS = 4
"""Kernels that are named where one of them has failed: the device tells nobody which."""
BLOCKING = "CUDA_LAUNCH_BLOCKING"
"""The variable that lets each launch end before the next begins, so that the one that fails is known."""
COPIES = ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async")
ON_STREAMS = frozenset((*COPIES, "cuEventRecord", "cuStreamWaitEvent", "cuLaunchKernelEx", "cuGraphLaunch"))
"""Functions that give work to a stream."""
WORK = threading.RLock()
"""The lock of who gives work to a stream, waits for one, or captures a graph: others do nothing meanwhile."""
RELAXED = 2
"""The capture mode: memory may be allocated and freed meanwhile, by whoever collects garbage."""
ATTRIBUTES = {"multiprocessors": 16, "major": 75, "minor": 76, "shared_bytes": 97, "l2_bytes": 38}


@cache
def functions() -> dict[str, Callable[..., int]]:
    """The functions of the driver; OSError where there is none, AttributeError with the name of one that it lacks."""
    library = ctypes.CDLL(LIBRARY)
    found: dict[str, Callable[..., int]] = {}
    for name, parameters in SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            raise AttributeError(name)
        function.argtypes, function.restype = parameters, INT
        found[name] = function
    return found


def find_library(names: Sequence[str], wheels: Sequence[str]) -> ctypes.CDLL | None:
    """A library under one of its names, else where packages of Python put it; None where there is none."""
    for name in (*names, *_wheel_files(names, wheels)):
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _wheel_files(names: Sequence[str], wheels: Sequence[str]) -> Iterator[str]:
    for folder in dict.fromkeys((*map(sysconfig.get_path, ("purelib", "platlib")), *sys.path)):
        for part in wheels:
            for name in names:
                path = Path(folder, part, name)
                if path.exists():
                    yield str(path)


def call(name: str, *arguments: object, doing: str = "") -> None:
    """Call the driver; InputError in its words where it fails."""
    function = functions()[name]
    if name in ON_STREAMS:
        with WORK:
            code = function(*arguments)
    else:
        code = function(*arguments)
    if code:
        raise driver_error(code, doing or name)


def release_with(owner: object, name: str, handle: int) -> None:
    """Let the driver take something back when its owner is gone; it takes everything back from a process that ends."""
    enter, release, here = functions()["cuCtxSetCurrent"], functions()[name], _open()
    context = here.context if isinstance(here, Device) else 0
    weakref.finalize(owner, _release, enter, context, release, handle).atexit = False


def _release(enter: Callable[..., int], context: int, release: Callable[..., int], handle: int) -> None:
    """Give something back from whichever thread dropped it."""
    enter(context)
    release(handle)


def driver_error(code: int, doing: str, launched: Sequence[str] = ()) -> InputError:
    """The finding of a failed call, with the kernels that were launched last."""
    if code == OUT_OF_MEMORY:
        hint = "a smaller batch, or a device with more memory"
    else:
        hint = (
            "once a kernel has failed, all later calls of the process do; "
            f"{BLOCKING}=1 names the one that failed, compute-sanitizer finds the access"
        )
    after = f", after {', '.join(launched)}" if launched else ""
    return InputError(f"the GPU failed at '{doing}'{after}: {_words(code)}", hint=hint)


def _words(code: int) -> str:
    """What the driver says of an error."""
    told = (_text(name, code) for name in ("cuGetErrorName", "cuGetErrorString"))
    return " ".join(filter(None, told)) or f"error {code}"


def is_blocking() -> bool:
    """Whether launches are synchronous (`CUDA_LAUNCH_BLOCKING`)."""
    return os.environ.get(BLOCKING, "") not in ("", "0")


def _text(function: str, code: int) -> str:
    place = ctypes.c_char_p()
    functions()[function](code, ctypes.byref(place))
    return (place.value or b"").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, its context being current."""

    name: str
    multiprocessors: int
    major: int
    minor: int
    shared_bytes: int
    """Shared memory of a block."""
    l2_bytes: int
    driver: int
    """The version of CUDA that the driver knows, as 1000 major + 10 minor."""
    context: int

    @property
    def memory_bytes(self) -> int:
        """All memory of the device, whoever has it."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value

    @property
    def architecture(self) -> str:
        """How LLVM names it: instructions of Hopper alone have a name of their own."""
        return "sm_90a" if (self.major, self.minor) == (9, 0) else f"sm_{self.major}{self.minor}"


@cache
def _open() -> Device | str:
    """The first GPU, or why there is none."""
    try:
        code = functions()["cuInit"](0)
    except OSError:
        return f"there is no driver of an NVIDIA GPU here ({LIBRARY} does not load)"
    except AttributeError as problem:
        return f"the driver of the GPU has no '{problem}': that of CUDA 12.0 is the oldest that will do"
    if code == NO_DEVICE:
        return "there is no NVIDIA GPU here"
    try:
        return f"the driver of the GPU does not start: {_words(code)}" if code else _first()
    except InputError as problem:
        return problem.message


def _first() -> Device | str:
    version, count = ctypes.c_int(), ctypes.c_int()
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGetCount", ctypes.byref(count))
    if not count.value:
        return "there is no NVIDIA GPU here"
    found = _describe(version.value) if version.value >= OLDEST else None
    if found is not None and (found.major, found.minor) < LEAST:
        return f"{found.name} has capability {found.major}.{found.minor}, and 7.5 is the least that will do"
    oldest = OLDEST if found is None else OLDEST_TEXT.get(found.architecture, OLDEST)
    if found is not None and version.value >= oldest:
        return found
    return f"the driver of the GPU knows CUDA {_shown(version.value)}, and {_shown(oldest)} is the oldest that will do"


def _shown(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _describe(version: int) -> Device:
    number, name, context = ctypes.c_int(), ctypes.create_string_buffer(100), POINTER()
    call("cuDeviceGet", ctypes.byref(number), 0)
    call("cuDeviceGetName", name, len(name), number)
    found = {}
    for word, code in ATTRIBUTES.items():
        value = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(value), code, number)
        found[word] = value.value
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number, doing="opening the GPU")
    title = name.value.decode("utf-8", "replace")
    return Device(name=title, driver=version, context=context.value or 0, **found)


_OPENING = threading.Lock()


def _opened() -> Device | str:
    """The same, opened by one thread; others wait for it."""
    with _OPENING:
        return _open()


def start() -> None:
    """Open the device in another thread, which takes a while; who asks for it waits until it is there."""
    threading.Thread(target=_try_open, name=PARKED).start()


def _try_open() -> None:
    with suppress(InputError):  # who asks for the device is told
        _opened()


def missing() -> str | None:
    """Why no kernel can run on a GPU here; None where one can."""
    found = _opened()
    return found if isinstance(found, str) else None


def describe() -> list[str]:
    """A description of the NVIDIA GPUs here, a line each: the driver, the device, what it lacks or why none."""
    found = _opened()
    if isinstance(found, str):
        return [found]
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuCtxSetCurrent", found.context)
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    lines = [
        f"driver: CUDA {_shown(found.driver)}",
        f"device 0: {found.name}, {found.architecture}, {found.multiprocessors} multiprocessors, "
        f"{free.value >> 20} of {total.value >> 20} MiB free, {found.l2_bytes >> 20} MiB of L2, "
        f"{found.shared_bytes >> 10} KiB of local memory for a work-group",
    ]
    if found.major < TENSOR_CORES:
        lines.append("no tensor cores for bf16: products are multiplied and added one by one")
    elif (found.major, found.minor) != HOPPER:
        lines.append("no wgmma and no copy engine: products run on mma.sync")
    return lines


def device() -> Device:
    """The GPU of this process, its context current in this thread; InputError where there is none."""
    found = _opened()
    if isinstance(found, str):
        raise InputError(found, hint="lamella doctor says what runs here")
    call("cuCtxSetCurrent", found.context)
    return found


# --- streams, events ------------------------------------------------------------------------------------------


class Stream:
    """A CUDA stream: work in order; the stream 0 is the one that other libraries use unless they are told."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = handle or 0
        self.launched: deque[str] = deque(maxlen=LAST_KERNELS)
        """The last kernels that it was given, with their places in the text."""
        self.is_recording = False
        """Whether launches are captured, and do not run yet."""
        if handle is None:
            made = POINTER()
            call("cuStreamCreate", ctypes.byref(made), 1)
            self.handle = made.value or 0
            release_with(self, "cuStreamDestroy_v2", self.handle)

    def wait(self, doing: str = "waiting for the device") -> None:
        """Synchronize; errors of kernels are raised here."""
        with WORK:
            code = functions()["cuStreamSynchronize"](self.handle)
            launched = tuple(self.launched)
            self.launched.clear()
        if code:
            raise driver_error(code, doing, launched)

    def wait_for(self, event: Event) -> None:
        """Let all that is given from now on wait for an event of another stream; the host goes on."""
        call("cuStreamWaitEvent", self.handle, event.handle, 0)

    def settle(self, doing: str) -> None:
        """Wait until a launch is done, where each is to end before the next begins."""
        if is_blocking() and not self.is_recording:
            self.wait(doing)


class Event:
    """A CUDA event."""

    def __init__(self) -> None:
        made = POINTER()
        call("cuEventCreate", ctypes.byref(made), 0)
        self.handle = made.value or 0
        release_with(self, "cuEventDestroy_v2", self.handle)

    def record(self, stream: Stream) -> None:
        """Record the event behind all that the stream was given so far."""
        call("cuEventRecord", self.handle, stream.handle)

    def wait(self, doing: str) -> None:
        """Wait until it is."""
        call("cuEventSynchronize", self.handle, doing=doing)

    def seconds_since(self, other: Event) -> float:
        """The time between two moments; waits for both."""
        found = ctypes.c_float()
        call("cuEventSynchronize", self.handle)
        call("cuEventElapsedTime", ctypes.byref(found), other.handle, self.handle)
        return found.value / 1e3


def own_stream() -> Stream:
    """The stream on which this package works, the device being that of the thread that asks."""
    device()
    with WORK:
        return _made_stream()


@cache
def _made_stream() -> Stream:
    return Stream()


# --- graphs: many launches as one --------------------------------------------------------------------------------


class LaunchGraph:
    """A CUDA graph: launches that were captured once and are given to the device in one call."""

    def __init__(self, stream: Stream, record: Callable[[], None]) -> None:
        graph, made = POINTER(), POINTER()
        with WORK:
            before = tuple(stream.launched)
            call("cuStreamBeginCapture_v2", stream.handle, RELAXED)
            stream.launched.clear()
            stream.is_recording = True
            try:
                record()
                self._launched = tuple(stream.launched)
                """The last kernels of it."""
            finally:
                stream.is_recording = False
                stream.launched.clear()
                stream.launched.extend(before)
                # What fails while it is recorded says more than the end does.
                code = functions()["cuStreamEndCapture"](stream.handle, ctypes.byref(graph))
        if code:
            raise driver_error(code, "recording launches", self._launched)
        call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0, doing="making a launch graph")
        call("cuGraphDestroy", graph)
        self._stream, self._handle = stream, made.value or 0
        release_with(self, "cuGraphExecDestroy", self._handle)

    def launch(self) -> None:
        """Run it once more."""
        self._stream.launched.extend(self._launched)
        call("cuGraphLaunch", self._handle, self._stream.handle, doing="launching a graph of kernels")
