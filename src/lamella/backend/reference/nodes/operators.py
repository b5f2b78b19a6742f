"""Runs one operation: by its formulas, by its NumPy meaning where it has none, or by what it is composed of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from lamella.backend.reference.formula.access import computing_type
from lamella.backend.reference.formula.cells import Formula, prepare
from lamella.backend.reference.formula.contract import evaluate_scalar, run_formula
from lamella.backend.reference.formula.evaluate import Tensors
from lamella.backend.reference.formula.scalars import Real
from lamella.backend.reference.formula.store import ASSIGNMENTS, neutral
from lamella.backend.reference.intrinsics import INTRINSICS
from lamella.backend.reference.storage import Storage, known_extent, known_shape, known_single
from lamella.base.arrays import Array
from lamella.base.diagnostic import Label
from lamella.base.dim import Dim, Logic, Test, substitute, symbols
from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.base.limits import LARGEST, SMALLEST, Limits
from lamella.graph.binding import bind_operation, signature
from lamella.graph.nodes import Operation, Pack, Tensor, tensors
from lamella.graph.rewrite import Substitution, extent_substitution
from lamella.lang.skriptnd.rules.graphs import CHECK_FAILED, NO_MEANING
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction
from lamella.ops.instance import Declared, Instance, Repeated, Single, Value, singles
from lamella.ops.library import Library
from lamella.ops.lower import contractions
from lamella.ops.specialise import TermSpecialiser, specialise

Held: TypeAlias = Array | tuple[Array, ...] | None
Values: TypeAlias = Mapping[str, int]


@dataclass(slots=True)
class Prepared:
    """A bound operation with its formulas, and those of the last extents it ran with."""

    instance: Instance
    formulas: tuple[Contraction, ...]
    key: tuple[int, ...] | None = None
    ready: list[Formula] = field(default_factory=list)

    def specialise(self, values: Values) -> list[Formula]:
        """The formulas for the extents of this run."""
        names = sorted(values)
        key = tuple(values[name] for name in names)
        if self.key != key:
            self.ready = [prepare(specialise(item, values) if names else item) for item in self.formulas]
            self.key = key
        return self.ready


class Operators:
    """Runs operations of one model; what does not depend on the numbers is done once."""

    def __init__(self, library: Library, storage: Storage, limits: Limits) -> None:
        self._library = library
        self.storage = storage
        self._limits = limits
        self._prepared: dict[object, Prepared] = {}
        self._seen: dict[int, tuple[Operation, Prepared]] = {}
        """Operations by identity, which is cheaper to find than what they share; each is held, so that it stays one."""
        self._settled: dict[int, tuple[Operation, Values, Operation]] = {}
        """Operations that give packs of open lengths, with what they became in the last run."""

    def prepare(self, operation: Operation) -> Prepared:
        """The operation bound to its definition; operations that differ in names alone share it."""
        seen = self._seen.get(id(operation))
        if seen is not None:
            return seen[1]
        key = signature(operation)
        if key not in self._prepared:
            instance = bind_operation(self._library, operation)
            # How many formulas a pack of open length has, only the run tells: they are written once it does.
            waits = any(isinstance(item, Pack) for item in operation.outputs)
            self._prepared[key] = Prepared(instance, () if waits else contractions(instance))
        self._seen[id(operation)] = operation, self._prepared[key]
        return self._prepared[key]

    def run(
        self, operation: Operation, inputs: Sequence[Held], values: Values, random: np.random.Generator
    ) -> list[Held] | None:
        """The outputs of an operation in their stored types; None for one that only its components can run."""
        used = used_values(operation, values)
        if any(isinstance(item, Pack) for item in operation.outputs):
            operation = self._settle(operation, used)
        found = self.prepare(operation)
        self._test(operation, found.instance, inputs, used)
        kind = found.instance.definition.operator.kind
        if kind == "lower":
            return self.run_formulas(operation, found, inputs, used)
        return None if kind == "compose" else self._run_intrinsic(found.instance, inputs, used, random)

    def _settle(self, operation: Operation, values: Values) -> Operation:
        """An operation that gives a pack, with the extents of this run: by now its length is known."""
        seen = self._settled.get(id(operation))
        if seen is None or seen[1] != values:
            change = extent_substitution(values)
            renewal = Substitution(lambda item: replace(item, shape=tuple(map(change, item.shape))), change)
            found = renewal.node(operation)
            if seen is not None:
                self._seen.pop(id(seen[2]), None)
            seen = operation, values, found if isinstance(found, Operation) else operation
            self._settled[id(operation)] = seen
        return seen[2]

    def _run_intrinsic(
        self, instance: Instance, inputs: Sequence[Held], values: Values, random: np.random.Generator
    ) -> list[Held]:
        intrinsic = INTRINSICS.get(instance.definition.name)
        if intrinsic is None:
            raise Fault(NO_MEANING, reason="it has no formula and is composed of nothing")
        real = self.storage.real(dtypes_of(inputs))
        attributes = {name: _known_value(value, values) for name, value in instance.attributes}
        stored = [self.storage.dtype(item.element) for item in instance.outputs]
        dtypes = tuple(computing_type(item, real) for item in stored)
        results = intrinsic(tuple(_widen(item, real) for item in inputs), attributes, dtypes, random)
        pairs = zip(results, instance.outputs, strict=True)
        return [self.storage.store(np.asarray(result), item.element) for result, item in pairs]

    # --- formulas -------------------------------------------------------------------------------------------

    def run_formulas(
        self, operation: Operation, found: Prepared, inputs: Sequence[Held], values: Values
    ) -> list[Held]:
        """The outputs of an operation that has formulas."""
        instance, formulas = found.instance, found.specialise(values)
        held = self.tensors(instance, inputs, values)
        stored = [self.storage.dtype(item.element) for item in instance.outputs]
        real = self.storage.real([*dtypes_of(inputs), *stored])
        for declared in instance.outputs:
            held[declared.name] = self.allocate(declared, formulas, real, values)
        started: set[tuple[str, int | None]] = set()
        elements = {item.name: item.element for item in instance.outputs}
        for formula in formulas:
            _start(formula, held, elements, started)
            run_formula(formula, held, real, self._limits)
        return [self.finish(held[item.name], item) for item in instance.outputs]

    def tensors(self, instance: Instance, inputs: Sequence[Held], values: Values) -> Tensors:
        """The inputs and constants of a call by the names that its operator gives them."""
        held: Tensors = {
            name: value for (name, _), value in zip(instance.inputs, inputs, strict=True) if value is not None
        }
        for declared, value in instance.constants:
            held[declared.name] = self._constant(declared, value, values)
        return held

    def _constant(
        self, declared: Declared, value: Single | tuple[Single, ...], values: Values
    ) -> Array | tuple[Array, ...]:
        element, fill = declared.element, self.storage.constant
        known = value if isinstance(value, tuple) else (value,)
        singles = [known_single(item, values) for item in known]
        if declared.items is None:
            shape = known_shape(declared.shape or (), values)
            return fill(element, shape, singles if isinstance(value, tuple) else singles[0])
        several = singles if isinstance(value, tuple) else singles * len(declared.items)
        pairs = zip(declared.items, several, strict=True)
        return tuple(fill(element, known_shape(shape, values), item) for shape, item in pairs)

    def allocate(
        self, declared: Declared, formulas: Sequence[Formula], real: Real, values: Values
    ) -> Array | tuple[Array, ...]:
        """Room for an output: in the computed type where it is accumulated or saturates: rounded once."""
        if declared.size is not None:
            known_extent(declared.size, values)  # a length that nothing in this run tells is refused here
        dtype = self.storage.dtype(declared.element)
        signs = {item.sign for item in formulas if any(part.tensor == declared.name for part in item.targets)}
        if not signs <= set(ASSIGNMENTS) or (declared.element.is_float and declared.element.bits <= 8):
            dtype = computing_type(dtype, real)
        shapes = declared.items if declared.items is not None else (declared.shape or (),)
        found = tuple(self.storage.allocate(_open_shape(shape, values), dtype) for shape in shapes)
        return found if declared.items is not None else found[0]

    def finish(self, value: Array | tuple[Array, ...], declared: Declared) -> Held:
        """An output in its stored type."""
        if isinstance(value, tuple):
            return tuple(self.storage.store(item, declared.element) for item in value)
        return self.storage.store(value, declared.element)

    # --- assertions -----------------------------------------------------------------------------------------

    def _test(self, operation: Operation, instance: Instance, inputs: Sequence[Held], values: Values) -> None:
        """The assertions that only the run can decide."""
        for check in instance.checks:
            condition = TermSpecialiser(values).scalar(check.condition)
            if not isinstance(condition, bool):
                held = self.tensors(instance, inputs, values)
                condition = evaluate_scalar(condition, held, self.storage.real(dtypes_of(inputs)))
            if not condition:
                place = check.span if operation.origin is None else operation.origin.span or check.span
                label = Label(check.span, "this must hold")
                told = ", ".join(f"'{name}' is {value}" for name, value in sorted(values.items()))
                raise Found(
                    CHECK_FAILED.at(
                        place, labels=[label], message=check.message, values=told or "it does not hold"
                    )
                )


def _start(
    formula: Formula,
    held: Tensors,
    elements: Mapping[str, ElementType],
    started: set[tuple[str, int | None]],
) -> None:
    """Fill targets that are accumulated without an initial value with the one of the sign."""
    for target in formula.targets:
        tensor = held[target.tensor]
        items = (
            range(len(tensor)) if isinstance(tensor, tuple) and target.picked is not None else [target.item]
        )
        for item in items:
            if (target.tensor, item) not in started and formula.sign not in ASSIGNMENTS:
                array = tensor[item or 0] if isinstance(tensor, tuple) else tensor
                start, element = neutral(formula.sign, array.dtype), elements[target.tensor]
                # The extremes are those of the type that is stored, not of the wider one that is computed in.
                array[...] = _clip(start, element) if element.is_integer else start
            started.add((target.tensor, item))


def _clip(start: Array, element: ElementType) -> Array:
    """An extreme that the element type has, as a 64-bit integer."""
    return start.clip(max(element.minimum, SMALLEST), min(element.maximum, LARGEST))


def _open_shape(shape: Sequence[int | Dim], values: Values) -> list[int]:
    """A shape in which extents that the formula counts are still empty."""
    return [extent if isinstance(extent := substitute(item, values), int) else 0 for item in shape]


def _widen(value: Held, real: Real) -> Held:
    if isinstance(value, tuple):
        return tuple(item.astype(computing_type(item.dtype, real), copy=False) for item in value)
    return None if value is None else value.astype(computing_type(value.dtype, real), copy=False)


def _known_value(value: Value, values: Values) -> Value:
    """An attribute in this run."""
    if isinstance(value, tuple):
        return tuple(known_single(item, values) for item in value)
    if isinstance(value, Repeated):
        return (known_single(singles(value)[0], values),) * known_extent(value.length, values)
    return None if value is None else known_single(value, values)


def dtypes_of(inputs: Sequence[Held]) -> list[np.dtype[np.generic]]:
    """The types of the arrays of a call."""
    return [
        item.dtype
        for value in inputs
        if value is not None
        for item in (value if isinstance(value, tuple) else (value,))
    ]


def used_values(operation: Operation, values: Values) -> Values:
    """The extents that the tensors and attributes of an operation speak of."""
    if not values:
        return values
    found: dict[str, int] = {}
    for argument in (*operation.inputs, *operation.outputs):
        items: Sequence[Tensor | Pack] = [argument] if isinstance(argument, Pack) else tensors(argument)
        for item in items:
            sizes = (*item.shape, item.size) if isinstance(item, Pack) else item.shape
            found |= _values_in(sizes, values)
    for _, value in operation.attributes:
        found |= _values_in(singles(value), values)
    return found


def _values_in(items: Sequence[Single | None], values: Values) -> dict[str, int]:
    found = (item for item in items if isinstance(item, Dim | Test | Logic))
    names = {part.name for item in found for part in symbols(item)}
    return {name: values[name] for name in names if name in values}
