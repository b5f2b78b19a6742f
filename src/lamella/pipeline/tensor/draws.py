"""Random arrays for the parameters of a kernel, in the layout that the kernel declares."""

from __future__ import annotations

import math
import zlib

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lamella.base import dtype
from lamella.base.arrays import Array, DType, numpy_dtype
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.lang.tensor.nodes import Memref

LARGEST = 8
"""Random integers lie between minus this and this."""


def draw_array(kind: Memref, name: str, seed: int) -> Array:
    """A random array of known shape; strides that only the run knows are the packed ones."""
    shape = tuple(size or 0 for size in kind.shape)
    element = dtype.LANGUAGES["tensor"][kind.element]
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    found = empty_array(kind, shape, numpy_dtype(element))
    if element.is_integer:
        found[...] = random.integers(-LARGEST, LARGEST, shape, endpoint=True).astype(found.dtype)
    else:
        found[...] = random.standard_normal(shape).astype(found.dtype)
    return found


def empty_array(kind: Memref, shape: tuple[int, ...], element: DType) -> Array:
    """An array of zeros in the layout of a memref, packed where its strides are not known."""
    if math.prod(shape) * element.itemsize > DEFAULT.max_total_bytes:
        raise InputError(
            f"an array of {math.prod(shape)} elements is too large to make up",
            hint="give a smaller one with --arg",
        )
    packed: Array = np.zeros(shape, element, order="F")
    if None in kind.stride or not packed.size:
        return packed
    steps = [stride or 0 for stride in kind.stride]
    span = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    if span * packed.itemsize > DEFAULT.max_total_bytes:
        raise InputError(f"the layout spans {span} elements", hint="give the array with --arg")
    flat = np.zeros(span, element)
    return as_strided(flat, shape, [step * flat.itemsize for step in steps])
