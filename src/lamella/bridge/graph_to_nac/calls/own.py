"""Operators of the library under their own names: which constants are numbers, which types must be written."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.dtype import ElementType
from lamella.bridge.graph_to_nac.calls.said import Input, OwnCall
from lamella.graph.build import bind
from lamella.graph.nodes import Argument, Constant, Operation, Pack, Single, Tensor, Value
from lamella.ops.instance import Fill, Instance
from lamella.ops.library import Library
from lamella.ops.problem import Problem


def say_own(library: Library, operation: Operation, constants: dict[str, Constant]) -> OwnCall:
    """The call of an operation; a constant is passed as a number where that makes the same constant again."""
    numbers = {
        place: constants[item.name]
        for place, item in enumerate(operation.inputs)
        if isinstance(item, Tensor) and item.name in constants and _is_uniform(constants[item.name])
    }
    while numbers:
        call = _call(library, operation, numbers)
        wrong = _differing(library, call, operation, numbers)
        if not wrong:
            return call
        numbers = {place: item for place, item in numbers.items() if place not in wrong}
    return _call(library, operation, numbers)


def _is_uniform(constant: Constant) -> bool:
    return not isinstance(constant.value, tuple)


def _call(library: Library, operation: Operation, numbers: dict[int, Constant]) -> OwnCall:
    definition = library.find(operation.operator)
    names = () if definition is None else tuple(i.name for i in definition.operator.parameters("input"))
    given = (*operation.inputs, *[None] * (len(names) - len(operation.inputs)))
    inputs = tuple(
        _single(numbers[place]) if place in numbers else _given(item) for place, item in enumerate(given)
    )
    attributes, types = _attributes(library, operation), _open_types(library, operation, inputs)
    return OwnCall(operation.operator, inputs, attributes, types, names)


def _single(constant: Constant) -> Single | None:
    return None if isinstance(constant.value, tuple) else constant.value


def _given(argument: Argument) -> Input:
    return None if isinstance(argument, Pack) else argument


def _attributes(library: Library, operation: Operation) -> tuple[tuple[str, Value], ...]:
    definition = library.find(operation.operator)
    given = dict(operation.attributes)
    names = [] if definition is None else [item.name for item in definition.operator.parameters("attrib")]
    return tuple((name, given.get(name)) for name in names)


def _open_types(library: Library, operation: Operation, inputs: Sequence[Input]) -> dict[str, ElementType]:
    """The generic types that no tensor tells, in the order of the definition."""
    definition = library.find(operation.operator)
    if definition is None:
        return {}
    plan, found = library.plan(definition), dict(operation.types)
    told = {
        item.type.name
        for item, value in zip(plan.inputs, inputs, strict=False)
        if isinstance(value, Tensor) or (isinstance(value, tuple) and value)
    }
    return {name: found[name] for name in plan.dtypes if name not in told and name in found}


def _differing(
    library: Library, call: OwnCall, operation: Operation, numbers: dict[int, Constant]
) -> set[int]:
    """The places at which a number would become another constant."""
    names = [f"result {place}" for place in range(len(operation.outputs))]
    try:
        instance = bind(library, call.operator, call.inputs, dict(call.attributes), call.types, names)
    except Problem:
        return set(numbers)
    return {place for place, item in numbers.items() if not _is_same(instance, place, item)}


def _is_same(instance: Instance, place: int, constant: Constant) -> bool:
    filled = instance.symbols.get(instance.inputs[place][0])
    wanted = constant.tensor
    return (
        isinstance(filled, Fill)
        and (filled.element, filled.shape) == (wanted.element, wanted.shape)
        and repr(filled.value) == repr(constant.value)
    )
