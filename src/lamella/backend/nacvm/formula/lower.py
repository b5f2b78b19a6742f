"""The formulas of one operation as actions on a tape, where their structure is one that NumPy has functions for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from lamella.backend.nacvm.formula.layout import (
    Placed,
    Target,
    copy,
    find_target,
    place,
    write_part,
    zeros,
)
from lamella.backend.nacvm.formula.products import multiply
from lamella.backend.nacvm.formula.terms import Tensors, Terms
from lamella.backend.nacvm.formula.values import Space, UnsupportedError, Value, astype, spread
from lamella.backend.nacvm.tape import Register, Tape
from lamella.backend.reference.formula.access import computing_type
from lamella.backend.reference.formula.cells import Formula
from lamella.backend.reference.formula.contract import BOX
from lamella.backend.reference.formula.scalars import BOOLEAN, DOUBLE, INTEGER, SINGLE, Real
from lamella.backend.reference.formula.store import ACCUMULATIONS, ASSIGNMENTS, neutral
from lamella.backend.reference.storage import Storage, known_shape
from lamella.base.arrays import Array, DType
from lamella.base.dtype import ElementType
from lamella.ops.formula import Apply
from lamella.ops.instance import Declared, Shape

Name: TypeAlias = tuple[str, int | None]
"""An output, or the item of one that is a pack."""


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an operation: the type it is computed in while formulas add to it, the one it is stored in."""

    element: ElementType
    shape: tuple[int, ...]
    stored: DType
    computed: DType


@dataclass(slots=True)
class State:
    """What an output is so far; `owned` says that nothing else holds the array."""

    placed: Placed
    dtype: DType
    owned: bool = False


@dataclass(slots=True)
class Lowering:
    """One operation while its formulas are put on a tape."""

    tape: Tape
    tensors: Tensors
    storage: Storage
    real: Real
    outputs: Mapping[Name, Output]
    states: dict[Name, State] = field(default_factory=dict)

    def run(self, formula: Formula) -> None:
        """Put a formula on the tape, or say that its structure is not known."""
        if formula.condition is not None or 0 in formula.extents:
            raise UnsupportedError("steps are skipped")
        space = Space(self.tape, formula.extents, self.storage.most_bytes)
        terms = Terms(space, formula, self.tensors, self.real)
        for access, number in zip(formula.targets, formula.values, strict=True):
            name = access.tensor, access.item
            output = self.outputs.get(name)
            if output is None:
                raise UnsupportedError("an item of a pack is computed")
            target = find_target(space, formula.cells, access, output.shape)
            if formula.sign in ASSIGNMENTS:
                self._assign(name, target, terms, number)
            else:
                self._accumulate(name, target, terms, number)

    # --- assignments ----------------------------------------------------------------------------------------

    def _assign(self, name: Name, target: Target, terms: Terms, number: int) -> None:
        output = self.outputs[name]
        value = _saturated(terms, number, output)
        space = terms.space
        if value.dtype != output.computed:
            value = space.apply(astype(output.computed), [value], output.computed)
        placed = place(space, value, target)
        if target.whole:
            self.states[name] = State(placed, output.computed)
            return
        state = self.states.get(name)
        if state is None:
            base = self.tape.do(zeros(output.shape, output.computed))
        elif state.owned:
            base = state.placed.register
        else:
            base = self.tape.do(copy(output.shape, output.computed), state.placed.register)
        found = self.tape.do(write_part(target.region()), base, placed.register)
        self.states[name] = State(Placed(found, output.shape), output.computed, owned=True)

    # --- accumulations --------------------------------------------------------------------------------------

    def _accumulate(self, name: Name, target: Target, terms: Terms, number: int) -> None:
        output, sign, space = self.outputs[name], terms.formula.sign, terms.space
        if not target.whole:
            raise UnsupportedError("a part is accumulated")
        value = multiply(terms, target.axes) if sign == "+=" else None
        value = value or _reduce(terms, number, target)
        if value.dtype != output.computed:
            value = space.apply(astype(output.computed), [value], output.computed)
        placed = place(space, value, target)
        state = self.states.get(name)
        if state is not None and not self._is_neutral(state, sign):
            shape = np.broadcast_shapes(state.placed.shape, placed.shape)
            function = ACCUMULATIONS[sign].function
            found = self.tape.do(function, state.placed.register, placed.register)
            placed = Placed(found, shape)
        self.states[name] = State(placed, output.computed)

    def _is_neutral(self, state: State, sign: str) -> bool:
        known = self.tape.literals.get(state.placed.register)
        return known is not None and bool((known == neutral(sign, state.dtype)).all())

    # --- ends -----------------------------------------------------------------------------------------------

    def finish(self, name: Name) -> Register:
        """An output as it is stored."""
        output, state = self.outputs[name], self.states.get(name)
        if state is None:
            raise UnsupportedError("nothing is written")
        register = state.placed.register
        if output.computed != output.stored:
            register = self.tape.do(partial(_store, self.storage, output.element), register)
        if state.placed.shape != output.shape:
            return self.tape.do(spread(output.shape), register)
        # NumPy gives scalars, not arrays, where nothing has a dimension.
        return register if output.shape else self.tape.do(np.asarray, register)


