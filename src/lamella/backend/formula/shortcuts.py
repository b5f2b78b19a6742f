"""Formulas that NumPy runs at one go: sums of products as matrix products, searches for an extreme, prefix scans."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from lamella.backend.formula.affine import Box, Form, fix, span, volume
from lamella.backend.formula.evaluate import BoxEvaluation, view
from lamella.backend.formula.expression_dag import PreparedFormula, TensorAccess
from lamella.backend.formula.scalars import INTEGER, computing_type, multiply_matrices
from lamella.backend.formula.store import ACCUMULATIONS, accumulate, assign, neutral
from lamella.base.affine import Affine
from lamella.base.arrays import Array
from lamella.base.records import dataclass
from lamella.ops.formula import Apply

# --- sums of products: `y[…] += a[…] * b[…]` over views, transposed so that little is copied -----------------


SMALL_SIDE, LONG_SUM = 4, 64


@dataclass(frozen=True, slots=True)
class SumOfProducts:
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


def find_product(formula: PreparedFormula) -> SumOfProducts | None:
    """The factors of a sum of products, grouped in two; None where the formula is no such sum."""
    if formula.sign != "+=" or len(formula.values) != 1 or formula.targets[0].picked is not None:
        return None
    groups = _group(formula, _factors(formula, formula.values[0]))
    if len(groups) != 2:
        return None
    (left, left_axes), (right, right_axes) = groups
    target_axes = formula.cells.axes_of(formula.targets[0])
    return SumOfProducts(tuple(left), tuple(right), left_axes, right_axes, target_axes)


def _group(formula: PreparedFormula, factors: Sequence[int]) -> list[tuple[list[int], frozenset[int]]]:
    """Two factors that vary stay apart; of more, each joins one that varies along all its axes."""
    groups: list[tuple[list[int], frozenset[int]]] = []
    varying = sum(bool(formula.cells[number].axes) for number in factors)
    for number in sorted(factors, key=lambda item: -len(formula.cells[item].axes)):
        axes = formula.cells[number].axes
        joined = next((group for group in groups if axes <= group[1]), None)
        if joined is None or (axes and varying == 2):
            groups.append(([number], axes))
        else:
            joined[0].append(number)
    return groups


def _factors(formula: PreparedFormula, root: int) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        number = waiting.pop()
        cell = formula.cells[number]
        if isinstance(cell.term, Apply) and cell.term.function == "*" and cell.form is None:
            waiting += reversed(cell.operands)
        else:
            found.append(number)
    return found


def multiply(evaluation: BoxEvaluation, product: SumOfProducts) -> bool:
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
    # Zeros silence a skipped product only where the other factor is finite: 0 · inf is NaN.
    if (left.silenced and not _is_finite(right.values)) or (right.silenced and not _is_finite(left.values)):
        return False
    found, joined = _contract(evaluation, product, left.values, right.values)
    accumulate(evaluation, evaluation.formula.targets[0], found, None, joined)
    return True


class _Side:
    """One group of factors as an array; `silenced` says that zeros stand where steps are skipped."""

    def __init__(self, evaluation: BoxEvaluation, numbers: Sequence[int]) -> None:
        cells = evaluation.formula.cells
        self.numbers = numbers
        evaluation.compute(numbers)
        self.values = evaluation.value(numbers[0])
        for number in numbers[1:]:
            self.values = self.values * evaluation.value(number)
        access = cells[numbers[0]].access
        plain = access is not None and _is_plain(evaluation, access)
        self.padded: list[TensorAccess] = [access] if access is not None and plain else []
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


def _is_plain(evaluation: BoxEvaluation, access: TensorAccess) -> bool:
    """Whether what a guard skips is read as zero: all indices are affine, none is remapped."""
    return access.picked is None and all(
        place.below is None and place.above is None and evaluation.formula.cells[place.at].form is not None
        for place in access.places
    )


def _leaves(evaluation: BoxEvaluation, access: TensorAccess) -> bool:
    """Whether an affine access leaves its tensor somewhere in the box."""
    for place, extent in zip(access.places, evaluation.tensor(access).shape, strict=True):
        form = evaluation.formula.cells[place.at].form
        low, high = (0, 0) if form is None else span(form, evaluation.box)
        if low < 0 or high >= extent:
            return True
    return False


def _is_finite(values: Array) -> bool:
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def _contract(
    evaluation: BoxEvaluation, product: SumOfProducts, left: Array, right: Array
) -> tuple[Array, list[int]]:
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
    found = multiply_matrices(
        _matrix(one, batch, rows, summed), _matrix(two, batch, columns, summed).swapaxes(1, 2)
    )
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
        moved = values.transpose([*batch, *summed, *free, *rest])
        return moved.reshape(sizes[0], sizes[2], sizes[1]).swapaxes(1, 2)
    return values.transpose([*batch, *free, *summed, *rest]).reshape(sizes)


# --- searches for an extreme: `y[s] := z | x[s, z] < x[s, y[s]]` ---------------------------------------------


LARGEST = 1 << 26
"""Elements that are searched at once; more are searched step by step."""


def search(evaluation: BoxEvaluation, axes: Sequence[int]) -> bool:
    """Run the formula where it is a search along some axes; False, and nothing done, where it is not."""
    formula = evaluation.formula
    sides = _compared(formula)
    if sides is None or not _walks(formula, sides, axes) or np.prod(evaluation.shape, dtype=float) > LARGEST:
        return False
    seen, best = (evaluation.value(number) for number in sides)
    if any(evaluation.bad(number) is not None for number in sides):
        return False
    sign = 1 if _function(formula) == "<" else -1
    first, found = _first_extreme(np.broadcast_to(seen, evaluation.shape), axes, sign)
    better = np.asarray(found < best if sign > 0 else found > best)
    for target, number in zip(formula.targets, formula.values, strict=True):
        form = formula.cells[number].form
        start = 0 if form is None else evaluation.box[form.terms[0][0]][0]
        axis = 0 if form is None else form.terms[0][0]
        assign(evaluation, target, _along(first, axes, axis, evaluation.shape) + start, better)
    return True


def _function(formula: PreparedFormula) -> str:
    term = None if formula.condition is None else formula.cells[formula.condition].term
    return term.function if isinstance(term, Apply) else ""


def _compared(formula: PreparedFormula) -> tuple[int, int] | None:
    """The cells of the element that is looked at and of the best so far."""
    if formula.condition is None or formula.sign != ":=" or _function(formula) not in ("<", ">"):
        return None
    left, right = formula.cells[formula.condition].operands
    return left, right


def _walks(formula: PreparedFormula, sides: tuple[int, int], axes: Sequence[int]) -> bool:
    """Whether both sides read one tensor, at indices that differ by what the targets hold, once for each axis."""
    seen, best = (formula.cells[number].access for number in sides)
    if seen is None or best is None or seen.tensor != best.tensor or seen[2:] != best[2:]:
        return False
    if seen.picked is not None or any(target.tensor == seen.tensor for target in formula.targets):
        return False
    walked: list[int | None] = []
    shared: set[int] = set()
    for one, other in zip(seen.places, best.places, strict=True):
        form, other_form = formula.cells[one.at].form, formula.cells[other.at].form
        if one.guarded or other.guarded or form is None:
            return False
        if form != other_form:
            walked.append(_walked_axis(formula, form, formula.cells[other.at].access))
        else:
            shared |= form.symbols
    known = [axis for axis in walked if axis is not None]
    if len(known) != len(walked) or shared & set(axes):
        return False
    return sorted(known) == sorted(axes) and _plain(formula)


def _walked_axis(formula: PreparedFormula, form: Form, held: TensorAccess | None) -> int | None:
    """The axis of an index for which the best so far has a target's element, if that target is given this index."""
    if held is None or form.constant or len(form.terms) != 1 or form.terms[0][1] != 1:
        return None
    for target, number in zip(formula.targets, formula.values, strict=True):
        if _same(formula, target, held) and formula.cells[number].form == form:
            return form.terms[0][0]
    return None


