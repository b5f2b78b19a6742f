"""Codes of weights: symmetric integers with a scale for the tensor, for each channel, or for each group of a channel.

A weight is looked at as a matrix: a row for each output channel, a column for each term of its sum. GPTQ rounds the
columns one after the other and moves what each rounding lost to the columns that are not rounded yet, by the inverse
of the second moments of the layer's inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.quant import PerChannel, PerTensor
from lamella.pipeline.quantize.ranges import TINY

TENSOR, CHANNEL, GROUP = "tensor", "channel", "group"
SHARES = tuple(np.linspace(1.0, 0.4, 61).tolist())
"""Parts of the largest magnitude that the search for the least squared error tries."""
DAMPING = 0.01
"""What is added to the second moments, in parts of their mean: directions that no input has are not divided by zero."""
BLOCK = 128
"""Columns that GPTQ rounds before it moves what they lost to all columns behind them."""

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Granularity:
    """What shares a scale: the whole tensor, each channel, or so many neighbours of a channel's sum."""

    kind: str = CHANNEL
    size: int = 0
    """How many neighbours; 0 where there are no groups."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.size}" if self.size else self.kind


@dataclass(frozen=True, slots=True)
class WeightCodes:
    """A weight as integers: those of the tensor, and the scales of its rows, one column for each group."""

    codes: Array
    scales: Matrix
    rows: int
    """The axis of the tensor that the rows are."""
    bits: int
    group: int
    """Neighbours that share a scale; all of a row where there are no groups."""

    def values(self) -> Array:
        """The real numbers that the codes stand for, in f32."""
        matrix = as_rows(self.codes, self.rows).astype(np.float64) * self.spread_scales()
        return from_rows(matrix, self.codes.shape, self.rows).astype(np.float32)

    def spread_scales(self) -> Matrix:
        """The scale of each element of the matrix."""
        columns = self.codes.size // max(self.codes.shape[self.rows], 1)
        return np.repeat(self.scales, self.group, axis=1)[:, :columns]

    @property
    def bytes(self) -> int:
        """Bytes of the codes, packed, and of the scales in f32."""
        return -(-self.codes.size * self.bits // 8) + 4 * self.scales.size

    @property
    def quant(self) -> PerTensor | PerChannel | None:
        """What the codes mean as the other layers say it; None for groups within channels, which they do not have."""
        if self.scales.shape[1] > 1:
            return None
        scales = tuple(self.scales[:, 0].tolist())
        if len(scales) == 1:
            return PerTensor(scales[0])
        return PerChannel(self.rows, scales, (0,) * len(scales))


def as_rows(tensor: Array, rows: int) -> Array:
    """A weight as a matrix with a row for each channel."""
    moved = np.moveaxis(tensor, rows, 0)
    return moved.reshape(moved.shape[0], -1)


def from_rows(matrix: Array, shape: Sequence[int], rows: int) -> Array:
    """The matrix as a tensor of a shape again."""
    moved = (shape[rows], *(extent for axis, extent in enumerate(shape) if axis != rows))
    return np.ascontiguousarray(np.moveaxis(matrix.reshape(moved), 0, rows))


def round_weight(tensor: Array, rows: int, bits: int, per: Granularity) -> WeightCodes:
    """The codes nearest to a weight; scales reach the largest magnitude, or fit best where codes are few."""
    matrix = as_rows(tensor, rows).astype(np.float64)
    found = WeightCodes(tensor, choose_scales(matrix, bits, per), rows, bits, group_of(matrix, per))
    return _with_codes(found, np.rint(matrix / found.spread_scales()))


def group_of(matrix: Array, per: Granularity) -> int:
    """How many columns share a scale; at least one, of an empty matrix too."""
    columns = max(int(matrix.shape[1]), 1)
    return min(per.size, columns) if per.kind == GROUP else columns


def choose_scales(matrix: Matrix, bits: int, per: Granularity) -> Matrix:
    """The scales of a matrix, numbers of f32: of codes with four bits those of the least squared error."""
    parts = _parts(matrix, per)
    scales = np.abs(parts).max(axis=2, initial=0.0) / (2 ** (bits - 1) - 1)
    if bits <= 4:
        scales = _best_scales(parts, scales, bits)
    narrow: Matrix = np.maximum(scales, TINY).astype(np.float32).astype(np.float64)
    return narrow


def _parts(matrix: Matrix, per: Granularity) -> Matrix:
    """What shares a scale, along the last axis; filled up with zeros."""
    if per.kind == TENSOR:
        return matrix.reshape(1, 1, -1)
    if per.kind == CHANNEL:
        return matrix[:, None, :]
    size = group_of(matrix, per)
    filled = np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % size)))
    return filled.reshape(matrix.shape[0], -1, size)


def _best_scales(parts: Matrix, widest: Matrix, bits: int) -> Matrix:
    """Of scales that cut off more and more of the largest numbers, those of the least squared error."""
    best, least = widest, np.full(widest.shape, np.inf)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for share in SHARES:
        scales = np.maximum(widest * share, TINY)[:, :, None]
        error = np.square(parts - np.clip(np.rint(parts / scales), low, high) * scales).sum(axis=2)
        better = error < least
        best, least = np.where(better, scales[:, :, 0], best), np.where(better, error, least)
    return best


def _with_codes(found: WeightCodes, steps: Matrix) -> WeightCodes:
    """The codes of a weight, saturating."""
    low, high = -(2 ** (found.bits - 1)), 2 ** (found.bits - 1) - 1
    codes = np.clip(steps, low, high).astype(np.int8)
    return replace(found, codes=from_rows(codes, found.codes.shape, found.rows))


# --- GPTQ ---------------------------------------------------------------------------------------------------


def gptq_weight(tensor: Array, rows: int, bits: int, per: Granularity, moments: Matrix) -> WeightCodes:
    """The codes of a linear layer's weight that change its outputs least, by the second moments of its inputs.

    Never worse than `round_weight` by that measure: where the search loses, which needs inputs without correlation,
    the nearest codes stay.
    """
    nearest = round_weight(tensor, rows, bits, per)
    matrix = as_rows(tensor, rows).astype(np.float64)
    # What is multiplied with the largest inputs is rounded first, when all others can still make up for it.
    order = np.argsort(-np.diag(moments), kind="stable")
    factor = _inverse_factor(moments[np.ix_(order, order)])
    if factor is None:
        return nearest
    scales = np.broadcast_to(nearest.spread_scales(), matrix.shape)
    steps = np.empty_like(matrix)
    steps[:, order] = _rounded_columns(matrix[:, order], scales[:, order], bits, factor)
    found = _with_codes(nearest, steps)
    if output_error(found, matrix, moments) < output_error(nearest, matrix, moments):
        return found
    return nearest


def output_error(found: WeightCodes, matrix: Matrix, moments: Matrix) -> float:
    """The squared error of a layer's outputs over the inputs with these second moments."""
    lost = as_rows(found.codes, found.rows) * found.spread_scales() - matrix
    return float(np.einsum("ij,ij->", lost @ moments, lost))


