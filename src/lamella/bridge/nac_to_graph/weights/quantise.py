"""Arrays as quantised tensors, in the arithmetic of the public compiler: float32 throughout, halves to even."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, cast, element_type_of
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import ceil_divide
from lamella.base.source import NOWHERE
from lamella.bridge.nac_to_graph.weights.arrays import image_of, store_weight
from lamella.lang.nac.check.data import INT8
from lamella.lang.nac.nodes import BlockFp8, Int8Channel, Int8Tensor, Method, Quantization, Tensor
from lamella.lang.nac.rules import data as rules
from lamella.lang.nac.rules import graphs as weight_rules

BLOCK = 64
"""Elements of a block."""
_LARGEST = np.float32(127)
_TINY = np.float32(1e-9)
"""The scale of a tensor or a channel of zeros."""


def quantise(values: Array, method: Method, parameter: int = 0, axis: int = 0, block: int = BLOCK) -> Tensor:
    """The tensor of an array under a method; LamellaError: there is no such axis, or no code for the elements.

    What a method cannot say is stored as it is: elements that are not floating, or not finite, or that a half cannot
    hold. INT8_CHANNEL gives arrays of one axis or none a single scale.
    """
    plain = store_weight(values, parameter)
    if plain is None:
        finding = weight_rules.WEIGHT_ELEMENTS.at(NOWHERE, name=f"id {parameter}", found=values.dtype)
        raise LamellaError([finding])
    element = element_type_of(values.dtype)
    if method is Method.NONE or element is None or not element.is_float:
        return plain
    if method is Method.FP16:
        return _halve(values, parameter) or plain
    single = cast(values, types.F32) if element != types.F32 else values
    return _to_codes(single, method, parameter, axis, block) or plain


def _halve(values: Array, parameter: int) -> Tensor | None:
    """Halves, unless a finite number is too large for them."""
    halves = cast(values, types.F16)
    lost = np.isinf(halves) & ~np.isinf(values)
    return None if lost.any() else store_weight(halves, parameter)


def _to_codes(values: Array, method: Method, parameter: int, axis: int, block: int) -> Tensor | None:
    """Codes of 8 bits and their scales; None for numbers that are not finite."""
    if method is Method.BLOCK_FP8:
        return _quantise_blocks(values, parameter, block)
    whole = method is Method.INT8_TENSOR or values.ndim <= 1
    if not whole and not 0 <= axis < values.ndim:
        what = f"the tensor of parameter {parameter}"
        raise LamellaError([rules.AXIS_RANGE.at(NOWHERE, what=what, axis=axis, rank=values.ndim)])
    others = tuple(index for index in range(values.ndim) if whole or index != axis)
    scales = _scales_over(values, others, _TINY)
    if not np.isfinite(scales).all():
        return None
    found: Quantization = (
        Int8Tensor(float(scales.reshape(()))) if whole else Int8Channel(axis, bytes(image_of(scales)))
    )
    return _tensor(parameter, _codes(values, scales, -127), found)


def _quantise_blocks(values: Array, parameter: int, block: int) -> Tensor | None:
    """Codes of the flattened array, filled up with zeros to whole blocks."""
    count = ceil_divide(values.size, block)
    blocks = np.zeros((count, block), np.float32)
    blocks.reshape(-1)[: values.size] = values.reshape(-1)
    scales = _scales_over(blocks, (1,), np.float32(1))
    if not np.isfinite(scales).all():
        return None
    found = BlockFp8(block, values.shape, bytes(image_of(scales)))
    return _tensor(parameter, _codes(blocks, scales, -128).reshape(-1), found)


def _scales_over(values: Array, axes: Sequence[int], of_zeros: np.float32) -> Array:
    """The largest size along some axes for code 127; where that is no number above zero, another scale."""
    highest = values.max(axis=tuple(axes), initial=0, keepdims=True)
    lowest = values.min(axis=tuple(axes), initial=0, keepdims=True)
    scales = np.asarray(np.maximum(highest, -lowest) / _LARGEST)
    return np.where(scales == 0, of_zeros, scales)


def _codes(values: Array, scales: Array, least: int) -> Array:
    steps = np.asarray(values / scales)
    np.rint(steps, out=steps)
    np.clip(steps, least, 127, out=steps)
    return steps.astype(np.int8)


def _tensor(parameter: int, codes: Array, quantization: Quantization) -> Tensor:
    return Tensor(parameter, INT8, codes.shape, quantization, image_of(codes))
