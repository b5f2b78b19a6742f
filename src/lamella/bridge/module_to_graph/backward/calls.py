"""The gradients of one call: the backward that its primitive declares, and those of views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Extent
from lamella.bridge.module_to_graph.backward.nodes import Called, flat
from lamella.bridge.module_to_graph.backward.recorder import IDENTITY, SCALED, Recorder
from lamella.bridge.module_to_graph.calls.primitives import ports
from lamella.bridge.module_to_graph.frames import graph_name
from lamella.bridge.module_to_graph.road import Place
from lamella.graph.build import Given
from lamella.graph.nodes import Argument, Tensor, Value
from lamella.lang.module.nodes import Port, Primitive, SequenceType, TensorType
from lamella.lang.module.rules import gradients

Taken = Callable[[Tensor], "Tensor | None"]
"""The gradient of a result, None where nothing reads it."""
Contribution = tuple[Tensor, Tensor]
"""A tensor, and something to add to its gradient."""


def pull(call: Called, taken: Taken, road: Recorder) -> Iterator[Contribution]:
    """What a call adds to the gradients of its operands."""
    primitive = call.place.primitive
    if primitive is not None:
        return _pull_primitive(call, primitive, taken, road)
    rule = VIEWS.get(call.operator)
    gradient = taken(next(call.tensors()))
    return iter(()) if rule is None or gradient is None else rule(call, gradient, road)


# --- primitives -------------------------------------------------------------------------------------------------


def unserved(call: Called) -> Iterator[Tensor]:
    """The operands that no gradient comes back to, though their primitive computes with them."""
    primitive = call.place.primitive
    if primitive is None:
        return
    served = {(port.name or "").removeprefix("d_") for port in gradient_ports(primitive)}
    for port, value in zip(ports(primitive), call.inputs, strict=False):
        free = is_optional(port) and port.name != "C"
        if port.name not in served and not (free and served):
            yield from flat((value,))


def gradient_ports(primitive: Primitive) -> tuple[Port, ...]:
    """What the backward of a primitive gives."""
    return (primitive.backward.outputs or ()) if primitive.backward is not None else ()


def saved_ports(primitive: Primitive) -> tuple[Port, ...]:
    """What the backward of a primitive takes."""
    return (primitive.backward.inputs or ()) if primitive.backward is not None else ()


def is_optional(port: Port) -> bool:
    """Whether an input may be left out."""
    return isinstance(port.type, TensorType) and port.type.optional


def named_values(call: Called, primitive: Primitive) -> dict[str, Given]:
    """The operands and results of a call by the names that its primitive gives them."""
    forward = primitive.forward
    outputs = (forward.outputs or ()) if forward is not None else ()
    found: dict[str, Given] = {}
    for port, result in zip(outputs, call.results, strict=False):
        found[port.name or "out"] = result
    for port, value in zip(ports(primitive), call.inputs, strict=False):
        found[port.name or "in"] = value
    return found


def _pull_primitive(
    call: Called, primitive: Primitive, taken: Taken, road: Recorder
) -> Iterator[Contribution]:
    operator = primitive.operator("backward")
    values = named_values(call, primitive)
    if operator is None:
        return
    place = Place(f"{primitive.name}_backward", call.place.span, call.place.origin)
    inputs = [_operand(port, primitive, values, taken, road, place) for port in saved_ports(primitive)]
    names = [f"{_stem(call)}.{port.name}" for port in gradient_ports(primitive)]
    found = road.call(operator, inputs, attributes_of(operator, call.attributes, road), names, place)
    for port, given in zip(gradient_ports(primitive), found, strict=False):
        operand = values.get((port.name or "").removeprefix("d_"))
        yield from zip(flat((operand,)), flat((given,)), strict=False)


def _stem(call: Called) -> str:
    """What the results of a backward call are called after."""
    origin = call.place.origin
    return graph_name(origin.what) if origin is not None else call.place.name


def _operand(
    port: Port,
    primitive: Primitive,
    values: Mapping[str, Given],
    taken: Taken,
    road: Recorder,
    place: Place,
) -> Given:
    """What a backward takes under a name: the gradient of a result, or a tensor of the forward graph."""
    name = port.name or ""
    if name in values:
        return values[name]
    result = values.get(name.removeprefix("d_"))
    if isinstance(result, Tensor):
        gradient = taken(result)
        return gradient if gradient is not None or is_optional(port) else road.zeros_like(result, place)
    if isinstance(port.type, SequenceType) and isinstance(result, tuple):
        return tuple(taken(item) or road.zeros_like(item, place) for item in result)
    return None


def attributes_of(operator: str, attributes: Mapping[str, Value], road: Recorder) -> dict[str, Value]:
    """Those of the attributes that an operator has too."""
    definition = road.settings.library.find(operator)
    if definition is None:
        raise LookupError(operator)
    own = {item.name for item in definition.operator.parameters("attrib")}
    return {name: value for name, value in attributes.items() if name in own}


# --- views and casts --------------------------------------------------------------------------------------------

Rule = Callable[[Called, Tensor, Recorder], Iterator[Contribution]]


def _one(
    road: Recorder, operator: str, gradient: Tensor, attributes: Mapping[str, Value], call: Called
) -> Tensor:
    """The one result of an operator of a backward graph."""
    place = Place(operator, call.place.span, call.place.origin)
    return next(flat(road.call(operator, (gradient,), attributes, (f"{_stem(call)}.d_view",), place)))


def _pass(call: Called, gradient: Tensor, road: Recorder) -> Iterator[Contribution]:
    yield next(call.operands()), gradient


def _uncast(call: Called, gradient: Tensor, road: Recorder) -> Iterator[Contribution]:
    source = next(call.operands())
    yield source, road.cast(gradient, source.element, call.place.origin)


def _unslice(call: Called, gradient: Tensor, road: Recorder) -> Iterator[Contribution]:
    """Zeros around the gradient of a part."""
    source = next(call.operands())
    axes, begins, ends = (_extents(call.attributes.get(name)) for name in ("axes", "begin", "end"))
    after = [dim.sub(source.shape[int(str(axis))], end) for axis, end in zip(axes, ends, strict=True)]
    attributes: dict[str, Value] = {"axes": axes, "padding": (*begins, *after)}
    yield source, _one(road, "layout.pad", gradient, attributes, call)


def _extents(value: Value) -> tuple[Extent, ...]:
    items = value if isinstance(value, tuple) else (value,)
    return tuple(item for item in items if isinstance(item, int | dim.Dim))


def _unsqueeze(call: Called, gradient: Tensor, road: Recorder) -> Iterator[Contribution]:
    attributes = {"axes": call.attributes.get("axes")}
    yield next(call.operands()), _one(road, "layout.unsqueeze", gradient, attributes, call)


def _unstack(call: Called, gradient: Tensor, road: Recorder) -> Iterator[Contribution]:
    place = Place("unstack", call.place.span, call.place.origin)
    found: tuple[Argument, ...] = road.call(
        "layout.unstack", (gradient,), {"axis": 0}, (f"{_stem(call)}.d_parts",), place
    )
    yield from zip(call.operands(), flat(found), strict=True)


def _rescale(call: Called, gradient: Tensor, road: Recorder) -> Iterator[Contribution]:
    attributes = {"factor": call.attributes.get("factor")}
    yield next(call.operands()), _one(road, "llm.scale", gradient, attributes, call)


VIEWS: Mapping[str, Rule] = MappingProxyType(
    {
        IDENTITY: _pass,
        "layout.cast": _uncast,
        "layout.slice": _unslice,
        "layout.squeeze": _unsqueeze,
        "layout.stack": _unstack,
        SCALED: _rescale,
    }
)
"""What goes back through the operators that statements call without naming a primitive."""


def refuse(call: Called, operand: Tensor) -> Diagnostic:
    """A gradient that would have to go through a call that has none."""
    return gradients.NO_BACKWARD.at(call.place.span, operation=call.place.name, name=operand.name)
