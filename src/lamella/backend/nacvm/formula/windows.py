"""Reading overlapping windows, also beyond the edges of a tensor, as one strided view; zeros stand beyond the edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lamella.backend.nacvm.formula.values import Space, UnsupportedError
from lamella.backend.reference.formula.affine import Affine
from lamella.backend.reference.formula.cells import Access, Cells
from lamella.base.arrays import Array, DType


@dataclass(frozen=True, slots=True)
class Window:
    """How a tensor is read: the part of it that is spanned, with its edges, and the loops over it."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    """The lengths of the loops."""
    factors: tuple[tuple[int, ...], ...]
    """For each loop, how far one step of it goes in each dimension."""
    starts: tuple[int, ...]
    """Where the loops begin in the part."""
    room: tuple[int, ...] | None
    """The part with zeros beyond the edges; None where nothing is beyond them."""
    source: tuple[slice, ...]
    target: tuple[slice, ...]

    def look(self, array: Array) -> Array:
        """The windows of an array."""
        if self.room is not None:
            part = np.zeros(self.room, array.dtype)
            part[self.target] = array[self.source]
            array = part
        strides = tuple(
            sum(factor * stride for factor, stride in zip(row, array.strides, strict=True))
            for row in self.factors
        )
        corner = array[tuple(slice(start, None) for start in self.starts)]
        return as_strided(corner, self.shape, strides, writeable=False)


def find_window(space: Space, cells: Cells, access: Access, shape: Sequence[int], dtype: DType) -> Window:
    """The windows that an access reads, where its indices are affine and what is beyond the edges is skipped."""
    forms = [cells[place.at].form for place in access.places]
    known = [form for form in forms if form is not None]
    replaced = any(place.below is not None or place.above is not None for place in access.places)
    if len(known) != len(forms) or access.picked is not None or replaced:
        raise UnsupportedError("an index is computed")
    box = tuple((0, extent) for extent in space.extents)
    spans = [form.span(box) for form in known]
    beyond = [low < 0 or high >= size for (low, high), size in zip(spans, shape, strict=True)]
    if any(is_beyond and not place.guarded for is_beyond, place in zip(beyond, access.places, strict=True)):
        raise UnsupportedError("an index leaves its tensor")
    axes = tuple(sorted({axis for form in known for axis in form.axes}))
    if not any(beyond):
        return _window(space, axes, known, [form.constant for form in known], None)
    starts = [form.constant - low for form, (low, _) in zip(known, spans, strict=True)]
    room = tuple(high - low + 1 for low, high in spans)
    space.reserve_bytes(room, dtype)
    return _window(space, axes, known, starts, room, _edges(spans, shape))


def _window(
    space: Space,
    axes: tuple[int, ...],
    forms: Sequence[Affine],
    starts: Sequence[int],
    room: tuple[int, ...] | None,
    edges: tuple[tuple[slice, ...], tuple[slice, ...]] = ((), ()),
) -> Window:
    factors = tuple(tuple(dict(form.factors).get(axis, 0) for form in forms) for axis in axes)
    return Window(axes, space.shape(axes), factors, tuple(starts), room, *edges)


def _edges(
    spans: Sequence[tuple[int, int]], shape: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of the tensor that is spanned, and where it stands among the zeros."""
    source, target = [], []
    for (low, high), size in zip(spans, shape, strict=True):
        start = max(low, 0)
        stop = max(min(high + 1, size), start)
        source.append(slice(start, stop))
        target.append(slice(start - low, stop - low))
    return tuple(source), tuple(target)
