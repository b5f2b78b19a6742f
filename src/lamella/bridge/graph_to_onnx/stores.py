"""Assignments of a formula as ONNX values: reductions, products of tensors, scatters."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import numpy_dtype
from lamella.base.dim import Extent, sub
from lamella.base.dtype import BOOL, F32, F64, I32, I64, ElementType
from lamella.bridge.graph_to_onnx.arithmetic import apply, cast
from lamella.bridge.graph_to_onnx.emitter import Value
from lamella.bridge.graph_to_onnx.loops import LoopValue, volume_of
from lamella.bridge.graph_to_onnx.terms import FormulaTensor, Subscript, TermReader
from lamella.graph.nodes import Shape
from lamella.ops.formula import Apply, Element, Scalar

ASSIGNMENTS = ("=", ":=")


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How an accumulating sign combines values: by a function, a reduction, a way to scatter."""

    function: str
    reduce: str
    scatter: str


ACCUMULATIONS: Mapping[str, Accumulation] = MappingProxyType(
    {
        "+=": Accumulation("+", "ReduceSum", "add"),
        "*=": Accumulation("*", "ReduceProd", "mul"),
        "<=": Accumulation("<<", "ReduceMin", "min"),
        ">=": Accumulation(">>", "ReduceMax", "max"),
        "&=": Accumulation("&&", "ReduceMin", "min"),
        "|=": Accumulation("||", "ReduceMax", "max"),
    }
)


def start_of(sign: str, element: ElementType) -> float:
    """What an accumulation starts from."""
    if sign in ("+=", "|="):
        return 0
    if sign in ("*=", "&="):
        return 1
    if element.is_float:
        return inf if sign == "<=" else -inf
    return element.maximum if sign == "<=" else element.minimum


