"""The values of a formula's cells over a box of loop space, as arrays with one axis for each loop.

An array has length 1 along an axis it does not vary along, or no axes at all. What must not be read or computed (an
index outside, a division by zero) is remembered beside the value and only counts where a step really uses the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from lamella.backend.formula.affine import Box, Form, first, lengths, span
from lamella.backend.formula.expression_dag import PreparedFormula, SubscriptCells, TensorAccess, TermCell
from lamella.backend.formula.scalars import INTEGER, Real, apply_function, computing_type, convert, undefined
from lamella.base.affine import Affine
from lamella.base.arrays import Array, strided
from lamella.lang.skriptnd.rules.graphs import INDEX_OUTSIDE, ITEM_OUTSIDE, NO_MEANING, ZERO_DIVISOR
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Counter, Lookup

Tensors: TypeAlias = MutableMapping[str, "Array | tuple[Array, ...]"]


class PossibleFault(NamedTuple):
    """A fault and the steps in which it would happen."""

    steps: Array
    fault: Callable[[tuple[int, ...]], Fault]


class GuardMasks(NamedTuple):
    """Where guards let a step happen, and where what they test has no value: a fault if all others let it happen."""

    masks: list[Array]
    doubtful: list[Array]


class BoxEvaluation:
    """Computes cells over one box; `trouble` lists what no used step may run into."""

    def __init__(self, formula: PreparedFormula, tensors: Tensors, box: Box, real: Real) -> None:
        self.formula = formula
        self.tensors = tensors
        self.box = box
        self.real = real
        self.trouble: list[PossibleFault] = []
        self.counted: Array | None = None
        self._data: dict[int, Array] = {}
        self._bad: dict[int, Array] = {}

    # --- what the steps are ---------------------------------------------------------------------------------

    def array_of(self, form: Form) -> Array:
        """The values of an affine form."""
        rank = len(self.box)
        found = np.full((1,) * rank, form.constant, INTEGER)
        for axis, factor in form.terms:
            start, stop = self.box[axis]
            along = [1] * rank
            along[axis] = stop - start
            found = found + (np.arange(start, stop, dtype=INTEGER) * factor).reshape(along)
        return found

    def tensor(self, access: TensorAccess) -> Array:
        """The tensor of an access whose item is known."""
        found = self.tensors[access.tensor]
        if not isinstance(found, tuple):
            return found
        number = access.item or 0
        if not 0 <= number < len(found):
            raise Fault(ITEM_OUTSIDE, what=f"'{access.tensor}'", index=number, count=len(found))
        return found[number]

    def extent(self, access: TensorAccess, dimension: int) -> int | Array:
        """The extent that an index is tested against; an array where the item is computed."""
        if access.picked is None:
            return int(self.tensor(access).shape[dimension])
        found = self.tensors[access.tensor]
        sizes = (
            [item.shape[dimension] for item in found]
            if isinstance(found, tuple)
            else [found.shape[dimension]]
        )
        if len(set(sizes)) == 1:
            return int(sizes[0])
        picked = np.clip(self.index(access.picked), 0, len(sizes) - 1)
        return np.asarray(np.asarray(sizes, INTEGER)[picked])

    # --- cells ----------------------------------------------------------------------------------------------

    def compute(self, roots: Iterable[int]) -> None:
        """Compute some cells and all they need."""
        for number in self.formula.cells.needed(roots):
            if number not in self._data:
                self._data[number] = self._compute(number)

    def value(self, number: int) -> Array:
        """The values of a cell."""
        if number not in self._data:
            self.compute([number])
        return self._data[number]

    index = value

    def bad(self, number: int) -> Array | None:
        """The steps in which a cell has no value, or None where it always has one."""
        return self._bad.get(number)

    def _compute(self, number: int) -> Array:
        cell = self.formula.cells[number]
        if cell.form is not None:
            return self.array_of(cell.form)
        if cell.access is not None:
            return self._compute_access(number, cell.access)
        if isinstance(cell.term, Apply):
            return self._apply(number, cell, cell.term)
        if isinstance(cell.term, Lookup):
            return self._look_up(number, cell)
        if isinstance(cell.term, Counter):
            return np.zeros((), INTEGER) if self.counted is None else self.counted
        return self._literal(cell)

    def _literal(self, cell: TermCell) -> Array:
        if isinstance(cell.term, bool):
            return np.asarray(cell.term)
        if isinstance(cell.term, float):
            return np.asarray(cell.term, self.real)
        raise Fault(NO_MEANING, reason="it computes with strings")

    def _compute_access(self, number: int, access: TensorAccess) -> Array:
        before = len(self.trouble)
        found = read_element(self, access)
        own = [item.steps for item in self.trouble[before:]]
        self._spoil(number, [*own, *(self.bad(item) for item in self.formula.cells.access_inputs(access))])
        return found

    def _spoil(self, number: int, steps: Sequence[Array | None]) -> None:
        known = [item for item in steps if item is not None]
        if known:
            found = known[0]
            for item in known[1:]:
                found = np.asarray(found | item)
            self._bad[number] = found

    def _apply(self, number: int, cell: TermCell, term: Apply) -> Array:
        operands = [self.value(item) for item in cell.operands]
        bad = [self.bad(item) for item in cell.operands]
        if term.function == "cast":
            self._spoil(number, bad)
            return convert(operands[0], term.type, self.real)
        zero = undefined(term.function, operands)
        if zero is not None and zero.any():
            self.trouble.append(
                PossibleFault(zero, lambda place: Fault(ZERO_DIVISOR, function=term.function))
            )
            bad.append(zero)
        if any(item is not None for item in bad):
            self._spoil(number, _used_only(term.function, operands, bad))
        return apply_function(term.function, operands)

    def _look_up(self, number: int, cell: TermCell) -> Array:
        index, *table = (self.value(item) for item in cell.operands)
        found = np.asarray(table[0] if table else 0)
        for place, item in enumerate(table[1:], 1):
            found = np.where(index == place, item, found)
        outside = (index < 0) | (index >= len(table))
        bad = [self.bad(cell.operands[0])]
        for position, operand in enumerate(cell.operands[1:]):
            bad += _limited([self.bad(operand)], np.asarray(index == position))
        if outside.any():
            self.trouble.append(PossibleFault(outside, lambda place: _no_item(at(index, place), len(table))))
            bad.append(outside)
        self._spoil(number, bad)
        return found

    # --- guards ---------------------------------------------------------------------------------------------

    def guards(self, skip: Iterable[TensorAccess] = ()) -> GuardMasks:
        """Where the guards of all accesses, but some, let a step happen: only those that sometimes do not."""
        found = GuardMasks([], [])
        without = {id(access) for access in skip}
        for access in self.formula.accesses():
            if id(access) not in without:
                for dimension, place in enumerate(access.places):
                    if place.skips:
                        self._test(access, dimension, place, found)
        return found

    def _test(self, access: TensorAccess, dimension: int, place: SubscriptCells, found: GuardMasks) -> None:
        extent, form = self.extent(access, dimension), self.formula.cells[place.at].form
        if form is not None and isinstance(extent, int):
            low, high = span(form, self.box)
            if low >= 0 and high < extent:
                return
        index = self.value(place.at)
        inside = np.ones((), np.bool_) if place.below is not None else index >= 0
        if place.above is None:
            inside = inside & (index < extent)
        bad = self.bad(place.at)
        if bad is not None:
            found.doubtful.append(bad)
            inside = inside | bad
        if not inside.all():
            found.masks.append(np.asarray(inside))

    def refuse(self, bad: Array | None, active: Array | None) -> None:
        """Raise the first trouble among steps that are active."""
        if bad is None:
            return
        used = np.atleast_1d(bad if active is None else bad & active)
        if not used.any():
            return
        place = tuple(int(item) for item in np.argwhere(used)[0])
        for item in self.trouble:
            if at(item.steps, place):
                raise item.fault(place)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many steps the box has along each axis."""
        return lengths(self.box)


