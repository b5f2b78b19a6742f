"""Putting values where the left side of a formula writes them: into the whole output, or into a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lamella.backend.nacvm.formula.reads import Part, find_parts
from lamella.backend.nacvm.formula.values import Space, UnsupportedError, Value, reshape, spread
from lamella.backend.nacvm.tape import Function, Register
from lamella.backend.reference.formula.cells import Access, Cells
from lamella.base.arrays import Array


@dataclass(frozen=True, slots=True)
class Target:
    """The elements that a formula writes, dimension by dimension."""

    parts: tuple[Part, ...]

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


def find_target(space: Space, cells: Cells, access: Access, shape: Sequence[int]) -> Target:
    """Where a formula writes, each element once."""
    found = Target(tuple(find_parts(space, cells, access, shape)))
    if len(set(found.axes)) != len(found.axes):
        raise UnsupportedError("a loop runs along two dimensions")
    return found


@dataclass(frozen=True, slots=True)
class Placed:
    """A value in the dimensions of an output; a dimension along which it does not vary may have length 1."""

    register: Register
    shape: tuple[int, ...]


def place(space: Space, value: Value, target: Target) -> Placed:
    """A value in the dimensions that a target writes; places that it writes alone have no dimension in a part."""
    order = [axis for axis in target.axes if axis in value.axes]
    if len(order) != len(value.axes):
        raise UnsupportedError("an element is written more than once")
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
    return Placed(register, shape)


def _length(space: Space, part: Part, order: Sequence[int]) -> int:
    found = 1
    for axis in part.axes:
        found *= space.extents[axis] if axis in order else 1
    return found


def _fill(space: Space, register: Register, order: Sequence[int], axes: Sequence[int]) -> Register:
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
