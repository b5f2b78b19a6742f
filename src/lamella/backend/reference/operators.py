"""Runs one operation: by its formulas, by its NumPy meaning where it has none, or by what it is composed of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

import numpy as np

from lamella.backend.formula.contract import evaluate_scalar, run_formula
from lamella.backend.formula.evaluate import Tensors
from lamella.backend.formula.expression_dag import PreparedFormula, prepare
from lamella.backend.formula.lower import FormulaSet, output_type
from lamella.backend.formula.program import FormulaProgram, compile_formulas
from lamella.backend.formula.scalars import Real, computing_type
from lamella.backend.formula.storage import Storage, TensorValue, known_extent, known_shape, known_single
from lamella.backend.formula.store import ASSIGNMENTS, neutral_of
from lamella.backend.reference.intrinsics import INTRINSICS
from lamella.base.arrays import Array
from lamella.base.diagnostic import Label
from lamella.base.dim import Dim, Logic, Test, substitute, symbols
from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.base.limits import Limits
from lamella.base.placement import OperationPlacement
from lamella.base.records import dataclass
from lamella.graph.binding import bind_operation, signature
from lamella.graph.nodes import Constant, Node, Operation, Pack, Tensor, tensors
from lamella.graph.rewrite import Substitution, extent_substitution
from lamella.lang.skriptnd.rules.graphs import CHECK_FAILED, NO_MEANING
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction
from lamella.ops.instance import Declared, Instance, Repeated, Single, Value, singles
from lamella.ops.library import Library
from lamella.ops.lower import contractions
from lamella.ops.specialise import TermSpecialiser, specialise

Values: TypeAlias = Mapping[str, int]


@dataclass(slots=True)
class BoundOperation:
    """A bound operation with its formulas, and those of the last extents it ran with."""

    instance: Instance
    formulas: tuple[Contraction, ...]
    key: tuple[int, ...] | None = None
    ready: list[PreparedFormula] = field(default_factory=list)
    compiled: tuple[object, FormulaProgram | None] | None = None
    """The program of the last extents and types, which it stands with."""

    def specialise(self, values: Values) -> list[PreparedFormula]:
        """The formulas for the extents of this run."""
        names = sorted(values)
        key = tuple(values[name] for name in names)
        if self.key != key:
            self.ready = [prepare(specialise(item, values) if names else item) for item in self.formulas]
            self.key = key
        return self.ready


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A bound operation whose assertions hold in this run, with the extents that it speaks of."""

    operation: Operation
    bound: BoundOperation
    values: Values

    @property
    def kind(self) -> str:
        """`lower` where it has formulas, `compose` where only its components can run it."""
        return self.bound.instance.definition.operator.kind


