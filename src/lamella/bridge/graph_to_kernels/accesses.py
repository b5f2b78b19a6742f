"""Affine accesses to memory: for each mode of a memref the affine form of the index, whatever the tensor's layout.

A layout is strides in the order of the tensor's dimensions, and a halo: places of zeros round the tensor, so that a
step that a formula skips because its index is outside reads a zero instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass, replace
from lamella.bridge.graph_to_kernels.affine import Form, find_form
from lamella.kernels.build import Builder
from lamella.kernels.launches import Layout
from lamella.lang.tensor.nodes import Expand, IndexOrSize, Memref, Slice, Value
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.formula import Element, Guard


@dataclass(frozen=True, slots=True)
class Axis:
    """A mode of a memref: its size and stride, and the index that an access has there."""

    size: int
    stride: int
    index: Form
    ring: bool = False
    """Whether the index begins at 0 again behind the last place: memory that keeps the last places only."""

    def place(self, builder: Builder, values: Mapping[str, Value], more: int = 0) -> IndexOrSize:
        """The index, emitted where the builder stands; `more` is added to it."""
        found = _place(builder, self.index + Affine(more), values)
        if not self.ring:
            return found
        if isinstance(found, int):
            return found % self.size
        return builder.arith("rem", found, builder.constant(self.size))

    def value(self, builder: Builder, values: Mapping[str, Value], more: int = 0) -> Value:
        """The index as a value."""
        found = self.place(builder, values, more)
        return builder.constant(found) if isinstance(found, int) else found


@dataclass(frozen=True, slots=True)
class Access:
    """The element of a tensor at each step of the loops; axes from the outermost in memory to the contiguous one."""

    memref: Value
    element: str
    axes: tuple[Axis, ...]
    local: bool = False
    """Whether it is memory of a work-group."""

    @property
    def type(self) -> Memref:
        """The type of the memref: the modes in the order of their strides, the closest first."""
        modes = self.axes[::-1]
        shape, strides = tuple(item.size for item in modes), tuple(item.stride for item in modes)
        return make_memref(self.element, shape, strides)

    def loops(self) -> set[str]:
        """The loops that the place depends on."""
        return {name for axis in self.axes for name in axis.index.symbols}

    def stride(self, loop: str) -> int:
        """How far apart two steps of a loop are."""
        return sum(axis.stride * axis.index.coefficient(loop) for axis in self.axes)

    def axis(self, loop: str) -> Axis | None:
        """The one axis that a loop counts; None where it counts none or several."""
        found = [axis for axis in self.axes if axis.index.coefficient(loop)]
        return found[0] if len(found) == 1 else None

    def reach(self, loops: Mapping[str, int]) -> int:
        """The range of places that the steps of some loops touch, at most."""
        return prod(
            1 + sum(abs(axis.index.coefficient(name)) * (extent - 1) for name, extent in loops.items())
            for axis in self.axes
        )

    def places(self, builder: Builder, values: Mapping[str, Value]) -> list[Value]:
        """The indices of a load or a store, the closest mode first."""
        return [axis.value(builder, values) for axis in reversed(self.axes)]


def find_access(
    element: Element,
    memref: Value,
    type_: str,
    held: tuple[Sequence[int], Layout],
    extents: Mapping[str, int],
) -> Access | None:
    """The access of an element; None where an index is not affine, or leaves the tensor farther than its halo."""
    shape, layout = held
    axes: list[Axis] = []
    for index, size, stride, (low, high) in zip(
        element.indices, shape, layout.strides, layout.halo, strict=True
    ):
        if isinstance(index, Guard) and not (index.below is None and index.above is None):
            return None
        form = find_form(index.index if isinstance(index, Guard) else index, extents)
        if form is None:
            return None
        first, last = form.bounds({name: (0, extents[name] - 1) for name in form.symbols})
        if first < -low or last >= size + high:
            return None
        # Without a guard an index outside has no value; a halo must not give it one.
        if not isinstance(index, Guard) and (first < 0 or last >= size):
            return None
        axes.append(Axis(low + size + high, stride, form + Affine(low)))
    axes.sort(key=lambda axis: -axis.stride)
    return Access(memref, type_, tuple(axes))


def substitute_loops(access: Access, forms: Mapping[str, Form]) -> Access:
    """The access with loops replaced by forms over other loops."""
    axes = []
    for axis in access.axes:
        index: Form = Affine(axis.index.constant)
        for name, factor in axis.index.terms:
            index = index.plus(forms.get(name, Affine(0, ((name, 1),))), factor)
        axes.append(replace(axis, index=index))
    return replace(access, axes=tuple(axes))


def split_axes(access: Access, extents: Mapping[str, int]) -> Access:
    """The access with a mode that two loops count, one inside the other, split into two modes."""
    axes: list[Axis] = []
    for axis in access.axes:
        terms = sorted(axis.index.terms, key=lambda item: -item[1])
        inner = terms[-1:]
        size = terms[0][1] if len(terms) == 2 and inner[0][1] == 1 and axis.index.constant == 0 else 0
        if size < 2 or extents.get(inner[0][0]) != size or axis.size % size:
            axes.append(axis)
            continue
        axes.append(Axis(axis.size // size, axis.stride * size, Affine(0, ((terms[0][0], 1),))))
        axes.append(Axis(size, axis.stride, Affine(0, ((inner[0][0], 1),))))
    return replace(access, axes=tuple(axes))


def every_second(access: Access, loop: str, first: int) -> Access:
    """The access to every second step of a loop, which then counts those; `first` is 0 or 1."""
    axes: list[Axis] = []
    for axis in access.axes:
        if not axis.index.coefficient(loop):
            axes.append(axis)
            continue
        axes += [Axis(axis.size // 2, 2 * axis.stride, axis.index), Axis(2, axis.stride, Affine(first))]
    return replace(access, axes=tuple(axes))


# --- loops that are one: neighbours in every access -----------------------------------------------------------


def fuse_loops(
    accesses: Sequence[Access], extents: Mapping[str, int], fixed: frozenset[str] = frozenset()
) -> tuple[list[Access], dict[str, int]]:
    """Loop collapsing: two loops become one where they count neighbouring, dense modes in every access."""
    found, sizes = list(accesses), dict(extents)
    for outer in list(extents):
        while outer in sizes and outer not in fixed:
            inner = next(
                (name for name in sizes if name not in fixed and _are_neighbours(found, outer, name, sizes)),
                None,
            )
            if inner is None:
                break
            found = [_fuse_axes(access, outer, inner) for access in found]
            sizes[outer] *= sizes.pop(inner)
    return found, sizes


def _are_neighbours(accesses: Sequence[Access], outer: str, inner: str, sizes: Mapping[str, int]) -> bool:
    if outer == inner or not any(outer in access.loops() for access in accesses):
        return False
    for access in accesses:
        first, second = access.axis(outer), access.axis(inner)
        if first is None and second is None and not {outer, inner} & access.loops():
            continue
        if first is None or second is None:
            return False
        whole = first.index == Affine(0, ((outer, 1),)) and second.index == Affine(0, ((inner, 1),))
        dense = first.stride == second.stride * second.size and second.size == sizes[inner]
        if not whole or not dense or first.size != sizes[outer]:
            return False
    return True


def _fuse_axes(access: Access, outer: str, inner: str) -> Access:
    first, second = access.axis(outer), access.axis(inner)
    if first is None or second is None:
        return access
    axes = [
        Axis(first.size * second.size, second.stride, first.index) if axis is first else axis
        for axis in access.axes
        if axis is not second
    ]
    return replace(access, axes=tuple(axes))


# --- views ----------------------------------------------------------------------------------------------------


def form_value(builder: Builder, form: Form, values: Mapping[str, Value]) -> Value:
    """The value of an affine form, emitted where the builder stands."""
    found = _place(builder, form, values)
    return builder.constant(found) if isinstance(found, int) else found


def _place(builder: Builder, form: Form, values: Mapping[str, Value]) -> IndexOrSize:
    found: Value | None = None
    for name, factor in form.terms:
        part = values[name]
        if factor != 1:
            part = builder.arith("mul", part, builder.constant(factor))
        found = part if found is None else builder.arith("add", found, part)
    if found is None:
        return form.constant
    return found if form.constant == 0 else builder.arith("add", found, builder.constant(form.constant))


@dataclass(frozen=True, slots=True)
class Matrix:
    """A view with two modes; `transposed` says that its first mode counts the columns."""

    value: Value
    transposed: bool


def matrix_view(
    builder: Builder, access: Access, spans: Sequence[tuple[str, int]], values: Mapping[str, Value]
) -> Matrix:
    """The matrix that some steps of two loops touch, rows first; `values` tell where the loops begin.

    A loop that the access does not depend on stands for one row or column.
    """
    widths = dict(spans)
    kept: list[tuple[str, int, int, int]] = []
    slices: list[Slice] = []
    for axis in reversed(access.axes):
        name = next((item for item in widths if axis.index.coefficient(item)), None)
        place = axis.place(builder, values)
        if name is not None and axis.ring:
            raise Unsupported("its steps end before they begin")
        if name is None:
            slices.append(Slice(place))
            continue
        factor = axis.index.coefficient(name) if widths[name] > 1 else 1
        if factor < 1:
            raise Unsupported("an index counts backwards")
        kept.append((name, widths[name], axis.stride, factor))
        slices.append(Slice(place, widths[name] * factor))
    names = {name for name, *_ in kept}
    if len(names) < len(kept) or not kept or any(count > 1 and name not in names for name, count in spans):
        raise Unsupported("its matrix has not two modes")
    sizes, strides = tuple(count * factor for _, count, _, factor in kept), tuple(item[2] for item in kept)
    view = builder.subview(access.memref, slices, Memref(access.element, sizes, strides, access.local))
    view = _thin(builder, access, view, kept)
    if len(kept) == 1:
        name, count, stride, factor = kept[0]
        type_ = Memref(access.element, (count, 1), (stride * factor, stride * factor * count), access.local)
        view = builder.value(Expand(view, 0, (count, 1), type_))
    return Matrix(view, kept[0][0] != spans[0][0])


def _thin(builder: Builder, access: Access, view: Value, kept: Sequence[tuple[str, int, int, int]]) -> Value:
    """Every so many-th place of a view: the mode as two, of which the first place is picked."""
    if all(factor == 1 for *_, factor in kept):
        return view
    sizes = [count * factor for _, count, _, factor in kept]
    strides = [stride for _, _, stride, _ in kept]
    for place in reversed(range(len(kept))):
        _, count, stride, factor = kept[place]
        if factor > 1:
            sizes[place : place + 1], strides[place : place + 1] = [factor, count], [stride, stride * factor]
            type_ = Memref(access.element, tuple(sizes), tuple(strides), access.local)
            view = builder.value(Expand(view, place, (factor, count), type_))
    slices = [
        item
        for _, count, _, factor in kept
        for item in ([Slice(0)] if factor > 1 else []) + [Slice(0, count)]
    ]
    counts = tuple(count for _, count, _, _ in kept)
    steps = tuple(stride * factor for _, _, stride, factor in kept)
    return builder.subview(view, slices, Memref(access.element, counts, steps, access.local))


def with_room(access: Access, extents: Mapping[str, int], loops: Sequence[str]) -> Access:
    """An access whose strided views may be read a whole stride behind their last step.

    A mode that two loops count one inside the other is two modes, where the outer one would need such padding.
    """
    if _has_room(access, extents, loops):
        return access
    split = split_axes(access, extents)
    if not _has_room(split, extents, loops):
        raise Unsupported("a strided view has no room behind its last step")
    return split


def _has_room(access: Access, extents: Mapping[str, int], loops: Sequence[str]) -> bool:
    for axis in access.axes:
        factor = max([axis.index.coefficient(name) for name in loops if name] or [0])
        last = axis.index.bounds({name: (0, extents[name] - 1) for name in axis.index.symbols})[1]
        if factor > 1 and last + factor > axis.size:
            return False
    return True
