"""Assigning and accumulating values into the elements that the left side of a formula names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.backend.formula.affine import Form, is_injective
from lamella.backend.formula.evaluate import AccessedIndex, BoxEvaluation, find_subscript, flat_offsets, view
from lamella.backend.formula.expression_dag import TensorAccess, TermCell
from lamella.backend.formula.scalars import BOOLEAN, DOUBLE, INTEGER, SINGLE
from lamella.base.arrays import Array, element_type_of
from lamella.base.dtype import ElementType
from lamella.base.limits import LARGEST, SMALLEST
from lamella.ops.formula import Apply

ASSIGNMENTS = ("=", ":=")


class Accumulation(NamedTuple):
    """How a sign joins a new value to the old one, and the value that changes nothing."""

    function: np.ufunc
    real: float
    integer: int
    repeats: bool
    """Whether joining the same value again changes the result."""

    def joining_type(self, dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
        """The type in which values are joined: long sums and products of singles lose too much in singles."""
        return DOUBLE if self.repeats and dtype == SINGLE else dtype


_BOUNDS = np.iinfo(np.int64)
ACCUMULATIONS: Mapping[str, Accumulation] = MappingProxyType(
    {
        "+=": Accumulation(np.add, 0.0, 0, True),
        "*=": Accumulation(np.multiply, 1.0, 1, True),
        "&=": Accumulation(np.logical_and, 1.0, 1, False),
        "|=": Accumulation(np.logical_or, 0.0, 0, False),
        "<=": Accumulation(np.minimum, np.inf, int(_BOUNDS.max), False),
        ">=": Accumulation(np.maximum, -np.inf, int(_BOUNDS.min), False),
    }
)


def neutral(sign: str, dtype: np.dtype[np.generic]) -> Array:
    """What an accumulation starts from where the formula gives no initial value: 0, 1, true, false or an extreme."""
    rule = ACCUMULATIONS[sign]
    if dtype == BOOLEAN:
        return np.asarray(bool(rule.integer > 0))
    return np.asarray(rule.integer if dtype == INTEGER else rule.real, dtype)


def neutral_of(sign: str, dtype: np.dtype[np.generic], element: ElementType) -> Array:
    """What the accumulation of an output starts from: an extreme is that of the type that is stored."""
    start = neutral(sign, dtype)
    return clip_to(element, start) if element.is_integer else start


def saturates(cell: TermCell, stored: np.dtype[np.generic]) -> bool:
    """Whether a value to store is a cast to a narrow integer: of a real it goes to the nearest that there is.

    Other integers keep their low bits.
    """
    element = element_type_of(stored)
    narrow = element is not None and element.is_integer and stored != INTEGER
    return narrow and isinstance(cell.term, Apply) and cell.term.function == "cast"


def clip_to(element: ElementType, values: Array) -> Array:
    """64-bit integers in the range of an element type."""
    return values.clip(max(element.minimum, SMALLEST), min(element.maximum, LARGEST))


def locate(evaluation: BoxEvaluation, target: TensorAccess, active: Array | None) -> list[AccessedIndex]:
    """Where a target is written; an index outside in an active step is refused."""
    before = len(evaluation.trouble)
    found = [find_subscript(evaluation, target, number) for number in range(len(target.places))]
    for item in evaluation.trouble[before:]:
        evaluation.refuse(item.steps, active)
    for number in evaluation.formula.cells.access_inputs(target):
        evaluation.refuse(evaluation.bad(number), active)
    return found


def element_strides(shape: Sequence[int]) -> list[int]:
    """How far apart neighbours are in each dimension, in elements, row-major."""
    found, stride = [], 1
    for size in reversed(shape):
        found.append(stride)
        stride *= size
    return found[::-1]


def axis_strides(forms: Sequence[Form], shape: Sequence[int]) -> dict[int, int]:
    """How far a step along each axis moves a target, in elements."""
    found: dict[int, int] = {}
    for form, stride in zip(forms, element_strides(shape), strict=True):
        for axis, factor in form.terms:
            found[axis] = found.get(axis, 0) + factor * stride
    return found


def _window(
    evaluation: BoxEvaluation, target: TensorAccess, subscripts: Sequence[AccessedIndex]
) -> Array | None:
    """The written elements as a view, where each step of the target's axes has its own."""
    forms = [item.form for item in subscripts if item.form is not None]
    if len(forms) != len(subscripts):
        return None
    tensor = evaluation.tensor(target)
    strides = axis_strides(forms, tensor.shape)
    if not is_injective((stride, evaluation.shape[axis]) for axis, stride in strides.items()):
        return None
    return view(evaluation, tensor, forms, writeable=True)


