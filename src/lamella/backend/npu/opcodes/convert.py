"""Explicit conversions between element types."""

from __future__ import annotations

import numpy as np

from lamella.backend.npu.opcodes.call import Call, element_of
from lamella.backend.npu.opcodes.quantised import real_values, store_float, store_real
from lamella.base import arrays
from lamella.base.arrays import Array


def cast(call: Call) -> list[Array]:
    """Float to integer truncates to zero then saturates, integers saturate, floats round to nearest even."""
    return [arrays.cast(call.inputs[0].array, element_of(call.outputs[0]))]


def quantize(call: Call) -> list[Array]:
    """Compute clamp(rint(x / scale) + zero_point) with the descriptor of the output."""
    return [store_real(call.inputs[0].array.astype(np.float64), call.outputs[0])]


def dequantize(call: Call) -> list[Array]:
    """Compute scale * (q - zero_point) in f32, then the type of the output."""
    return [store_float(real_values(call.inputs[0]), call.outputs[0])]
