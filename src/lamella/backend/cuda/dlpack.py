"""DLPack: arrays of a GPU are exchanged with other libraries without a copy.

A capsule holds a description of the array and a deleter; whoever takes it gives it another name.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate
from typing import NamedTuple

import ml_dtypes
import numpy as np

from lamella.base.arrays import DType
from lamella.base.errors import InputError
from lamella.base.records import dataclass

CUDA, MANAGED = 2, 13
"""The kinds of devices whose memory a GPU reads: its own, and that which moves to whoever reads it."""
HOST = 1
KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""The codes of types that NumPy has, by its letters."""
OTHERS: dict[DType, int] = {
    np.dtype(ml_dtypes.bfloat16): 4,
    np.dtype(ml_dtypes.float8_e4m3fn): 10,
    np.dtype(ml_dtypes.float8_e5m2): 12,
}
"""The codes of types that it does not have."""
TYPES = {(KINDS[item.kind], 8 * item.itemsize, 1): item for item in map(np.dtype, "?bhiqBHIQefdFD")}
TYPES |= {(code, 8 * item.itemsize, 1): item for item, code in OTHERS.items()}
"""The types by code, bits and lanes."""
PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
TAKEN = {PLAIN: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}
"""What capsules are called, before and after somebody has taken what is in them."""
VERSION, READ_ONLY = (1, 0), 1
MOST_AXES = 64
POINTER = ctypes.c_void_p


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


class _Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", POINTER),
        ("deleter", _DELETE),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_python = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, POINTER, ctypes.c_char_p, POINTER)(("PyCapsule_New", _python))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer = ctypes.PYFUNCTYPE(POINTER, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_keep = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", _python))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _python))


class ArrayLayout(NamedTuple):
    """Address, shape and strides (in bytes) of an array, and what keeps it alive."""

    address: int
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    is_writable: bool
    owner: object
    device: tuple[int, int] = (CUDA, 0)


# --- handing over ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Handed:
    """What was handed over, by the addresses of descriptions."""

    held: dict[int, tuple[object, ...]] = field(default_factory=dict)
    """What stays alive of it."""
    untaken: dict[int, tuple[bytes, list[object]]] = field(default_factory=dict)
    """Names and capsules of which nobody is known to have taken what is in them."""


_handed = _Handed()


def _forget(address: int, held: dict[int, tuple[object, ...]] = _handed.held) -> None:
    held.pop(address, None)


_FORGET = _DELETE(_forget)
# Arrays of others may outlive this module when Python ends: what they call then, and what is described, must be there.
_keep(_FORGET)


def make_capsule(array: ArrayLayout, versioned: bool) -> object:
    """A capsule with an array; BufferError where such a capsule cannot say what it is."""
    _drop_untaken()
    if not array.is_writable and not versioned:
        raise BufferError("the array must not be written, which DLPack says from version 1.0 on")
    rank, width = len(array.shape), array.dtype.itemsize
    if any(step % width for step in array.strides):
        raise BufferError("the array has strides that are no multiples of its elements")
    shape = (ctypes.c_int64 * max(1, rank))(*array.shape)
    strides = (ctypes.c_int64 * max(1, rank))(*(step // width for step in array.strides))
    code = _code_of(array.dtype)
    tensor = _Tensor(array.address, *array.device, rank, code, 8 * width, 1, shape, strides, 0)
    managed = (
        _Versioned(*VERSION, None, _FORGET, 0 if array.is_writable else READ_ONLY, tensor)
        if versioned
        else _Managed(tensor, None, _FORGET)
    )
    place, name = ctypes.addressof(managed), VERSIONED if versioned else PLAIN
    capsule = _new(place, name, None)
    _handed.held[place] = managed, shape, strides, array.owner
    _handed.untaken[place] = name, [capsule]
    return capsule


def _drop_untaken() -> None:
    """Forget what was handed over in capsules that nobody has any more.

    A destructor would do so at once, and would lose an error that is on its way while it runs.
    """
    for place, (name, box) in list(_handed.untaken.items()):
        if not _is_valid(box[0], name):
            _handed.untaken.pop(place, None)
        elif sys.getrefcount(box[0]) <= _ALONE:
            _handed.untaken.pop(place, None)
            _forget(place)


_ALONE = next(sys.getrefcount(box[0]) for box in ([object()],))
"""The references to what one list alone holds, counted the way that this Python does."""


def _code_of(dtype: DType) -> int:
    code = OTHERS.get(dtype)
    code = KINDS.get(dtype.kind) if code is None else code
    if code is None or not dtype.isnative:
        raise BufferError(f"DLPack has no type for {dtype}")
    return code


# --- taking ----------------------------------------------------------------------------------------------------


class _Owner:
    """What another library has handed over is given back with this object."""


def take_capsule(capsule: object) -> ArrayLayout:
    """Consume a capsule; InputError where we cannot say what is in it."""
    name = next((item for item in TAKEN if _is_valid(capsule, item)), None)
    if name is None:
        raise InputError("what is handed over is no capsule of DLPack that nobody has taken")
    place = _pointer(capsule, name) or 0
    managed = (_Managed if name == PLAIN else _Versioned).from_address(place)
    if isinstance(managed, _Versioned) and managed.major != VERSION[0]:
        raise InputError(f"an array is handed over by DLPack {managed.major}.{managed.minor}, not by 1")
    _rename(capsule, TAKEN[name])
    owner = _Owner()
    if managed.deleter:
        weakref.finalize(owner, managed.deleter, place).atexit = False
    is_writable = name == PLAIN or not managed.flags & READ_ONLY
    return _layout(managed.tensor, is_writable, owner)


def _layout(tensor: _Tensor, is_writable: bool, owner: object) -> ArrayLayout:
    rank, kind = tensor.ndim, (tensor.code, tensor.bits, tensor.lanes)
    dtype = TYPES.get(kind)
    if dtype is None or not 0 <= rank <= MOST_AXES:
        code, bits, lanes = kind
        raise InputError(
            f"an array is handed over that we have no type for: {rank} axes, code {code}, {bits} bits, {lanes} lanes"
        )
    shape = tuple(tensor.shape[place] for place in range(rank))
    steps = tuple(tensor.strides[place] for place in range(rank)) if tensor.strides else packed_strides(shape)
    address = (tensor.data or 0) + tensor.byte_offset
    strides = tuple(step * dtype.itemsize for step in steps)
    return ArrayLayout(
        address, shape, dtype, strides, is_writable, owner, (tensor.device_type, tensor.device_id)
    )


def packed_strides(shape: Sequence[int], width: int = 1) -> tuple[int, ...]:
    """The strides of an array that lies row by row, whose elements have so many bytes."""
    steps = accumulate(reversed(shape), lambda step, size: step * size, initial=width)
    return tuple(reversed(list(steps)[:-1]))
