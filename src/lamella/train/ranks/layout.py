"""Where the numbers of a tensor lie among ranks: whole on each, or cut along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lamella.base.arrays import Array
from lamella.graph.nodes import Shape


@dataclass(frozen=True, slots=True)
class Shard:
    """A tensor that is cut along an axis: each rank has an equal slice of each part.

    A fused projection has several parts, of queries, keys and values, so that each rank has all three of some heads.
    """

    axis: int
    parts: tuple[int, ...]
    """The whole extents of the parts; they fill the axis."""

    def fits(self, ranks: int) -> bool:
        """Whether every part can be cut into equal slices."""
        return all(part % ranks == 0 and part > 0 for part in self.parts)

    def local(self, shape: Shape, ranks: int) -> Shape:
        """The shape of what one rank has."""
        return tuple(
            sum(self.parts) // ranks if axis == self.axis else extent for axis, extent in enumerate(shape)
        )

    def bounds(self, rank: int, ranks: int) -> Iterator[tuple[int, int]]:
        """Where the slices of a rank begin and end in the whole."""
        start = 0
        for part in self.parts:
            own = part // ranks
            yield start + rank * own, start + (rank + 1) * own
            start += part

    def cut(self, array: Array, rank: int, ranks: int) -> Array:
        """What a rank has of an array."""
        pieces = [
            np.take(array, range(first, last), axis=self.axis) for first, last in self.bounds(rank, ranks)
        ]
        found: Array = np.ascontiguousarray(np.concatenate(pieces, axis=self.axis))
        return found

    def place(self, array: Array, rank: int, ranks: int) -> Array:
        """What a rank has, where it lies in the whole; zeros are elsewhere, so that a sum over ranks is the whole."""
        shape = list(array.shape)
        shape[self.axis] = sum(self.parts)
        found = np.zeros(shape, array.dtype)
        index: list[slice] = [slice(None)] * array.ndim
        start = 0
        for first, last in self.bounds(rank, ranks):
            own = list(index)
            own[self.axis] = slice(start, start + last - first)
            index[self.axis] = slice(first, last)
            found[tuple(index)] = array[tuple(own)]
            start += last - first
        return found


Layout = Shard | None
"""None: every rank has the whole."""
