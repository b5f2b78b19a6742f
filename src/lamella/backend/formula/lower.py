"""The formulas of one operation as actions on a tape, where their structure is one that NumPy has functions for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial, reduce
from math import prod
from typing import TypeAlias

import numpy as np

from lamella.backend.formula.contract import BOX
from lamella.backend.formula.expression_dag import ExpressionDag, PreparedFormula, TensorAccess
from lamella.backend.formula.scalars import BOOLEAN, INTEGER, Real, computing_type, multiply_matrices
from lamella.backend.formula.shortcuts import find_product
from lamella.backend.formula.storage import Storage, known_shape
from lamella.backend.formula.store import ACCUMULATIONS, ASSIGNMENTS, clip_to, neutral, neutral_of, saturates
from lamella.backend.formula.tape import Function, Register, Tape
from lamella.backend.formula.terms import (
    DimensionUse,
    LoopSpace,
    LoopValue,
    Tensors,
    TermValues,
    astype,
    find_parts,
    reshape,
    spread,
)
from lamella.base.arrays import Array, DType
from lamella.base.dim import Values
from lamella.base.dtype import ElementType
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.ops.instance import Declared, Shape

# --- storing: values in the dimensions of an output, as the whole of it or a part ------------------------------


@dataclass(frozen=True, slots=True)
class WrittenElements:
    """The elements that a formula writes, dimension by dimension."""

    parts: tuple[DimensionUse, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """The loops along which it writes, in the order of the dimensions."""
        return tuple(axis for part in self.parts for axis in part.axes)

    @property
    def whole(self) -> bool:
        """Whether every element is written."""
        return all(part.cut is None or (part.cut == 0 and part.sizes == (1,)) for part in self.parts)

    def region(self) -> tuple[int | slice, ...]:
        """The part of the output that is written, as an index."""
        return tuple(slice(None) if part.cut is None else part.cut for part in self.parts)


def find_target(
    space: LoopSpace, cells: ExpressionDag, access: TensorAccess, shape: Sequence[int]
) -> WrittenElements:
    """Where a formula writes, each element once."""
    found = WrittenElements(tuple(find_parts(space, cells, access, shape)))
    if len(set(found.axes)) != len(found.axes):
        raise Unsupported("a loop runs along two dimensions")
    return found


@dataclass(frozen=True, slots=True)
class OutputValue:
    """A value in the dimensions of an output; a dimension along which it does not vary may have length 1."""

    register: Register
    shape: tuple[int, ...]


def place(space: LoopSpace, value: LoopValue, target: WrittenElements) -> OutputValue:
    """A value in the dimensions that a target writes; places that it writes alone have no dimension in a part."""
    order = [axis for axis in target.axes if axis in value.axes]
    if len(order) != len(value.axes):
        raise Unsupported("an element is written more than once")
    register = value.register
    if tuple(order) != value.axes:
        register = space.transpose(register, [value.axes.index(axis) for axis in order])
    parts = [part for part in target.parts if target.whole or part.axes]
    if any(len(part.axes) > 1 and not set(part.axes) <= set(order) for part in parts):
        register = _fill(space, register, order, target.axes)
        order = list(target.axes)
    shape = tuple(_length(space, part, order) for part in parts)
    if shape != space.shape(order):
        register = space.view(register, reshape(shape))
    return OutputValue(register, shape)


def _length(space: LoopSpace, part: DimensionUse, order: Sequence[int]) -> int:
    found = 1
    for axis in part.axes:
        found *= space.extents[axis] if axis in order else 1
    return found


def _fill(space: LoopSpace, register: Register, order: Sequence[int], axes: Sequence[int]) -> Register:
    """A value repeated along the loops it does not vary along."""
    inner = tuple(space.extents[axis] if axis in order else 1 for axis in axes)
    register = space.view(register, reshape(inner))
    return space.view(register, spread(space.shape(axes)))


def write_part(region: tuple[int | slice, ...]) -> Function:
    """Writes into a part of an array that nobody else holds."""

    def write(array: Array, value: Array) -> Array:
        array[region] = value
        return array

    return write


def zeros(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Function:
    """Makes an array of zeros."""

    def make() -> Array:
        return np.zeros(shape, dtype)

    return make


def copy(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Function:
    """Makes an array of its own from a value that broadcasts to a shape."""

    def make(value: Array) -> Array:
        found = np.empty(shape, dtype)
        found[...] = value
        return found

    return make


# --- sums of products as one matrix product over views ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProductAxes:
    """What each loop does in a matrix product."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]


