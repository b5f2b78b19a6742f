"""Real numbers behind stored ones: everything here is double, with one rounding at the end.

A stored integer q stands for `scale * (q - zero_point)`; integers without a descriptor stand for themselves.
Storing a real number divides by the scale, rounds half to even, adds the zero point and saturates; floats are rounded
to f32 and then to their own type.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from lamella.backend.npu.opcodes.call import OpcodeInput, OpcodeReport, element_of
from lamella.base import arrays, dtype
from lamella.base.arrays import Array
from lamella.base.dtype import ElementType
from lamella.base.quant import PerTensor, Quant, axis_of
from lamella.lang.nem.resolved import TensorType
from lamella.lang.nem.rules import OVERFLOW

PLAIN = PerTensor(1.0, 0)


def real_values(operand: OpcodeInput) -> Array:
    """The numbers an operand stands for, in double."""
    values, scale = centre(operand, ())
    return values * scale


def centre(operand: OpcodeInput, axes: Collection[int]) -> tuple[Array, Array]:
    """Values and scale, both double: exact integers less their zero points, the scale being the same along axes.

    Where the descriptor runs along one of the axes, the values are real numbers already and the scale is 1.
    """
    quant = operand.type.quant
    values = operand.array.astype(np.float64)
    if quant is None:
        return values, np.ones((1,) * values.ndim)
    scale, zero = arrays.scales_along(quant, operand.type.shape)
    if runs_along(quant, values.ndim, axes):
        return (values - zero) * scale, np.ones((1,) * values.ndim)
    return values - zero, scale


def runs_along(quant: Quant | None, rank: int, axes: Collection[int]) -> bool:
    """Whether scales differ along one of these axes."""
    return quant is not None and not isinstance(quant, PerTensor) and axis_of(quant, rank) in axes


def scales_of_type(type: TensorType) -> tuple[Array, Array]:
    """Scales and zero points that broadcast against a tensor of this type."""
    return arrays.scales_along(type.quant or PLAIN, type.shape)


def store_real(real: Array, type: TensorType) -> Array:
    """Real numbers as elements of a type."""
    element = element_of(type)
    if element.is_float:
        return store_float(real, type)
    scale, zero = scales_of_type(type)
    return arrays.cast(np.rint(real / scale) + zero, element)


def store_float(values: Array, type: TensorType) -> Array:
    """Numbers of f32 (doubles are rounded to it first) as elements of a floating type."""
    return arrays.cast(values.astype(np.float32, copy=False), element_of(type))


def wrap_integers(values: Array, element: ElementType, report: OpcodeReport) -> Array:
    """Integers as a type holds them, the low bits of each; the first that does not fit is reported."""
    outside = values[(values < element.minimum) | (values > element.maximum)]
    if outside.size:
        report(OVERFLOW, elem=element.name, value=int(outside[0]))
    return arrays.wrap(values, element)


def is_float(type: TensorType) -> bool:
    """Whether the elements are floats."""
    return element_of(type).is_float


def singles(operand: OpcodeInput) -> Array:
    """The numbers of an operand in f32: exact for floats of 16 and 32 bits."""
    if is_float(operand.type):
        return arrays.cast(operand.array, dtype.F32)
    return real_values(operand).astype(np.float32)


def add_in_order(values: Array, axis: int) -> Array:
    """The sum along an axis, one element after the other from the first; the axis stays with size 1."""
    if values.shape[axis] == 0:
        return np.zeros_like(np.take(values, [], axis), shape=_kept(values.shape, axis))
    # Accumulation is sequential by definition, a plain sum may pair its terms.
    return np.take(np.add.accumulate(values, axis=axis), [-1], axis=axis)


def _kept(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis + 1 :])
