"""Elements at affine indices as views: dimensions are split, cut, left out and put in the order of the loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamella.backend.nacvm.formula.values import Space, UnsupportedError, Value, index, reshape
from lamella.backend.nacvm.tape import Register
from lamella.backend.reference.formula.affine import Form, span
from lamella.backend.reference.formula.cells import Access, Cells
from lamella.base.arrays import DType


@dataclass(frozen=True, slots=True)
class Part:
    """How one dimension is used: the loops it is split into, or a slice of it, or one place."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    cut: slice | int | None
    """None takes the whole dimension."""


def read(
    space: Space, cells: Cells, access: Access, register: Register, shape: Sequence[int], dtype: DType
) -> Value:
    """The elements that an access reads, along the loops that its indices use."""
    parts = find_parts(space, cells, access, shape)
    axes = [axis for part in parts for axis in part.axes]
    if len(set(axes)) != len(axes):
        raise UnsupportedError("a loop runs along two dimensions")
    found = _look(space, register, parts, shape)
    order = tuple(sorted(axes))
    if order != tuple(axes):
        found = space.transpose(found, [axes.index(axis) for axis in order])
    return Value(found, order, dtype)


def _look(space: Space, register: Register, parts: Sequence[Part], shape: Sequence[int]) -> Register:
    """The dimensions split and cut, in their own order."""
    split = tuple(size for part in parts for size in part.sizes)
    if all(part.cut is None or (part.cut == 0 and part.sizes == (1,)) for part in parts):
        kept = tuple(size for part in parts if part.axes for size in part.sizes)
        return register if kept == tuple(shape) else space.view(register, reshape(kept))
    if split != tuple(shape):
        register = space.view(register, reshape(split))
    places: list[int | slice] = []
    for part in parts:
        places += [slice(None)] * len(part.sizes) if part.cut is None else [part.cut]
    return space.view(register, index(places))


def find_parts(space: Space, cells: Cells, access: Access, shape: Sequence[int]) -> list[Part]:
    """How each dimension of a tensor is used by an access that stays inside."""
    if access.picked is not None:
        raise UnsupportedError("an item of a pack is computed")
    return [
        find_part(space, cells[place.at].form, size) for place, size in zip(access.places, shape, strict=True)
    ]


def find_part(space: Space, form: Form | None, size: int) -> Part:
    """How an index uses a dimension of a size."""
    if form is None:
        raise UnsupportedError("an index is computed")
    low, high = span(form, tuple((0, extent) for extent in space.extents))
    if low < 0 or high >= size:
        raise UnsupportedError("an index leaves its tensor")
    if not form.terms:
        return Part((), (size,), form.constant)
    if len(form.terms) > 1:
        return _split(space, form, size)
    ((axis, factor),) = form.terms
    count = space.extents[axis]
    whole = form.constant == 0 and factor == 1 and count == size
    end = form.constant + factor * count
    cut = slice(form.constant, end if end >= 0 else None, factor)
    return Part((axis,), (size,), None if whole else cut)


def _split(space: Space, form: Form, size: int) -> Part:
    """A dimension that loops run through like the digits of a number."""
    factors = sorted(form.terms, key=lambda item: -item[1])
    axes = tuple(axis for axis, _ in factors)
    sizes = space.shape(axes)
    step = size
    for (_, factor), count in zip(factors, sizes, strict=True):
        if factor * count != step:
            raise UnsupportedError("loops share a dimension")
        step = factor
    if step != 1 or form.constant:
        raise UnsupportedError("loops share a dimension")
    return Part(axes, sizes, None)