def multiply(terms: TermValues, axes: Sequence[int]) -> LoopValue | None:
    """The sums of products along some loops of the target; None where it is no matrix product, or does not pay."""
    product = find_product(terms.formula)
    box = tuple((0, extent) for extent in terms.space.extents)
    if product is None or not product.pays(box):
        return None
    left = _factor(terms, product.left, product.right)
    right = _factor(terms, product.right, product.left)
    roles = _roles(left, right, axes)
    used = {*roles.batch, *roles.rows, *roles.columns, *roles.summed}
    if len(used) != len(terms.space.extents):
        raise Unsupported("a factor is summed alone")
    # The side that varies along the last loop comes last, so that the product already lies as the target does.
    if roles.rows and roles.columns and roles.rows[-1] > roles.columns[-1]:
        left, right = right, left
        roles = ProductAxes(roles.batch, roles.columns, roles.rows, roles.summed)
    return _matmul(terms.space, left, right, roles)


def _factor(terms: TermValues, numbers: Sequence[int], others: Sequence[int]) -> LoopValue:
    """A factor; where it has zeros beyond the edges of a tensor, what they are multiplied with must be finite."""
    # 0 · inf is NaN: a zero that stands for a skipped step must meet nothing but finite numbers.
    terms.padded = False
    values = [terms.windows(number) for number in numbers]
    if terms.padded:
        cells = [terms.formula.cells[number] for number in others]
        tensors = [terms.tensor(cell.access) for cell in cells if cell.access is not None]
        if len(tensors) != len(cells):
            raise Unsupported("what zeros are multiplied with is computed")
        terms.space.tape.finite.update(item.register for item in tensors)
    return reduce(lambda one, two: terms.space.apply(np.multiply, [one, two], one.dtype), values)


def _roles(left: LoopValue, right: LoopValue, axes: Sequence[int]) -> ProductAxes:
    both = [axis for axis in left.axes if axis in right.axes]
    return ProductAxes(
        tuple(axis for axis in both if axis in axes),
        tuple(axis for axis in left.axes if axis not in both and axis in axes),
        tuple(axis for axis in right.axes if axis not in both and axis in axes),
        tuple(axis for axis in both if axis not in axes),
    )


def _matmul(space: LoopSpace, left: LoopValue, right: LoopValue, roles: ProductAxes) -> LoopValue:
    one = _matrix(space, left, (roles.rows, roles.summed), roles.batch)
    two = _matrix(space, right, (roles.summed, roles.columns), roles.batch)
    order = (*roles.batch, *roles.rows, *roles.columns)
    space.reserve(order, left.dtype)
    plain = np.matmul if roles.batch else np.ndarray.dot
    found = space.tape.do(multiply_matrices if left.dtype == INTEGER else plain, one, two)
    if len(roles.rows) != 1 or len(roles.columns) != 1:
        found = space.view(found, reshape(space.shape(order)))
    axes = tuple(sorted(order))
    if axes != order:
        found = space.transpose(found, [order.index(axis) for axis in axes])
    return LoopValue(found, axes, left.dtype)


def _matrix(
    space: LoopSpace, value: LoopValue, sides: tuple[tuple[int, ...], tuple[int, ...]], batch: tuple[int, ...]
) -> Register:
    """A factor as a row of matrices, or one matrix, whose sides run along some loops."""
    order = (*batch, *sides[0], *sides[1])
    register = value.register
    if order != value.axes:
        register = space.transpose(register, [value.axes.index(axis) for axis in order])
    if any(len(side) != 1 for side in sides):
        sizes = [prod(space.shape(side)) for side in sides]
        register = space.view(register, reshape((*space.shape(batch), *sizes)))
    return register


LONG_CHAIN = 3
"""Calls of one value that may go through arrays of any size."""

Name: TypeAlias = tuple[str, int | None]
"""An output, or the item of one that is a pack."""


@dataclass(frozen=True, slots=True)
class DeclaredOutput:
    """An output of an operation: the type it is computed in while formulas add to it, the one it is stored in."""

    element: ElementType
    shape: tuple[int, ...]
    stored: DType
    computed: DType


