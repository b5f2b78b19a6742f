"""CUDA modules: PTX that the driver assembles (JIT), cached between processes, and the launch of a kernel."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from lamella.backend.cpu.compiled import KernelSymbol
from lamella.backend.cpu.jit import ObjectCache
from lamella.backend.cuda.binaries import Code, finished
from lamella.backend.cuda.driver import POINTER, Stream, call, device, driver_error, functions, release_with
from lamella.base.errors import InputError
from lamella.base.system import count_processors

PTX = 1
"""The kind of what the linker of the driver is given."""
ELF = b"\x7fELF"
LOG_BYTES = 1 << 14
DOING, REFUSALS = "assembling PTX", (200, 209, 218, 222, 223)
"""What the driver does with code, and its errors that are of code: no image, none for this device, wrong or new PTX."""
ERROR_LOG, ERROR_LOG_BYTES = 5, 6
SHARED_LIMIT = 8
MOST_LOADERS = 16
MOST_BLOCKS = (1 << 31) - 1
CLUSTER, EARLY = 4, 6
"""Attributes of a launch: how many blocks are a cluster, and that it may begin before the one before it has ended."""


def assemble_ptx(text: str, store: ObjectCache | None) -> bytes:
    """The machine code (cubin) of PTX for this device, cached; InputError with the driver's log."""
    here = device()
    parts = ("cubin", here.architecture, str(here.driver), text)
    key = hashlib.sha256("\0".join(parts).encode()).digest()
    found = None if store is None else store.get(key)
    if found is None:
        found = _link(text.encode())
        if store is not None:
            store.put(key, found)
    return found


def load_kernels(kernels: Iterable[DeviceKernel]) -> None:
    """Load code to the device, in several threads where the driver may have to assemble some of it."""
    waiting = [item for item in kernels if not item.is_there]
    threads = min(count_processors(), MOST_LOADERS, len(waiting))
    if threads < 2:
        for item in waiting:
            item.bring()
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(DeviceKernel.bring, waiting):
            pass


class _Log:
    """A buffer for the driver's log, and the options that name it."""

    def __init__(self) -> None:
        self._room = ctypes.create_string_buffer(LOG_BYTES)
        kinds = (ctypes.c_int * 2)(ERROR_LOG, ERROR_LOG_BYTES)
        values = (POINTER * 2)(ctypes.cast(self._room, POINTER), POINTER(LOG_BYTES))
        self.options = 2, kinds, values

    def verify(self, code: int) -> None:
        """InputError in the words of the driver where it refuses the code, or fails for another reason."""
        if not code:
            return
        error = driver_error(code, DOING)
        words = " ".join(self._room.value.decode("utf-8", "replace").split())
        if not words and code not in REFUSALS:
            raise error
        said = words or error.message
        raise InputError(f"the driver refuses code that the compiler wrote: {said}", hint="please report it")


def _link(text: bytes) -> bytes:
    log = _Log()
    state, made, size = POINTER(), POINTER(), ctypes.c_size_t()
    call("cuLinkCreate_v2", *log.options, ctypes.byref(state))
    try:
        # The text ends with a 0, which counts.
        given = ctypes.create_string_buffer(text)
        code = functions()["cuLinkAddData_v2"](state, PTX, given, len(given), b"kernels", 0, None, None)
        code = code or functions()["cuLinkComplete"](state, ctypes.byref(made), ctypes.byref(size))
        log.verify(code)
        return ctypes.string_at(made, size.value)
    finally:
        call("cuLinkDestroy", state)