def _inverse_factor(moments: Matrix) -> Matrix | None:
    """The upper Cholesky factor of the inverse of damped second moments; None where they have none."""
    damped = moments + np.eye(len(moments)) * max(DAMPING * float(np.trace(moments)) / len(moments), 1e-12)
    if not np.isfinite(damped).all():
        return None
    try:
        return np.linalg.cholesky(np.linalg.inv(damped)).T
    except np.linalg.LinAlgError:  # numbers that are too far apart
        return None


def _rounded_columns(matrix: Matrix, scales: Matrix, bits: int, factor: Matrix) -> Matrix:
    """The codes of the columns, each rounded after the losses of those before it were added to it."""
    work = matrix.copy()
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    codes = np.zeros_like(matrix)
    for start in range(0, matrix.shape[1], BLOCK):
        end = min(start + BLOCK, matrix.shape[1])
        lost = np.zeros((len(matrix), end - start))
        for column in range(start, end):
            codes[:, column] = np.clip(np.rint(work[:, column] / scales[:, column]), low, high)
            error = (work[:, column] - codes[:, column] * scales[:, column]) / factor[column, column]
            work[:, column:end] -= np.outer(error, factor[column, column:end])
            lost[:, column - start] = error
        work[:, end:] -= lost @ factor[start:end, end:]
    return codes
