"""Sums of products as matrix products: `y[…] += a[…] * b[…]` over views, transposed so that little is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lamella.backend.reference.formula.affine import Box, span, volume
from lamella.backend.reference.formula.cells import Access, Formula
from lamella.backend.reference.formula.evaluate import Evaluation
from lamella.backend.reference.formula.store import accumulate
from lamella.base.arrays import Array
from lamella.ops.formula import Apply

SMALL_SIDE, LONG_SUM = 4, 64


@dataclass(frozen=True, slots=True)
class Product:
    """Two groups of factors, each with the axes it varies along, and the axes of the target."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    left_axes: frozenset[int]
    right_axes: frozenset[int]
    target_axes: frozenset[int]

    @property
    def sides(self) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
        """The axes of both factors and of the result."""
        return self.left_axes, self.right_axes, (self.left_axes | self.right_axes) & self.target_axes

    def pays(self, box: Box) -> bool:
        """Whether a matrix product is faster than going through the summed axes."""
        summed = volume(box, (self.left_axes & self.right_axes) - self.target_axes)
        rows = volume(box, (self.left_axes - self.right_axes) & self.target_axes)
        columns = volume(box, (self.right_axes - self.left_axes) & self.target_axes)
        return summed > 1 and (summed >= LONG_SUM or min(rows, columns) >= SMALL_SIDE)


def find_product(formula: Formula) -> Product | None:
    """The factors of a sum of products, grouped in two; None where the formula is no such sum."""
    if formula.sign != "+=" or len(formula.values) != 1 or formula.targets[0].picked is not None:
        return None
    groups = _group(formula, _factors(formula, formula.values[0]))
    if len(groups) != 2:
        return None
    (left, left_axes), (right, right_axes) = groups
    target_axes = formula.cells.axes_of(formula.targets[0])
    return Product(tuple(left), tuple(right), left_axes, right_axes, target_axes)


def _group(formula: Formula, factors: Sequence[int]) -> list[tuple[list[int], frozenset[int]]]:
    """Two factors that vary stay apart; of more, each joins one that varies along all its axes."""
    groups: list[tuple[list[int], frozenset[int]]] = []
    varying = sum(bool(formula.cells[number].axes) for number in factors)
    for number in sorted(factors, key=lambda item: -len(formula.cells[item].axes)):
        axes = formula.cells[number].axes
        home = next((group for group in groups if axes <= group[1]), None)
        if home is None or (axes and varying == 2):
            groups.append(([number], axes))
        else:
            home[0].append(number)
    return groups


def _factors(formula: Formula, root: int) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        number = waiting.pop()
        cell = formula.cells[number]
        if isinstance(cell.term, Apply) and cell.term.function == "*" and cell.form is None:
            waiting += reversed(cell.operands)
        else:
            found.append(number)
    return found


def multiply(evaluation: Evaluation, product: Product) -> bool:
    """Add the products of a box to the target; False, and nothing done, where a skipped product could show."""
    left, right = _Side(evaluation, product.left), _Side(evaluation, product.right)
    condition = evaluation.formula.condition
    masks, doubtful = evaluation.guards(skip=[*left.padded, *right.padded])
    if condition is not None:
        masks.append(evaluation.value(condition))
    numbers = (*left.numbers, *right.numbers, *(() if condition is None else (condition,)))
    if doubtful or any(evaluation.bad(number) is not None for number in numbers):
        return False
    for mask in masks:
        side = left if left.covers(mask) else right
        if not side.covers(mask):
            return False
        side.silence(mask)
    if (left.silenced and not _is_finite(right.values)) or (right.silenced and not _is_finite(left.values)):
        return False
    found, joined = _contract(evaluation, product, left.values, right.values)
    accumulate(evaluation, evaluation.formula.targets[0], found, None, joined)
    return True