class CudaModule:
    """A lazily loaded module; PTX is assembled by the driver, which caches it itself."""

    def __init__(self, content: Code) -> None:
        self._content = content
        self._handle = 0
        self._busy = threading.Lock()

    def find(self, entry: KernelSymbol) -> int:
        """The driver's handle of a kernel."""
        self.load()
        found, pipeline = POINTER(), entry.pipeline
        name = entry.symbol.encode()
        call("cuModuleGetFunction", ctypes.byref(found), self._handle, name, doing=f"finding @{entry.name}")
        if pipeline is not None:
            size = pipeline.local_bytes
            call("cuFuncSetAttribute", found, SHARED_LIMIT, size, doing=f"local memory of @{entry.name}")
        return found.value or 0

    @property
    def is_text(self) -> bool:
        """Whether the driver has to assemble it."""
        return isinstance(self._content, bytes) and not self._content.startswith(ELF)

    def wait(self) -> None:
        """Return when it is assembled, where a thread does that; InputError where the driver refuses it."""
        finished(self._content)

    def load(self) -> None:
        """Load it to the device, as a library (`cuLibraryLoadData`): several at once."""
        device()
        with self._busy:
            if self._handle:
                return
            library, module, log = POINTER(), POINTER(), _Log()
            count, kinds, values = log.options
            ways = (kinds, values, count, None, None, 0)
            content = finished(self._content)
            log.verify(functions()["cuLibraryLoadData"](ctypes.byref(library), content, *ways))
            release_with(self, "cuLibraryUnload", library.value or 0)
            call("cuLibraryGetModule", ctypes.byref(module), library, doing="loading code")
            self._handle = module.value or 0


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute`."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("x", "y", "z", "rows", "columns", "layers", "local_bytes")),
        ("stream", POINTER),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class DeviceKernel:
    """A kernel that can be launched; `place` says where its text stands."""

    def __init__(
        self, module: CudaModule, entry: KernelSymbol, block: tuple[int, int], place: str = ""
    ) -> None:
        self._module, self._entry = module, entry
        self._shown = f"@{entry.name}{f' ({place})' * bool(place)}"
        self.name, self.pipeline, self.block = entry.name, entry.pipeline, block
        self._handle = 0
        self._block, self._local_bytes, self._blocks = (block[0], block[1] * entry.together), 0, 0
        self._together, self._is_early = entry.together, entry.is_early
        if entry.pipeline is not None:
            self._block, self._local_bytes = (entry.pipeline.threads, 1), entry.pipeline.local_bytes
            self._blocks = device().multiprocessors

    @property
    def is_there(self) -> bool:
        """Whether its code is on the device."""
        return bool(self._handle)

    def wait(self) -> None:
        """Return when its code is assembled; InputError where the driver refuses it."""
        self._module.wait()

    def bring(self) -> None:
        """Bring its code to the device."""
        if not self._handle:
            self._handle = self._module.find(self._entry)

    def launch(
        self, stream: Stream, slots: int, groups: int, is_first: bool = False, place: str = ""
    ) -> None:
        """Launch some work-groups; slots, and tensor maps behind them, are at an address on the device.

        The first of a list starts when all before it has ended, even with programmatic dependent launch. An error names
        the kernel, and the place of what it computes where that is known.
        """
        self.bring()
        # Of this call: other threads may launch the same kernel.
        values = (ctypes.c_uint64 * 2)(slots, groups)
        first = ctypes.addressof(values)
        arguments = (POINTER * 2)(first, first + ctypes.sizeof(ctypes.c_uint64))
        cluster = 1 if self.pipeline is None else self.pipeline.cluster
        cluster = cluster if groups % cluster == 0 else 1
        blocks = -(-groups // self._together)
        if self._blocks:
            blocks = min(groups, self._blocks - self._blocks % cluster or cluster)
        if blocks > MOST_BLOCKS:
            hint = "several launches, each with a part of the arrays"
            raise InputError(
                f"@{self.name} has {groups} work-groups, and a GPU takes {MOST_BLOCKS}", hint=hint
            )
        given = [(CLUSTER, (cluster, 1, 1))] if cluster > 1 else []
        given += [(EARLY, (1, 0, 0))] if self._is_early and not is_first else []
        listed = (_Attribute * 2)(*(_Attribute(key, 0, (ctypes.c_uint32 * 16)(*item)) for key, item in given))
        config = _Config(
            blocks,
            1,
            1,
            *self._block,
            1,
            self._local_bytes,
            stream.handle,
            ctypes.cast(listed, ctypes.POINTER(_Attribute)),
            len(given),
        )
        shown = f"@{self.name} ({place})" if place else self._shown
        stream.launched.append(shown)
        doing = f"launching {shown}"
        call("cuLaunchKernelEx", ctypes.byref(config), self._handle, arguments, None, doing=doing)
        stream.settle(f"running {shown}")
