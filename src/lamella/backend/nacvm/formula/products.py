"""Sums of products as one matrix product over views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np

from lamella.backend.nacvm.formula.terms import Terms
from lamella.backend.nacvm.formula.values import Space, UnsupportedError, Value, reshape
from lamella.backend.nacvm.tape import Register
from lamella.backend.reference.formula.shortcuts.multiply import find_product


@dataclass(frozen=True, slots=True)
class Roles:
    """What each loop does in a matrix product."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]


def multiply(terms: Terms, axes: Sequence[int]) -> Value | None:
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
        raise UnsupportedError("a factor is summed alone")
    if roles.rows and roles.columns and roles.rows[-1] > roles.columns[-1]:
        left, right = right, left
        roles = Roles(roles.batch, roles.columns, roles.rows, roles.summed)
    return _matmul(terms.space, left, right, roles)


def _factor(terms: Terms, numbers: Sequence[int], others: Sequence[int]) -> Value:
    """A factor; where it has zeros beyond the edges of a tensor, what they are multiplied with must be finite."""
    terms.padded = False
    values = [terms.windows(number) for number in numbers]
    if terms.padded:
        cells = [terms.formula.cells[number] for number in others]
        tensors = [terms.tensor(cell.access) for cell in cells if cell.access is not None]
        if len(tensors) != len(cells):
            raise UnsupportedError("what zeros are multiplied with is computed")
        terms.space.tape.finite.update(item.register for item in tensors)
    return reduce(lambda one, two: terms.space.apply(np.multiply, [one, two], one.dtype), values)


def _roles(left: Value, right: Value, axes: Sequence[int]) -> Roles:
    both = [axis for axis in left.axes if axis in right.axes]
    return Roles(
        tuple(axis for axis in both if axis in axes),
        tuple(axis for axis in left.axes if axis not in both and axis in axes),
        tuple(axis for axis in right.axes if axis not in both and axis in axes),
        tuple(axis for axis in both if axis not in axes),
    )


def _matmul(space: Space, left: Value, right: Value, roles: Roles) -> Value:
    one = _matrix(space, left, (roles.rows, roles.summed), roles.batch)
    two = _matrix(space, right, (roles.summed, roles.columns), roles.batch)
    order = (*roles.batch, *roles.rows, *roles.columns)
    space.reserve(order, left.dtype)
    found = space.tape.do(np.matmul if roles.batch else np.ndarray.dot, one, two)
    if len(roles.rows) != 1 or len(roles.columns) != 1:
        found = space.view(found, reshape(space.shape(order)))
    axes = tuple(sorted(order))
    if axes != order:
        found = space.transpose(found, [order.index(axis) for axis in axes])
    return Value(found, axes, left.dtype)


def _matrix(
    space: Space, value: Value, sides: tuple[tuple[int, ...], tuple[int, ...]], batch: tuple[int, ...]
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
