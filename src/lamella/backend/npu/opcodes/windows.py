"""Windows that slide over the spatial axes of a channels-last tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lamella.base.arrays import Array

BLOCK_ELEMENTS = 1 << 22
"""How many window elements are gathered at once."""


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel, strides, dilations and leading pads, one number each per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]

    def taps(self, axis: int, size: int, count: int) -> Array:
        """For each output and kernel position along an axis the input position, -1 where it is padding.

        Plain integers, because pads of a hostile program need not fit into a machine word.
        """
        stride, dilation, begin = self.strides[axis], self.dilations[axis], self.begins[axis]
        rows = (
            [out * stride + tap * dilation - begin for tap in range(self.kernel[axis])]
            for out in range(count)
        )
        inside = [[at if 0 <= at < size else -1 for at in row] for row in rows]
        return np.asarray(inside, np.int64).reshape(count, self.kernel[axis])


@dataclass(frozen=True, slots=True)
class Block:
    """Some outputs of one image: where they go, and the taps of their windows."""

    image: int
    rows: slice
    taps: tuple[Array, ...]


def blocks(window: Window, shape: Sequence[int], out: Sequence[int]) -> Iterator[Block]:
    """Blocks of outputs, in order, for an input [N, spatial…, C] and outputs of these spatial sizes."""
    taps = [window.taps(axis, shape[1 + axis], count) for axis, count in enumerate(out)]
    per_row = int(np.prod([item.size for item in taps[1:]], dtype=np.int64)) * window.kernel[0] * shape[-1]
    step = max(1, BLOCK_ELEMENTS // max(per_row, 1))
    for image in range(shape[0]):
        for start in range(0, out[0], step):
            yield Block(image, slice(start, start + step), (taps[0][start : start + step], *taps[1:]))


def gather(values: Array, block: Block, padding: float | None) -> Array:
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


def real_elements(block: Block) -> Array:
    """How many elements of each window are no padding, as [outputs…, 1]."""
    count = np.ones((), np.int64)
    for taps in block.taps:
        count = np.multiply.outer(count, (taps >= 0).sum(axis=1))
    return count[..., None]
