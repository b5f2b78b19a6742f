"""NumPy arrays of our element types: storage, packing, exact conversions, exchange with the outside."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from lamella.base import dtype as types
from lamella.base.dtype import ElementType, Kind
from lamella.base.errors import InputError
from lamella.base.quant import PerGroup, PerTensor, Quant, axis_of

Array = npt.NDArray[Any]
DType: TypeAlias = np.dtype[Any]

_DTYPES = MappingProxyType(
    {
        types.BOOL: np.dtype(np.bool_),
        types.I2: np.dtype(ml_dtypes.int2),
        types.I4: np.dtype(ml_dtypes.int4),
        types.I8: np.dtype(np.int8),
        types.I16: np.dtype(np.int16),
        types.I32: np.dtype(np.int32),
        types.I64: np.dtype(np.int64),
        types.INDEX: np.dtype(np.int64),
        types.U2: np.dtype(ml_dtypes.uint2),
        types.U4: np.dtype(ml_dtypes.uint4),
        types.U8: np.dtype(np.uint8),
        types.U16: np.dtype(np.uint16),
        types.U32: np.dtype(np.uint32),
        types.U64: np.dtype(np.uint64),
        types.F4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
        types.F8E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
        types.F8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
        types.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
        types.F8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
        types.F16: np.dtype(np.float16),
        types.BF16: np.dtype(ml_dtypes.bfloat16),
        types.F32: np.dtype(np.float32),
        types.F64: np.dtype(np.float64),
        types.C32: np.dtype(np.complex64),
        types.C64: np.dtype(np.complex128),
    }
)
_TYPES = MappingProxyType({dtype: element for element, dtype in _DTYPES.items() if element != types.INDEX})
_NARROW_FLOATS = (
    *(types.F4E2M1, types.F8E4M3, types.F8E4M3FNUZ),
    *(types.F8E5M2, types.F8E5M2FNUZ, types.BF16),
)


def numpy_dtype(element: ElementType) -> DType:
    """The NumPy type that holds one element per item (4-bit types take a byte each until they are packed)."""
    dtype: DType = _DTYPES[element]
    return dtype


def element_type_of(dtype: DType) -> ElementType | None:
    """The element type of a NumPy type; int64 is `i64`, never `index`."""
    return _TYPES.get(dtype.newbyteorder("="))


def _known_type(values: Array) -> ElementType:
    element = element_type_of(values.dtype)
    if element is None:
        raise InputError(f"arrays of NumPy type {values.dtype} have no element type here")
    return element


def uniform(shape: Sequence[int], value: npt.ArrayLike, dtype: DType) -> Array:
    """An array of one number that takes the memory of one, and that nobody can write."""
    one = np.asarray(value, dtype)
    one.flags.writeable = False
    return np.broadcast_to(one, tuple(shape))


def uniform_value(values: Array) -> Array | None:
    """The number, of rank 0, that a uniform array has everywhere; None where each element has memory of its own."""
    if values.size < 2 or any(values.strides) or values.flags.writeable:
        return None
    return np.asarray(values[(0,) * values.ndim], values.dtype)


def strided(values: Array, shape: Sequence[int], strides: Sequence[int], writeable: bool) -> Array:
    """A view of an array with any shape and strides, in bytes.

    Bytes stand in for types of 8 bits: NumPy does not know all of them by their names.
    """
    plain = values.view(np.uint8) if values.itemsize == 1 else values
    return as_strided(plain, shape, strides, writeable=writeable).view(values.dtype)


def pack_nibbles(values: Array) -> npt.NDArray[np.uint8]:
    """Two elements per byte, element 2i in the low nibble; the last high nibble of an odd count is 0."""
    return pack_bits(values, 4)


def pack_bits(values: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Elements of two or four bits, the first of a byte in its low bits; what the last byte has left is 0."""
    each = 8 // bits
    flat = values.reshape(-1)
    codes = flat.view(np.uint8) if flat.dtype.itemsize == 1 else flat.astype(np.uint8)
    codes = codes & np.uint8((1 << bits) - 1)
    rest = -codes.size % each
    if rest:
        codes = np.concatenate([codes, np.zeros(rest, np.uint8)])
    found = codes[0::each].copy()
    for place in range(1, each):
        found |= codes[place::each] << np.uint8(place * bits)
    return found


def unpack_nibbles(packed: npt.NDArray[np.uint8], count: int, signed: bool) -> Array:
    """The elements of packed bytes, as int8 (two's complement) or uint8."""
    return unpack_bits(packed, count, 4, signed)


