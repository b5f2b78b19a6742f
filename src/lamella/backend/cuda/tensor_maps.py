"""Tensor maps (`CUtensorMap`): descriptors of arrays for TMA, encoded by the driver."""

from __future__ import annotations

import ctypes

import numpy as np

from lamella.backend.cpu.compiled import MAP_ALIGNMENT, MAP_BYTES, Pipeline, TensorMap, maps_offset
from lamella.backend.cuda.driver import call
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.kernels.launches import ELEMENT_BYTES

WIDTH = 128
"""Bytes of a row of a box."""
KINDS = {"f16": 6, "f32": 7, "bf16": 9}
BYTES = 0
"""How the driver calls elements of some types, and those of 8 bits."""
SWIZZLE, PROMOTION = 3, 3


def with_maps(slots: Array, pipeline: Pipeline | None) -> Array:
    """Slots with the tensor maps of a kernel behind them, as bytes.

    InputError: an array does not lie as TMA wants it.
    """
    words = slots.astype(np.int64).tobytes()
    if pipeline is None:
        return np.frombuffer(words, np.uint8)
    maps = [_encode(int(slots[item.slot]), item) for item in pipeline.maps]
    return np.frombuffer(b"".join([words.ljust(maps_offset(len(slots)), b"\0"), *maps]), np.uint8)


def _encode(address: int, item: TensorMap) -> bytes:
    width = ELEMENT_BYTES[item.element]
    if address % 16 or item.stride * width % 16:
        raise InputError(
            "an array of a matrix product lies where the copy engine of the GPU cannot read it",
            hint="its address and the bytes from column to column are multiples of 16",
        )
    room = np.zeros(MAP_BYTES + MAP_ALIGNMENT, np.uint8)
    start = -room.ctypes.data % MAP_ALIGNMENT
    call(
        "cuTensorMapEncodeTiled",
        room.ctypes.data + start,
        BYTES if width == 1 else KINDS[item.element],
        2,
        address,
        (ctypes.c_uint64 * 2)(*item.shape),
        (ctypes.c_uint64 * 1)(item.stride * width),
        (ctypes.c_uint32 * 2)(WIDTH // width, item.columns),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        SWIZZLE,
        PROMOTION,
        0,
        doing="describing an array",
    )
    return room[start : start + MAP_BYTES].tobytes()