def at(values: Array, place: tuple[int, ...]) -> int:
    """An element of an array that broadcasts, at a step of the box."""
    if values.ndim == 0:
        return int(values)
    return int(values[tuple(min(index, size - 1) for index, size in zip(place, values.shape, strict=True))])


def join(masks: Sequence[Array]) -> Array | None:
    """The steps that all masks allow; None stands for all steps."""
    found: Array | None = None
    for mask in masks:
        found = mask if found is None else np.asarray(found & mask)
    return found


def _used_only(function: str, operands: Sequence[Array], bad: list[Array | None]) -> list[Array | None]:
    """`?:`, `&&`, `||` and `=>` do not look at every operand in every step."""
    if function == "?:":
        return [bad[0], *_limited(bad[1:2], operands[0]), *_limited(bad[2:], ~operands[0])]
    if function in ("&&", "=>"):
        return [bad[0], *_limited(bad[1:], operands[0])]
    if function == "||":
        return [bad[0], *_limited(bad[1:], ~operands[0])]
    return bad


def _limited(bad: Sequence[Array | None], used: Array) -> list[Array | None]:
    return [None if item is None else np.asarray(item & used) for item in bad]


def _no_item(index: int, count: int) -> Fault:
    return Fault(ITEM_OUTSIDE, what="the list", index=index, count=count)


