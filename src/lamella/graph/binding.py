"""Operations of a graph bound to the definitions of their operators."""

from __future__ import annotations

from lamella.graph.nodes import Argument, Graph, Operation, Pack, Tensor, tensors, walk
from lamella.lang.skriptnd.rules.graphs import NO_MEANING
from lamella.ops.fault import Fault
from lamella.ops.instance import Instance
from lamella.ops.instantiate import instantiate
from lamella.ops.library import Library
from lamella.ops.memo import exact


def bind_operation(library: Library, operation: Operation) -> Instance:
    """The call that an operation is, every symbol of its definition known."""
    definition = library.find(operation.operator)
    if definition is None:
        raise Fault(NO_MEANING, reason="there is no such operator")
    return instantiate(
        library,
        definition,
        list(operation.inputs),
        dict(operation.attributes),
        dict(operation.types),
        [_result_name(item) for item in operation.outputs],
    )


def _result_name(argument: Argument) -> str:
    if isinstance(argument, Pack):
        return argument.name
    found = tensors(argument)
    if not found:
        return ""
    return found[0].name if isinstance(argument, Tensor) else found[0].name.rpartition(":")[0]


def quantizer_of(tensor: Tensor) -> Operation | None:
    """The operation that quantises a tensor as it is produced; None where nothing says that it is."""
    if tensor.quantization is None:
        return None
    given = Tensor(tensor.name, tensor.element, tensor.shape)
    result = Tensor(f"{tensor.name} quantised", tensor.element, tensor.shape)
    name, attributes = tensor.quantization.operator, tensor.quantization.attributes
    return Operation(name, (given,), (result,), attributes, origin=tensor.origin)


def describes_quantization(graph: Graph) -> bool:
    """Whether a tensor of the graph says how it is quantised."""
    results = (item for node in walk(graph.nodes) for argument in node.outputs for item in tensors(argument))
    inputs = (item for argument in graph.inputs for item in tensors(argument))
    return any(item.quantization is not None for item in (*inputs, *graph.variables, *results))


def signature(operation: Operation) -> object:
    """What tells operations apart, names of tensors aside."""
    sides = (tuple(_shape_of(item) for item in side) for side in (operation.inputs, operation.outputs))
    attributes = tuple((name, exact(value)) for name, value in operation.attributes)
    return operation.operator, attributes, operation.types, *sides


def _shape_of(argument: Argument) -> object:
    if isinstance(argument, tuple):
        return tuple((item.element, item.shape) for item in argument)
    if isinstance(argument, Pack):
        return argument.element, argument.shape, argument.size
    return None if argument is None else (argument.element, argument.shape)