@dataclass(slots=True)
class Store:
    """One assignment: a target, its sign, and what is assigned, with the steps that happen."""

    reader: TermReader
    target: Element
    sign: str
    tensor: FormulaTensor
    item: int
    mask: LoopValue | None

    @property
    def shape(self) -> Shape:
        """The shape of the target."""
        return self.tensor.shapes[self.item]

    @property
    def computing(self) -> ElementType:
        """The type in which the target is computed."""
        return self.reader.computing(self.tensor.element)

    def run(self, term: Scalar, parts: Sequence[Subscript]) -> Value:
        """The target after the assignment."""
        axes = [axis for part in parts for axis in part.along]
        covers = len(set(axes)) == len(axes) and all(
            self._covers(*pair) for pair in zip(parts, self.shape, strict=True)
        )
        used = set(axes)
        if covers and self.sign in ASSIGNMENTS and len(used) == self.reader.space.count:
            return self._assign(term, parts)
        if covers and self.sign not in ASSIGNMENTS:
            return self._accumulate(term, parts)
        if self._is_pasted(parts, used):
            return self._paste(term, parts)
        return self._scatter(term, parts)

    @staticmethod
    def _covers(part: Subscript, extent: Extent) -> bool:
        """Whether a subscript reaches every place of a dimension."""
        if part.index is not None or part.cut is not None:
            return False
        return part.place is None or extent == 1

    # --- targets that are covered -----------------------------------------------------------------------------

    def _assign(self, term: Scalar, parts: Sequence[Subscript]) -> Value:
        value = self._read(term)
        if self.mask is None and value.value.known is not None and value.value.known.ndim == 0:
            self.tensor.uniform.add(self.item)
            array = value.value.known.astype(numpy_dtype(self.tensor.element))
            return self.reader.space.emitter.constant(array)
        if self.mask is not None:
            value = self.reader.space.select(
                self.mask, self.reader.space.cast(value, self.computing), self._old(parts)
            )
        return self._stored(self._lay_out(value, parts))

    def _read(self, term: Scalar) -> LoopValue:
        """What is assigned; a real that becomes a narrow integer goes to the nearest one that there is."""
        element, space = self.tensor.element, self.reader.space
        narrow = element.is_integer and element.bits < I64.bits
        if not narrow or not isinstance(term, Apply) or term.function != "cast":
            return self.reader.read(term)
        real = self.reader.compute(term.operands[0])
        if not real.element.is_float:
            return self.reader.read(term)
        # Among reals: onnxruntime 1.31 compares 64-bit integers of more than 31 bits wrongly.
        wide = space.cast(real, F32 if element.bits <= 16 and real.element == F32 else F64)
        ends = [
            LoopValue(space.emitter.number(end, wide.element)) for end in (element.minimum, element.maximum)
        ]
        held = space.apply(">>", (wide, ends[0]), wide.element)
        return space.apply("<<", (held, ends[1]), wide.element)

    # --- targets of which one run of slices is assigned -------------------------------------------------------

    def _is_pasted(self, parts: Sequence[Subscript], used: set[int]) -> bool:
        """Whether a part of one dimension is assigned, and all of the others."""
        space = self.reader.space
        axes = [axis for part in parts for axis in part.along]
        if self.sign not in ASSIGNMENTS or self.mask is not None or len(set(axes)) != len(axes):
            return False
        partial = [part for part in parts if not part.is_whole]
        if len(used) != space.count or len(partial) != 1 or partial[0].index is not None:
            return False
        return len(partial[0].axes) < 2 and (partial[0].cut is None or partial[0].cut[2] == 1)

    def _paste(self, term: Scalar, parts: Sequence[Subscript]) -> Value:
        """Slices between those that stand before and behind them; zeros stand where nothing was assigned yet."""
        space, emitter = self.reader.space, self.reader.space.emitter
        axis = next(place for place, part in enumerate(parts) if not part.is_whole)
        start = parts[axis].place or 0
        end: Extent = start + 1
        if parts[axis].cut is not None:
            start, end, _ = parts[axis].cut or (0, 0, 1)
        order = [item for part in parts for item in part.axes]
        value = space.cast(self._read(term), self.computing)
        found = space.expand(value, sorted(order))
        turned = space.transpose(found, [sorted(order).index(item) for item in order])
        found = cast(space.emitter, turned, self.tensor.element)
        if not parts[axis].axes:
            found = emitter.add("Unsqueeze", (found, emitter.integers(axis)), found.element)
        pieces = [self._piece(axis, 0, start), found, self._piece(axis, end, self.shape[axis])]
        kept = [item for item in pieces if item is not None]
        self.tensor.uniform.discard(self.item)
        return kept[0] if len(kept) == 1 else emitter.add("Concat", kept, found.element, axis=axis)

    def _piece(self, axis: int, start: Extent, end: Extent) -> Value | None:
        """What the target holds between two places of a dimension."""
        if start == end:
            return None
        scope, old = self.reader.space.scope, self.tensor.values[self.item]
        if old is None or self.item in self.tensor.uniform:
            shape = (*self.shape[:axis], sub(end, start), *self.shape[axis + 1 :])
            number = 0 if old is None or old.known is None else old.known
            return scope.filled(number, self.tensor.element, shape)
        ends = scope.shape((start,)), scope.shape((end,)), scope.emitter.integers(axis)
        return scope.emitter.add("Slice", (old, *ends), old.element)

    def _old(self, parts: Sequence[Subscript]) -> LoopValue:
        """What the target holds, over the loops."""
        value = self.tensor.values[self.item]
        if value is None:
            start = 0 if self.sign in ASSIGNMENTS else start_of(self.sign, self.tensor.element)
            return LoopValue(self.reader.space.emitter.number(start, self.computing))
        if self.item in self.tensor.uniform:
            return self.reader.space.cast(LoopValue(value), self.computing)
        return self.reader.space.cast(self.reader.read_apart(value, self.shape, parts), self.computing)

    def _lay_out(self, value: LoopValue, parts: Sequence[Subscript]) -> Value:
        """A value over the loops of a target as the target has them."""
        space = self.reader.space
        if self._is_laid_out(value, parts):
            return value.value
        order = [axis for part in parts for axis in part.axes]
        axes = sorted(order)
        found = space.transpose(space.expand(value, axes), [axes.index(axis) for axis in order])
        return (
            found
            if len(order) == len(parts) and all(part.is_whole for part in parts)
            else self._shaped(found)
        )

    def _is_laid_out(self, value: LoopValue, parts: Sequence[Subscript]) -> bool:
        """Whether the dimensions of a value are those of the target already, loops that are gone being 1 each."""
        space = self.reader.space
        if value.rank != space.count or len(parts) != space.count:
            return False
        for loop, part in enumerate(parts):
            if part.axes not in ((), (loop,)):
                return False
            if part.axes and loop not in value.axes and space.loops[loop].extent != 1:
                return False
        return True

    def _shaped(self, value: Value) -> Value:
        return self.reader.space.scope.reshape(value, self.shape)

    def _accumulate(self, term: Scalar, parts: Sequence[Subscript]) -> Value:
        kept = frozenset(axis for part in parts for axis in part.axes)
        found = self._reduced(term, kept)
        old = self.tensor.values[self.item]
        laid = self._lay_out(found, parts)
        if old is None or (self.sign == "+=" and self._is_zero(old)):
            return self._stored(laid)
        wide = cast(self.reader.space.emitter, old, self.computing)
        function = ACCUMULATIONS[self.sign].function
        return self._stored(apply(self.reader.space.emitter, function, (wide, laid), self.computing))

    def _is_zero(self, value: Value) -> bool:
        return self.item in self.tensor.uniform and value.known is not None and not value.known.any()

    def _stored(self, value: Value) -> Value:
        self.tensor.uniform.discard(self.item)
        return cast(self.reader.space.emitter, value, self.tensor.element)

    # --- reductions -------------------------------------------------------------------------------------------

    def _reduced(self, term: Scalar, kept: frozenset[int]) -> LoopValue:
        """A value accumulated over all loops but some; it still has a dimension for each."""
        space = self.reader.space
        if self.sign == "+=":
            factors = self._factors(term)
            if len(factors) > 1:
                found = multiply(self.reader, factors, self.mask, kept)
                if found is not None:
                    return found
        value = space.cast(self.reader.compute(term), self.computing)
        if self.mask is not None:
            start = space.emitter.number(start_of(self.sign, self.tensor.element), self.computing)
            value = space.select(self.mask, value, LoopValue(start))
        return self._reduce(value, kept)

    def _factors(self, term: Scalar) -> list[Scalar]:
        """The factors of a product; those that are sums of their own stay whole."""
        found: list[Scalar] = []
        waiting = [term]
        while waiting:
            item = waiting.pop()
            if isinstance(item, Apply) and item.function == "*" and item.type != "bool":
                waiting += reversed(item.operands)
            else:
                found.append(item)
        return found

    def _reduce(self, value: LoopValue, kept: frozenset[int]) -> LoopValue:
        space, sign = self.reader.space, self.sign
        away = [axis for axis in range(space.count) if axis not in kept]
        varying = [axis for axis in away if axis in value.axes and space.loops[axis].extent != 1]
        still = [axis for axis in away if axis not in value.axes]
        found = value.value
        if varying:
            axes = space.emitter.integers(*(axis - space.count for axis in varying))
            found = self._reduce_node(found, axes)
        rest = LoopValue(found, value.axes - frozenset(away), value.rank)
        volume = space.volume(still)
        if volume == 1 or sign not in ("+=", "*="):
            return rest
        times = LoopValue(cast(space.emitter, space.scope.extent(volume), rest.element))
        return space.apply("*" if sign == "+=" else "**", (rest, times), rest.element)

    def _reduce_node(self, value: Value, axes: Value) -> Value:
        emitter, op_type = self.reader.space.emitter, ACCUMULATIONS[self.sign].reduce
        if value.element != BOOL:
            return emitter.add(op_type, (value, axes), value.element, keepdims=1)
        found = emitter.add(op_type, (cast(emitter, value, I32), axes), I32, keepdims=1)
        return cast(emitter, found, BOOL)

    # --- scatters ---------------------------------------------------------------------------------------------

    def _scatter(self, term: Scalar, parts: Sequence[Subscript]) -> Value:
        """Values put at computed places; steps that do not happen go to a place behind all others."""
        reader, space = self.reader, self.reader.space
        offset = reader.offset(parts, self.shape)
        if self.sign in ASSIGNMENTS:
            # Where several steps reach one place the last one stays, so all of them are written in their order.
            axes = list(range(space.count))
            value, mask = space.cast(self._read(term), self.computing), self.mask
        else:
            axes = sorted(offset.axes)
            value = self._reduced(term, offset.axes)
            mask = self.mask if self.mask is not None and self.mask.axes <= offset.axes else None
        total = space.scope.extent(volume_of(self.shape))
        if mask is not None:
            offset = space.select(mask, offset, LoopValue(total))
        places = space.scope.reshape(space.expand(offset, axes), (-1,))
        updates = space.scope.reshape(space.expand(value, axes), (-1,))
        found = self._put(self._base(mask is not None, total), places, updates)
        if mask is not None:
            ends = space.emitter.integers(0), space.emitter.integers(-1), space.emitter.integers(0)
            found = space.emitter.add("Slice", (found, *ends), found.element)
        return self._stored(self._shaped(found))

    def _base(self, with_spare: bool, total: Value) -> Value:
        """What the target holds as a vector, with room for what is not to be seen."""
        space = self.reader.space
        old = self.tensor.values[self.item]
        start = 0 if self.sign in ASSIGNMENTS else start_of(self.sign, self.tensor.element)
        one = space.emitter.constant(np.asarray([start]).astype(numpy_dtype(self.computing)))
        if old is None:
            length = apply(space.emitter, "+", (total, space.emitter.number(int(with_spare), I64)), I64)
            return space.emitter.add("Expand", (one, space.scope.reshape(length, (1,))), self.computing)
        if self.item in self.tensor.uniform:
            old = space.scope.spread(old, self.shape)
        flat = space.scope.reshape(cast(space.emitter, old, self.computing), (-1,))
        return space.emitter.add("Concat", (flat, one), self.computing, axis=0) if with_spare else flat

    def _put(self, base: Value, places: Value, updates: Value) -> Value:
        emitter = self.reader.space.emitter
        way = "none" if self.sign in ASSIGNMENTS else ACCUMULATIONS[self.sign].scatter
        if self.computing != BOOL or way == "none":
            return emitter.add(
                "ScatterElements", (base, places, updates), self.computing, axis=0, reduction=way
            )
        wide = [cast(emitter, base, I32), places, cast(emitter, updates, I32)]
        return cast(emitter, emitter.add("ScatterElements", wide, I32, axis=0, reduction=way), BOOL)