class _Side:
    """One group of factors as an array; `silenced` says that zeros stand where steps are skipped."""

    def __init__(self, evaluation: Evaluation, numbers: Sequence[int]) -> None:
        cells = evaluation.formula.cells
        self.numbers = numbers
        evaluation.compute(numbers)
        self.values = evaluation.value(numbers[0])
        for number in numbers[1:]:
            self.values = self.values * evaluation.value(number)
        access = cells[numbers[0]].access
        plain = access is not None and _is_plain(evaluation, access)
        self.padded: list[Access] = [access] if access is not None and plain else []
        self.silenced = access is not None and plain and _leaves(evaluation, access)

    def covers(self, mask: Array) -> bool:
        """Whether the factor varies along every axis of a mask."""
        if mask.ndim == 0 or self.values.ndim == 0:
            return mask.ndim == 0
        return all(one == 1 or other > 1 for one, other in zip(mask.shape, self.values.shape, strict=True))

    def silence(self, mask: Array) -> None:
        """Put zeros where steps are skipped."""
        self.values = np.where(mask, self.values, self.values.dtype.type(0))
        self.silenced = True


def _is_plain(evaluation: Evaluation, access: Access) -> bool:
    """Whether what a guard skips is read as zero: all indices are affine, none is remapped."""
    return access.picked is None and all(
        place.below is None and place.above is None and evaluation.formula.cells[place.at].form is not None
        for place in access.places
    )


def _leaves(evaluation: Evaluation, access: Access) -> bool:
    """Whether an affine access leaves its tensor somewhere in the box."""
    for place, extent in zip(access.places, evaluation.tensor(access).shape, strict=True):
        form = evaluation.formula.cells[place.at].form
        low, high = (0, 0) if form is None else span(form, evaluation.box)
        if low < 0 or high >= extent:
            return True
    return False


def _is_finite(values: Array) -> bool:
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def _contract(evaluation: Evaluation, product: Product, left: Array, right: Array) -> tuple[Array, list[int]]:
    """The sum of the products, with one axis for each loop, and the axes that are summed in it."""
    rank = len(evaluation.box)
    joined = [axis for axis in range(rank) if axis not in product.target_axes and _varies(axis, left, right)]
    one, two = _without(left, right, joined, rank), _without(right, left, joined, rank)
    both = [axis for axis in range(rank) if one.shape[axis] > 1 and two.shape[axis] > 1]
    batch, summed = ([axis for axis in both if (axis in joined) == wanted] for wanted in (False, True))
    rows, columns = (
        [axis for axis in range(rank) if side.shape[axis] > 1 and axis not in both] for side in (one, two)
    )
    if rows and columns and rows[-1] > columns[-1]:
        one, two, rows, columns = two, one, columns, rows
    found = np.matmul(_matrix(one, batch, rows, summed), _matrix(two, batch, columns, summed).swapaxes(1, 2))
    order = [*batch, *rows, *columns]
    rest = [axis for axis in range(rank) if axis not in order]
    spread = found.reshape([evaluation.shape[axis] for axis in order] + [1] * len(rest))
    return spread.transpose(np.argsort([*order, *rest])), joined


def _varies(axis: int, *sides: Array) -> bool:
    return any(side.ndim > 0 and side.shape[axis] > 1 for side in sides)


def _without(values: Array, other: Array, joined: Sequence[int], rank: int) -> Array:
    """A factor summed along the axes that only it varies along and the target does not."""
    if values.ndim == 0:
        return values.reshape((1,) * rank)
    alone = tuple(axis for axis in joined if values.shape[axis] > 1 and not _varies(axis, other))
    return np.add.reduce(values, axis=alone, keepdims=True) if alone else values


def _matrix(values: Array, batch: list[int], free: list[int], summed: list[int]) -> Array:
    """A factor as (batch, free, summed), copied in the order that its memory has."""
    sizes = [
        int(np.prod([values.shape[axis] for axis in group], dtype=np.int64))
        for group in (batch, free, summed)
    ]
    nearest = min((*free, *summed), key=lambda axis: abs(values.strides[axis]), default=None)
    rest = [axis for axis in range(values.ndim) if axis not in (*batch, *free, *summed)]
    if nearest in free:
        turned = values.transpose([*batch, *summed, *free, *rest])
        return turned.reshape(sizes[0], sizes[2], sizes[1]).swapaxes(1, 2)
    return values.transpose([*batch, *free, *summed, *rest]).reshape(sizes)
