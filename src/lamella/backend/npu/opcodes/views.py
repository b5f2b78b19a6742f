"""Opcodes that move elements without changing them; they follow ONNX."""

from __future__ import annotations

import numpy as np

from lamella.backend.npu.opcodes.call import Call, element_of
from lamella.backend.npu.opcodes.quantised import is_float, store_real
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.lang.nem.resolved import TensorType
from lamella.lang.nem.rules import GATHER_INDEX


def copy(call: Call) -> list[Array]:
    """Run transfer and store: the bytes of the source, which are read as u8."""
    return [call.inputs[0].array.copy()]


def transpose(call: Call) -> list[Array]:
    """Reorder the axes: axis i of the output is axis perm[i] of the input."""
    return [call.inputs[0].array.transpose(call.integers("perm"))]


def reshape(call: Call) -> list[Array]:
    """Give the same elements, in row-major order, another shape."""
    return [call.inputs[0].array.reshape(call.outputs[0].shape)]


def slice_axes(call: Call) -> list[Array]:
    """Take from starts to ends (exclusive, clamped to the axis, negative from the back) in steps."""
    x = call.inputs[0].array
    cuts = [slice(None)] * x.ndim
    names = ("starts", "ends", "axes", "steps")
    for start, end, axis, step in zip(*(call.integers(name) for name in names), strict=False):
        cuts[axis % x.ndim] = _cut(x.shape[axis], start, end, step)
    return [x[tuple(cuts)]]


def _cut(size: int, start: int, end: int, step: int) -> slice:
    """A slice with resolved bounds; -1 as a resolved end means before the first element."""
    first, stop, step = slice(start, end, step).indices(size)
    return slice(first, None if stop < 0 else stop, step)


def concat(call: Call) -> list[Array]:
    """Join along an axis."""
    return [np.concatenate([item.array for item in call.inputs], axis=call.axis())]


def split(call: Call) -> list[Array]:
    """Cut along an axis into pieces of the given sizes."""
    ends = np.cumsum(call.integers("split_sizes"))
    pieces: list[Array] = np.split(call.inputs[0].array, ends[:-1], axis=call.axis())
    return pieces


def pad(call: Call) -> list[Array]:
    """Surround with a constant, the edge or the reflection; negative pads cut off."""
    (x,), (y,) = call.inputs, call.outputs
    found, mode = x.array, call.word("mode")
    begins = call.integers("pads")[: found.ndim]
    constant = _constant(call.number("constant_value"), y)
    for axis, begin in enumerate(begins):
        at = np.arange(y.shape[axis]) - begin
        found = _extend(found, axis, at, constant if mode == "constant" else None, mode)
    return [found]


def _constant(value: float, y: TensorType) -> Array:
    """A real number as one stored element; without a descriptor integers truncate it like a cast."""
    if is_float(y) or y.quant is not None:
        return store_real(np.full(y.shape, value), y)
    return arrays.cast(np.full(y.shape, value), element_of(y))


def _extend(values: Array, axis: int, at: Array, constant: Array | None, mode: str) -> Array:
    """Elements at positions along an axis, some of which lie outside."""
    size = values.shape[axis]
    inside = np.clip(at, 0, size - 1)
    if mode == "reflect":
        period = max(2 * size - 2, 1)
        inside = np.minimum(at % period, (-at) % period) if size > 1 else np.zeros_like(at)
    found = np.take(values, inside, axis=axis)
    if constant is None:
        return found
    outside = (at != inside).reshape([-1 if index == axis else 1 for index in range(values.ndim)])
    return np.where(outside, constant.reshape(-1)[0], found)


def gather(call: Call) -> list[Array]:
    """Take slices along an axis; an index outside is an error (the nearest slice is then taken)."""
    x, indices = call.inputs[0].array, call.inputs[1].array.astype(np.int64)
    size = x.shape[call.axis()]
    outside = (indices < 0) | (indices >= size)
    if outside.any():
        call.report(GATHER_INDEX, index=int(indices[outside].reshape(-1)[0]), size=size)
    return [np.take(x, np.clip(indices, 0, size - 1), axis=call.axis())]
