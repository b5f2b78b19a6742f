"""The terms of a formula as ONNX values over its loops: each term once, masks of guards collected on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import Dim, Extent, Logic, Test, add, bounds, sub
from lamella.base.dtype import BOOL, I64, ElementType
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.affine import Form, find_form, find_range
from lamella.bridge.graph_to_onnx.emitter import Value
from lamella.bridge.graph_to_onnx.loops import LoopSpace, LoopValue
from lamella.graph.nodes import Shape
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Scalar
from lamella.ops.lower import reachable

SPECULATIVE = ("?:", "&&", "||", "=>")
"""Functions that do not look at every operand in every step."""


@dataclass(slots=True)
class FormulaTensor:
    """A tensor as a formula sees it: one value for each item of a pack, or all items in one value."""

    element: ElementType
    values: list[Value | None]
    shapes: list[Shape]
    is_stacked: bool = False
    """Whether the first dimension is that of the items."""
    uniform: set[int] = field(default_factory=set)
    """Items that are one number everywhere so far: their values have rank 0."""


@dataclass(frozen=True, slots=True)
class Subscript:
    """How one dimension is accessed.

    Along whole loops (`axes`, the dimension split where there are several), a slice along one, at one place, or at
    computed places.
    """

    axes: tuple[int, ...] = ()
    cut: tuple[int, Extent, int] | None = None
    """Start, end and step of a slice."""
    place: int | None = None
    index: LoopValue | None = None

    @property
    def along(self) -> frozenset[int]:
        """The loops that it varies along."""
        return frozenset(self.axes) if self.index is None else self.index.axes

    @property
    def is_whole(self) -> bool:
        """Whether one loop runs along the whole dimension."""
        return len(self.axes) == 1 and self.cut is None and self.index is None


_Located: TypeAlias = tuple[Value | None, Shape, list[Subscript]]


@dataclass(slots=True)
class TermReader:
    """The terms of one contraction, each translated once."""

    space: LoopSpace
    tensors: Mapping[str, FormulaTensor]
    real: ElementType
    masks: list[LoopValue] = field(default_factory=list)
    """Where the guards that were met let a step happen."""
    speculative: bool = False
    """Whether accesses may be outside in steps whose result is not used."""
    _found: dict[int, LoopValue] = field(default_factory=dict)
    _located: dict[int, _Located] = field(default_factory=dict)

    # --- terms ------------------------------------------------------------------------------------------------

    def read(self, term: Scalar) -> LoopValue:
        """A term as a value; an element of a tensor stays in the tensor's type."""
        key = id(term)
        if key not in self._found:
            self._found[key] = self._make(term)
        return self._found[key]

    def take(self, element: Element, value: LoopValue) -> None:
        """Say what an element is, wherever the tensor is held."""
        self._found[id(element)] = value

    def compute(self, term: Scalar) -> LoopValue:
        """A term in the type that is computed with: 64-bit integers, one real type, bool."""
        found = self.read(term)
        return self.space.cast(found, self.computing(found.element))

    def computing(self, element: ElementType) -> ElementType:
        """The type in which elements of a type are computed with."""
        if element == BOOL:
            return BOOL
        return self.real if element.is_float else I64

    def _make(self, term: Scalar) -> LoopValue:
        match term:
            case Index(name=name):
                return self.space.index(name)
            case Element():
                return self._element(term)
            case Apply():
                return self._apply(term)
            case Lookup():
                return self._lookup(term)
            case Dim():
                return LoopValue(self.space.scope.extent(term))
            case Test() | Logic():
                return LoopValue(self.space.scope.truth(term))
            case bool() | int() | float():
                return LoopValue(self.space.emitter.constant(self._number(term)))
        raise Unsupported(f"a formula holds {type(term).__name__.lower()}s")

    def _number(self, value: float) -> Array:
        if isinstance(value, bool):
            return np.asarray(value)
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise Unsupported("an integer is wider than 64 bits")
            return np.asarray(value, np.int64)
        return np.asarray(value, numpy_dtype(self.real))

    def _apply(self, term: Apply) -> LoopValue:
        element = {"int": I64, "bool": BOOL}.get(term.type, self.real)
        if term.function == "cast":
            return self._cast(self.compute(term.operands[0]), element)
        operands = [self.compute(item) for item in term.operands]
        return self.space.apply(term.function, operands, element)

    def _cast(self, value: LoopValue, element: ElementType) -> LoopValue:
        if element == BOOL and value.element != BOOL:
            zero = LoopValue(self.space.emitter.number(0, value.element))
            return self.space.apply("!=", (value, zero), BOOL)
        return self.space.cast(value, element)

    def _lookup(self, term: Lookup) -> LoopValue:
        index = self.compute(term.index)
        items = [self.compute(item) for item in term.table]
        if any(item.axes for item in items):
            return self._choose(index, items)
        emitter, element = self.space.emitter, items[0].element
        known = [item.value.known for item in items]
        arrays = [item.reshape(1) for item in known if item is not None]
        if len(arrays) == len(known):
            table = emitter.constant(np.concatenate(arrays))
        else:
            rows = [emitter.add("Unsqueeze", (item.value, emitter.integers(0)), element) for item in items]
            table = emitter.add("Concat", rows, element, axis=0)
        found = emitter.add("Gather", (table, index.value), element, axis=0)
        return LoopValue(found, index.axes, index.rank)

    def _choose(self, index: LoopValue, items: Sequence[LoopValue]) -> LoopValue:
        """One of some values, by its number."""
        found = items[-1]
        for number in range(len(items) - 2, -1, -1):
            place = LoopValue(self.space.emitter.number(number, I64))
            found = self.space.select(self.space.apply("==", (index, place), BOOL), items[number], found)
        return found

    # --- elements of tensors ----------------------------------------------------------------------------------

    def collect_guards(self, contraction: Contraction) -> None:
        """Remember the masks of all guards on the right side; those of the target come with its subscripts."""
        targets = [index for target in contraction.targets for index in target.indices]
        for term in reachable(*targets, *contraction.values, contraction.condition):
            if isinstance(term, Element) and any(isinstance(index, Guard) for index in term.indices):
                self._locate(term)

    def _locate(self, term: Element) -> _Located:
        key = id(term)
        if key not in self._located:
            value, shape, indices = self._pick_item(self.tensors[term.tensor], term)
            parts = [self.subscript(index, extent) for index, extent in zip(indices, shape, strict=True)]
            self._located[key] = value, shape, parts
        return self._located[key]

    def _element(self, term: Element) -> LoopValue:
        tensor = self.tensors[term.tensor]
        value, shape, parts = self._locate(term)
        if value is None:
            raise Unsupported(f"'{term.tensor}' is read before it is assigned")
        if value.name == "" and (term.item or 0) in tensor.uniform:
            return LoopValue(value)
        if any(item == 0 for item in shape):
            return LoopValue(self.space.emitter.number(0, tensor.element))
        axes = [axis for part in parts for axis in part.along]
        if len(set(axes)) == len(axes):
            return self.read_apart(value, shape, parts)
        return self._read_flat(value, shape, parts)

    def _pick_item(
        self, tensor: FormulaTensor, term: Element
    ) -> tuple[Value | None, Shape, tuple[Scalar | Guard, ...]]:
        if term.item is None:
            return tensor.values[0], tensor.shapes[0], term.indices
        if tensor.is_stacked:
            return tensor.values[0], tensor.shapes[0], (term.item, *term.indices)
        if isinstance(term.item, int):
            return tensor.values[term.item], tensor.shapes[term.item], term.indices
        if any(shape != tensor.shapes[0] for shape in tensor.shapes):
            raise Unsupported("an item of a pack of different shapes is computed")
        emitter, shape = self.space.emitter, tensor.shapes[0]
        rows = [
            emitter.add("Unsqueeze", (item, emitter.integers(0)), tensor.element) for item in tensor.values
        ]
        stacked = emitter.add("Concat", rows, tensor.element, axis=0)
        return stacked, (len(rows), *shape), (term.item, *term.indices)

    def subscript(self, index: Scalar | Guard, extent: Extent) -> Subscript:
        """How an index accesses a dimension; where a guard skips steps, a mask is remembered."""
        term = index.index if isinstance(index, Guard) else index
        space = self.space
        if isinstance(term, Index) and term.name in space.numbers:
            number = space.numbers[term.name]
            if space.loops[number].extent == extent:
                return Subscript((number,))
        found = self._shifted(term, extent)
        if found is not None:
            return found
        known = find_range(term, space.longest)
        is_inside = known is not None and isinstance(extent, int) and known[0] >= 0 and known[1] < extent
        if is_inside and isinstance(extent, int):
            found = self._affine(find_form(term, space.longest), extent)
            if found is not None:
                return found
        return Subscript(index=self._computed(index, extent, is_inside))

    def _shifted(self, term: Scalar, extent: Extent) -> Subscript | None:
        """One place, or a loop at a distance, of a dimension that may be open and is surely long enough."""
        form = find_form(term, self.space.longest)
        if form is None or form.constant < 0:
            return None
        if not form.terms:
            return Subscript(place=form.constant) if bounds(extent)[0] > form.constant else None
        ((name, factor), *more) = form.terms
        if more or factor != 1 or name not in self.space.numbers:
            return None
        number = self.space.numbers[name]
        end = add(self.space.loops[number].extent, form.constant)
        return Subscript((number,), (form.constant, end, 1)) if bounds(sub(extent, end))[0] >= 0 else None

    def _affine(self, form: Form | None, extent: int) -> Subscript | None:
        """An access by an affine index that stays inside."""
        if form is None or any(name not in self.space.numbers for name, _ in form.terms):
            return None
        factors = sorted(form.terms, key=lambda item: -item[1])
        axes = tuple(self.space.numbers[name] for name, _ in factors)
        sizes = [item for item in self.space.extents(axes) if isinstance(item, int)]
        if len(sizes) != len(axes):
            return None
        if len(axes) == 1:
            step = factors[0][1]
            end = form.constant + step * sizes[0]
            return Subscript(axes, (form.constant, end if end >= 0 else -extent - 1, step))
        room = extent
        for (_, factor), size in zip(factors, sizes, strict=True):
            if factor * size != room:
                return None
            room = factor
        return Subscript(axes) if room == 1 and form.constant == 0 else None

    def _computed(self, index: Scalar | Guard, extent: Extent, is_inside: bool) -> LoopValue:
        """A computed index that stays inside; where a guard says so it is replaced, or the step is skipped."""
        guard = index if isinstance(index, Guard) else None
        found = self.compute(index.index) if isinstance(index, Guard) else self.read(index)
        if is_inside or (guard is None and not self.speculative):
            return found
        space = self.space
        zero, end = LoopValue(space.emitter.number(0, I64)), LoopValue(space.scope.extent(extent))
        found = tested = space.cast(found, I64)
        if guard is not None:
            below = space.apply("<", (tested, zero), BOOL)
            above = space.apply(">=", (tested, end), BOOL)
            for where, other in ((below, guard.below), (above, guard.above)):
                if other is None:
                    self.masks.append(space.apply("!", (where,), BOOL))
                else:
                    found = space.select(where, self.compute(other), found)
        one = LoopValue(space.emitter.number(1, I64))
        last = space.apply("-", (end, one), I64)
        return space.apply(">>", (space.apply("<<", (found, last), I64), zero), I64)

    # --- reading ----------------------------------------------------------------------------------------------

    def read_apart(self, value: Value, shape: Shape, parts: Sequence[Subscript]) -> LoopValue:
        """Elements at subscripts that share no loop: one dimension after the other, from the last."""
        emitter, space = self.space.emitter, self.space
        split = [
            extent for part, size in zip(parts, shape, strict=True) for extent in self._sizes(part, size)
        ]
        if len(split) != len(shape):
            value = space.scope.reshape(value, split)
        slots: list[int | None] = []
        position = len(split)
        for part, size in zip(reversed(parts), reversed(shape), strict=True):
            position -= len(self._sizes(part, size))
            axes = part.axes if part.index is None else tuple(sorted(part.index.axes))
            if part.place is not None and size == 1:
                slots.insert(0, None)
            elif part.place is not None:
                place = emitter.number(part.place, I64)
                value = emitter.add("Gather", (value, place), value.element, axis=position)
            elif part.cut is not None:
                value = self._slice(value, position, part.cut)
            elif part.index is not None:
                index = space.compact(part.index, axes)
                value = emitter.add("Gather", (value, index), value.element, axis=position)
            slots[:0] = axes
        return space.settle(value, slots)

    def _sizes(self, part: Subscript, size: Extent) -> tuple[Extent, ...]:
        """The extents of the dimensions that a dimension is split into."""
        return (size,) if len(part.axes) < 2 else self.space.extents(part.axes)

    def _slice(self, value: Value, axis: int, cut: tuple[int, Extent, int]) -> Value:
        emitter, (start, end, step) = self.space.emitter, cut
        ends = emitter.integers(start), self.space.scope.shape((end,)), emitter.integers(axis)
        steps = () if step == 1 else (emitter.integers(step),)
        return emitter.add("Slice", (value, *ends, *steps), value.element)

    def _read_flat(self, value: Value, shape: Shape, parts: Sequence[Subscript]) -> LoopValue:
        """Elements at subscripts that share loops: the first dimensions as one, by their row-major offsets."""
        kept = len(parts)
        while kept and parts[kept - 1].is_whole:
            others = {axis for part in parts[: kept - 1] for axis in part.along}
            if parts[kept - 1].axes[0] in others:
                break
            kept -= 1
        space = self.space
        rest = shape[kept:]
        offset = self.offset(parts[:kept], shape[:kept])
        flat = space.scope.reshape(value, (-1, *rest)) if len(shape) > 1 else value
        axes = sorted(offset.axes)
        index = space.compact(offset, axes) if rest else offset.value
        found = space.emitter.add("Gather", (flat, index), value.element, axis=0)
        if not rest:
            return LoopValue(found, offset.axes, offset.rank)
        return space.arrange(found, [*axes, *(part.axes[0] for part in parts[kept:])])

    def offset(self, parts: Sequence[Subscript], shape: Shape) -> LoopValue:
        """The row-major position of an element."""
        space = self.space
        total = LoopValue(space.emitter.number(0, I64))
        stride = LoopValue(space.emitter.number(1, I64))
        for part, size in zip(reversed(parts), reversed(shape), strict=True):
            step = space.apply("*", (self._places(part), stride), I64)
            total = space.apply("+", (total, step), I64)
            stride = space.apply("*", (stride, LoopValue(space.scope.extent(size))), I64)
        return total

    def _places(self, part: Subscript) -> LoopValue:
        """The index of a subscript as a value."""
        space = self.space
        if part.index is not None:
            return space.cast(part.index, I64)
        if part.place is not None:
            return LoopValue(space.emitter.number(part.place, I64))
        total = LoopValue(space.emitter.number(0, I64))
        factor: Extent = 1
        for axis in reversed(part.axes):
            step = 1 if part.cut is None else part.cut[2]
            scale = LoopValue(space.emitter.number(factor * step if isinstance(factor, int) else 1, I64))
            one = space.apply("*", (space.index(space.loops[axis].index), scale), I64)
            total = space.apply("+", (total, one), I64)
            extent = space.loops[axis].extent
            factor = factor * extent if isinstance(factor, int) and isinstance(extent, int) else factor
        start = LoopValue(space.emitter.number(0 if part.cut is None else part.cut[0], I64))
        return space.apply("+", (total, start), I64)


def is_speculative(contraction: Contraction) -> bool:
    """Whether a formula may look at elements outside in steps that do not use them."""
    if contraction.condition is not None:
        return True
    return any(
        isinstance(term, Guard) or (isinstance(term, Apply) and term.function in SPECULATIVE)
        for term in reachable(*contraction.targets, *contraction.values)
    )


__all__ = ["FormulaTensor", "Subscript", "TermReader", "is_speculative"]