def _same(formula: PreparedFormula, one: TensorAccess, other: TensorAccess) -> bool:
    forms = [[formula.cells[place.at].form for place in access.places] for access in (one, other)]
    return (
        one.tensor == other.tensor
        and one.item == other.item
        and forms[0] == forms[1]
        and None not in forms[0]
    )


def _plain(formula: PreparedFormula) -> bool:
    """Whether no index of a target is tested and every target is given a plain loop index."""
    tested = any(place.guarded for target in formula.targets for place in target.places)
    given = [formula.cells[number].form for number in formula.values]
    return not tested and all(
        form is not None and not form.constant and [factor for _, factor in form.terms] == [1]
        for form in given
    )


def _first_extreme(values: Array, axes: Sequence[int], sign: int) -> tuple[Array, Array]:
    """The first place, in the order of the loops, of the smallest or largest value; NaN is never it."""
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    moved = values.transpose([*kept, *axes]).reshape([*(values.shape[axis] for axis in kept), -1])
    # NumPy's argmin takes NaN for the smallest; no comparison of the formula ever does.
    if values.dtype.kind == "f":
        moved = np.where(np.isnan(moved), np.asarray(sign * np.inf, values.dtype), moved)
    first = np.argmin(moved, -1, keepdims=True) if sign > 0 else np.argmax(moved, -1, keepdims=True)
    found = np.take_along_axis(moved, first, -1)
    shape = [1 if axis in axes else size for axis, size in enumerate(values.shape)]
    return first.reshape(shape), found.reshape(shape)


