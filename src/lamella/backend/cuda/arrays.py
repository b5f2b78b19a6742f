"""Arrays in the memory of a GPU, shared with other libraries without a copy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Protocol

import numpy as np

from lamella.backend.cuda.driver import POINTER, Stream, call, device, own_stream, release_with
from lamella.base.arrays import Array, DType
from lamella.base.errors import InputError
from lamella.base.records import dataclass

CUDA = 2
"""The kind of device that DLPack calls by this number."""
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
BFLOAT = 4


class DeviceMemory:
    """Bytes on the device, free again with this object; at a multiple of 256."""

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
    """Bytes of the host that the device copies from and to while the processor does something else."""

    def __init__(self, size: int) -> None:
        device()
        found = POINTER()
        call("cuMemHostAlloc", ctypes.byref(found), max(size, 1), 0, doing=f"pinning {size} bytes")
        self.address, self.size = found.value or 0, size
        release_with(self, "cuMemFreeHost", self.address)

    def bytes(self) -> Array:
        """The memory as an array, which must not outlive this object."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.address))


class SharesMemory(Protocol):
    """An array of another library on the device, as CuPy, Numba and torch describe theirs."""

    __cuda_array_interface__: dict[str, object]


@dataclass(frozen=True, slots=True)
class _Place:
    """An array as NumPy is told of it: nobody reads the memory at this address here."""

    __array_interface__: dict[str, object]


class DeviceArray:
    """An array on the device: shape, element type, strides in bytes; kernels update it in place."""

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        dtype: DType,
        strides: Sequence[int] | None = None,
        owner: object = None,
    ) -> None:
        self.address = address
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        steps = [prod(self.shape[place + 1 :]) * self.dtype.itemsize for place in range(len(self.shape))]
        self.strides = tuple(steps if strides is None else strides)
        self._owner = owner

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
            "data": (self.address, False),
            "strides": self.strides,
            "version": 3,
            "stream": own_stream().handle,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where it is, as DLPack says it."""
        return CUDA, 0

    def __dlpack__(self, **_: object) -> object:
        """A capsule that other libraries take over without a copy."""
        own_stream().wait()
        return _make_capsule(self)

    def numpy(self) -> Array:
        """A copy on the host, in row-major order."""
        reach = _reach(self)
        room = np.empty(reach, np.uint8)
        stream = own_stream()
        call("cuMemcpyDtoHAsync_v2", room.ctypes.data, self.address, reach, stream.handle)
        stream.wait()
        whole: Array = np.ndarray(self.shape, self.dtype, room, 0, self.strides)
        return np.ascontiguousarray(whole)

    def stand_in(self) -> Array:
        """An array of this layout at this address, which NumPy can describe and nobody may read."""
        # NumPy does not know types of 8 bits by what they call themselves.
        known = self.dtype.kind in CODES and (self.dtype.itemsize > 1 or self.dtype.kind != "f")
        kind = self.dtype.str if known else f"|V{self.dtype.itemsize}"
        place = {
            "shape": self.shape,
            "typestr": kind,
            "data": (self.address, False),
            "strides": self.strides,
            "version": 3,
        }
        found: Array = np.asarray(_Place(place))
        return found if found.dtype == self.dtype else found.view(self.dtype)


def _reach(array: DeviceArray) -> int:
    if not prod(array.shape):
        return 0
    steps = zip(array.shape, array.strides, strict=True)
    return array.dtype.itemsize + sum((size - 1) * step for size, step in steps)


def to_device(array: Array | SharesMemory) -> DeviceArray:
    """An array on the device: a copy of one of the host, or another library's as it lies."""
    told = getattr(array, "__cuda_array_interface__", None)
    if isinstance(array, DeviceArray):
        return array
    if told is not None:
        return _adopt(array, told)
    if not isinstance(array, np.ndarray):
        raise InputError(f"a {type(array).__name__} is no array of the host or of the device")
    dense = np.require(array, requirements=["C"])
    memory, stream = DeviceMemory(dense.nbytes), own_stream()
    memory.write(dense.ctypes.data, dense.nbytes, stream)
    stream.wait()
    return DeviceArray(memory.address, dense.shape, dense.dtype, owner=memory)


def _adopt(owner: object, told: dict[str, object]) -> DeviceArray:
    data, shape, kind, strides = (told.get(name) for name in ("data", "shape", "typestr", "strides"))
    if not isinstance(data, tuple) or not isinstance(shape, tuple) or not isinstance(kind, str):
        raise InputError("an array of the device describes itself in a way that we do not know")
    steps = strides if isinstance(strides, tuple) else None
    return DeviceArray(int(data[0] or 0), shape, np.dtype(kind), steps, owner)


# --- DLPack ----------------------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", POINTER),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DELETE = ctypes.CFUNCTYPE(None, POINTER)


class _Managed(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = (("tensor", _Tensor), ("context", POINTER), ("deleter", _DELETE))


_given: dict[int, object] = {}
"""What capsules hold alive, by the address of their tensor."""


def _forget(address: int) -> None:
    _given.pop(address, None)


_FORGET = _DELETE(_forget)


def _make_capsule(array: DeviceArray) -> object:
    rank = len(array.shape)
    shape = (ctypes.c_int64 * max(1, rank))(*array.shape)
    width = array.dtype.itemsize
    strides = (ctypes.c_int64 * max(1, rank))(*(step // width for step in array.strides))
    code = CODES.get(array.dtype.kind, BFLOAT)
    tensor = _Tensor(array.address, CUDA, 0, rank, code, 8 * width, 1, shape, strides, 0)
    managed = _Managed(tensor, None, _FORGET)
    place = ctypes.addressof(managed)
    _given[place] = (managed, shape, strides, array)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (POINTER, ctypes.c_char_p, POINTER)
    return make(place, b"dltensor", None)
