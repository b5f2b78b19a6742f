"""The memory image: the bytes of every buffer, and which of them somebody has written.

Elements are little-endian; i4 lies two per byte, element 2i in the low nibble; strides count elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from lamella.backend.npu.opcodes.call import element_of
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import LANGUAGES
from lamella.base.limits import DEFAULT, Limits
from lamella.base.shape import bytes_for, element_count, row_major_strides
from lamella.lang.nem.resolved import Buffer, TensorType
from lamella.lang.nem.rules import MEMORY_NEEDED

_RAW: Mapping[int, str] = MappingProxyType({8: "<u1", 16: "<u2", 32: "<u4"})


class MemoryImage:
    """One image and one mask of written bytes per buffer, by name; all bytes begin as zero and not written."""

    def __init__(self, buffers: Iterable[Buffer], limits: Limits = DEFAULT) -> None:
        buffers = tuple(buffers)
        self.image = allocate(buffers, np.dtype(np.uint8), limits)
        self.written = allocate(buffers, np.dtype(np.bool_), limits)

    def read(self, buffer: str, offset: int, type: TensorType) -> Array:
        """The tensor at an offset; a copy."""
        return read_tensor(self.image[buffer], offset, type)

    def write(self, buffer: str, offset: int, type: TensorType, values: Array) -> None:
        """Store a tensor at an offset; its bytes count as written."""
        write_tensor(self.image[buffer], offset, type, values)
        self.written[buffer][byte_places(offset, type)] = True

    def unwritten(self, buffer: str, offset: int, type: TensorType) -> tuple[int, int] | None:
        """The first range [first, end) of bytes of the tensor that nothing has written, or None."""
        places = byte_places(offset, type)
        flags = self.written[buffer][places]
        if flags.all():
            return None
        missing = np.flatnonzero(~flags) + offset if isinstance(places, slice) else np.unique(places[~flags])
        gaps = np.flatnonzero(np.diff(missing) != 1)
        length = int(gaps[0]) + 1 if gaps.size else missing.size
        return int(missing[0]), int(missing[0]) + length


def allocate(buffers: Iterable[Buffer], dtype: np.dtype[np.generic], limits: Limits) -> dict[str, Array]:
    """One array of zeros per buffer, an item per byte; more than the limit is an error."""
    buffers = tuple(buffers)
    needed = sum(buffer.size for buffer in buffers)
    if needed > limits.max_total_bytes:
        raise LamellaError([_too_much(buffers, needed, limits.max_total_bytes)])
    with within_memory(buffers):
        return {buffer.name: np.zeros(buffer.size, dtype) for buffer in buffers}


@contextmanager
def within_memory(buffers: Iterable[Buffer]) -> Iterator[None]:
    """Tell a machine that is too small as a finding."""
    try:
        yield
    except MemoryError:
        buffers = tuple(buffers)
        needed = sum(buffer.size for buffer in buffers)
        raise LamellaError([_too_much(buffers, needed, "the memory of this machine")]) from None


def _too_much(buffers: tuple[Buffer, ...], needed: int, limit: object) -> Diagnostic:
    largest = max(buffers, key=lambda buffer: buffer.size)
    return MEMORY_NEEDED.at(largest.span, needed=needed, limit=limit)


@lru_cache(maxsize=1024)
def byte_type(extent: int) -> TensorType:
    """The type as which raw bytes are read."""
    return TensorType("u8", (extent,), None, (1,))


def dense_bytes(type: TensorType) -> int | None:
    """How many bytes a tensor takes whose elements lie in row-major order without gaps; None for any other."""
    return _dense_bytes(type.elem, type.shape, type.strides)


@lru_cache(maxsize=1024)
def _dense_bytes(elem: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> int | None:
    """Asked several times for every operand of every instance."""
    sizes = zip(shape, strides, row_major_strides(shape), strict=True)
    if any(size != 1 and found != wanted for size, found, wanted in sizes):
        return None
    return bytes_for(element_count(shape), LANGUAGES["nem"][elem].bits)


def byte_places(offset: int, type: TensorType) -> slice | Array:
    """The bytes that a tensor at an offset touches, as an index into an image; gaps between strides are left out."""
    dense = dense_bytes(type)
    if dense is not None:
        return slice(offset, offset + dense)
    elements, bits = element_places(type).reshape(-1), element_of(type).bits
    if bits == 4:
        return offset + (elements >> 1)
    size = bits // 8
    return (offset + elements[:, None] * size + np.arange(size)).reshape(-1)


def element_places(type: TensorType) -> Array:
    """The number of each element of a tensor, counted in elements from its offset."""
    places = np.zeros(type.shape, np.int64)
    for axis, (size, stride) in enumerate(zip(type.shape, type.strides, strict=True)):
        along = np.arange(size, dtype=np.int64) * stride
        places += along.reshape([-1 if index == axis else 1 for index in range(len(type.shape))])
    return places


def read_tensor(image: Array, offset: int, type: TensorType) -> Array:
    """The tensor at an offset of an image; a copy."""
    element = element_of(type)
    dense = dense_bytes(type)
    if dense is not None:
        part = image[offset : offset + dense]
        return arrays.from_memory(part, element, math.prod(type.shape)).reshape(type.shape)
    if element.bits == 4:
        places = element_places(type)
        nibbles = image[offset + (places >> 1)] >> (places & 1) * 4 & 15
        signed: Array = (nibbles ^ 8).astype(np.int8) - np.int8(8)
        return signed.astype(arrays.numpy_dtype(element))
    raw = np.ascontiguousarray(_strided(image, offset, type))
    found: Array = raw.view(arrays.numpy_dtype(element))
    return found


def write_tensor(image: Array, offset: int, type: TensorType, values: Array) -> None:
    """Store a tensor at an offset of an image; where strides leave gaps, the bytes and nibbles between stay."""
    element = element_of(type)
    if dense_bytes(type) is not None:
        data = arrays.to_memory(values)
        image[offset : offset + data.size] = data
    elif element.bits == 4:
        _write_nibbles(image, offset + (element_places(type) >> 1), element_places(type) & 1, values)
    else:
        _strided(image, offset, type)[...] = np.ascontiguousarray(values).view(_RAW[element.bits])


def _strided(image: Array, offset: int, type: TensorType) -> Array:
    """The elements in place, as unsigned integers of their size."""
    raw = np.dtype(_RAW[element_of(type).bits])
    strides = tuple(stride * raw.itemsize for stride in type.strides)
    view: Array = np.ndarray(type.shape, raw, image.data, offset, strides)
    return view


def _write_nibbles(image: Array, places: Array, high: Array, values: Array) -> None:
    """Low nibbles first, then high ones: two elements of one byte must not undo each other."""
    nibbles = values.astype(np.int8).view(np.uint8) & np.uint8(15)
    low = high == 0
    image[places[low]] = image[places[low]] & np.uint8(0xF0) | nibbles[low]
    image[places[~low]] = image[places[~low]] & np.uint8(0x0F) | nibbles[~low] << np.uint8(4)