def unpack_bits(packed: npt.NDArray[np.uint8], count: int, bits: int, signed: bool) -> Array:
    """The elements of two or four bits of packed bytes, as int8 (two's complement) or uint8."""
    mask = np.uint8((1 << bits) - 1)
    parts = [packed >> np.uint8(place) & mask for place in range(0, 8, bits)]
    codes = np.stack(parts, axis=-1).reshape(-1)[:count]
    return _extend_sign(codes, bits) if signed else codes


def _extend_sign(codes: npt.NDArray[np.uint8], bits: int) -> Array:
    """Two's complement of a few bits as int8."""
    half = 1 << (bits - 1)
    return (codes ^ np.uint8(half)).view(np.int8) - np.int8(half)


def to_memory(values: Array) -> npt.NDArray[np.uint8]:
    """The little-endian memory image of an array, row-major, types of two and four bits packed."""
    bits = _known_type(values).bits
    if bits < 8:
        return pack_bits(values, bits)
    dense = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return dense.reshape(-1).view(np.uint8)


def from_memory(image: npt.NDArray[np.uint8], element: ElementType, count: int) -> Array:
    """A flat array of the first elements of a memory image; a copy."""
    dtype = numpy_dtype(element)
    if element.bits < 8:
        codes = unpack_bits(image, count, element.bits, element.kind is Kind.SIGNED)
        return codes.view(dtype) if element.is_float else codes.astype(dtype)
    wanted = image[: count * dtype.itemsize].copy()
    return wanted != 0 if element == types.BOOL else wanted.view(dtype)


def view_memory(image: Array, element: ElementType, shape: tuple[int, ...]) -> Array:
    """The array of a memory image of whole bytes, not copied where NumPy can read it as it lies.

    ValueError: NumPy holds no array of this shape.
    """
    if element == types.BOOL:
        return from_memory(image, element, len(image)).reshape(shape)
    return image.view(numpy_dtype(element)).reshape(shape)


def cast(values: Array, to: ElementType) -> Array:
    """Convert: float to integer truncates, then saturates; integers saturate; floats round to nearest even."""
    # NumPy computes with arrays of rank 0 as with numbers.
    return np.asarray(_convert(values, to))


def wrap(values: Array, to: ElementType) -> Array:
    """Convert integers by keeping the low bits (two's complement)."""
    if to.bits >= 8:
        return values.astype(numpy_dtype(to))
    low = _widen(values, _known_type(values)).astype(np.uint8) & np.uint8((1 << to.bits) - 1)
    return (_extend_sign(low, to.bits) if to.kind is Kind.SIGNED else low).astype(numpy_dtype(to))


def sign_extended(values: Array) -> Array:
    """Integers of less than a byte whose bytes are those of the same numbers in eight bits.

    Kernels read such bytes; NumPy's types of less than a byte leave the upper bits of negative numbers zero.
    """
    element = _known_type(values)
    if element.bits >= 8 or element.kind is not Kind.SIGNED:
        return values
    return values.astype(np.int8).view(values.dtype)


def _convert(values: Array, to: ElementType) -> Array:
    source = _known_type(values)
    if source == to or to == types.BOOL:
        return values.copy() if source == to else values != 0
    plain = _widen(values, source)
    with np.errstate(over="ignore", invalid="ignore"):
        if to.kind is Kind.COMPLEX:
            return plain.astype(numpy_dtype(to))
        if source.kind is Kind.COMPLEX:
            raise InputError(f"complex elements ({source}) have no value of type {to}")
        if to.is_float:
            return _to_float(plain, to)
        return _float_to_integer(plain, to) if source.is_float else _saturate(plain, to)


def _widen(values: Array, source: ElementType) -> Array:
    """The same numbers in a type that NumPy computes with."""
    if source in (types.BOOL, types.U2, types.U4):
        return values.astype(np.uint8)
    if source in (types.I2, types.I4):
        return values.astype(np.int8)
    if source.is_float and source.bits <= 16:
        return values.astype(np.float32)
    return values.astype(numpy_dtype(source), copy=False)


def _saturate(values: Array, to: ElementType) -> Array:
    bounds = np.iinfo(values.dtype)
    low, high = max(int(bounds.min), to.minimum), min(int(bounds.max), to.maximum)
    return np.clip(values, low, high).astype(numpy_dtype(to))