def _store(storage: Storage, element: ElementType, values: Array) -> Array:
    return storage.store(np.asarray(values), element)


def _saturated(terms: Terms, number: int, output: Output) -> Value:
    """A value to assign: a real that is cast to a narrow integer goes to the nearest."""
    value, cell, element = terms.value(number), terms.formula.cells[number], output.element
    if not element.is_integer or output.stored == INTEGER:
        return value
    if not isinstance(cell.term, Apply) or cell.term.function != "cast":
        return value
    if terms.value(cell.operands[0]).dtype.kind != "f":
        return value
    low, high = element.minimum, min(element.maximum, int(np.iinfo(np.int64).max))
    return terms.space.apply(partial(_clip, low, high), [value], value.dtype)


def _clip(low: int, high: int, values: Array) -> Array:
    return values.clip(low, high)


def _reduce(terms: Terms, number: int, target: Target) -> Value:
    """A value joined along the loops that the target does not have."""
    rule, space = ACCUMULATIONS[terms.formula.sign], terms.space
    value = terms.value(number)
    idle = set(range(len(space.extents))) - {*value.axes, *target.axes}
    plain = terms.formula.cells[number].access is not None
    if (rule.repeats and (idle or value.dtype == BOOLEAN)) or not (plain or _is_small(space, value)):
        raise UnsupportedError("it is joined in another way")
    along = tuple(place for place, axis in enumerate(value.axes) if axis not in target.axes)
    if not along:
        return value
    wide = DOUBLE if rule.repeats and value.dtype == SINGLE else value.dtype
    axes = tuple(axis for axis in value.axes if axis in target.axes)
    joined = partial(rule.function.reduce, axis=along if len(along) > 1 else along[0], dtype=wide)
    found = space.apply_whole(joined, value, axes, wide)
    return found if wide == value.dtype else space.apply(astype(value.dtype), [found], value.dtype)


def _is_small(space: Space, value: Value) -> bool:
    return prod(space.shape(value.axes)) <= BOX


def lower(
    tape: Tape,
    formulas: Sequence[Formula],
    tensors: Tensors,
    outputs: Sequence[Declared],
    storage: Storage,
    real: Real,
) -> list[Register]:
    """Put the formulas of an operation on a tape; one value for each tensor of its outputs."""
    signs: dict[str, set[str]] = {item.name: set() for item in outputs}
    for formula in formulas:
        for target in formula.targets:
            signs[target.tensor].add(formula.sign)
    found: dict[Name, Output] = {}
    for declared in outputs:
        stored = storage.dtype(declared.element)
        plain = signs[declared.name] <= set(ASSIGNMENTS)
        computed = stored if plain else computing_type(stored, real)
        for item, shape in _shapes(declared):
            known = known_shape(shape, {})
            tape.note(prod(known) * computed.itemsize)
            found[declared.name, item] = Output(declared.element, known, stored, computed)
    lowering = Lowering(tape, tensors, storage, real, found)
    for formula in formulas:
        lowering.run(formula)
    return [lowering.finish(name) for name in found]


def _shapes(declared: Declared) -> Iterator[tuple[int | None, Shape]]:
    if declared.size is not None:
        raise UnsupportedError("the length of a pack is not known")
    if declared.items is None:
        yield None, declared.shape or ()
    else:
        yield from enumerate(declared.items)
