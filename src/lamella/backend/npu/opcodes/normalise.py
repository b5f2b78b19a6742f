"""Softmax and norms along one axis: every step is rounded to f32, sums run in ascending order."""

from __future__ import annotations

import numpy as np

from lamella.backend.npu.opcodes.call import Call, Operand
from lamella.backend.npu.opcodes.quantised import add_in_order, singles, store_float
from lamella.base.arrays import Array


def softmax(call: Call) -> list[Array]:
    """Exponentials less the maximum, divided by their sum."""
    powers = _exponentials(_less_maximum(call))
    return [store_float(powers / add_in_order(powers, call.axis()), call.outputs[0])]


def log_softmax(call: Call) -> list[Array]:
    """Compute x - max - log(sum)."""
    shifted = _less_maximum(call)
    total = add_in_order(_exponentials(shifted), call.axis())
    logarithm = np.log(total.astype(np.float64)).astype(np.float32)
    return [store_float(shifted - logarithm, call.outputs[0])]


def layernorm(call: Call) -> list[Array]:
    """Compute (x - mean) / sqrt(variance + epsilon) * scale + bias, the variance being biased."""
    x, axis = singles(call.inputs[0]), call.axis()
    centred = x - _mean(x, axis)
    found = _divide_by_root(centred, _mean(centred * centred, axis), call)
    return [store_float(_affine(found, call.operand(1), call.operand(2), axis), call.outputs[0])]


def rmsnorm(call: Call) -> list[Array]:
    """Compute x / sqrt(mean(x²) + epsilon) * scale."""
    x, axis = singles(call.inputs[0]), call.axis()
    found = _divide_by_root(x, _mean(x * x, axis), call)
    return [store_float(_affine(found, call.operand(1), None, axis), call.outputs[0])]


def _less_maximum(call: Call) -> Array:
    x = singles(call.inputs[0])
    largest: Array = x.max(axis=call.axis(), keepdims=True)
    return x - largest


def _exponentials(values: Array) -> Array:
    """The nearest f32 of each exponential, the same on every machine."""
    return np.exp(values.astype(np.float64)).astype(np.float32)


def _mean(values: Array, axis: int) -> Array:
    return add_in_order(values, axis) / np.float32(values.shape[axis])


def _divide_by_root(values: Array, square: Array, call: Call) -> Array:
    return values / np.sqrt(square + np.float32(call.number("epsilon")))


def _affine(values: Array, scale: Operand | None, bias: Operand | None, axis: int) -> Array:
    along = [-1 if index == axis else 1 for index in range(values.ndim)]
    if scale is not None:
        values = values * singles(scale).reshape(along)
    return values if bias is None else values + singles(bias).reshape(along)
