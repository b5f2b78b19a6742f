"""Values of a formula over its loops: arrays with one dimension for each loop they vary along, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import itemgetter, methodcaller

import numpy as np

from lamella.backend.nacvm.tape import Function, Register, Tape
from lamella.base.arrays import Array, DType

Axes = tuple[int, ...]
FOLDED = 1 << 16
"""Elements of a value that is computed before the run; larger ones are computed by the run."""


class UnsupportedError(Exception):
    """A formula whose structure is not known here; the general way runs it."""


@dataclass(frozen=True, slots=True)
class Value:
    """An array that varies along some loops: one dimension for each, in the order of the loops."""

    register: Register
    axes: Axes
    dtype: DType


@dataclass(frozen=True, slots=True)
class Space:
    """The loops of a formula and the tape that its values are put on."""

    tape: Tape
    extents: tuple[int, ...]
    most_bytes: int

    def shape(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The lengths of some loops."""
        return tuple(self.extents[axis] for axis in axes)

    def literal(self, array: Array, axes: Axes = ()) -> Value:
        """A value known before the run."""
        return Value(self.tape.literal(array), axes, array.dtype)

    def apply(self, function: Function, operands: Sequence[Value], dtype: DType) -> Value:
        """A function of values that broadcast together; computed now where all of them are known and it is small."""
        axes = tuple(sorted({axis for item in operands for axis in item.axes}))
        size = self.reserve(axes, dtype)
        aligned = [self.align(item, axes) for item in operands]
        known = [self.tape.literals.get(item) for item in aligned]
        found = [item for item in known if item is not None]
        if len(found) == len(known) and size <= FOLDED:
            with np.errstate(all="ignore"):
                return self.literal(np.asarray(function(*found)), axes)
        return Value(self.tape.do(function, *aligned), axes, dtype)

    def reserve(self, axes: Sequence[int], dtype: DType) -> int:
        """The elements of a value along some loops; a value that memory has no room for is refused."""
        return self.reserve_bytes(self.shape(axes), dtype)

    def reserve_bytes(self, shape: Sequence[int], dtype: DType) -> int:
        """The elements of an array of a shape, for which there must be room."""
        size = prod(shape)
        if size * dtype.itemsize > self.most_bytes:
            raise UnsupportedError("a value is too large")
        self.tape.note(size * dtype.itemsize)
        return size

    def apply_whole(self, function: Function, value: Value, axes: Axes, dtype: DType) -> Value:
        """A function of a whole array that gives one along other loops."""
        return Value(self.view(value.register, function), axes, dtype)

    def align(self, value: Value, axes: Axes) -> Register:
        """A value in the dimensions of some loops; those in front of its own need none."""
        if value.axes == axes[len(axes) - len(value.axes) :]:
            return value.register
        first = axes.index(value.axes[0]) if value.axes else len(axes)
        shape = tuple(self.extents[axis] if axis in value.axes else 1 for axis in axes[first:])
        return self.view(value.register, reshape(shape))

    def view(self, register: Register, function: Function) -> Register:
        """Another look at the same elements; that of a known array is known."""
        known = self.tape.literals.get(register)
        if known is not None:
            return self.tape.literal(np.asarray(function(known)))
        found = self.tape.do(function, register)
        self.tape.views[found] = register
        return found

    def transpose(self, register: Register, order: Sequence[int]) -> Register:
        """Dimensions in another order; two such orders after each other are one, or none."""
        base, first = self.tape.turned.get(register, (register, tuple(range(len(order)))))
        joined = tuple(first[place] for place in order)
        if joined == tuple(range(len(joined))):
            return base
        found = self.view(base, _transpose(joined))
        self.tape.turned[found] = base, joined
        return found


def reshape(shape: Sequence[int]) -> Function:
    """Gives an array another shape."""
    return methodcaller("reshape", tuple(shape))


def _transpose(order: Sequence[int]) -> Function:
    """Gives the dimensions of an array another order; turning all of them round is NumPy's own."""
    turned = list(order) == list(range(len(order)))[::-1]
    return np.ndarray.transpose if turned else methodcaller("transpose", tuple(order))


def index(places: Sequence[int | slice]) -> Function:
    """Takes a part of an array."""
    return itemgetter(tuple(places))


def astype(dtype: DType) -> Function:
    """Gives the elements of an array another type."""
    return methodcaller("astype", dtype)


def spread(shape: Sequence[int]) -> Function:
    """Repeats an array along new dimensions."""
    return partial(_spread, tuple(shape))


def _spread(shape: tuple[int, ...], array: Array) -> Array:
    return np.broadcast_to(array, shape)
