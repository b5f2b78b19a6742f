"""Pooling of [N, H, W, C]: padding takes no part, an average divides by the number of real elements.

With one descriptor for X and Y the integers themselves are pooled (an average rounds half to even); with two the
result is requantised. A window of padding alone gives the smallest number (maximum) or real zero (average).
"""

from __future__ import annotations

import numpy as np

from lamella.backend.npu.opcodes.call import Call, element_of
from lamella.backend.npu.opcodes.quantised import (
    add_in_order,
    centre,
    is_float,
    runs_along,
    scales_of_type,
    singles,
    store_float,
    store_real,
)
from lamella.backend.npu.opcodes.windows import Block, Window, blocks, gather, real_elements
from lamella.base import arrays
from lamella.base.arrays import Array

_SPATIAL = (1, 2)


def maxpool(call: Call) -> list[Array]:
    """Take the maximum of each window."""
    (x,), (y,) = call.inputs, call.outputs
    kept = _is_kept(call)
    values, scale = (x.array.astype(np.float64), np.ones(1)) if kept else centre(x, _SPATIAL)
    found = np.empty(y.shape)
    for block in _blocks(call):
        found[block.image, block.rows] = gather(values, block, -np.inf).max(axis=(2, 3))
    return [arrays.cast(found, element_of(y)) if kept else store_real(found * scale, y)]


def avgpool(call: Call) -> list[Array]:
    """Take the mean of each window."""
    (x,), (y,) = call.inputs, call.outputs
    real = _counts(call)
    counts = np.maximum(real, 1)
    if is_float(y):
        return [store_float(_sums(call, singles(x)) / counts.astype(np.float32), y)]
    if _is_kept(call):
        means = divide_half_even(_sums(call, x.array.astype(np.int64)), counts)
        return [arrays.cast(np.where(real > 0, means, scales_of_type(x.type)[1]), element_of(y))]
    values, scale = centre(x, _SPATIAL)
    return [store_real(scale * (_sums(call, values) / counts), y)]


def divide_half_even(sums: Array, counts: Array) -> Array:
    """Integer quotients, rounded to the nearest and halves to even, exactly."""
    whole = sums // counts
    twice = 2 * (sums - whole * counts)
    rounded: Array = whole + ((twice > counts) | ((twice == counts) & (whole % 2 != 0)))
    return rounded


def _is_kept(call: Call) -> bool:
    """Whether stored elements can be pooled as they are: one descriptor for both, the same in a whole window."""
    x, y = call.inputs[0].type, call.outputs[0]
    return is_float(x) or (x.quant == y.quant and not runs_along(x.quant, 4, _SPATIAL))


def _blocks(call: Call) -> list[Block]:
    kernel, strides, pads = (call.integers(name) for name in ("kernel_shape", "strides", "pads"))
    window = Window(kernel, strides, (1, 1), pads[:2], dense=True)
    return list(blocks(window, call.inputs[0].type.shape, call.outputs[0].shape[1:-1]))


def _sums(call: Call, values: Array) -> Array:
    """The sum of each window in ascending order, in the type of the values."""
    sums = np.zeros(call.outputs[0].shape, values.dtype)
    for block in _blocks(call):
        windows = gather(values, block, 0.0)
        flat = windows.reshape(*windows.shape[:2], -1, windows.shape[-1])
        sums[block.image, block.rows] = add_in_order(flat, 2)[:, :, 0]
    return sums


def _counts(call: Call) -> Array:
    """The number of real elements of each window, to be broadcast against the output."""
    shape = call.outputs[0].shape
    counts = np.zeros((1, *shape[1:-1], 1), np.int64)
    for block in _blocks(call):
        counts[0, block.rows] = real_elements(block)
    return counts