def _float_to_integer(values: Array, to: ElementType) -> Array:
    """Compare before converting: the largest 64-bit integers are no doubles. NaN becomes 0."""
    whole = np.trunc(values.astype(np.float64))
    above, below = whole >= float(to.maximum), whole <= float(to.minimum)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole)
    wide = np.uint64 if to.kind is Kind.UNSIGNED else np.int64
    found = inside.astype(wide)
    found = np.where(above, wide(to.maximum), np.where(below, wide(to.minimum), found))
    return found.astype(numpy_dtype(to))


def _to_float(values: Array, to: ElementType) -> Array:
    """Round once, to nearest even; types of 8 bits and fewer saturate, the others overflow to infinity."""
    if to.bits >= 32:
        return values.astype(numpy_dtype(to))
    if values.dtype.kind in "iu":
        values = _integers_to_odd_doubles(values)
    if values.dtype == np.float64:
        values = _doubles_to_odd_singles(values)
    if to.bits <= 8:
        values = np.clip(values, -to.largest, to.largest)
    if to == types.F4E2M1:
        values = np.where(np.isnan(values), np.float32(0), values)
    return values.astype(numpy_dtype(to))


def _integers_to_odd_doubles(values: Array) -> Array:
    """Doubles whose last bit remembers what was cut off, so that a later rounding is the only one."""
    negative = values < 0
    bits = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    size = np.where(negative, ~bits + np.uint64(1), bits)
    sticky = (size & np.uint64(0x7FF)) != 0
    cut = (size >> np.uint64(11) | sticky).astype(np.float64) * 2048.0
    found = np.where(size >> np.uint64(53) != 0, cut, size.astype(np.float64))
    return np.where(negative, -found, found)


def _doubles_to_odd_singles(values: Array) -> Array:
    """Singles rounded to odd: correct for any later rounding to 22 bits or fewer."""
    near = values.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32) - (np.abs(back) > np.abs(values)).astype(np.uint32)
    inexact = (back != values) & ~np.isnan(values)
    return np.asarray(bits | inexact.astype(np.uint32)).view(np.float32)


def exchange_dtype(element: ElementType) -> DType:
    """The NumPy type in which elements travel to and from the outside."""
    if element in _NARROW_FLOATS:
        return np.dtype(np.float32)
    if element.is_integer and element.bits < 8:
        return np.dtype(np.int8 if element.kind is Kind.SIGNED else np.uint8)
    return numpy_dtype(element)


_PLAIN = frozenset(np.dtype(kind) for kind in ("float32", "float64", "int64", "int32", "bool"))
"""Types of arrays that are what they seem to be, which nearly all are."""


def to_exchange(values: Array) -> Array:
    """The array as outsiders read it: i4 as int8, bf16 and fp8 as float32, the rest unchanged."""
    if values.dtype in _PLAIN:
        return values
    return values.astype(exchange_dtype(_known_type(values)), copy=False)


def from_exchange(values: Array, element: ElementType) -> Array:
    """An array of an element type from one of the outside; narrow floats are rounded, integers must fit."""
    expected = exchange_dtype(element)
    if values.dtype.newbyteorder("=") != expected:
        raise InputError(f"the array has NumPy type {values.dtype}; {element} travels as {expected}")
    if element.is_integer and element.bits < 8:
        outside = (values < element.minimum) | (values > element.maximum)
        if outside.any():
            first = int(values[outside].reshape(-1)[0])
            raise InputError(f"value {first} is outside {element} ({element.minimum} .. {element.maximum})")
    if element in _NARROW_FLOATS:
        return cast(values, element)
    return values.astype(numpy_dtype(element), copy=False)


def scales_along(quant: Quant, shape: Sequence[int]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Scale and zero point as arrays that broadcast against a tensor of a shape the descriptor fits."""
    if isinstance(quant, PerTensor):
        one = (1,) * len(shape)
        return np.full(one, quant.scale, np.float64), np.full(one, quant.zero_point, np.int64)
    axis = axis_of(quant, len(shape))
    if axis is None:
        raise InputError(f"axis {quant.axis} does not exist in a tensor of rank {len(shape)}")
    size = shape[axis]
    group = quant.group_size if isinstance(quant, PerGroup) else 1
    place = np.arange(size) // group
    along = tuple(size if index == axis else 1 for index in range(len(shape)))
    scales = np.asarray(quant.scales, np.float64)[place].reshape(along)
    return scales, np.asarray(quant.zero_points, np.int64)[place].reshape(along)