@dataclass(slots=True)
class OutputState:
    """What an output is so far; `owned` says that nothing else holds the array."""

    placed: OutputValue
    dtype: DType
    owned: bool = False


@dataclass(slots=True)
class FormulaLowering:
    """One operation while its formulas are put on a tape."""

    tape: Tape
    tensors: Tensors
    storage: Storage
    real: Real
    outputs: Mapping[Name, DeclaredOutput]
    states: dict[Name, OutputState] = field(default_factory=dict)

    def run(self, formula: PreparedFormula) -> None:
        """Put a formula on the tape, or say that its structure is not known."""
        if formula.condition is not None or 0 in formula.extents:
            raise Unsupported("steps are skipped")
        space = LoopSpace(self.tape, formula.extents, self.storage.most_bytes)
        terms = TermValues(space, formula, self.tensors, self.real)
        for access, number in zip(formula.targets, formula.values, strict=True):
            name = access.tensor, access.item
            output = self.outputs.get(name)
            if output is None:
                raise Unsupported("an item of a pack is computed")
            target = find_target(space, formula.cells, access, output.shape)
            if formula.sign in ASSIGNMENTS:
                self._assign(name, target, terms, number)
            else:
                self._accumulate(name, target, terms, number)

    # --- assignments ----------------------------------------------------------------------------------------

    def _assign(self, name: Name, target: WrittenElements, terms: TermValues, number: int) -> None:
        output, space, before = self.outputs[name], terms.space, len(self.tape.actions)
        value = _saturated(terms, number, output)
        # A long chain over large arrays goes through memory once for each call; in boxes it stays in the caches.
        if len(self.tape.actions) - before > LONG_CHAIN and prod(space.extents) > BOX:
            raise Unsupported("its steps are taken in boxes")
        if value.dtype != output.computed:
            value = space.apply(astype(output.computed), [value], output.computed)
        placed = place(space, value, target)
        if target.whole:
            self.states[name] = OutputState(placed, output.computed)
            return
        state = self.states.get(name)
        if state is None:
            base = self.tape.do(zeros(output.shape, output.computed))
        elif state.owned:  # nobody else reads the array that this operation made: it is written in place
            base = state.placed.register
        else:
            base = self.tape.do(copy(output.shape, output.computed), state.placed.register)
        found = self.tape.do(write_part(target.region()), base, placed.register)
        self.states[name] = OutputState(OutputValue(found, output.shape), output.computed, owned=True)

    # --- accumulations --------------------------------------------------------------------------------------

    def _accumulate(self, name: Name, target: WrittenElements, terms: TermValues, number: int) -> None:
        output, sign, space = self.outputs[name], terms.formula.sign, terms.space
        if not target.whole:
            raise Unsupported("a part is accumulated")
        value = multiply(terms, target.axes) if sign == "+=" else None
        value = value or _reduce(terms, number, target)
        if value.dtype != output.computed:
            value = space.apply(astype(output.computed), [value], output.computed)
        placed = place(space, value, target)
        state = self.states.get(name) or self._extreme_start(output, sign)
        if state is not None and not self._is_neutral(state, sign):
            shape = np.broadcast_shapes(state.placed.shape, placed.shape)
            function = ACCUMULATIONS[sign].function
            found = self.tape.do(function, state.placed.register, placed.register)
            placed = OutputValue(found, shape)
        self.states[name] = OutputState(placed, output.computed)

    def _extreme_start(self, output: DeclaredOutput, sign: str) -> OutputState | None:
        """Where a minimum or maximum of narrow integers starts: the extreme of the stored type, not of the computed."""
        if output.computed != INTEGER or output.stored == INTEGER or ACCUMULATIONS[sign].repeats:
            return None
        start = neutral_of(sign, output.computed, output.element)
        return OutputState(OutputValue(self.tape.literal(start), ()), output.computed)

    def _is_neutral(self, state: OutputState, sign: str) -> bool:
        known = self.tape.literals.get(state.placed.register)
        return known is not None and bool((known == neutral(sign, state.dtype)).all())

    # --- ends -----------------------------------------------------------------------------------------------

    def finish(self, name: Name) -> Register:
        """An output as it is stored."""
        output, state = self.outputs[name], self.states.get(name)
        if state is None:
            raise Unsupported("nothing is written")
        register = state.placed.register
        if output.computed != output.stored:
            register = self.tape.do(partial(_store, self.storage, output.element), register)
        if state.placed.shape != output.shape:
            return self.tape.do(spread(output.shape), register)
        # NumPy gives scalars, not arrays, where nothing has a dimension.
        return register if output.shape else self.tape.do(np.asarray, register)


