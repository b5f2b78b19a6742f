"""Codes of tensors: what integers stand for which numbers, and the integers of known numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array, numpy_dtype, scales_along
from lamella.base.dtype import I4, I8, I32, ElementType
from lamella.base.quant import PerTensor, Quant

MOST_BIAS = 1 << 30
"""How large a code of a bias may be: sums of products of 32 bits must hold it beside the products."""


class TensorCodes(NamedTuple):
    """How a tensor is told in integers: scales and zero points, and the type of the integers."""

    quant: Quant
    element: ElementType = I8

    @property
    def single(self) -> PerTensor | None:
        """The one scale and zero point; None where there are several."""
        return self.quant if isinstance(self.quant, PerTensor) else None


def encode(values: Array, codes: TensorCodes) -> Array:
    """The codes of numbers: the nearest, halves to even, kept in the type; those of 4 bits are held in 8."""
    scale, zero = scales_along(codes.quant, values.shape)
    steps = np.rint(values.astype(np.float64) / scale) + zero
    kept = np.clip(np.nan_to_num(steps, nan=0.0), codes.element.minimum, codes.element.maximum)
    return kept.astype(numpy_dtype(stored_type(codes.element)))


def decode(values: Array, codes: TensorCodes) -> Array:
    """The numbers that codes stand for, in double."""
    scale, zero = scales_along(codes.quant, values.shape)
    return (values.astype(np.float64) - zero) * scale


def stored_type(element: ElementType) -> ElementType:
    """The type that holds codes in a graph."""
    return I8 if element == I4 else element


def encode_bias(values: Array, units: Array) -> Array:
    """A bias as whole numbers of what one unit of the sums stands for."""
    steps = np.rint(values.astype(np.float64).reshape(-1) / units)
    return np.clip(steps, I32.minimum, I32.maximum).astype(np.int32)


def widened(scales: Array, bias: Array | None, x_scale: float) -> Array:
    """The scales of the channels of a weight, made large enough for the bias to be told in their units.

    A channel of nothing but zeros has any scale, and a bias that is huge in its units.
    """
    if bias is None:
        return scales
    least = np.abs(bias.astype(np.float64).reshape(-1)) / (x_scale * MOST_BIAS)
    return np.maximum(scales, least) if (least > scales).any() else scales
