"""Searches for an extreme at one go: `y[s] := z | x[s, z] < x[s, y[s]]` keeps the first smallest below the start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamella.backend.reference.formula.affine import Form
from lamella.backend.reference.formula.cells import Access, Formula
from lamella.backend.reference.formula.evaluate import Evaluation
from lamella.backend.reference.formula.store import assign
from lamella.base.arrays import Array
from lamella.ops.formula import Apply

LARGEST = 1 << 26
"""Elements that are searched at once; more are searched step by step."""


def search(evaluation: Evaluation, axes: Sequence[int]) -> bool:
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


def _function(formula: Formula) -> str:
    term = None if formula.condition is None else formula.cells[formula.condition].term
    return term.function if isinstance(term, Apply) else ""


def _compared(formula: Formula) -> tuple[int, int] | None:
    """The cells of the element that is looked at and of the best so far."""
    if formula.condition is None or formula.sign != ":=" or _function(formula) not in ("<", ">"):
        return None
    left, right = formula.cells[formula.condition].operands
    return left, right


def _walks(formula: Formula, sides: tuple[int, int], axes: Sequence[int]) -> bool:
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


def _walked_axis(formula: Formula, form: Form, held: Access | None) -> int | None:
    """The axis of an index for which the best so far has a target's element, if that target is given this index."""
    if held is None or form.constant or len(form.terms) != 1 or form.terms[0][1] != 1:
        return None
    for target, number in zip(formula.targets, formula.values, strict=True):
        if _same(formula, target, held) and formula.cells[number].form == form:
            return form.terms[0][0]
    return None


def _same(formula: Formula, one: Access, other: Access) -> bool:
    forms = [[formula.cells[place.at].form for place in access.places] for access in (one, other)]
    return (
        one.tensor == other.tensor
        and one.item == other.item
        and forms[0] == forms[1]
        and None not in forms[0]
    )


def _plain(formula: Formula) -> bool:
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
    turned = values.transpose([*kept, *axes]).reshape([*(values.shape[axis] for axis in kept), -1])
    if values.dtype.kind == "f":
        turned = np.where(np.isnan(turned), np.asarray(sign * np.inf, values.dtype), turned)
    first = np.argmin(turned, -1, keepdims=True) if sign > 0 else np.argmax(turned, -1, keepdims=True)
    found = np.take_along_axis(turned, first, -1)
    shape = [1 if axis in axes else size for axis, size in enumerate(values.shape)]
    return first.reshape(shape), found.reshape(shape)


def _along(places: Array, axes: Sequence[int], axis: int, shape: Sequence[int]) -> Array:
    """The index along one axis of places that are counted over several."""
    sizes = [shape[item] for item in axes]
    return np.asarray(np.unravel_index(places, sizes)[list(axes).index(axis)])
