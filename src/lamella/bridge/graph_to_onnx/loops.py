"""Values over the loops of a formula: arrays whose dimensions are the last loops, of extent 1 where they stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lamella.base.dim import Extent, bounds, mul
from lamella.base.dtype import BOOL, F32, I64, ElementType
from lamella.bridge.graph_to_onnx.arithmetic import FOLDED, apply, cast
from lamella.bridge.graph_to_onnx.emitter import Emitter, Value
from lamella.bridge.graph_to_onnx.scope import Scope
from lamella.ops.formula import Loop

UNKNOWN = 1 << 40
"""Stands for the length of a loop that nothing bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class LoopValue:
    """An array over the last `rank` loops; it varies along `axes`, in the other dimensions its extent is 1."""

    value: Value
    axes: frozenset[int] = frozenset()
    rank: int = 0

    @property
    def element(self) -> ElementType:
        """The type of its elements."""
        return self.value.element


@dataclass(slots=True)
class LoopSpace:
    """The loops of a formula: those that become dimensions, and those that have one value each (`fixed`)."""

    scope: Scope
    loops: tuple[Loop, ...]
    fixed: Mapping[str, Value] = field(default_factory=dict)
    numbers: dict[str, int] = field(init=False)
    longest: dict[str, int] = field(init=False)
    """The lengths of all loops, or what they stay below: for ranges."""

    def __post_init__(self) -> None:
        active = [loop for loop in self.loops if loop.index not in self.fixed]
        self.longest = {loop.index: _longest(loop.extent) for loop in self.loops}
        self.loops = tuple(active)
        self.numbers = {loop.index: number for number, loop in enumerate(active)}

    @property
    def emitter(self) -> Emitter:
        """The nodes that the values are made by."""
        return self.scope.emitter

    @property
    def count(self) -> int:
        """How many dimensions a value has at most."""
        return len(self.loops)

    def extents(self, axes: Iterable[int]) -> tuple[Extent, ...]:
        """The lengths of some loops."""
        return tuple(self.loops[axis].extent for axis in axes)

    # --- values -----------------------------------------------------------------------------------------------

    def single(self, value: Value) -> LoopValue:
        """A value that is the same everywhere."""
        return LoopValue(value)

    def index(self, name: str) -> LoopValue:
        """The index of a loop."""
        if name in self.fixed:
            return LoopValue(self.fixed[name])
        number = self.numbers[name]
        extent, rank = self.loops[number].extent, self.count - number
        if isinstance(extent, int) and extent <= FOLDED:
            row: Value = self.emitter.constant(np.arange(extent, dtype=np.int64))
        else:
            ends = self.emitter.number(0, I64), self.scope.extent(extent), self.emitter.number(1, I64)
            row = self.emitter.add("Range", ends, I64)
        return LoopValue(self.spread(row, (number,), rank), frozenset((number,)), rank)

    def apply(self, function: str, operands: Sequence[LoopValue], element: ElementType) -> LoopValue:
        """A function of values that broadcast together."""
        mask = operands[0].value.known if function == "?:" else None
        if mask is not None and mask.size and (mask.all() or not mask.any()):
            return operands[1 if mask.all() else 2]
        found = apply(self.emitter, function, [item.value for item in operands], element)
        axes = frozenset().union(*(item.axes for item in operands))
        return LoopValue(found, axes, self._rank(operands))

    def _rank(self, operands: Sequence[LoopValue]) -> int:
        return max(item.rank for item in operands)

    def cast(self, value: LoopValue, element: ElementType) -> LoopValue:
        """A value in another type."""
        return LoopValue(cast(self.emitter, value.value, element), value.axes, value.rank)

    def select(self, mask: LoopValue | None, then: LoopValue, otherwise: LoopValue) -> LoopValue:
        """One of two values, by a mask; without one the first."""
        return then if mask is None else self.apply("?:", (mask, then, otherwise), then.element)

    def both(self, masks: Iterable[LoopValue]) -> LoopValue | None:
        """The mask that holds where all do; None where it holds everywhere."""
        found: LoopValue | None = None
        for mask in masks:
            if mask.value.known is None or not mask.value.known.all():
                found = mask if found is None else self.apply("&&", (found, mask), BOOL)
        return found

    # --- dimensions -------------------------------------------------------------------------------------------

    def spread(self, value: Value, axes: Sequence[int], rank: int) -> Value:
        """An array over some loops, ascending, as one over the last `rank` ones."""
        first = self.count - rank
        missing = [axis - first for axis in range(first, self.count) if axis not in axes]
        if not missing:
            return value
        if value.known is not None:
            return self.emitter.constant(np.expand_dims(value.known, missing))
        return self.emitter.add("Unsqueeze", (value, self.emitter.integers(*missing)), value.element)

    def arrange(self, value: Value, order: Sequence[int]) -> LoopValue:
        """An array whose dimensions are loops in some order, as one over the last loops."""
        axes = sorted(order)
        value = self.transpose(value, [order.index(axis) for axis in axes])
        rank = self.count - axes[0] if axes else 0
        return LoopValue(self.spread(value, axes, rank), frozenset(axes), rank)

    def settle(self, value: Value, slots: Sequence[int | None]) -> LoopValue:
        """An array whose dimensions are loops, or of extent 1, as one over the last loops."""
        axes = [axis for axis in slots if axis is not None]
        first = self.count - len(slots)
        if first >= 0 and all(axis is None or axis == first + place for place, axis in enumerate(slots)):
            return LoopValue(value, frozenset(axes), len(slots))
        gone = [place for place, axis in enumerate(slots) if axis is None]
        if gone:
            value = self.emitter.add("Squeeze", (value, self.emitter.integers(*gone)), value.element)
        return self.arrange(value, axes)

    def transpose(self, value: Value, order: Sequence[int]) -> Value:
        """The dimensions of an array in another order."""
        if list(order) == list(range(len(order))):
            return value
        if value.known is not None:
            return self.emitter.constant(value.known.transpose(order))
        return self.emitter.add("Transpose", (value,), value.element, perm=tuple(order))

    def compact(self, value: LoopValue, axes: Sequence[int]) -> Value:
        """A value as an array over some loops only, ascending; it must not vary along others."""
        first = self.count - value.rank
        gone = [axis - first for axis in range(first, self.count) if axis not in axes]
        missing = [number for number, axis in enumerate(axes) if axis < first]
        found = value.value
        if gone and found.known is not None:
            found = self.emitter.constant(np.squeeze(found.known, tuple(gone)))
        elif gone:
            found = self._squeezed(found, gone, value.rank)
        if missing and found.known is not None:
            return self.emitter.constant(np.expand_dims(found.known, missing))
        if missing:
            return self.emitter.add("Unsqueeze", (found, self.emitter.integers(*missing)), found.element)
        return found

    def _squeezed(self, value: Value, gone: Sequence[int], rank: int) -> Value:
        """A value without some dimensions of extent 1; what a reduction left of others it need not leave."""
        op_type, inputs = self.emitter.maker(value)
        axes = inputs[1].known if op_type.startswith("Reduce") and inputs[1] is not None else None
        if axes is not None and sorted(int(axis) % rank for axis in axes) == list(gone):
            return self.emitter.add(op_type, inputs, value.element, keepdims=0)
        return self.emitter.add("Squeeze", (value, self.emitter.integers(*gone)), value.element)

    def expand(self, value: LoopValue, axes: Sequence[int]) -> Value:
        """A value as an array over some loops, ascending, repeated where it does not vary."""
        found = self.compact(value, axes)
        if all(axis in value.axes or self.loops[axis].extent == 1 for axis in axes):
            return found
        wide = F32 if found.element.is_float and found.element.bits < 32 else found.element
        spread = self.scope.spread(cast(self.emitter, found, wide), self.extents(axes))
        return cast(self.emitter, spread, found.element)

    def volume(self, axes: Iterable[int]) -> Extent:
        """The number of steps of some loops."""
        return volume_of(self.extents(axes))


def volume_of(extents: Iterable[Extent]) -> Extent:
    """The product of some extents."""
    found: Extent = 1
    for extent in extents:
        found = mul(found, extent)
    return found


def _longest(extent: Extent) -> int:
    return max(0, min(bounds(extent)[1], UNKNOWN))