def _along(places: Array, axes: Sequence[int], axis: int, shape: Sequence[int]) -> Array:
    """The index along one axis of places that are counted over several."""
    # NumPy's unravel_index is wrong behind the first 8192 places where the last extent of `places` is 1.
    behind = [shape[item] for item in axes[list(axes).index(axis) + 1 :]]
    return np.asarray(places // prod(behind) % shape[axis])


# --- prefix scans in linear time: `y[z] += x[|z - k|]` -------------------------------------------------------


class Prefix(NamedTuple):
    """A running join: the read element, its dimension that runs, its index, and the axes of the two loops."""

    source: TensorAccess
    dimension: int
    form: Form
    outer: int
    inner: int


def find_prefix(formula: PreparedFormula) -> Prefix | None:
    """The running join that a formula is, if its inner loop serves for nothing else; None where it is none."""
    if len(formula.values) != 1 or formula.condition is not None or formula.targets[0].picked is not None:
        return None
    source = formula.cells[formula.values[0]].access
    if source is None or source.picked is not None or any(item.guarded for item in formula.targets[0].places):
        return None
    found = [number for number, place in enumerate(source.places) if place.guarded]
    if len(found) != 1:
        return None
    return _running(formula, source, found[0])


def _running(formula: PreparedFormula, source: TensorAccess, dimension: int) -> Prefix | None:
    place, target = source.places[dimension], formula.cells.axes_of(formula.targets[0])
    form = formula.cells[place.at].form
    if form is None or place.below is not None or place.above is not None:
        return None
    inner = [axis for axis, factor in form.terms if axis not in target and abs(factor) == 1]
    outer = [axis for axis, factor in form.terms if axis in target and abs(factor) == 1]
    if len(form.terms) != 2 or len(inner) != 1 or len(outer) != 1:
        return None
    for number, other in enumerate(source.places):
        known = formula.cells[other.at].form
        if number != dimension and (known is None or known.symbols & form.symbols):
            return None
    return Prefix(source, dimension, form, outer[0], inner[0])


def run_prefix(evaluation: BoxEvaluation, prefix: Prefix) -> bool:
    """Run the formula where each inner loop reaches an end of the dimension; False, and nothing done, elsewhere."""
    formula, box = evaluation.formula, evaluation.box
    extent = evaluation.tensor(prefix.source).shape[prefix.dimension]
    first, last = _reached(prefix, box)
    backwards = int(last.min()) >= extent - 1
    if extent == 0 or not (backwards or int(first.max()) <= 0):
        return False
    values = _elements(evaluation, prefix, extent)
    if values is None:
        return False
    count = extent - first if backwards else last + 1
    joined = _join(formula.sign, np.flip(values, prefix.outer) if backwards else values, prefix.outer)
    taken = np.take(joined, np.clip(count, 0, extent), axis=prefix.outer)
    once = BoxEvaluation(formula, evaluation.tensors, fix(box, [prefix.inner], [0]), evaluation.real)
    accumulate(once, formula.targets[0], taken.astype(values.dtype, copy=False), None)
    return True


def _reached(prefix: Prefix, box: Box) -> tuple[Array, Array]:
    """The lowest and the highest index that the inner loop names, for each step of the outer one."""
    factors = dict(prefix.form.terms)
    start, stop = box[prefix.outer]
    outer = prefix.form.constant + factors[prefix.outer] * np.arange(start, stop, dtype=INTEGER)
    ends = [factors[prefix.inner] * index for index in (box[prefix.inner][0], box[prefix.inner][1] - 1)]
    return outer + min(ends), outer + max(ends)


def _elements(evaluation: BoxEvaluation, prefix: Prefix, extent: int) -> Array | None:
    """The elements to join, the running dimension along the axis of the outer loop; None where some lie outside."""
    tensor, cells = evaluation.tensor(prefix.source), evaluation.formula.cells
    ranges = list(evaluation.box)
    ranges[prefix.outer], ranges[prefix.inner] = (0, extent), (0, 1)
    box = tuple(ranges)
    forms = []
    for number, place in enumerate(prefix.source.places):
        form = cells[place.at].form
        if number == prefix.dimension or form is None:
            form = Affine(0, ((prefix.outer, 1),))
        low, high = span(form, box)
        if low < 0 or high >= tensor.shape[number]:
            return None
        forms.append(form)
    whole = BoxEvaluation(evaluation.formula, evaluation.tensors, box, evaluation.real)
    found = view(whole, tensor, forms)
    return found.astype(computing_type(found.dtype, evaluation.real), copy=False)


def _join(sign: str, values: Array, axis: int) -> Array:
    """What the first elements along an axis join to: of none, of one, of two and so on."""
    rule = ACCUMULATIONS[sign]
    wide = rule.joining_type(values.dtype)
    before = list(values.shape)
    before[axis] = 1
    start = np.full(before, neutral(sign, wide), wide)
    return np.concatenate([start, rule.function.accumulate(values, axis=axis, dtype=wide)], axis=axis)