def assign(evaluation: BoxEvaluation, target: TensorAccess, value: Array, active: Array | None) -> None:
    """`target = value` in the active steps; of several values for one element the last step's stays."""
    subscripts = locate(evaluation, target, active)
    window = _window(evaluation, target, subscripts)
    if window is not None:
        idle = [axis for axis, size in enumerate(evaluation.shape) if size > 1 and window.shape[axis] == 1]
        if active is None or all(active.ndim == 0 or active.shape[axis] == 1 for axis in idle):
            _write(window, _last(value, idle), active)
            return
    _write_in_order(evaluation, target, subscripts, value, active)


def _last(value: Array, axes: Sequence[int]) -> Array:
    """The values of the last step along some axes."""
    if value.ndim == 0:
        return value
    return value[tuple(slice(-1, None) if axis in axes else slice(None) for axis in range(value.ndim))]


def _write(window: Array, value: Array, active: Array | None) -> None:
    # A copy wraps one integer round as it does many; an assignment refuses one that does not fit.
    np.copyto(window, value, where=True if active is None else active, casting="unsafe")


def _write_in_order(
    evaluation: BoxEvaluation,
    target: TensorAccess,
    subscripts: Sequence[AccessedIndex],
    value: Array,
    active: Array | None,
) -> None:
    tensor = evaluation.tensor(target)
    offsets = np.broadcast_to(flat_offsets(evaluation, tensor, subscripts), evaluation.shape).reshape(-1)
    values = np.broadcast_to(value, evaluation.shape).reshape(-1)
    if active is not None:
        used = np.broadcast_to(active, evaluation.shape).reshape(-1)
        offsets, values = offsets[used], values[used]
    tensor.reshape(-1)[offsets] = values


def accumulate(
    evaluation: BoxEvaluation,
    target: TensorAccess,
    value: Array,
    active: Array | None,
    joined: Collection[int] = (),
) -> None:
    """`target sign value` in the active steps, joined first along the axes that the target does not vary along."""
    sign = evaluation.formula.sign
    subscripts = locate(evaluation, target, active)
    if active is not None:
        value = np.where(active, value, neutral(sign, value.dtype))
    kept = {*_varying(subscripts), *joined}
    idle = [axis for axis in range(len(evaluation.box)) if axis not in kept]
    reduced = reduce_axes(sign, value, idle, evaluation.shape)
    tensor, rule = evaluation.tensor(target), ACCUMULATIONS[sign]
    window = _window(evaluation, target, subscripts)
    if window is not None:
        rule.function(window, reduced, out=window, casting="unsafe")
        return
    offsets = flat_offsets(evaluation, tensor, subscripts)
    places, values = np.broadcast_arrays(offsets, reduced)
    rule.function.at(
        tensor.reshape(-1), places.reshape(-1), values.reshape(-1).astype(tensor.dtype, copy=False)
    )


def _varying(subscripts: Sequence[AccessedIndex]) -> set[int]:
    """The axes along which the written place really changes."""
    forms = {axis for item in subscripts if item.form is not None for axis in item.form.symbols}
    arrays = [item.array.shape for item in subscripts if item.array is not None]
    return forms | {axis for shape in arrays for axis, size in enumerate(shape) if size > 1}


def reduce_axes(sign: str, value: Array, axes: Sequence[int], shape: Sequence[int]) -> Array:
    """The values joined along some axes, which keep length 1; sums and products of singles are held in doubles."""
    rule, constant = ACCUMULATIONS[sign], 1
    along = []
    for axis in axes:
        if value.ndim and value.shape[axis] > 1:
            along.append(axis)
        else:
            constant *= shape[axis]
    dtype = value.dtype
    if along:
        wide = rule.joining_type(dtype)
        value = rule.function.reduce(value, axis=tuple(along), keepdims=True, dtype=wide)
    if rule.repeats and constant > 1:
        value = value * value.dtype.type(constant) if sign == "+=" else value ** value.dtype.type(constant)
    return value.astype(dtype, copy=False)