# --- reading and finding elements of tensors: affine indices are strided views, all others gather -----------


PADDING = 1 << 20
"""Elements that padding may add to an operand before a gather is taken instead."""


class AccessedIndex(NamedTuple):
    """Where one dimension is accessed: an affine form with the range it spans, or an array of indices."""

    form: Form | None
    array: Array | None
    low: int = 0
    high: int = 0


def read_element(evaluation: BoxEvaluation, access: TensorAccess) -> Array:
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


def _read_picked(evaluation: BoxEvaluation, access: TensorAccess, picked: int) -> Array:
    pack, number = evaluation.tensors[access.tensor], evaluation.value(picked)
    items = pack if isinstance(pack, tuple) else (pack,)
    outside = (number < 0) | (number >= len(items))
    if outside.any():
        name = f"'{access.tensor}'"
        evaluation.trouble.append(
            PossibleFault(
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


def find_subscript(
    evaluation: BoxEvaluation, access: TensorAccess, dimension: int, padded: bool = False
) -> AccessedIndex:
    """Where a dimension is accessed; `padded` allows a form that leaves the tensor, where nothing is used."""
    place, extent = access.places[dimension], int(evaluation.tensor(access).shape[dimension])
    form = evaluation.formula.cells[place.at].form
    if form is not None:
        low, high = span(form, evaluation.box)
        inside = low >= 0 and high < extent
        if inside or (padded and place.below is None and place.above is None):
            if not inside and not place.guarded:
                _tell(evaluation, access, dimension, evaluation.value(place.at), place)
            return AccessedIndex(form, None, low, high)
    index = _remap(evaluation, place, extent)
    if (index < 0).any() or (index >= extent).any():
        _tell(evaluation, access, dimension, index, place)
        index = np.clip(index, 0, max(extent - 1, 0))
    return AccessedIndex(None, index)


def _remap(evaluation: BoxEvaluation, place: SubscriptCells, extent: int) -> Array:
    index = found = evaluation.value(place.at)
    if place.below is not None:
        found = np.where(index < 0, evaluation.value(place.below), found)
    if place.above is not None:
        found = np.where(index >= extent, evaluation.value(place.above), found)
    return found


def _tell(
    evaluation: BoxEvaluation, access: TensorAccess, dimension: int, index: Array, place: SubscriptCells
) -> None:
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
            PossibleFault(
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


def _read_affine(evaluation: BoxEvaluation, tensor: Array, subscripts: Sequence[AccessedIndex]) -> Array:
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


def _gather_inside(evaluation: BoxEvaluation, tensor: Array, subscripts: Sequence[AccessedIndex]) -> Array:
    """What a padded view would read: zeros outside."""
    inside = np.ones((), np.bool_)
    for item, size in zip(subscripts, tensor.shape, strict=True):
        if item.form is not None:
            index = evaluation.array_of(item.form)
            inside = inside & (index >= 0) & (index < size)
    found = _gather(evaluation, tensor, subscripts)
    return np.where(inside, found, np.zeros((), tensor.dtype))


def _as_array(evaluation: BoxEvaluation, subscript: AccessedIndex, extent: int) -> AccessedIndex:
    if subscript.form is None:
        return subscript
    index = evaluation.array_of(subscript.form)
    return AccessedIndex(None, np.clip(index, 0, extent - 1))


def _cut_window(tensor: Array, subscripts: Sequence[AccessedIndex]) -> Array:
    """The part of a tensor that the subscripts span, zeros where they leave it."""
    window = np.zeros([item.high - item.low + 1 for item in subscripts], tensor.dtype)
    source, target = cut_edges([(item.low, item.high) for item in subscripts], tensor.shape)
    window[target] = tensor[source]
    return window


def cut_edges(
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


def view(evaluation: BoxEvaluation, tensor: Array, forms: Sequence[Form], writeable: bool = False) -> Array:
    """The elements at affine indices that are all inside, without a copy; loops that are unused have length 1."""
    rank = len(evaluation.box)
    shape, strides = [1] * rank, [0] * rank
    for form, stride in zip(forms, tensor.strides, strict=True):
        for axis, factor in form.terms:
            start, stop = evaluation.box[axis]
            shape[axis] = stop - start
            strides[axis] += factor * stride
    first = _from_first(evaluation, tensor, forms)
    return strided(first, shape, strides, writeable)


def _from_first(evaluation: BoxEvaluation, tensor: Array, forms: Sequence[Form]) -> Array:
    """The tensor from the element of the first step on, along its last dimensions."""
    whole = [slice(None)] * (tensor.ndim - len(forms))
    corner = (*whole, *(slice(first(form, evaluation.box), None) for form in forms))
    return tensor[corner] if corner else tensor


# --- gathers ------------------------------------------------------------------------------------------------


def _gather(evaluation: BoxEvaluation, tensor: Array, subscripts: Sequence[AccessedIndex]) -> Array:
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


def _close(evaluation: BoxEvaluation, subscript: AccessedIndex, extent: int) -> AccessedIndex:
    """A subscript that stays inside."""
    inside = subscript.low >= 0 and subscript.high < extent
    return subscript if inside else _as_array(evaluation, subscript, extent)


def _spread_rows(
    evaluation: BoxEvaluation, found: Array, gathered: list[int], forms: Sequence[Form]
) -> Array:
    """Gathered rows with their affine dimensions viewed along the axes of the loops."""
    count, rank = len(gathered), len(evaluation.box)
    shape, strides = [1] * rank, [0] * rank
    for axis, size, stride in zip(gathered, found.shape[:count], found.strides[:count], strict=True):
        shape[axis], strides[axis] = size, stride
    for form, stride in zip(forms, found.strides[count:], strict=True):
        for axis, factor in form.terms:
            shape[axis] = evaluation.shape[axis]
            strides[axis] += factor * stride
    return strided(_from_first(evaluation, found, forms), shape, strides, writeable=False)


def flat_offsets(evaluation: BoxEvaluation, tensor: Array, subscripts: Sequence[AccessedIndex]) -> Array:
    """The positions of the elements in row-major order."""
    found, stride = np.zeros((1,) * len(evaluation.box), INTEGER), 1
    for item, size in zip(reversed(subscripts), reversed(tensor.shape), strict=True):
        index = item.array if item.form is None else evaluation.array_of(item.form)
        found = found if index is None else found + index * stride
        stride *= size
    return np.asarray(found)
