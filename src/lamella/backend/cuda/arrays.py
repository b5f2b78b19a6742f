"""Arrays in device memory, shared with other libraries without a copy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import index
from typing import Any, cast

import ml_dtypes
import numpy as np

from lamella.backend.cuda.dlpack import (
    CUDA,
    HOST,
    KINDS,
    MANAGED,
    MOST_AXES,
    ArrayLayout,
    make_capsule,
    packed_strides,
    take_capsule,
)
from lamella.backend.cuda.driver import POINTER, Stream, call, device, functions, own_stream, release_with
from lamella.base.arrays import Array, DType
from lamella.base.errors import InputError
from lamella.base.records import dataclass

ORDINAL = 9
"""The attribute of an address that says which device has it."""
HALVES = ("<V2", "|V2")
"""How bfloat16 calls itself where NumPy has no letter for it."""
STANDARD = 1
"""The stream that all others wait for."""
ARRAYS = "an array of NumPy, or one of a GPU that has DLPack or __cuda_array_interface__"
WAITING = "waiting for an array of another library"


class DeviceMemory:
    """A device allocation, freed with this object; at a multiple of 256 bytes."""

    def __init__(self, size: int) -> None:
        device()
        found = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(found), max(size, 1), doing=f"allocating {size} bytes")
        self.address, self.size = found.value, size
        release_with(self, "cuMemFree_v2", self.address)

    def write(self, source: int, size: int, stream: Stream, offset: int = 0) -> None:
        """Copy bytes of the host to here; they must stay as they are until the stream has come so far."""
        if size:
            place = self.address + offset
            call("cuMemcpyHtoDAsync_v2", place, source, size, stream.handle, doing="copying to the device")

    def read(self, target: int, size: int, stream: Stream, offset: int = 0) -> None:
        """Copy bytes from here to the host."""
        if size:
            place = self.address + offset
            call("cuMemcpyDtoHAsync_v2", target, place, size, stream.handle, doing="copying from the device")

    def take(self, other: DeviceMemory, stream: Stream) -> None:
        """Copy all bytes of other memory of the device to here."""
        call("cuMemcpyDtoDAsync_v2", self.address, other.address, other.size, stream.handle)

    def fill(self, stream: Stream) -> None:
        """Make all bytes zero."""
        call("cuMemsetD8Async", self.address, 0, self.size, stream.handle)


class PinnedMemory:
    """Pinned (page-locked) host memory, for asynchronous copies."""

    def __init__(self, size: int) -> None:
        device()
        found = POINTER()
        call("cuMemHostAlloc", ctypes.byref(found), max(size, 1), 0, doing=f"pinning {size} bytes")
        self.address, self.size = found.value or 0, size
        release_with(self, "cuMemFreeHost", self.address)

    def bytes(self) -> Array:
        """The memory as an array, which must not outlive this object."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.address))


@dataclass(frozen=True, slots=True)
class _Place:
    """An array as NumPy is told of it: nobody reads the memory at this address here."""

    __array_interface__: dict[str, object]


