"""A module called by its name with tensors: its parameters are those tensors, its values follow from their shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound
from lamella.bridge.module_to_graph.road import Road
from lamella.bridge.module_to_graph.values import is_data, value_of
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.build import instantiate
from lamella.lang.module.instantiate.evaluate import Problem, evaluate
from lamella.lang.module.instantiate.nodes import Instance, Known
from lamella.lang.module.nodes import Argument, Module, Name, Operation, Param, TensorType
from lamella.lang.module.resolve.nodes import Declared
from lamella.lang.module.rules import constants, names


def bind_parameters(
    declared: Declared, operation: Operation, frame: Frame, road: Road
) -> tuple[Instance, Mapping[str, Bound]]:
    """The instance that a call means, and the tensors that are its parameters."""
    module = declared.declaration
    if not isinstance(module, Module):
        raise TypeError("only modules are called with parameters")
    params = [item for item in module.tensors if isinstance(item.type, TensorType)]
    given, config = _arguments(module, params, operation, frame, road)
    for param in params:
        value = given.get(param.path.parts[0].name)
        if isinstance(value, Tensor) and isinstance(param.type, TensorType):
            _learn(param.type, value, config, param)
    _switch(module, params, given, config)
    found = instantiate(declared, config, frame.instance.scope.of(declared))
    for finding in found.findings:
        road.report(finding, frame.origin)
    if found.instance is None:
        what = f"'{declared.name}'"
        finding = constants.KIND.at(
            operation.span, what=what, found="not complete", wanted="all its values", repair=""
        )
        raise Problem(finding)
    return found.instance, given


def _arguments(
    module: Module, params: Sequence[Param], operation: Operation, frame: Frame, road: Road
) -> tuple[dict[str, Bound], dict[str, Known]]:
    """Tensors by the parameter they are for, and constants by theirs."""
    given: dict[str, Bound] = {}
    config: dict[str, Known] = {}
    order = [item.path.parts[0].name for item in params]
    heads = [item.name for item in module.params or ()]
    for argument in operation.arguments:
        if is_data(argument.value, frame) and (argument.name is None or argument.name in order):
            name = argument.name or next((item for item in order if item not in given), None)
            if name is None:
                raise _unknown(module, argument)
            given[name] = value_of(argument.value, frame, road)
        elif argument.name in heads:
            config[argument.name or ""] = Known(
                evaluate(argument.value, frame.known), "argument", argument.span
            )
        else:
            raise _fresh_weights(module, argument) if argument.name is None else _unknown(module, argument)
    return given, config


def _unknown(module: Module, argument: Argument) -> Problem:
    name = argument.name or argument.value.span.text
    return Problem(names.UNKNOWN_ARGUMENT.at(argument.span, module=module.name, name=name, repair=""))


def _fresh_weights(module: Module, argument: Argument) -> Problem:
    """Constants alone would make an instance with weights that nothing declares."""
    repair = f"declare it in params: as name: {module.name}(…), and call it by that name"
    what, found = f"the argument of '{module.name}'", "a constant"
    return Problem(
        constants.KIND.at(argument.span, what=what, found=found, wanted="one of its tensors", repair=repair)
    )


def _learn(type: TensorType, tensor: Tensor, config: dict[str, Known], param: Param) -> None:
    """Values that the shape of a given parameter tells."""
    if len(type.dims) != len(tensor.shape):
        return
    for item, extent in zip(type.dims, tensor.shape, strict=True):
        if isinstance(item, Name) and item.id not in config and isinstance(extent, int):
            config[item.id] = Known(extent, f"the shape of '{param.path.parts[0].name}'", item.span)


def _switch(
    module: Module, params: Sequence[Param], given: Mapping[str, Bound], config: dict[str, Known]
) -> None:
    """Flags that say whether a parameter exists are true where it is given."""
    heads = {item.name for item in module.params or ()}
    for name in list(config):
        if name not in heads:
            del config[name]
    for param in params:
        if isinstance(param.condition, Name) and param.condition.id in heads:
            value = given.get(param.path.parts[0].name) is not None
            config.setdefault(param.condition.id, Known(value, "the tensors given", param.span))