# --- products of tensors --------------------------------------------------------------------------------------


def multiply(
    reader: TermReader, factors: Sequence[Scalar], mask: LoopValue | None, kept: frozenset[int]
) -> LoopValue | None:
    """A sum of products as one contraction of tensors; None where it is a plain reduction."""
    space = reader.space
    values = [reader.compute(item) for item in factors]
    plain = [item for item in values if not item.axes]
    tensors = [item for item in values if item.axes]
    union = frozenset[int]().union(*(item.axes for item in tensors))
    summed = union - kept
    if len(tensors) < 2 or not summed or any(item.axes == union for item in tensors):
        return None
    if not tensors[0].element.is_float or space.count > len(string.ascii_letters):
        return None
    if union | kept != frozenset(range(space.count)):
        return None
    if mask is not None:
        tensors = _masked(reader, tensors, mask)
    found = _einsum(reader, tensors, union - summed)
    for item in plain:
        found = space.apply("*", (found, item), found.element)
    return found


def _masked(reader: TermReader, tensors: Sequence[LoopValue], mask: LoopValue) -> list[LoopValue]:
    """The factors, one of them zero in the steps that do not happen."""
    space, zero = reader.space, LoopValue(reader.space.emitter.number(0, reader.real))
    best = max(range(len(tensors)), key=lambda place: (len(mask.axes & tensors[place].axes), -place))
    found = list(tensors)
    found[best] = space.select(mask, found[best], zero)
    return found


def _einsum(reader: TermReader, tensors: Sequence[LoopValue], kept: frozenset[int]) -> LoopValue:
    space = reader.space
    if len(tensors) > 2:
        # onnxruntime multiplies more than two at once one after the other anyway; the first two may be small.
        first = sorted(tensors[0].axes | tensors[1].axes)
        joined = space.apply("*", tensors[:2], tensors[0].element)
        if len(first) <= max(len(tensors[0].axes), len(tensors[1].axes)):
            return _einsum(reader, [joined, *tensors[2:]], kept)
    letters = string.ascii_letters
    terms = ["".join(letters[axis] for axis in sorted(item.axes)) for item in tensors]
    order = sorted(kept)
    equation = f"{','.join(terms)}->{''.join(letters[axis] for axis in order)}"
    values = [space.compact(item, sorted(item.axes)) for item in tensors]
    found = space.emitter.add("Einsum", values, tensors[0].element, equation=equation)
    return space.arrange(found, order)


__all__ = ["ASSIGNMENTS", "Store", "start_of"]
