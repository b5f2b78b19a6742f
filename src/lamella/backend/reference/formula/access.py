"""Reading and finding elements of tensors: affine indices are strided views, all others gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lamella.backend.reference.formula.affine import Form, first, span
from lamella.backend.reference.formula.cells import Access, Place
from lamella.backend.reference.formula.evaluate import Evaluation, Trouble, at
from lamella.backend.reference.formula.scalars import BOOLEAN, INTEGER, Real
from lamella.base.affine import Affine
from lamella.base.arrays import Array, element_type_of
from lamella.lang.skriptnd.rules.graphs import INDEX_OUTSIDE, ITEM_OUTSIDE
from lamella.ops.problem import Fault

PADDING = 1 << 20
"""Elements that padding may add to an operand before a gather is taken instead."""


class Subscript(NamedTuple):
    """Where one dimension is accessed: an affine form with the range it spans, or an array of indices."""

    form: Form | None
    array: Array | None
    low: int = 0
    high: int = 0


def read_element(evaluation: Evaluation, access: Access) -> Array:
    """The elements that an access reads in the steps of a box, in the type that is computed with."""
    if access.picked is not None:
        return _read_picked(evaluation, access, access.picked)
    tensor = evaluation.tensor(access)
    subscripts = [
        find_subscript(evaluation, access, number, padded=True) for number in range(len(access.places))
    ]
    if tensor.size == 0:
        found = np.zeros((1,) * len(evaluation.box), tensor.dtype)
    elif all(item.form is not None for item in subscripts):
        found = _read_affine(evaluation, tensor, subscripts)
    else:
        found = _gather(evaluation, tensor, subscripts)
    return found.astype(computing_type(found.dtype, evaluation.real), copy=False)


def computing_type(dtype: np.dtype[np.generic], real: Real) -> np.dtype[np.generic]:
    """The type in which elements of a stored type are computed with: 64-bit integers, one real type, bool."""
    if dtype in (real, INTEGER, BOOLEAN):
        return dtype
    element = element_type_of(dtype)
    return real if element is not None and element.is_float else INTEGER


def _read_picked(evaluation: Evaluation, access: Access, picked: int) -> Array:
    pack, number = evaluation.tensors[access.tensor], evaluation.value(picked)
    items = pack if isinstance(pack, tuple) else (pack,)
    outside = (number < 0) | (number >= len(items))
    if outside.any():
        name = f"'{access.tensor}'"
        evaluation.trouble.append(
            Trouble(
                outside,
                lambda place: Fault(ITEM_OUTSIDE, what=name, index=at(number, place), count=len(items)),
            )
        )
    found = np.zeros((), INTEGER)
    for place in range(len(items)):
        before = len(evaluation.trouble)
        one = read_element(evaluation, access._replace(picked=None, item=place))
        used = np.asarray(number == place)
        for index in range(before, len(evaluation.trouble)):
            trouble = evaluation.trouble[index]
            evaluation.trouble[index] = trouble._replace(steps=np.asarray(trouble.steps & used))
        found = np.where(used, one, found) if place else one
    return found


# --- where an index points ----------------------------------------------------------------------------------


def find_subscript(evaluation: Evaluation, access: Access, dimension: int, padded: bool = False) -> Subscript:
    """Where a dimension is accessed; `padded` allows a form that leaves the tensor, where nothing is used."""
    place, extent = access.places[dimension], int(evaluation.tensor(access).shape[dimension])
    form = evaluation.formula.cells[place.at].form
    if form is not None:
        low, high = span(form, evaluation.box)
        inside = low >= 0 and high < extent
        if inside or (padded and place.below is None and place.above is None):
            if not inside and not place.guarded:
                _tell(evaluation, access, dimension, evaluation.value(place.at), place)
            return Subscript(form, None, low, high)
    index = _remap(evaluation, place, extent)
    if (index < 0).any() or (index >= extent).any():
        _tell(evaluation, access, dimension, index, place)
        index = np.clip(index, 0, max(extent - 1, 0))
    return Subscript(None, index)


def _remap(evaluation: Evaluation, place: Place, extent: int) -> Array:
    index = found = evaluation.value(place.at)
    if place.below is not None:
        found = np.where(index < 0, evaluation.value(place.below), found)
    if place.above is not None:
        found = np.where(index >= extent, evaluation.value(place.above), found)
    return found


def _tell(evaluation: Evaluation, access: Access, dimension: int, index: Array, place: Place) -> None:
    """Remember the steps in which an index is outside, but not those that a guard skips."""
    extent = int(evaluation.tensor(access).shape[dimension])
    outside = np.asarray((index < 0) | (index >= extent))
    if place.guarded:
        tested, never = evaluation.value(place.at), np.zeros((), np.bool_)
        low = never if place.below is None else tested < 0
        high = never if place.above is None else tested >= extent
        outside = np.asarray(outside & (low | high))
    if outside.any():
        evaluation.trouble.append(
            Trouble(
                outside,
                lambda where: Fault(
                    INDEX_OUTSIDE,
                    tensor=access.tensor,
                    dimension=dimension,
                    index=at(index, where),
                    extent=extent,
                ),
            )
        )


# --- views --------------------------------------------------------------------------------------------------


def _read_affine(evaluation: Evaluation, tensor: Array, subscripts: Sequence[Subscript]) -> Array:
    sizes = tensor.shape
    if all(item.low >= 0 and item.high < size for item, size in zip(subscripts, sizes, strict=True)):
        return view(evaluation, tensor, [item.form for item in subscripts if item.form is not None])
    room = 1
    for item in subscripts:
        room *= item.high - item.low + 1
    if room > tensor.size + PADDING:
        return _gather_inside(evaluation, tensor, subscripts)
    window = _cut_window(tensor, subscripts)
    return view(
        evaluation,
        window,
        [item.form.plus(Affine(-item.low)) for item in subscripts if item.form is not None],
    )


def _gather_inside(evaluation: Evaluation, tensor: Array, subscripts: Sequence[Subscript]) -> Array:
    """What a padded view would read: zeros outside."""
    inside = np.ones((), np.bool_)
    for item, size in zip(subscripts, tensor.shape, strict=True):
        if item.form is not None:
            index = evaluation.array_of(item.form)
            inside = inside & (index >= 0) & (index < size)
    found = _gather(evaluation, tensor, subscripts)
    return np.where(inside, found, np.zeros((), tensor.dtype))


def _as_array(evaluation: Evaluation, subscript: Subscript, extent: int) -> Subscript:
    if subscript.form is None:
        return subscript
    index = evaluation.array_of(subscript.form)
    return Subscript(None, np.clip(index, 0, extent - 1))


def _cut_window(tensor: Array, subscripts: Sequence[Subscript]) -> Array:
    """The part of a tensor that the subscripts span, zeros where they leave it."""
    window = np.zeros([item.high - item.low + 1 for item in subscripts], tensor.dtype)
    source, target = [], []
    for item, size in zip(subscripts, tensor.shape, strict=True):
        start, stop = max(item.low, 0), max(min(item.high + 1, size), max(item.low, 0))
        source.append(slice(start, stop))
        target.append(slice(start - item.low, stop - item.low))
    window[tuple(target)] = tensor[tuple(source)]
    return window


def view(evaluation: Evaluation, tensor: Array, forms: Sequence[Form], writeable: bool = False) -> Array:
    """The elements at affine indices that are all inside, without a copy; loops that are unused have length 1."""
    rank = len(evaluation.box)
    shape, strides = [1] * rank, [0] * rank
    for form, stride in zip(forms, tensor.strides, strict=True):
        for axis, factor in form.terms:
            start, stop = evaluation.box[axis]
            shape[axis] = stop - start
            strides[axis] += factor * stride
    first = _from_first(evaluation, tensor, forms)
    # Bytes stand in for types of 8 bits: NumPy does not know all of them by their names.
    plain = first.view(np.uint8) if first.itemsize == 1 else first
    return as_strided(plain, shape, strides, writeable=writeable).view(first.dtype)


def _from_first(evaluation: Evaluation, tensor: Array, forms: Sequence[Form]) -> Array:
    """The tensor from the element of the first step on, along its last dimensions."""
    whole = [slice(None)] * (tensor.ndim - len(forms))
    corner = (*whole, *(slice(first(form, evaluation.box), None) for form in forms))
    return tensor[corner] if corner else tensor


# --- gathers ------------------------------------------------------------------------------------------------


def _gather(evaluation: Evaluation, tensor: Array, subscripts: Sequence[Subscript]) -> Array:
    """Elements at computed indices; whole rows at a time where affine dimensions use other axes."""
    closed = [_close(evaluation, *pair) for pair in zip(subscripts, tensor.shape, strict=True)]
    picked = np.broadcast_shapes(*(item.array.shape for item in closed if item.array is not None))
    gathered = [axis for axis, size in enumerate(picked) if size > 1]
    rows = {axis for item in closed if item.form is not None for axis in item.form.symbols}
    if any(axis in rows for axis in gathered):
        return np.ascontiguousarray(tensor).reshape(-1)[flat_offsets(evaluation, tensor, closed)]
    first = [number for number, item in enumerate(closed) if item.array is not None]
    rest = [number for number, item in enumerate(closed) if item.array is None]
    near = tensor[
        tuple(slice(item.low, item.high + 1) if item.array is None else slice(None) for item in closed)
    ]
    places = (np.broadcast_to(item.array, picked) for item in closed if item.array is not None)
    along = [picked[axis] for axis in gathered]
    found = near.transpose(first + rest)[tuple(place.reshape(along) for place in places)]
    forms = [item.form.plus(Affine(-item.low)) for item in closed if item.form is not None]
    return _spread_rows(evaluation, found, gathered, forms)


def _close(evaluation: Evaluation, subscript: Subscript, extent: int) -> Subscript:
    """A subscript that stays inside."""
    inside = subscript.low >= 0 and subscript.high < extent
    return subscript if inside else _as_array(evaluation, subscript, extent)


def _spread_rows(evaluation: Evaluation, found: Array, gathered: list[int], forms: Sequence[Form]) -> Array:
    """Gathered rows with their affine dimensions viewed along the axes of the loops."""
    count, rank = len(gathered), len(evaluation.box)
    shape, strides = [1] * rank, [0] * rank
    for axis, size, stride in zip(gathered, found.shape[:count], found.strides[:count], strict=True):
        shape[axis], strides[axis] = size, stride
    for form, stride in zip(forms, found.strides[count:], strict=True):
        for axis, factor in form.terms:
            shape[axis] = evaluation.shape[axis]
            strides[axis] += factor * stride
    return as_strided(_from_first(evaluation, found, forms), shape, strides, writeable=False)


def flat_offsets(evaluation: Evaluation, tensor: Array, subscripts: Sequence[Subscript]) -> Array:
    """The positions of the elements in row-major order."""
    found, stride = np.zeros((1,) * len(evaluation.box), INTEGER), 1
    for item, size in zip(reversed(subscripts), reversed(tensor.shape), strict=True):
        index = item.array if item.form is None else evaluation.array_of(item.form)
        found = found if index is None else found + index * stride
        stride *= size
    return np.asarray(found)
