"""What formulas write: outputs that are covered whole, and copies that can be views of their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from lamella.base.affine import Affine
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form, find_digits, find_form, is_integer
from lamella.bridge.graph_to_kernels.contraction import ASSIGNMENTS, elements
from lamella.bridge.graph_to_kernels.terms import TensorView, is_picked
from lamella.kernels.launches import Layout, dense_layout
from lamella.kernels.nodes import KernelCall
from lamella.ops.formula import Contraction, Element, Guard, Scalar

Key: TypeAlias = tuple[str, int | None]
Box: TypeAlias = tuple[tuple[int, int], ...]
"""The first place and the number of places along each dimension."""
MOST_BOXES = 256
"""Parts of a tensor that are compared with each other."""


def mark_calls(
    calls: Sequence[KernelCall], formulas: Sequence[Contraction], tensors: Mapping[Key, TensorView]
) -> tuple[KernelCall, ...]:
    """The calls of an operation, with what an executor may leave out: zero-filling, and copies that are aliases."""
    written = {_key(target) for formula in formulas for target in formula.targets}
    whole = {key for key in written if is_written_whole(key, formulas, tensors)}
    renames = len(calls) == len(formulas) == 1 and is_renaming(formulas[0], tensors)
    return tuple(
        replace(
            call,
            renames=renames,
            operands=tuple(
                replace(item, whole=item.whole or (item.name, item.item) in whole) for item in call.operands
            ),
        )
        for call in calls
    )


def _key(element: Element) -> Key:
    return element.tensor, element.item if is_integer(element.item) else None


# --- outputs that are written whole --------------------------------------------------------------------------


def is_written_whole(key: Key, formulas: Sequence[Contraction], tensors: Mapping[Key, TensorView]) -> bool:
    """Whether every element is written, so that memory needs no filling before."""
    boxes: list[Box] = []
    begun = False
    for formula in formulas:
        if _fill_up(boxes, key, tensors):
            return True
        if any(item.tensor == key[0] for item in elements(formula)):
            return False  # it may read what is not written yet
        for target in formula.targets:
            if _key(target) != key:
                continue
            if formula.sign not in ASSIGNMENTS:
                # An accumulation starts from its neutral value, or from what a kernel has filled. Where an index is
                # tested, or behind an assignment, be it of steps that are skipped, it goes on from memory.
                return not begun and not any(isinstance(index, Guard) for index in target.indices)
            begun, box = True, _box(formula, target)
            boxes += [] if box is None else [box]
    return _fill_up(boxes, key, tensors)


def _fill_up(boxes: Sequence[Box], key: Key, tensors: Mapping[Key, TensorView]) -> bool:
    """Whether boxes make up a tensor: one of them, or all side by side."""
    if key not in tensors:
        return False
    volumes, size = [prod(extent for _, extent in box) for box in boxes], prod(tensors[key].shape)
    return size in volumes or (sum(volumes) == size and len(boxes) <= MOST_BOXES and _are_apart(boxes))


def _box(formula: Contraction, target: Element) -> Box | None:
    """The places that an assignment writes in every step; None where they are no box or a step may be skipped."""
    extents = _extents(formula)
    skips = any(_skips(index) for item in elements(formula) for index in item.indices)
    if extents is None or formula.condition is not None or skips:
        return None
    box: list[tuple[int, int]] = []
    used: list[str] = []
    for index in target.indices:
        form = None if isinstance(index, Guard) else find_form(index, extents)
        size = prod(extents[name] for name, _ in form.terms) if form is not None else 0
        names = None if form is None else find_digits(replace(form, constant=0), extents, size)
        if form is None or names is None:
            return None
        used += names
        box.append((form.constant, size))
    return tuple(box) if len(set(used)) == len(used) else None


def _skips(index: object) -> bool:
    """Whether an index may skip its step: one that is tested and not replaced on both sides."""
    return isinstance(index, Guard) and None in (index.below, index.above)


def _are_apart(boxes: Sequence[Box]) -> bool:
    """Whether no two boxes share a place."""
    return not any(
        all(
            one[0] < other[0] + other[1] and other[0] < one[0] + one[1]
            for one, other in zip(a, b, strict=True)
        )
        for number, a in enumerate(boxes)
        for b in boxes[:number]
    )


def write_parts(runs: Sequence[Sequence[Contraction]]) -> bool:
    """Whether runs of formulas assign disjoint parts of the same tensors, none of which they read."""
    names = {item.tensor for formula in runs[0] for item in formula.targets}
    found: dict[str, list[Box]] = {name: [] for name in names}
    for run in runs:
        for formula in run:
            written = [id(item) for item in formula.targets]
            read = {item.tensor for item in elements(formula) if id(item) not in written}
            target = formula.targets[0]
            box = _box(formula, target)
            plain = formula.sign in ASSIGNMENTS and len(formula.targets) == 1
            if not plain or box is None or read & names or target.tensor not in names:
                return False
            found[target.tensor].append(box)
    return all(len(boxes) == len(runs) and _are_apart(boxes) for boxes in found.values())


def _extents(formula: Contraction) -> dict[str, int] | None:
    """The extents of the loops; None where one is empty or only the run knows it."""
    found = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    return found if len(found) == len(formula.loops) and 0 not in found.values() else None


# --- copies that only rename ---------------------------------------------------------------------------------


def is_renaming(formula: Contraction, tensors: Mapping[Key, TensorView]) -> bool:
    """Whether a formula is a copy in row-major order, which an alias can replace: `y[i * n + j] = x[i, j]`."""
    extents = _extents(formula)
    plain = formula.sign in ASSIGNMENTS and formula.condition is None and len(formula.targets) == 1
    source = formula.values[0]
    if extents is None or not plain or not isinstance(source, Element) or is_picked(source):
        return False
    target = formula.targets[0]
    views = tensors.get(_key(target)), tensors.get(_key(source))
    if views[0] is None or views[1] is None or views[0].element != views[1].element:
        return False
    size = prod(views[0].shape)
    places = [
        _flat_form(item, view, extents) for item, view in zip((target, source), views, strict=True) if view
    ]
    if places[0] is None or places[0] != places[1] or prod(views[1].shape) != size:
        return False
    names = find_digits(places[0], extents, size)
    return names is not None and all(size == 1 or name in names for name, size in extents.items())


def find_shift(formula: Contraction, tensors: Mapping[Key, TensorView], parts: bool) -> int | None:
    """The offset in its source of a copy that finds every element where it lies; None where it moves something.

    With `parts` it may be a copy of a part, which lies with the gaps that the part has.
    """
    copy = find_part(formula, {name: view.shape for (name, _), view in tensors.items()})
    if copy is None or (copy.is_part and not parts):
        return None
    pairs = [(item, tensors[_key(item)]) for item in (copy.target, copy.source)]
    if len({view.element for _, view in pairs}) > 1:
        return None
    target, source = (_flat_form(item, view, copy.extents, view.lies) for item, view in pairs)
    if target is None or source is None:
        return None
    apart = target.plus(source, -1)
    if any(copy.extents[name] > 1 for name, _ in apart.terms):
        return None
    same = len({view.lies.size(view.shape) for _, view in pairs}) == 1
    return -apart.constant if copy.is_part or (same and apart.constant == 0) else None


@dataclass(frozen=True, slots=True)
class Copy:
    """A formula that copies elements: a transposition, a reshape, a slice."""

    target: Element
    source: Element
    extents: Mapping[str, int]
    shapes: tuple[Sequence[int], Sequence[int]]
    """Of target and source."""

    @property
    def is_part(self) -> bool:
        """Whether some of the source are left out."""
        return prod(self.shapes[0]) < prod(self.shapes[1])

    def shift(self, layout: Layout) -> int:
        """How far behind the start of the source the first element lies."""
        places = [
            find_form(index, self.extents) for index in self.source.indices if not isinstance(index, Guard)
        ]
        return sum(
            form.constant * stride
            for form, stride in zip(places, layout.strides, strict=True)
            if form is not None
        )

    def order(self) -> tuple[int, ...] | None:
        """The dimension of the source that each of the target is; None where they are split or joined."""
        target, source = (
            [self._form(index) for index in item.indices] for item in (self.target, self.source)
        )
        if sorted(map(str, target)) != sorted(map(str, source)):
            return None
        found: list[int] = []
        for form in target:
            found.append(
                next(place for place, item in enumerate(source) if item == form and place not in found)
            )
        return tuple(found)

    def view(self, layout: Layout) -> Layout | None:
        """The layout with which the target is a view of its source; None where there is none."""
        order = self.order()
        if self.is_part and layout.is_padded:
            return None
        if order is not None:
            halo = tuple(layout.halo[place] for place in order)
            return self._filled([layout.strides[place] for place in order], halo)
        steps: dict[str, int] = {}
        for index, stride in zip(self.source.indices, layout.strides, strict=True):
            steps |= {name: factor * stride for name, factor in self._form(index).terms}
        strides: list[int] = []
        for index in self.target.indices:
            found = [divmod(steps[name], factor) for name, factor in self._form(index).terms]
            if len(set(found)) > 1 or any(rest for _, rest in found):
                return None
            strides.append(found[0][0] if found else 0)
        return None if layout.is_padded else self._filled(strides, ((0, 0),) * len(strides))

    def _filled(self, strides: list[int], halo: tuple[tuple[int, int], ...]) -> Layout:
        """The layout of some strides; a dimension of one element has the one that it would have row by row."""
        inner = 1
        for place in reversed(range(len(strides))):
            size = self.shapes[0][place]
            if size == 1 and halo[place] == (0, 0):
                strides[place] = inner
            inner = strides[place] * size
        return Layout(tuple(strides), halo)

    def _form(self, index: Scalar | Guard) -> Form:
        found = None if isinstance(index, Guard) else find_form(index, self.extents)
        return Affine() if found is None else Affine(0, found.terms)


def find_copy(formula: Contraction, shapes: Mapping[str, Sequence[int]]) -> Copy | None:
    """The copy that a formula is, if it is one of a whole tensor."""
    found = find_part(formula, shapes)
    return None if found is None or found.is_part else found


def find_part(formula: Contraction, shapes: Mapping[str, Sequence[int]]) -> Copy | None:
    """The copy that a formula is, if it is one of a tensor or of a box of it."""
    source, extents = formula.values[0], _extents(formula)
    if formula.sign not in ASSIGNMENTS or len(formula.targets) > 1 or extents is None:
        return None
    if not isinstance(source, Element) or is_picked(source):
        return None
    pair = formula.targets[0], source
    sizes = shapes[pair[0].tensor], shapes[pair[1].tensor]
    whole, box = (_box(formula, item) for item in pair)
    if whole != tuple((0, size) for size in sizes[0]) or box is None:
        return None
    is_inside = all(
        first >= 0 and first + size <= most for (first, size), most in zip(box, sizes[1], strict=True)
    )
    once = prod(size for _, size in box) == prod(sizes[0])
    return Copy(*pair, extents, sizes) if is_inside and once else None


def _flat_form(
    element: Element, view: TensorView, extents: Mapping[str, int], layout: Layout | None = None
) -> Form | None:
    """The place of an element in the memory of its tensor, row by row where no other layout is given."""
    found: Form | None = Affine()
    lies = layout or dense_layout(view.shape)
    for index, stride, (low, _) in zip(element.indices, lies.strides, lies.halo, strict=True):
        form = None if isinstance(index, Guard) else find_form(index, extents)
        if form is None or found is None:
            return None
        found = found.plus(form + Affine(low), stride)
    return found
