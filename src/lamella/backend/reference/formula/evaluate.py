"""The values of a formula's cells over a box of loop space, as arrays with one axis for each loop.

An array has length 1 along an axis it does not vary along, or no axes at all. What must not be read or computed (an
index outside, a division by zero) is remembered beside the value and only counts where a step really uses the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from lamella.backend.reference.formula.affine import Box, Form, lengths, span
from lamella.backend.reference.formula.cells import Access, Cell, Formula, Place
from lamella.backend.reference.formula.scalars import INTEGER, Real, apply_function, convert, undefined
from lamella.base.arrays import Array
from lamella.lang.skriptnd.rules.graphs import ITEM_OUTSIDE, NO_MEANING, ZERO_DIVISOR
from lamella.ops.formula import Apply, Counter, Lookup
from lamella.ops.problem import Fault

Tensors: TypeAlias = MutableMapping[str, "Array | tuple[Array, ...]"]
Reader: TypeAlias = Callable[["Evaluation", Access], Array]


class Trouble(NamedTuple):
    """A fault and the steps in which it would happen."""

    steps: Array
    fault: Callable[[tuple[int, ...]], Fault]


class Guards(NamedTuple):
    """Where guards let a step happen, and where what they test has no value: a fault if all others let it happen."""

    masks: list[Array]
    doubtful: list[Array]


class Evaluation:
    """Computes cells over one box; `trouble` lists what no used step may run into."""

    def __init__(self, formula: Formula, tensors: Tensors, box: Box, real: Real, read: Reader) -> None:
        self.formula = formula
        self.tensors = tensors
        self.box = box
        self.real = real
        self.trouble: list[Trouble] = []
        self.counted: Array | None = None
        self.read = read
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

    def tensor(self, access: Access) -> Array:
        """The tensor of an access whose item is known."""
        found = self.tensors[access.tensor]
        if not isinstance(found, tuple):
            return found
        number = access.item or 0
        if not 0 <= number < len(found):
            raise Fault(ITEM_OUTSIDE, what=f"'{access.tensor}'", index=number, count=len(found))
        return found[number]

    def extent(self, access: Access, dimension: int) -> int | Array:
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

    def _literal(self, cell: Cell) -> Array:
        if isinstance(cell.term, bool):
            return np.asarray(cell.term)
        if isinstance(cell.term, float):
            return np.asarray(cell.term, self.real)
        raise Fault(NO_MEANING, reason="it computes with strings")

    def _compute_access(self, number: int, access: Access) -> Array:
        before = len(self.trouble)
        found = self.read(self, access)
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

    def _apply(self, number: int, cell: Cell, term: Apply) -> Array:
        operands = [self.value(item) for item in cell.operands]
        bad = [self.bad(item) for item in cell.operands]
        if term.function == "cast":
            self._spoil(number, bad)
            return convert(operands[0], term.type, self.real)
        zero = undefined(term.function, operands)
        if zero is not None and zero.any():
            self.trouble.append(Trouble(zero, lambda place: Fault(ZERO_DIVISOR, function=term.function)))
            bad.append(zero)
        if any(item is not None for item in bad):
            self._spoil(number, _used_only(term.function, operands, bad))
        return apply_function(term.function, operands)

    def _look_up(self, number: int, cell: Cell) -> Array:
        index, *table = (self.value(item) for item in cell.operands)
        found = np.asarray(table[0] if table else 0)
        for place, item in enumerate(table[1:], 1):
            found = np.where(index == place, item, found)
        outside = (index < 0) | (index >= len(table))
        bad = [self.bad(cell.operands[0])]
        for position, operand in enumerate(cell.operands[1:]):
            bad += _limited([self.bad(operand)], np.asarray(index == position))
        if outside.any():
            self.trouble.append(Trouble(outside, lambda place: _no_item(at(index, place), len(table))))
            bad.append(outside)
        self._spoil(number, bad)
        return found

    # --- guards ---------------------------------------------------------------------------------------------

    def guards(self, skip: Iterable[Access] = ()) -> Guards:
        """Where the guards of all accesses, but some, let a step happen: only those that sometimes do not."""
        found = Guards([], [])
        without = {id(access) for access in skip}
        for access in self.formula.accesses():
            if id(access) not in without:
                for dimension, place in enumerate(access.places):
                    if place.skips:
                        self._test(access, dimension, place, found)
        return found

    def _test(self, access: Access, dimension: int, place: Place, found: Guards) -> None:
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
