"""Arrays: made, padded, joined, measured and taken apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from lamella.backend.mep.faults import fault
from lamella.backend.mep.state import Actions, State
from lamella.backend.mep.values import (
    Value,
    as_array,
    as_integer,
    as_scalar,
    as_shape,
    compute,
    unwrap,
    words_for,
)
from lamella.base.arrays import Array, DType

DTYPES: Mapping[int, DType] = MappingProxyType({0: np.dtype(np.float32), 5: np.dtype(np.int64)})
"""The element types that arrays are made of, by their codes."""
_RANGE, _ONES, _ZEROS = 1, 2, 3
_PAD, _UNSQUEEZE = 1, 2
_SHAPE, _EXTENT = 0, 1
_LAST_RANK = 3


def _create(state: State, numbers: tuple[int, ...]) -> None:
    out, code, kind, source = numbers
    dtype, value = DTYPES[code], state.read(source)
    if kind in (_ONES, _ZEROS):
        shape = as_shape(value)
        state.keep_room(dtype.itemsize * math.prod(shape))
        make = np.ones if kind == _ONES else np.zeros
        state.write(out, compute(make, shape, dtype))
    elif kind == _RANGE:
        count = as_integer(value)
        state.keep_room(dtype.itemsize * max(0, count))
        state.write(out, np.arange(count, dtype=dtype).reshape(1, -1))
    else:
        array = as_array(value)
        state.keep_room(dtype.itemsize * array.size)
        state.write(out, _converted(array, dtype).reshape(1, -1))


def _converted(array: Array, dtype: DType) -> Array:
    """The numbers in another type; reals lose their fraction, and those that are no numbers have no integer."""
    if dtype.kind == "i" and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise fault("cannot make integers of what is not finite", "give finite numbers")
    return compute(lambda: array.astype(dtype))


def _manipulate(state: State, numbers: tuple[int, ...]) -> None:
    kind, out, source, *more = numbers
    array = as_array(state.read(source))
    if kind == _PAD:
        width, filler = as_integer(state.read(more[0])), as_scalar(state.read(more[1]))
        state.write(out, _pad(state, array, width, filler))
        return
    axis = as_integer(state.read(more[0]))
    state.write(out, compute(np.expand_dims if kind == _UNSQUEEZE else np.squeeze, array, axis))


def _pad(state: State, array: Array, width: int, filler: float) -> Array:
    """The array with so many fillers before its last axis."""
    if not array.ndim or width < 0:
        raise fault(f"cannot pad {words_for(array)} by {width}", "widths are no less than 0")
    rows = array.size // max(1, array.shape[-1]) if array.size else math.prod(array.shape[:-1])
    state.keep_room(array.nbytes + rows * width * array.dtype.itemsize)
    front = compute(lambda: np.full((*array.shape[:-1], width), filler, array.dtype))
    return np.concatenate([front, array], axis=-1)


def _combine(state: State, numbers: tuple[int, ...]) -> None:
    _, out, *slots, axis = numbers
    arrays = [as_array(value) for value in state.read_all(slots)]
    along = as_integer(state.read(axis))
    state.keep_room(8 * sum(array.size for array in arrays))
    state.write(out, compute(_join(along), arrays))


def _join(axis: int) -> Callable[[Sequence[Array]], Array]:
    return lambda arrays: np.concatenate(arrays, axis=axis)


def _info(state: State, numbers: tuple[int, ...]) -> None:
    kind, out, source, *more = numbers
    value = state.read(source)
    if kind == _SHAPE:
        state.write(out, as_array(value).shape)
    elif kind == _EXTENT:
        shape, axis = as_array(value).shape, as_integer(state.read(more[0]))
        state.write(out, shape[_index(axis, len(shape), "axis")])
    else:
        state.write(out, as_scalar(value))


def _index(index: int, count: int, what: str) -> int:
    """An index that is there; those below 0 count from the end."""
    if not -count <= index < count:
        raise fault(f"asks for {what} {index} of {count}", f"an index is at least -{count} and below {count}")
    return index


def _extract(state: State, numbers: tuple[int, ...]) -> None:
    out, source, slot = numbers
    state.write(out, _row(as_array(state.read(source)), as_integer(state.read(slot))))


def _row(array: Array, index: int) -> Value:
    if not 1 <= array.ndim <= _LAST_RANK or (array.ndim > 1 and not array.shape[0]):
        raise fault(f"cannot take a row of {words_for(array)}", "give an array of 1 to 3 axes")
    first = array if array.ndim == 1 else array[0]
    return unwrap(np.array(first[_index(index, first.shape[0], "row")]))


TENSORS: Actions = MappingProxyType(
    {0x30: _create, 0x38: _manipulate, 0x39: _combine, 0x3A: _info, 0x3B: _extract}
)
"""Instructions on arrays that compute nothing."""
