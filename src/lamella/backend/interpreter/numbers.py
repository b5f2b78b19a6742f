"""Numbers of the tensor language as NumPy holds them: element types, constants, conversions.

A number is a NumPy scalar, or a two-dimensional array where it is a cooperative matrix.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TypeAlias

import ml_dtypes
import numpy as np

from lamella.backend.arguments.elements import DTYPES, dtype_of
from lamella.base.arrays import Array, DType
from lamella.lang.tensor.nodes import Number as Literal

Number: TypeAlias = np.generic | Array

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16)
WIDER = MappingProxyType({"i8": "i32", "bf16": "f32", "f16": "f32"})
GARBAGE = 0xA5


def element_name(dtype: DType) -> str:
    """The element type that a NumPy type holds; where two share one, the one that is a plain number."""
    return next(name for name, found in DTYPES.items() if found == dtype)


def accumulation(element: str) -> str:
    """The type in which collective instructions compute a result of an element type."""
    return WIDER.get(element, element)


def is_integer(dtype: DType) -> bool:
    """Whether a type is one of the integer types."""
    return dtype.kind == "i"


def is_complex(dtype: DType) -> bool:
    """Whether a type is one of the complex types."""
    return dtype.kind == "c"


def wrap_integer(value: int, element: str) -> int:
    """The low bits of an integer, read as a signed number of its type."""
    half = 1 << (8 * dtype_of(element).itemsize - 1)
    return (value + half) % (2 * half) - half


def make_integer(value: int, element: str) -> Number:
    """A Python integer as a number of an integer type, modulo its range."""
    found: Number = dtype_of(element).type(wrap_integer(value, element))
    return found


def make_number(value: Literal, element: str) -> Number:
    """A constant of a scalar type; integers wrap, floating-point numbers are rounded."""
    if isinstance(value, tuple):
        found: Number = dtype_of(element).type(complex(*value))
        return found
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int) and is_integer(dtype_of(element)):
        return make_integer(value, element)
    return convert(np.float64(value), element)


def convert(value: Number, element: str) -> Number:
    """A number in another type: integers keep their low bits, floats are cut toward zero, bf16 goes through f32.

    What no integer of the type comes near is the nearest one, and NaN is 0.
    """
    target = dtype_of(element)
    if value.dtype == target:
        return value
    if BF16 in (value.dtype, target):
        value = value.astype(F32)
    if is_integer(target) and value.dtype.kind == "f":
        return _truncate(value, target)
    found: Number = value.astype(target)
    return found


def _truncate(value: Number, target: DType) -> Number:
    bounds = np.iinfo(target)
    whole = np.nan_to_num(np.trunc(np.asarray(value, F64)), nan=0.0)
    inside = np.where(whole <= float(bounds.min), bounds.min, whole.astype(target))
    found: Number = np.where(whole >= float(bounds.max), bounds.max, inside).astype(target)[()]
    return found


def make_garbage(element: str, count: int) -> Array:
    """Memory that nobody has written: NaN where the type has one, else a pattern that shows."""
    dtype = dtype_of(element)
    if is_integer(dtype):
        return np.full(count * dtype.itemsize, GARBAGE, np.uint8).view(dtype)
    return np.full(count, complex(np.nan, np.nan) if is_complex(dtype) else np.nan, dtype)
