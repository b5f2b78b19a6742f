"""Runs a contraction with NumPy: whole boxes of loop space at once, step by step only where the formula demands it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from lamella.backend.formula.affine import (
    Box,
    Form,
    fix,
    halve,
    is_injective,
    narrow,
    parts,
    volume,
)
from lamella.backend.formula.evaluate import BoxEvaluation, Tensors, join
from lamella.backend.formula.expression_dag import ExpressionDag, PreparedFormula, TensorAccess, prepare
from lamella.backend.formula.scalars import INTEGER, SINGLE, Real
from lamella.backend.formula.shortcuts import (
    SumOfProducts,
    find_prefix,
    find_product,
    multiply,
    run_prefix,
    search,
)
from lamella.backend.formula.store import (
    ASSIGNMENTS,
    accumulate,
    assign,
    axis_strides,
    clip_to,
    saturates,
)
from lamella.base.arrays import Array, element_type_of
from lamella.base.limits import DEFAULT, Limits
from lamella.base.records import dataclass
from lamella.lang.skriptnd.rules.graphs import FORMULA_TOO_LONG, ITEM_OUTSIDE
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction, Counter, Scalar

# --- counters: outputs whose extent only the run tells -------------------------------------------------------


def counts(formula: PreparedFormula) -> bool:
    """Whether a formula uses a counter."""
    return any(isinstance(cell.term, Counter) for cell in formula.cells.cells)


def condition_counts(formula: PreparedFormula) -> bool:
    """Whether a step's happening depends on how many happened before."""
    roots = [number for access in formula.accesses() for number in _tested_cells(access)]
    roots += [] if formula.condition is None else [formula.condition]
    return any(isinstance(formula.cells[number].term, Counter) for number in formula.cells.needed(roots))


def _tested_cells(access: TensorAccess) -> Iterator[int]:
    yield from (place.at for place in access.places if place.skips)


def resize(formula: PreparedFormula, tensors: Tensors, count: int) -> None:
    """Give the targets as many elements along the counted dimensions as there are assignments."""
    for target in formula.targets:
        tensor = tensors[target.tensor]
        if isinstance(tensor, tuple):
            number = target.item or 0
            items = [
                *tensor[:number],
                _resized(formula.cells, target, tensor[number], count),
                *tensor[number + 1 :],
            ]
            tensors[target.tensor] = tuple(items)
        else:
            tensors[target.tensor] = _resized(formula.cells, target, tensor, count)


def _resized(cells: ExpressionDag, target: TensorAccess, tensor: Array, count: int) -> Array:
    shape = [
        count if isinstance(cells[place.at].term, Counter) else size
        for place, size in zip(target.places, tensor.shape, strict=True)
    ]
    return tensor if tuple(shape) == tensor.shape else np.zeros(shape, tensor.dtype)


def number_steps(evaluation: BoxEvaluation, active: Array | None, before: int) -> int:
    """Give each active step of a box its number, in the order of the loops; how many there are by then."""
    used = (
        np.ones(evaluation.shape, np.bool_) if active is None else np.broadcast_to(active, evaluation.shape)
    )
    numbers = np.cumsum(used.reshape(-1), dtype=INTEGER).reshape(evaluation.shape)
    evaluation.counted = numbers + (before - 1)
    return before + int(np.count_nonzero(used))


BOX = 1 << 21
"""Steps that are taken at once: few enough for the caches and for memory, enough to hide Python."""
OPERAND = 1 << 24
"""Elements of one operand of a matrix product."""
LONGEST = 1 << 40
"""Steps of one formula, however they are taken."""
FEW_STEPS, WIDE_STEP = 256, 4096


def run_formula(
    formula: PreparedFormula, tensors: Tensors, real: Real = SINGLE, limits: Limits = DEFAULT
) -> None:
    """Run a prepared contraction; its outputs among the tensors are written in place."""
    box: Box = tuple((0, extent) for extent in formula.extents)
    if volume(box) == 0:
        return
    with np.errstate(all="ignore"):
        _Run(formula, tensors, real, limits).run(box)


def evaluate_scalar(term: Scalar, tensors: Tensors, real: Real) -> bool | int | float:
    """The value of a term outside of loops."""
    formula = prepare(Contraction((), "=", (term,), ()))
    with np.errstate(all="ignore"):
        evaluation = BoxEvaluation(formula, tensors, (), real)
        found = evaluation.value(formula.values[0])
        evaluation.refuse(evaluation.bad(formula.values[0]), None)
    value: bool | int | float = found.item()
    return value


