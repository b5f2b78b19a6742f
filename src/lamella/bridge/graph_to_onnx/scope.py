"""What a part of a graph sees while it is translated: its tensors as ONNX values, and extents of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import Atom, Dim, DimPart, DimSymbol, Extent, Logic, Test, Truth, mul, sub
from lamella.base.dtype import BOOL, F32, I64, ElementType
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_onnx.arithmetic import apply, cast
from lamella.bridge.graph_to_onnx.emitter import DATA_ELEMENTS, Emitter, Value
from lamella.bridge.onnx.nodes import Dimension
from lamella.graph.nodes import Argument, Pack, Shape, Single, Tensor

WRITTEN_OUT = 4096
"""Elements of a uniform constant that is written with all its numbers; a larger one is spread by the run."""
Held: TypeAlias = Value | tuple[Value, ...] | None
"""What an argument is: a value, one for each tensor of a pack, or nothing. A pack of open length is one value."""


class Scope:
    """The values that a part of a graph sees, its own before those around it."""

    def __init__(self, emitter: Emitter, parent: Scope | None = None) -> None:
        self.emitter = emitter
        self.parent = parent
        self._values: dict[str, Value] = {}
        self._sources: dict[str, tuple[Value, int, Extent]] = {}
        self._extents: dict[Extent | Truth, Value] = {}

    # --- tensors ----------------------------------------------------------------------------------------------

    def put(self, tensor: Tensor | Pack, value: Value) -> None:
        """Say which value a tensor is; the extents that it tells are known from now on."""
        self._values[tensor.name] = replace(value, element=DATA_ELEMENTS.get(tensor.element, tensor.element))
        shape = (tensor.size, *tensor.shape) if isinstance(tensor, Pack) else tensor.shape
        for axis, extent in enumerate(shape):
            found = None if isinstance(extent, int) else _only_symbol(extent)
            if found is not None and self._source(found.name) is None:
                self._sources[found.name] = value, axis, extent

    def find(self, name: str) -> Value | None:
        """The value of a tensor."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._values.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def value(self, tensor: Tensor | Pack) -> Value:
        """The value that a tensor is."""
        found = self.find(tensor.name)
        if found is None:
            raise Unsupported(f"the tensor '{tensor.name}' has no value")
        return found

    def held(self, argument: Argument) -> Held:
        """What an argument is."""
        if isinstance(argument, tuple):
            return tuple(self.value(item) for item in argument)
        return None if argument is None else self.value(argument)

    # --- extents ----------------------------------------------------------------------------------------------

    def _source(self, symbol: str) -> tuple[Value, int, Extent] | None:
        scope: Scope | None = self
        while scope is not None:
            if symbol in scope._sources:
                return scope._sources[symbol]
            scope = scope.parent
        return None

    def _remembered(self, key: Extent | Truth) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if key in scope._extents:
                return scope._extents[key]
            scope = scope.parent
        return None

    def extent(self, extent: Extent) -> Value:
        """An extent as a single integer."""
        if isinstance(extent, int):
            return self.emitter.number(extent, I64)
        found = self._remembered(extent)
        if found is None:
            found = self._extents[extent] = self._polynomial(extent)
        return found

    def _polynomial(self, extent: Dim) -> Value:
        total = self.emitter.number(0, I64)
        for monomial, factor in extent.terms:
            term = self.emitter.number(factor, I64)
            for atom in monomial:
                term = self._apply("*", term, self._atom(atom))
            total = self._apply("+", total, term)
        return total

    def _apply(self, function: str, *operands: Value) -> Value:
        return apply(self.emitter, function, operands, I64)

    def _atom(self, atom: Atom) -> Value:
        if isinstance(atom, DimPart):
            left, right = (self.extent(item) for item in atom.operands)
            if atom.condition is not None:
                return self._apply("?:", self.truth(atom.condition), left, right)
            return self._apply(atom.sign, left, right)
        alone = Dim((((atom,), 1),))
        found = self._remembered(alone)
        if found is None:
            found = self._extents[alone] = self._measure(atom)
        return found

    def _measure(self, symbol: DimSymbol) -> Value:
        """A symbol by the extent of a tensor that tells it."""
        source = self._source(symbol.name)
        if source is None:
            raise Unsupported(f"no tensor tells the extent '{symbol.name}'")
        value, axis, extent = source
        row = self.emitter.add("Shape", (value,), I64, start=axis, end=axis + 1)
        found = self.emitter.add("Squeeze", (row, self.emitter.integers(0)), I64)
        alone = Dim((((symbol,), 1),))
        if extent == alone or isinstance(extent, int):
            return found
        factor = next(factor for monomial, factor in extent.terms if monomial)
        constant = sub(extent, mul(alone, factor))
        shifted = self._apply("-", found, self.extent(constant))
        return self._apply("/", shifted, self.emitter.number(factor, I64))

    def truth(self, truth: Truth) -> Value:
        """A condition on extents as a single truth value."""
        if isinstance(truth, bool):
            return self.emitter.constant(np.asarray(truth))
        found = self._remembered(truth)
        if found is None:
            found = self._extents[truth] = self._condition(truth)
        return found

    def _condition(self, truth: Test | Logic) -> Value:
        if isinstance(truth, Test):
            operands = [self.extent(truth.left), self.extent(truth.right)]
            return apply(self.emitter, truth.sign, operands, BOOL)
        parts = [self.truth(item) for item in truth.operands]
        if truth.sign == "!":
            return apply(self.emitter, "!", parts, BOOL)
        found = parts[0]
        for item in parts[1:]:
            found = apply(self.emitter, truth.sign, (found, item), BOOL)
        return found

    # --- shapes -----------------------------------------------------------------------------------------------

    def shape(self, shape: Sequence[Extent]) -> Value:
        """A shape as a vector of integers."""
        if all(isinstance(item, int) for item in shape):
            return self.emitter.integers(*(item for item in shape if isinstance(item, int)))
        parts: list[Value] = []
        for item in shape:
            value = self.extent(item)
            if value.known is not None:
                parts.append(self.emitter.integers(int(value.known)))
            else:
                parts.append(self.emitter.add("Unsqueeze", (value, self.emitter.integers(0)), I64))
        return self.emitter.add("Concat", parts, I64, axis=0)

    def reshape(self, value: Value, shape: Sequence[Extent]) -> Value:
        """A value in another shape of the same volume; one open extent needs no computing."""
        known = [item for item in shape if isinstance(item, int)]
        if value.known is not None and len(known) == len(shape):
            return self.emitter.constant(value.known.reshape(known))
        if len(shape) - len(known) == 1 and not {0, -1} & set(known):
            wanted = self.emitter.integers(*(item if isinstance(item, int) else -1 for item in shape))
        else:
            wanted = self.shape(shape)
        return self.emitter.add("Reshape", (value, wanted), value.element, **_keeping_zeros(known))

    def filled(self, number: float | Array, element: ElementType, shape: Sequence[Extent]) -> Value:
        """A value of a shape that is one number everywhere."""
        # onnxruntime spreads no narrow floats.
        wide = F32 if element.is_float and element.bits < 32 else element
        found = self.emitter.number(number, wide)
        return cast(self.emitter, self.spread(found, shape), element)

    def constant(
        self, element: ElementType, shape: Sequence[Extent], given: Single | tuple[Single, ...]
    ) -> Value:
        """A tensor known before the run: one value everywhere, or all in row-major order; extents may be among them."""
        singles = given if isinstance(given, tuple) else (given,)
        known = [item for item in singles if isinstance(item, int | float)]
        if len(known) != len(singles):
            return self._measured(element, shape, singles)
        with np.errstate(over="ignore"):  # what is too large for the type is infinite
            array = np.asarray(known).astype(numpy_dtype(element))
        extents = [item for item in shape if isinstance(item, int)]
        if isinstance(given, tuple):
            return self.reshape(self.emitter.constant(array), shape)
        if len(extents) == len(shape) and np.prod(extents, dtype=np.int64) <= WRITTEN_OUT:
            return self.emitter.constant(np.full(extents, array[0], array.dtype))
        return self.filled(array[0], element, shape)

    def _measured(self, element: ElementType, shape: Sequence[Extent], singles: Sequence[Single]) -> Value:
        """A tensor of extents of the run."""
        extents = [item for item in singles if isinstance(item, int | Dim)]
        if len(extents) != len(singles):
            raise Unsupported("a constant is known at the run only")
        found = cast(self.emitter, self.shape(extents), element)
        return self.reshape(found, shape) if len(singles) > 1 else self.spread(self.reshape(found, ()), shape)

    def spread(self, value: Value, shape: Sequence[Extent]) -> Value:
        """A value repeated to a shape."""
        return self.emitter.add("Expand", (value, self.shape(shape)), value.element) if shape else value


def _keeping_zeros(known: Sequence[int]) -> dict[str, int]:
    """An extent of 0 stands for itself, not for the one that was there."""
    return {"allowzero": 1} if 0 in known else {}


def _only_symbol(extent: Dim) -> DimSymbol | None:
    """The symbol of an extent that is linear in it and holds no other."""
    found: DimSymbol | None = None
    for monomial, _ in extent.terms:
        if not monomial:
            continue
        if found is not None or len(monomial) != 1 or not isinstance(monomial[0], DimSymbol):
            return None
        found = monomial[0]
    return found


def dimensions(shape: Shape) -> tuple[Dimension, ...]:
    """A shape as ONNX writes it: open extents by their names."""
    return tuple(item if isinstance(item, int) else str(item) for item in shape)
