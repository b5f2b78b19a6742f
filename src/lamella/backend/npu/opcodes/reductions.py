"""Reductions: floats are summed in f32 in ascending order, plain integers wrap, quantised integers are rescaled."""

from __future__ import annotations

import numpy as np

from lamella.backend.npu.opcodes.call import Call, element_of
from lamella.backend.npu.opcodes.quantised import (
    add_in_order,
    centre,
    is_float,
    real_values,
    singles,
    store_float,
    store_real,
    wrap_integers,
)
from lamella.base import arrays
from lamella.base.arrays import Array

_EXTREME = {"reduce_max": np.max, "reduce_min": np.min}


def reduce_sum(call: Call) -> list[Array]:
    """Add up along axes."""
    (x,), (y,) = call.inputs, call.outputs
    axes = _axes(call)
    if is_float(y):
        return [store_float(_add(singles(x), axes).reshape(y.shape), y)]
    if x.type.quant is None and y.quant is None:
        total = x.array.astype(np.int64).sum(axis=axes)
        return [wrap_integers(total.reshape(y.shape), element_of(y), call.report)]
    values, scale = centre(x, axes)
    return [store_real((_add(values, axes) * scale).reshape(y.shape), y)]


def reduce_extreme(call: Call) -> list[Array]:
    """Run reduce_max and reduce_min."""
    (x,), (y,) = call.inputs, call.outputs
    values, scale = centre(x, _axes(call))
    found = _EXTREME[call.opcode](values, axis=_axes(call), keepdims=True)
    return [store_real((found * scale).reshape(y.shape), y)]


def find_extreme(call: Call) -> list[Array]:
    """Run argmax and argmin: the first place of the extreme."""
    (x,), (y,) = call.inputs, call.outputs
    values = real_values(x)
    found = np.argmax(values, call.axis()) if call.opcode == "argmax" else np.argmin(values, call.axis())
    return [arrays.cast(np.asarray(found, np.int64).reshape(y.shape), element_of(y))]


def _axes(call: Call) -> tuple[int, ...]:
    """The axes in ascending order; an empty list means none."""
    rank = len(call.inputs[0].type.shape)
    return tuple(sorted({axis % rank for axis in call.integers("axes")}))


def _add(values: Array, axes: tuple[int, ...]) -> Array:
    """Sums in ascending row-major order of the reduced axes, which stay with size 1."""
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    shape = tuple(values.shape[axis] for axis in kept)
    flat = values.transpose([*axes, *kept]).reshape(-1, *shape)
    final = tuple(1 if axis in axes else size for axis, size in enumerate(values.shape))
    return add_in_order(flat, 0).reshape(final)
