"""Running sums in linear time: `y[z] += x[|z - k|]` joins, for each z, all elements up to the z-th.

The elements are joined one after the other, from the end where they all begin, as `numpy.cumsum` does: integers wrap
around, sums and products of singles are held in doubles and rounded when they are stored. Minima, maxima, conjunctions
and disjunctions run in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lamella.backend.reference.formula.access import computing_type, view
from lamella.backend.reference.formula.affine import Affine, Box, fix
from lamella.backend.reference.formula.cells import Access, Formula
from lamella.backend.reference.formula.evaluate import Evaluation
from lamella.backend.reference.formula.scalars import DOUBLE, INTEGER, SINGLE
from lamella.backend.reference.formula.store import ACCUMULATIONS, accumulate, neutral
from lamella.base.arrays import Array


class Prefix(NamedTuple):
    """A running join: the read element, its dimension that runs, its index, and the axes of the two loops."""

    source: Access
    dimension: int
    form: Affine
    outer: int
    inner: int


def find_prefix(formula: Formula) -> Prefix | None:
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


def _running(formula: Formula, source: Access, dimension: int) -> Prefix | None:
    place, target = source.places[dimension], formula.cells.axes_of(formula.targets[0])
    form = formula.cells[place.at].form
    if form is None or place.below is not None or place.above is not None:
        return None
    inner = [axis for axis, factor in form.factors if axis not in target and abs(factor) == 1]
    outer = [axis for axis, factor in form.factors if axis in target and abs(factor) == 1]
    if len(form.factors) != 2 or len(inner) != 1 or len(outer) != 1:
        return None
    for number, other in enumerate(source.places):
        known = formula.cells[other.at].form
        if number != dimension and (known is None or known.axes & form.axes):
            return None
    return Prefix(source, dimension, form, outer[0], inner[0])


def run_prefix(evaluation: Evaluation, prefix: Prefix) -> bool:
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
    once = Evaluation(
        formula, evaluation.tensors, fix(box, [prefix.inner], [0]), evaluation.real, evaluation.read
    )
    accumulate(once, formula.targets[0], taken.astype(values.dtype, copy=False), None)
    return True


def _reached(prefix: Prefix, box: Box) -> tuple[Array, Array]:
    """The lowest and the highest index that the inner loop names, for each step of the outer one."""
    factors = dict(prefix.form.factors)
    start, stop = box[prefix.outer]
    outer = prefix.form.constant + factors[prefix.outer] * np.arange(start, stop, dtype=INTEGER)
    ends = [factors[prefix.inner] * index for index in (box[prefix.inner][0], box[prefix.inner][1] - 1)]
    return outer + min(ends), outer + max(ends)


def _elements(evaluation: Evaluation, prefix: Prefix, extent: int) -> Array | None:
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
        low, high = form.span(box)
        if low < 0 or high >= tensor.shape[number]:
            return None
        forms.append(form)
    whole = Evaluation(evaluation.formula, evaluation.tensors, box, evaluation.real, evaluation.read)
    found = view(whole, tensor, forms)
    return found.astype(computing_type(found.dtype, evaluation.real), copy=False)


def _join(sign: str, values: Array, axis: int) -> Array:
    """What the first elements along an axis join to: of none, of one, of two and so on."""
    rule = ACCUMULATIONS[sign]
    wide = DOUBLE if rule.repeats and values.dtype == SINGLE else values.dtype
    before = list(values.shape)
    before[axis] = 1
    start = np.full(before, neutral(sign, wide), wide)
    return np.concatenate([start, rule.function.accumulate(values, axis=axis, dtype=wide)], axis=axis)
