"""Products of matrices: exact integer accumulation, or f32 sums in ascending order.

Integers: `acc = Σ (a - za)(b - zb) + C` in i32, `y = clamp(rint(acc * M) + zY)` with `M = sA * sB / sY` in double;
without a descriptor of Y, `y = clamp(acc)`. Where scales run along the reduction there is one i32 sum per group; the
sums are combined in double in ascending order, multiplied by the remaining scale, and the bias is a real number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lamella.backend.npu.opcodes.call import OpcodeCall, OpcodeInput, OpcodeReport, element_of
from lamella.backend.npu.opcodes.quantised import (
    is_float,
    real_values,
    runs_along,
    scales_of_type,
    singles,
    store_float,
    store_real,
    wrap_integers,
)
from lamella.base import arrays, dtype
from lamella.base.arrays import Array
from lamella.base.quant import PerGroup, Quant
from lamella.lang.nem.resolved import TensorType

_EXACT_DOUBLE = 1 << 53


@dataclass(frozen=True, slots=True)
class IntegerFactor:
    """One side of an integer product, the reduction being the last axis on the left and the last but one on the right.

    `groups` numbers the group of each reduction index and `inner` holds the scale of each index ([rows or 1, K]);
    both are None where the scales do not run along the reduction.
    """

    values: Array
    groups: Array | None = None
    inner: Array | None = None


def gemm(call: OpcodeCall) -> list[Array]:
    """Multiply A by B and add C; leading axes broadcast."""
    left, right, (y,) = call.inputs[0], call.inputs[1], call.outputs
    bias = call.operand(2)
    if is_float(y):
        return [finish_float(sum_products(singles(left), singles(right)), bias, y)]
    a, b = _factor(left, -1), _factor(right, -2)
    scale = _outer(left, -1) * _outer(right, -2)
    return [finish_integer(accumulate(a, b, call.report), scale, bias, y, call.report)]


def _factor(operand: OpcodeInput, axis: int) -> IntegerFactor:
    values, (scale, zero) = operand.array.astype(np.int64), scales_of_type(operand.type)
    rank, size = values.ndim, values.shape[axis]
    if not runs_along(operand.type.quant, rank, (rank + axis,)):
        return IntegerFactor(values - zero)
    return IntegerFactor(values - zero, group_numbers(operand.type.quant, size), scale.reshape(1, size))


def _outer(operand: OpcodeInput, axis: int) -> Array:
    """The scale that does not run along the reduction."""
    rank = len(operand.type.shape)
    if runs_along(operand.type.quant, rank, (rank + axis,)):
        return np.ones((1,) * rank)
    return scales_of_type(operand.type)[0]


def group_numbers(quant: Quant | None, size: int) -> Array:
    """The group of each index along the axis of a descriptor."""
    return np.arange(size) // (quant.group_size if isinstance(quant, PerGroup) else 1)


def accumulate(left: IntegerFactor, right: IntegerFactor, report: OpcodeReport) -> Array:
    """Exact sums as 64-bit integers or, with groups, the scaled sums of all groups as doubles."""
    if left.groups is None and right.groups is None:
        return _multiply(left.values, right.values)
    total: Array | None = None
    for members in _members(left.groups, right.groups):
        partial = wrap_i32(_multiply(left.values[..., members], right.values[..., members, :]), report)
        term = _inner_scale(left, right, members) * partial.astype(np.float64)
        total = term if total is None else total + term
    return np.zeros(()) if total is None else total


def _members(left: Array | None, right: Array | None) -> Iterator[Array]:
    """The reduction indices of each group, groups in ascending order."""
    first = left if left is not None else np.zeros_like(right)
    second = right if right is not None else np.zeros_like(left)
    order = np.lexsort((second, first))
    pairs = np.stack([first, second], axis=-1)[order]
    starts = np.flatnonzero((pairs[1:] != pairs[:-1]).any(axis=-1)) + 1
    yield from np.split(order, starts)


def _inner_scale(left: IntegerFactor, right: IntegerFactor, members: Array) -> Array:
    """The scale of one group, for each row or for all."""
    scale = np.ones((1, 1))
    for factor in (left, right):
        if factor.inner is not None:
            scale = scale * factor.inner[:, members[:1]]
    return scale


def _multiply(left: Array, right: Array) -> Array:
    """An exact integer matrix product; doubles are exact, and much faster, while all sums stay below 2^53."""
    bound = _largest(left) * _largest(right) * left.shape[-1]
    if bound < _EXACT_DOUBLE:
        return (left.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)
    return left @ right


def _largest(values: Array) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def wrap_i32(sums: Array, report: OpcodeReport) -> Array:
    """Sums as an i32 accumulator holds them; one that leaves it is reported."""
    return wrap_integers(sums, dtype.I32, report).astype(np.int64)


def finish_integer(
    sums: Array, scale: Array, bias: OpcodeInput | None, y: TensorType, report: OpcodeReport
) -> Array:
    """Add the bias, rescale and clamp what `accumulate` gave; `scale` is the scale of the sums."""
    if sums.dtype == np.float64:
        real = sums * scale + (real_values(bias) if bias is not None else 0.0)
        return store_real(np.broadcast_to(real, y.shape), y)
    if bias is not None:
        sums = sums + bias.array.astype(np.int64)
    sums = np.broadcast_to(wrap_i32(sums, report), y.shape)
    if y.quant is None:
        return arrays.cast(sums, element_of(y))
    y_scale, zero = scales_of_type(y)
    return arrays.cast(np.rint(sums.astype(np.float64) * (scale / y_scale)) + zero, element_of(y))


def sum_products(left: Array, right: Array) -> Array:
    """A matrix product of f32 arrays: every product and every sum rounded to f32, terms in ascending order."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    total = np.zeros((*batch, left.shape[-2], right.shape[-1]), np.float32)
    product = np.empty_like(total)
    columns = np.ascontiguousarray(np.moveaxis(left, -1, 0))
    for index in range(left.shape[-1]):
        np.multiply(columns[index][..., None], right[..., index, None, :], out=product)
        np.add(total, product, out=total)
    return total


def finish_float(sums: Array, bias: OpcodeInput | None, y: TensorType) -> Array:
    """Add the bias in f32 and round once to the type."""
    if bias is not None:
        sums = sums + singles(bias)
    return store_float(np.broadcast_to(sums, y.shape), y)