def _store(storage: Storage, element: ElementType, values: Array) -> Array:
    return storage.store(np.asarray(values), element)


def _saturated(terms: TermValues, number: int, output: DeclaredOutput) -> LoopValue:
    """A value to assign: a real that is cast to a narrow integer goes to the nearest."""
    value, cell = terms.value(number), terms.formula.cells[number]
    if not saturates(cell, output.stored) or terms.value(cell.operands[0]).dtype.kind != "f":
        return value
    return terms.space.apply(partial(clip_to, output.element), [value], value.dtype)


def _reduce(terms: TermValues, number: int, target: WrittenElements) -> LoopValue:
    """A value joined along the loops that the target does not have."""
    rule, space = ACCUMULATIONS[terms.formula.sign], terms.space
    value = terms.value(number)
    idle = set(range(len(space.extents))) - {*value.axes, *target.axes}
    plain = terms.formula.cells[number].access is not None
    if (rule.repeats and (idle or value.dtype == BOOLEAN)) or not (plain or _is_small(space, value)):
        raise Unsupported("it is joined in another way")
    along = tuple(place for place, axis in enumerate(value.axes) if axis not in target.axes)
    if not along:
        return value
    wide = rule.joining_type(value.dtype)
    axes = tuple(axis for axis in value.axes if axis in target.axes)
    joined = partial(rule.function.reduce, axis=along if len(along) > 1 else along[0], dtype=wide)
    found = space.apply_whole(joined, value, axes, wide)
    return found if wide == value.dtype else space.apply(astype(value.dtype), [found], value.dtype)


def _is_small(space: LoopSpace, value: LoopValue) -> bool:
    return prod(space.shape(value.axes)) <= BOX


@dataclass(frozen=True, slots=True)
class FormulaSet:
    """The formulas of an operation with its outputs: how they are stored, the type of reals, the known extents."""

    formulas: Sequence[PreparedFormula]
    outputs: Sequence[Declared]
    storage: Storage
    real: Real
    values: Values

    def declared(self) -> Iterator[tuple[Name, DeclaredOutput]]:
        """The tensors of the outputs."""
        for output in self.outputs:
            stored = self.storage.dtype(output.element)
            signs = {
                item.sign for item in self.formulas for part in item.targets if part.tensor == output.name
            }
            computed = output_type(output.element, stored, signs, self.real)
            for item, shape in _shapes(output):
                known = known_shape(shape, self.values)
                if prod(known) * max(stored.itemsize, computed.itemsize) > self.storage.most_bytes:
                    raise Unsupported("an output is too large")
                yield (output.name, item), DeclaredOutput(output.element, known, stored, computed)


def output_type(element: ElementType, stored: DType, signs: Collection[str], real: Real) -> DType:
    """The type in which an output is computed: that of computing where it is accumulated, so that it is rounded once.

    Reals of 8 bits too: they saturate when they are stored.
    """
    plain = set(signs) <= set(ASSIGNMENTS) and not (element.is_float and element.bits <= 8)
    return stored if plain else computing_type(stored, real)


def lower_formulas(tape: Tape, operation: FormulaSet, tensors: Tensors) -> list[Register]:
    """Put the formulas of an operation on a tape; one value for each tensor of its outputs."""
    outputs = dict(operation.declared())
    for output in outputs.values():
        tape.note(prod(output.shape) * output.computed.itemsize)
    lowering = FormulaLowering(tape, tensors, operation.storage, operation.real, outputs)
    for formula in operation.formulas:
        lowering.run(formula)
    return [lowering.finish(name) for name in outputs]


def _shapes(declared: Declared) -> Iterator[tuple[int | None, Shape]]:
    if declared.size is not None:
        raise Unsupported("the length of a pack is not known")
    if declared.items is None:
        yield None, declared.shape or ()
    else:
        yield from enumerate(declared.items)
