"""Windows that slide over the spatial axes of a channels-last tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lamella.base.arrays import Array

BLOCK_ELEMENTS = 1 << 22
"""How many window elements are gathered at once."""
MOST_TAPS = 1 << 22
"""Outputs times kernel positions along one axis; more would take gigabytes."""


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Kernel, strides, dilations and leading pads, one number each per spatial axis.

    Where padding takes no part, `dense` leaves it out: a window is then as wide as the input at most.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    dense: bool = False

    def taps(self, axis: int, size: int, count: int) -> Array:
        """For each output and kernel position along an axis the input position, -1 where it is padding.

        Plain integers, because pads of a hostile program need not fit into a machine word.
        """
        width = min(self.kernel[axis], size) if self.dense else self.kernel[axis]
        if width * count > MOST_TAPS:
            raise MemoryError
        rows = [self._row(axis, size, out) for out in range(count)]
        return np.asarray([row + [-1] * (width - len(row)) for row in rows], np.int64).reshape(count, width)

    def _row(self, axis: int, size: int, out: int) -> list[int]:
        """The input positions of one output."""
        dilation, start = self.dilations[axis], out * self.strides[axis] - self.begins[axis]
        if not self.dense:
            places = range(start, start + self.kernel[axis] * dilation, dilation)
            return [at if 0 <= at < size else -1 for at in places]
        first = max(0, -(start // dilation))
        last = min(self.kernel[axis] - 1, (size - 1 - start) // dilation)
        return [start + tap * dilation for tap in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """Some outputs of one image: where they go, and the taps of their windows."""

    image: int
    rows: slice
    taps: tuple[Array, ...]


def blocks(window: SlidingWindow, shape: Sequence[int], out: Sequence[int]) -> Iterator[OutputBlock]:
    """Blocks of outputs, in order, for an input [N, spatial…, C] and outputs of these spatial sizes."""
    taps = [window.taps(axis, shape[1 + axis], count) for axis, count in enumerate(out)]
    per_row = int(np.prod([item.size for item in taps[1:]], dtype=np.int64)) * taps[0].shape[1] * shape[-1]
    step = max(1, BLOCK_ELEMENTS // max(per_row, 1))
    for image in range(shape[0]):
        for start in range(0, out[0], step):
            yield OutputBlock(image, slice(start, start + step), (taps[0][start : start + step], *taps[1:]))


def gather(values: Array, block: OutputBlock, padding: float | None) -> Array:
    """The windows of a block as [outputs…, kernel…, C]; None leaves any value at padded places."""
    found = values[block.image]
    for axis, taps in enumerate(block.taps):
        found = np.take(found, np.maximum(taps, 0), axis=2 * axis)
        if padding is not None and (taps < 0).any():
            after = found.ndim - 2 * axis - 2
            padded = (taps < 0).reshape((1,) * (2 * axis) + taps.shape + (1,) * after)
            found = np.where(padded, np.asarray(padding, found.dtype), found)
    rank = len(block.taps)
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2), 2 * rank]
    windows: Array = found.transpose(order)
    return windows


def real_elements(block: OutputBlock) -> Array:
    """How many elements of each window are no padding, as [outputs…, 1]."""
    count = np.ones((), np.int64)
    for taps in block.taps:
        count = np.multiply.outer(count, (taps >= 0).sum(axis=1))
    return count[..., None]