class FormulaRunner:
    """Runs operations of one model by their formulas; what does not depend on the numbers is done once."""

    def __init__(self, library: Library, storage: Storage, limits: Limits) -> None:
        self.library = library
        self.storage = storage
        self._limits = limits
        self._prepared: dict[object, BoundOperation] = {}
        self._seen: dict[int, tuple[Operation, BoundOperation]] = {}
        """Operations by identity, which is cheaper to find than what they share; each is held, so that it stays one."""
        self._settled: dict[int, tuple[Operation, Values, Operation]] = {}
        """Operations that give packs of open lengths, with what they became in the last run."""

    def prepare(self, operation: Operation) -> BoundOperation:
        """The operation bound to its definition; operations that differ in names alone share it."""
        seen = self._seen.get(id(operation))
        if seen is not None:
            return seen[1]
        key = signature(operation)
        if key not in self._prepared:
            instance = bind_operation(self.library, operation)
            # How many formulas a pack of open length has, only the run tells: they are written once it does.
            waits = any(isinstance(item, Pack) for item in operation.outputs)
            self._prepared[key] = BoundOperation(instance, () if waits else contractions(instance))
        self._seen[id(operation)] = operation, self._prepared[key]
        return self._prepared[key]

    def begin(self, extents: Values) -> None:
        """Nothing here depends on the extents of the inputs before an operation reads them."""

    def placement(self) -> list[OperationPlacement]:
        """Nothing: all operations run here."""
        return []

    def constants_of(self, nodes: Sequence[Node]) -> Sequence[Constant]:
        """The constants that what stands in place of some nodes reads beside those of the graph."""
        return ()

    def cut(self, nodes: Sequence[Node], kept: Collection[str]) -> Sequence[Node]:
        """The nodes as they are: each runs by itself."""
        return nodes

    def formulas_of(self, operation: Operation) -> tuple[Instance, Sequence[Contraction]]:
        """An operation bound to its definition, with its formulas."""
        bound = self.prepare(operation)
        return bound.instance, bound.formulas

    def run(
        self,
        operation: Operation,
        inputs: Sequence[TensorValue],
        values: Values,
        random: np.random.Generator,
    ) -> list[TensorValue] | None:
        """The outputs of an operation in their stored types; None for one that only its components can run."""
        return self.run_checked(self.check(operation, inputs, values), inputs, random)

    def check(self, operation: Operation, inputs: Sequence[TensorValue], values: Values) -> CheckedCall:
        """Bind an operation in this run and test its assertions."""
        used = used_values(operation, values)
        if any(isinstance(item, Pack) for item in operation.outputs):
            operation = self._settle(operation, used)
        bound = self.prepare(operation)
        # Assertions come first: formulas and kernels may take them for granted.
        self._test(operation, bound.instance, inputs, used)
        return CheckedCall(operation, bound, used)

    def run_checked(
        self, call: CheckedCall, inputs: Sequence[TensorValue], random: np.random.Generator
    ) -> list[TensorValue] | None:
        """The outputs of a call; None where only its components can run it."""
        if call.kind == "lower":
            return self.run_formulas(call, inputs)
        if call.kind == "compose":
            return None
        return self._run_intrinsic(call.bound.instance, inputs, call.values, random)

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
        self, instance: Instance, inputs: Sequence[TensorValue], values: Values, random: np.random.Generator
    ) -> list[TensorValue]:
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

    def run_formulas(self, call: CheckedCall, inputs: Sequence[TensorValue]) -> list[TensorValue]:
        """The outputs of an operation that has formulas."""
        arrays = [item for value in inputs for item in _items(value)]
        program = self._compile(call, inputs, arrays)
        results = None
        if program is not None:
            with np.errstate(all="ignore"):
                results = program.run(arrays)
        return (
            self._evaluate(call, inputs) if results is None else list(_grouped(call.bound.instance, results))
        )

    def _compile(
        self, call: CheckedCall, inputs: Sequence[TensorValue], arrays: Sequence[Array]
    ) -> FormulaProgram | None:
        """The program of a call; that of the last extents and types is kept, and None where there is none."""
        bound, instance, values = call.bound, call.bound.instance, call.values
        formulas = bound.specialise(values)
        key = bound.key, tuple((item.shape, item.dtype) for item in arrays)
        if bound.compiled is None or bound.compiled[0] != key:
            stored = [self.storage.dtype(item.element) for item in instance.outputs]
            real = self.storage.real([*dtypes_of(inputs), *stored])
            operation = FormulaSet(formulas, instance.outputs, self.storage, real, values)
            given = zip(instance.inputs, inputs, strict=True)
            named = {name: value for (name, _), value in given if value is not None}
            constants = self.tensors(instance, [None] * len(inputs), values)
            bound.compiled = key, compile_formulas(operation, named, constants)
        return bound.compiled[1]

    def _evaluate(self, call: CheckedCall, inputs: Sequence[TensorValue]) -> list[TensorValue]:
        """The outputs of formulas that no program expresses: guards, conditions and counters decide what runs."""
        instance, values = call.bound.instance, call.values
        formulas = call.bound.specialise(values)
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

    def tensors(self, instance: Instance, inputs: Sequence[TensorValue], values: Values) -> Tensors:
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
        self, declared: Declared, formulas: Sequence[PreparedFormula], real: Real, values: Values
    ) -> Array | tuple[Array, ...]:
        """Room for an output: in the computed type where it is accumulated or saturates: rounded once."""
        if declared.size is not None:
            known_extent(declared.size, values)  # a length that nothing in this run tells is refused here
        stored = self.storage.dtype(declared.element)
        signs = {item.sign for item in formulas if any(part.tensor == declared.name for part in item.targets)}
        dtype = output_type(declared.element, stored, signs, real)
        shapes = declared.items if declared.items is not None else (declared.shape or (),)
        found = tuple(self.storage.allocate(_open_shape(shape, values), dtype) for shape in shapes)
        return found if declared.items is not None else found[0]

    def finish(self, value: Array | tuple[Array, ...], declared: Declared) -> TensorValue:
        """An output in its stored type."""
        if isinstance(value, tuple):
            return tuple(self.storage.store(item, declared.element) for item in value)
        return self.storage.store(value, declared.element)

    # --- assertions -----------------------------------------------------------------------------------------

    def _test(
        self, operation: Operation, instance: Instance, inputs: Sequence[TensorValue], values: Values
    ) -> None:
        """The assertions that only the run can decide."""
        for check in instance.checks:
            condition = TermSpecialiser(values).scalar(check.condition)
            if not isinstance(condition, bool):
                held = self.tensors(instance, inputs, values)
                condition = evaluate_scalar(condition, held, self.storage.real(dtypes_of(inputs)))
            if not condition:
                place = check.span if operation.origin is None else operation.origin.span or check.span
                label = Label(check.span, "this must hold")
                known = ", ".join(f"'{name}' is {value}" for name, value in sorted(values.items()))
                raise Found(
                    CHECK_FAILED.at(
                        place, labels=[label], message=check.message, values=known or "it does not hold"
                    )
                )


def _start(
    formula: PreparedFormula,
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
                array[...] = neutral_of(formula.sign, array.dtype, elements[target.tensor])
            started.add((target.tensor, item))


def _open_shape(shape: Sequence[int | Dim], values: Values) -> list[int]:
    """A shape in which extents that the formula counts are still empty."""
    return [extent if isinstance(extent := substitute(item, values), int) else 0 for item in shape]


def _items(value: TensorValue) -> tuple[Array, ...]:
    """The arrays of an argument."""
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def _grouped(instance: Instance, arrays: Sequence[Array]) -> Iterator[TensorValue]:
    """The arrays of all outputs, those of a pack as one."""
    first = 0
    for declared in instance.outputs:
        count = 1 if declared.items is None else len(declared.items)
        items = tuple(arrays[first : first + count])
        yield items[0] if declared.items is None else items
        first += count


def _widen(value: TensorValue, real: Real) -> TensorValue:
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


def dtypes_of(inputs: Sequence[TensorValue]) -> list[np.dtype[np.generic]]:
    """The types of the arrays of a call."""
    return [item.dtype for value in inputs for item in _items(value)]


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
