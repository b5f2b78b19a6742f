"""Tensors of a plan under construction: where their elements lie, and views of them that cost no task.

A value is a NumPy-like view of a buffer: a logical shape, a stride in elements for each axis, an offset. Transposing,
cutting contiguous parts and most reshapes only change those; 0 is the stride of an axis along which one element stands
for all. What the model knows before the run (weights, tables) is an array until a task reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array
from lamella.base.dtype import find_in
from lamella.base.quant import PerChannel, Quant
from lamella.base.shape import element_count, row_major_strides

Shape: TypeAlias = tuple[int, ...]
Order: TypeAlias = tuple[int, ...]
"""Axes from the outermost in memory to the innermost."""


@dataclass(eq=False, slots=True)
class BufferRecord:
    """Storage in DDR: its size, what it is called, and what fills it from outside."""

    size: int
    label: str
    imported: bool = False
    array: Array | None = None
    """The numbers of a weight as they lie in memory."""
    port: str = ""
    """The name of the input or output of the model that it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A view of a buffer, or numbers that are known and have no place yet."""

    shape: Shape
    elem: str
    strides: Shape
    buffer: BufferRecord | None = None
    offset: int = 0
    """In elements."""
    quant: Quant | None = None
    array: Array | None = field(default=None, repr=False)
    """The numbers, in the logical shape, where they are known."""
    label: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the numbers are known before the run."""
        return self.array is not None

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats."""
        element = find_in("nem", self.elem)
        return element is not None and element.is_float

    @property
    def count(self) -> int:
        """How many elements the logical shape has."""
        return element_count(self.shape)


def known(array: Array, elem: str, label: str, quant: Quant | None = None) -> Value:
    """Numbers that are known before the run."""
    shape = tuple(array.shape)
    return Value(shape, elem, _strides_of(array), quant=quant, array=array, label=label)


def placed(
    buffer: BufferRecord, shape: Shape, elem: str, order: Order | None = None, quant: Quant | None = None
) -> Value:
    """The whole of a buffer, its axes lying in an order."""
    return Value(shape, elem, dense_strides(shape, order or natural(shape)), buffer, 0, quant)


def natural(shape: Sequence[int]) -> Order:
    """The order of a row-major tensor."""
    return tuple(range(len(shape)))


def dense_strides(shape: Sequence[int], order: Order) -> Shape:
    """Strides of a tensor without gaps whose axes lie in an order."""
    found = [0] * len(shape)
    for axis, stride in zip(order, row_major_strides([shape[axis] for axis in order]), strict=True):
        found[axis] = stride
    return tuple(found)


def order_of(value: Value) -> Order:
    """The order in which the axes of a view lie: by falling strides; those of one element stay where they were."""
    long = [axis for axis in range(len(value.shape)) if _is_real(value, axis)]
    ranked = iter(sorted(long, key=lambda axis: (-value.strides[axis], axis)))
    kept = set(long)
    return tuple(next(ranked) if axis in kept else axis for axis in range(len(value.shape)))


def _is_real(value: Value, axis: int) -> bool:
    return value.shape[axis] != 1 and value.strides[axis] != 0


def fits(value: Value, order: Order) -> bool:
    """Whether a view lies without gaps in an order; axes along which one element stands for all do not count."""
    expected = 1
    for axis in reversed(order):
        if not _is_real(value, axis):
            continue
        if value.strides[axis] != expected:
            return False
        expected *= value.shape[axis]
    return True


def is_spread(value: Value) -> bool:
    """Whether one element stands for several."""
    return any(size != 1 and stride == 0 for size, stride in zip(value.shape, value.strides, strict=True))


def is_whole(value: Value) -> bool:
    """Whether a view is a dense buffer in row-major order, from its first byte to its last."""
    return fits(value, natural(value.shape)) and not is_spread(value) and value.offset == 0


# --- views --------------------------------------------------------------------------------------------------


def transposed(value: Value, perm: Sequence[int]) -> Value:
    """The axes in another order: axis i of the result is axis perm[i]."""
    shape = tuple(value.shape[axis] for axis in perm)
    strides = tuple(value.strides[axis] for axis in perm)
    array = None if value.array is None else value.array.transpose(perm)
    quant = value.quant
    if isinstance(quant, PerChannel):
        quant = replace(quant, axis=list(perm).index(quant.axis % len(value.shape)))
    return replace(value, shape=shape, strides=strides, array=array, quant=quant)


def broadcast(value: Value, shape: Shape) -> Value:
    """The value with axes of one element repeated, aligned at the last axis."""
    lead = len(shape) - len(value.shape)
    padded = (1,) * lead + value.shape
    strides = (0,) * lead + value.strides
    found = tuple(
        stride if size == wanted and size != 1 else 0
        for size, stride, wanted in zip(padded, strides, shape, strict=True)
    )
    array = None if value.array is None else np.broadcast_to(value.array, shape)
    return replace(value, shape=shape, strides=found, array=array)


def reshaped(value: Value, shape: Shape) -> Value | None:
    """The value in another shape of as many elements; None where that needs a copy."""
    if value.array is not None:
        array = value.array.reshape(shape)
        return replace(value, shape=shape, strides=_strides_of(array), array=array)
    # NumPy's own rule, on a view of one byte that nobody reads.
    view = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), value.shape, value.strides)
    try:
        found = view.reshape(shape, copy=False)
    except ValueError:
        return None
    return replace(value, shape=shape, strides=tuple(found.strides))


def neighbours_of(value: Value, axis: int, start: int, size: int) -> Value:
    """A run of neighbours along an axis."""
    shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    array = None if value.array is None else value.array.take(range(start, start + size), axis)
    offset = value.offset + start * value.strides[axis]
    return replace(value, shape=shape, offset=offset, array=array)


def _strides_of(array: Array) -> Shape:
    return tuple(stride // array.itemsize for stride in array.strides)