class DeviceArray:
    """A device array: shape, element type, strides in bytes; kernels update it in place."""

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        dtype: DType,
        strides: Sequence[int] | None = None,
        owner: object = None,
        is_writable: bool = True,
    ) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        steps = packed_strides(self.shape, self.dtype.itemsize)
        self.strides = steps if strides is None else tuple(strides)
        self.is_writable = is_writable
        """Whether kernels may write it."""
        self.owner = owner
        """What keeps its memory."""

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on the GPU; numpy() copies it to the host)"

    @property
    def is_dense(self) -> bool:
        """Whether it lies row by row, without gaps."""
        steps = zip(self.shape, self.strides, packed_strides(self.shape, self.dtype.itemsize), strict=True)
        return all(size == 1 or given == packed for size, given, packed in steps) or not self.nbytes

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """What CuPy, Numba and torch read."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, not self.is_writable),
            "strides": self.strides,
            "version": 3,
            "stream": own_stream().handle,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where it is, as DLPack says it."""
        return CUDA, 0

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule that other libraries take over without a copy; all work on it is done, whatever their stream."""
        if copy or dl_device not in (None, (CUDA, 0)):
            raise BufferError("an array of a GPU is handed over where it lies; numpy() copies it to the host")
        own_stream().wait()
        layout = ArrayLayout(self.address, self.shape, self.dtype, self.strides, self.is_writable, self)
        return make_capsule(layout, max_version is not None and max_version[0] >= 1)

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> Array:
        """A copy on the host, for those that want an array of NumPy."""
        if copy is False:
            raise ValueError("an array of a GPU comes to the host as a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def numpy(self) -> Array:
        """A copy on the host, in row-major order."""
        low, high = _bounds(self)
        room = np.empty(high - low, np.uint8)
        if room.nbytes:
            stream = own_stream()
            call("cuMemcpyDtoHAsync_v2", room.ctypes.data, self.address + low, room.nbytes, stream.handle)
            stream.wait()
        whole: Array = np.ndarray(self.shape, self.dtype, room, -low, self.strides)
        return np.ascontiguousarray(whole).reshape(self.shape)

    def stand_in(self) -> Array:
        """An array of this layout at this address, which NumPy can describe and nobody may read."""
        # NumPy does not know types of 8 bits by what they call themselves.
        known = self.dtype.kind in KINDS and (self.dtype.itemsize > 1 or self.dtype.kind != "f")
        kind = self.dtype.str if known else f"|V{self.dtype.itemsize}"
        place = {
            "shape": self.shape,
            "typestr": kind,
            "data": (self.address, not self.is_writable),
            "strides": self.strides,
            "version": 3,
        }
        found: Array = np.asarray(_Place(place))
        return found if found.dtype == self.dtype else found.view(self.dtype)


def _bounds(array: DeviceArray) -> tuple[int, int]:
    """The first byte of an array, and the one behind its last, counted from its first element."""
    if not prod(array.shape):
        return 0, 0
    ends = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    return sum(min(0, end) for end in ends), array.dtype.itemsize + sum(max(0, end) for end in ends)


class BorrowedMemory(DeviceMemory):
    """The bytes of an array of the device that lies row by row."""

    def __init__(self, array: DeviceArray) -> None:
        self.address, self.size, self._array = array.address, array.nbytes, array


# --- arrays of other libraries ---------------------------------------------------------------------------------


def lies_on_device(given: object) -> bool:
    """Whether somebody gives an array of a GPU, of whatever library."""
    if isinstance(given, DeviceArray):
        return True
    where = _device_of(given)
    if where is not None:
        return where[0] in (CUDA, MANAGED)
    try:
        return hasattr(given, "__cuda_array_interface__")
    except (RuntimeError, TypeError):
        return True  # which `to_device` explains


def _device_of(given: object) -> tuple[int, int] | None:
    """The kind and the number of the device on which an array lies, where it says so by DLPack."""
    try:
        kind, number = cast(Any, given).__dlpack_device__()
        return int(kind), int(number)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None


def to_device(array: object) -> DeviceArray:
    """A device array: a copy of a host array, or another library's as it lies.

    What that library has begun to do with it is done before anything that this package does from then on.
    """
    if isinstance(array, DeviceArray):
        return array
    if isinstance(array, np.ndarray):
        return _copied(array)
    where = _device_of(array)
    if where is not None and where[0] == HOST:
        raise InputError(f"{_shown(array)} lies on the host", hint="give it as an array of NumPy")
    return _shared(array) if where is not None else _adopted(array)


def _copied(array: Array) -> DeviceArray:
    if array.dtype.hasobject:
        raise InputError("an array of objects of Python cannot be copied to a GPU")
    dense = np.require(array, requirements=["C"])
    memory, stream = DeviceMemory(dense.nbytes), own_stream()
    memory.write(dense.ctypes.data, dense.nbytes, stream)
    stream.wait()
    return DeviceArray(memory.address, dense.shape, dense.dtype, owner=memory)


def _shown(given: object) -> str:
    return f"what is of type '{type(given).__name__[:80]}'"


def _shared(given: object) -> DeviceArray:
    """An array that its library hands over by DLPack, on our stream."""
    stream, hand = own_stream().handle, getattr(given, "__dlpack__", None)
    capsule = None if hand is None else _asked(given, lambda: _handed(hand, stream))
    found = take_capsule(capsule)
    _require_first(*found.device)
    return DeviceArray(found.address, found.shape, found.dtype, found.strides, found.owner, found.is_writable)


def _handed(hand: Callable[..., object], stream: int) -> object:
    try:
        return hand(stream=stream, max_version=(1, 1))
    except TypeError:  # which older libraries say of words that they do not know
        return hand(stream=stream)


def _asked(given: object, ask: Callable[[], object]) -> object:
    """What another library answers; InputError in its words where it refuses."""
    try:
        return ask()
    except (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError) as problem:
        message = f"{_shown(given)} is no array of the host or of the device: {problem}"
        raise InputError(message, hint=ARRAYS) from None


def _adopted(given: object) -> DeviceArray:
    """An array that describes itself by `__cuda_array_interface__`."""
    told = _asked(given, lambda: getattr(given, "__cuda_array_interface__", None))
    if told is None:
        raise InputError(f"{_shown(given)} is no array of the host or of the device", hint=ARRAYS)
    found = cast(DeviceArray, _asked(given, lambda: _described(given, cast(Any, told))))
    if found.nbytes:
        _require_memory(found.address)
        _asked(given, lambda: _wait_for(cast(Any, told)))
    return found


def _described(given: object, told: Mapping[str, Any]) -> DeviceArray:
    """An array as its library describes it; TypeError and the like where nobody could read that."""
    (address, is_fixed), shape = told["data"], tuple(map(index, told["shape"]))
    strides = None if told.get("strides") is None else tuple(map(index, told["strides"]))
    if told.get("mask") is not None or any(size < 0 for size in shape) or len(shape) > MOST_AXES:
        raise ValueError(f"it has a mask, sizes below 0, or more than {MOST_AXES} axes")
    if strides is not None and len(strides) != len(shape):
        raise ValueError("it has other strides than axes")
    kind = np.dtype(ml_dtypes.bfloat16 if told["typestr"] in HALVES else told["typestr"])
    if kind.hasobject:
        raise TypeError("it has objects of Python")
    return DeviceArray(int(address or 0), shape, kind, strides, given, not is_fixed)


def _require_memory(address: int) -> None:
    """InputError for an address that is none of the device on which kernels run."""
    number = ctypes.c_int()
    device()
    if functions()["cuPointerGetAttribute"](ctypes.byref(number), ORDINAL, address):
        raise InputError("an array that says that it lies on a GPU does not")
    _require_first(CUDA, number.value)


def _require_first(kind: int, number: int) -> None:
    if kind not in (CUDA, MANAGED) or number:
        hint = "CUDA_VISIBLE_DEVICES says which device is the first"
        where = f"device {number}" if kind == CUDA else f"a device of kind {kind}"
        raise InputError(f"an array lies on {where}, and kernels run on device 0", hint=hint)


def _wait_for(told: Mapping[str, Any]) -> None:
    """Wait until an array is there: for the stream that makes it, for all where nobody says which; None is no one."""
    if "stream" not in told:
        call("cuCtxSynchronize", doing=WAITING)
    elif told["stream"] is not None:
        Stream(int(told["stream"]) or STANDARD).wait(WAITING)