@dataclass(frozen=True, slots=True)
class _Run:
    """One contraction on its tensors."""

    formula: PreparedFormula
    tensors: Tensors
    real: Real
    limits: Limits

    def run(self, box: Box) -> None:
        """Choose how the steps are taken."""
        used = sorted(self._used_axes())
        # A hostile text can ask for any number of steps: it is refused before the first one is taken.
        if volume(box, used) > LONGEST:
            raise Fault(FORMULA_TOO_LONG, steps=volume(box, used), limit=LONGEST)
        ordered = self._ordered_axes()
        if counts(self.formula):
            self._run_counted(box)
        elif ordered is not None:
            self._run_ordered(box, ordered)
        elif self.formula.sign in ASSIGNMENTS:
            self._run_parts(box, used)
        else:
            self._accumulate(box, used)

    def evaluate(self, box: Box) -> BoxEvaluation:
        """The values of the formula over a box."""
        return BoxEvaluation(self.formula, self.tensors, box, self.real)

    # --- which axes -----------------------------------------------------------------------------------------

    def _used_axes(self) -> set[int]:
        cells = self.formula.cells
        numbers = [
            *self.formula.values,
            *([] if self.formula.condition is None else [self.formula.condition]),
        ]
        found = {axis for number in numbers for axis in cells[number].axes}
        return found.union(*(cells.axes_of(access) for access in self.formula.accesses()))

    def _ordered_axes(self) -> list[int] | None:
        """The axes whose steps must be taken one after the other, because steps read what others write."""
        written = {target.tensor for target in self.formula.targets}
        cells = self.formula.cells
        reads = [
            cell.access for cell in cells.cells if cell.access is not None and cell.access.tensor in written
        ]
        if not reads:
            return None
        free: set[int] = set()
        for dimension, place in enumerate(self.formula.targets[0].places):
            form = cells[place.at].form
            if form is not None and len(form.terms) == 1:
                others = [*reads, *self.formula.targets]
                if all(self._same_index(access, dimension, form) for access in others):
                    free |= form.symbols
        return [axis for axis in range(len(self.formula.extents)) if axis not in free]

    def _same_index(self, access: TensorAccess, dimension: int, form: Form) -> bool:
        if dimension >= len(access.places):
            return False
        place = access.places[dimension]
        remapped = place.below is not None or place.above is not None
        return not remapped and self.formula.cells[place.at].form == form

    def _scattered_axes(self, box: Box) -> list[int]:
        """Axes to step along so that the target is a plain view in each step; none where no such axes are known."""
        found: set[int] = set()
        for target in self.formula.targets:
            forms = [self.formula.cells[place.at].form for place in target.places]
            known = [form for form in forms if form is not None]
            if len(known) != len(forms) or target.picked is not None:
                return []
            strides = axis_strides(known, self._tensor(target).shape)
            found |= _conflicting(strides, box)
        return sorted(found)

    def _tensor(self, access: TensorAccess) -> Array:
        tensor, number = self.tensors[access.tensor], access.item or 0
        if not isinstance(tensor, tuple):
            return tensor
        if not 0 <= number < len(tensor):
            raise Fault(ITEM_OUTSIDE, what=f"'{access.tensor}'", index=number, count=len(tensor))
        return tensor[number]

    # --- ways to take the steps -----------------------------------------------------------------------------

    def _run_ordered(self, box: Box, axes: Sequence[int]) -> None:
        """One step after the other along some axes, all others at once; a search for an extreme at one go."""
        if search(self.evaluate(box), axes):
            return
        count = volume(box, axes)
        if count > self.limits.max_steps:
            raise Fault(FORMULA_TOO_LONG, steps=count, limit=self.limits.max_steps)
        for place in _places(box, axes):
            self.run_box(fix(box, axes, place))

    def _run_parts(self, box: Box, used: Sequence[int]) -> None:
        """In parts that fit, in the order of the loops."""
        for part in parts(box, used, BOX):
            self.run_box(part)

    def _run_counted(self, box: Box) -> None:
        """Count the steps that happen, then write each at its number."""
        # Twice over the same steps: the first time tells how large the targets are, the second time writes them.
        size = 1 if condition_counts(self.formula) else BOX
        axes = range(len(box))
        count = 0
        for part in parts(box, axes, size):
            count = self._number(self.evaluate(part), count)[0]
        resize(self.formula, self.tensors, count)
        count = 0
        for part in parts(box, axes, size):
            evaluation = self.evaluate(part)
            count, active = self._number(evaluation, count)
            self._finish(evaluation, active)

    def _number(self, evaluation: BoxEvaluation, before: int) -> tuple[int, Array | None]:
        evaluation.counted = np.asarray(before)
        active = self._active(evaluation)
        return number_steps(evaluation, active, before), active

    def _accumulate(self, box: Box, used: Sequence[int]) -> None:
        prefix = find_prefix(self.formula)
        if prefix is not None and run_prefix(self.evaluate(box), prefix):
            return
        product = find_product(self.formula)
        steps = self._scattered_axes(box)
        if product is None or not product.pays(box):
            steps = sorted({*steps, *self._window_axes(box, used)})
        if not volume(box, steps) <= max(FEW_STEPS, volume(box, used) // WIDE_STEP):
            steps = []
        for place in _places(box, steps):
            part = fix(box, steps, place)
            if product is not None and product.pays(part):
                self._multiply(part, product, used)
            else:
                self._run_parts(part, used)

    def _window_axes(self, box: Box, used: Sequence[int]) -> set[int]:
        """The joined axes of a small window over a large target: each place of the window is one vector operation."""
        cells = self.formula.cells
        kept = frozenset[int]().union(*(cells.axes_of(target) for target in self.formula.targets))
        joined = {axis for axis in used if axis not in kept}
        few = volume(box, joined) <= FEW_STEPS and volume(box, kept) >= WIDE_STEP
        return joined if few else set()

    def _multiply(self, box: Box, product: SumOfProducts, used: Sequence[int]) -> None:
        box = self._narrow(box)
        if volume(box) == 0:
            return
        largest = max(product.sides, key=lambda axes: volume(box, axes))
        if volume(box, largest) > OPERAND:
            for part in halve(box, max(largest, key=lambda axis: box[axis][1] - box[axis][0])):
                self._multiply(part, product, used)
        elif not multiply(self.evaluate(box), product):
            self._run_parts(box, used)

    # --- one box --------------------------------------------------------------------------------------------

    def _narrow(self, box: Box) -> Box:
        """The steps of a box that the guards do not skip, as far as ranges can say it."""
        for access in self.formula.accesses():
            for dimension, place in enumerate(access.places):
                form = self.formula.cells[place.at].form
                alone = place.guarded and place.below is None and place.above is None
                if alone and form is not None and access.picked is None:
                    box = narrow(box, form, self._tensor(access).shape[dimension])
                    if volume(box) == 0:
                        return box
        return box

    def run_box(self, box: Box) -> None:
        """All steps of a box at once."""
        box = self._narrow(box)
        if volume(box) == 0:
            return
        evaluation = self.evaluate(box)
        self._finish(evaluation, self._active(evaluation))

    def _finish(self, evaluation: BoxEvaluation, active: Array | None) -> None:
        """Compute the values and store them."""
        if active is not None and not active.any():
            return
        values = []
        for target, number in zip(self.formula.targets, self.formula.values, strict=True):
            values.append(_saturate(evaluation, number, self._tensor(target).dtype))
            evaluation.refuse(evaluation.bad(number), active)
        if len(values) > 1:
            # All targets are assigned as one: what one value reads, another target may be.
            written = [self._tensor(target) for target in self.formula.targets]
            values = [_apart(value, written) for value in values]
        for target, value in zip(self.formula.targets, values, strict=True):
            self._store(evaluation, target, value, active)

    def _active(self, evaluation: BoxEvaluation) -> Array | None:
        """The steps that guards and the condition let happen; None stands for all."""
        masks, doubtful = evaluation.guards()
        active = join(masks)
        for steps in doubtful:
            evaluation.refuse(steps, active)
        condition = self.formula.condition
        if condition is None:
            return active
        holds = evaluation.value(condition)
        evaluation.refuse(evaluation.bad(condition), active)
        if holds.all():
            return active
        return holds if active is None else np.asarray(active & holds)

    def _store(
        self, evaluation: BoxEvaluation, target: TensorAccess, value: Array, active: Array | None
    ) -> None:
        store = assign if self.formula.sign in ASSIGNMENTS else accumulate
        if target.picked is None:
            store(evaluation, target, value, active)
            return
        number, pack = evaluation.value(target.picked), self.tensors[target.tensor]
        for item in range(len(pack) if isinstance(pack, tuple) else 1):
            chosen = np.asarray(number == item)
            used = chosen if active is None else np.asarray(chosen & active)
            if used.any():
                store(evaluation, target._replace(picked=None, item=item), value, used)


def _saturate(evaluation: BoxEvaluation, number: int, dtype: np.dtype[np.generic]) -> Array:
    """A value to store in a type: see `saturates`."""
    value, cell, element = evaluation.value(number), evaluation.formula.cells[number], element_type_of(dtype)
    if element is None or not saturates(cell, dtype) or evaluation.value(cell.operands[0]).dtype.kind != "f":
        return value
    return clip_to(element, value)


def _apart(value: Array, written: Sequence[Array]) -> Array:
    """A value that no assignment to these tensors changes."""
    return value.copy() if any(np.may_share_memory(value, tensor) for tensor in written) else value


def _places(box: Box, axes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(*box[axis]) for axis in axes))


def _conflicting(strides: dict[int, int], box: Box) -> set[int]:
    """The axes along which different steps may reach one element, the longest axes left free."""
    free: list[tuple[int, int]] = []
    found: set[int] = set()
    for axis, stride in sorted(strides.items(), key=lambda item: box[item[0]][0] - box[item[0]][1]):
        one = (stride, box[axis][1] - box[axis][0])
        if is_injective([*free, one]):
            free.append(one)
        else:
            found.add(axis)
    return found
