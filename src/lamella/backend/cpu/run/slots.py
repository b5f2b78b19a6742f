"""How one argument becomes slots of 8 bytes, by the calling convention.

A scalar's bits lie in a slot, those of a c64 in two. A memref is its address, then the sizes and strides that its
type leaves open. A group is the address of the addresses, then for each open size and stride of its memref the
address of one integer per element, then its own size and offset where these are open.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lamella.backend.arguments import dtype_of, layout_strides
from lamella.base.arrays import Array
from lamella.base.errors import Malformed
from lamella.lang.tensor.nodes import Memref

Argument: TypeAlias = Any
"""A number whose type was verified when the first of its kind came."""
Read: TypeAlias = Callable[[Argument], float]
"""Reads a number off an argument."""
Integers: TypeAlias = npt.NDArray[np.int64]

from_address = ctypes.c_void_p.from_address


def _measure_head() -> int:
    """Where in an array object its address stands; 0 where it is not found."""
    trial, size = np.empty(3), object.__basicsize__
    return size if from_address(id(trial) + size).value == trial.ctypes.data else 0


HEAD = _measure_head()
LARGEST_F32 = float(np.finfo(np.float32).max)


# --- scalars ------------------------------------------------------------------------------------------------


def scalar_format(element: str) -> str:
    """The letters of `struct` for the slots of a scalar."""
    return {"f32": "f4x", "f64": "d", "c32": "ff", "c64": "dd"}.get(element, "q")


def scalar_readers(element: str) -> tuple[Read, ...]:
    """How the numbers that a scalar consists of are read off an argument: two for a complex number, else one."""
    readers: dict[str, tuple[Read, ...]] = {
        "bool": (int,),
        "f16": (_read_f16,),
        "bf16": (_read_bf16,),
        "f32": (read_f32,),
        "f64": (float,),
        "c32": (lambda argument: read_f32(argument.real), lambda argument: read_f32(argument.imag)),
        "c64": (lambda argument: float(argument.real), lambda argument: float(argument.imag)),
    }
    return readers[element] if element in readers else (_integer_reader(element),)


def _integer_reader(element: str) -> Read:
    bounds = np.iinfo(dtype_of(element))
    low, high = int(bounds.min), int(bounds.max)

    def read(argument: Argument) -> int:
        value = int(argument)
        if not low <= value <= high:
            raise Malformed("no argument as those before it; verification says why")
        return value

    return read


def read_f32(argument: Argument) -> float:
    """A number that `struct` takes for f32; what is too large is infinite, as in a cast."""
    value = float(argument)
    return value if -LARGEST_F32 <= value <= LARGEST_F32 else ctypes.c_float(value).value


def _read_f16(argument: Argument) -> int:
    with np.errstate(all="ignore"):
        return int(np.float64(argument).astype(np.float16).view(np.uint16))


def _read_bf16(argument: Argument) -> int:
    """Rounded through f32, as casts of the language are."""
    single = np.float32(ctypes.c_float(float(argument)).value)
    return int(single.astype(ml_dtypes.bfloat16).view(np.uint16))


# --- arrays -------------------------------------------------------------------------------------------------


def open_entries(kind: Memref, array: Array) -> list[int]:
    """The sizes, then the strides, that the type of a memref leaves open."""
    sizes = [given for given, known in zip(array.shape, kind.shape, strict=True) if known is None]
    steps = zip(layout_strides(kind, array), kind.stride, strict=True)
    return sizes + [given for given, known in steps if known is None]


def count_open(kind: Memref) -> int:
    """How many sizes and strides the type of a memref leaves open."""
    return (*kind.shape, *kind.stride).count(None)


def reach_of(array: Array) -> int:
    """The bytes from the first element of an array to the end of its last; strides are not negative."""
    if not array.size:
        return 0
    steps = zip(array.shape, array.strides, strict=True)
    return int(array.itemsize + sum((size - 1) * step for size, step in steps))


def address_of(array: Array) -> int:
    """The address of the first element of an array.

    NumPy's own way takes a microsecond. The address is the first field behind the head of the object; that this is
    so is tested when the module is loaded.
    """
    address: int | None = from_address(id(array) + HEAD).value if HEAD else array.ctypes.data
    return address or 0


def fill_table(rows: Sequence[Sequence[int]]) -> Integers:
    """Integers of each element of a group, one column for each open entry, each column in one piece."""
    return np.asfortranarray(np.array(rows, np.int64))
