"""Reverse-mode autodiff: accumulates adjoints from the last call of a tape to the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Extent
from lamella.bridge.module_to_graph.backward.tape import (
    ADJOINT,
    CLIPPED,
    IDENTITY,
    ROUNDED,
    SCALED,
    RecordedCall,
    Tape,
    Visit,
    flat,
    gradient_ports,
    is_optional,
    named_values,
    saved_ports,
)
from lamella.bridge.module_to_graph.calls import ports
from lamella.bridge.module_to_graph.lowering import CallSite
from lamella.bridge.module_to_graph.nodes import Bound, graph_name
from lamella.graph.build import Given
from lamella.graph.nodes import Argument, Tensor, Value
from lamella.lang.module.nodes import Port, Primitive, SequenceType
from lamella.lang.module.rules import gradients
from lamella.ops.gradient import gradient_name
from lamella.ops.library import Library

# --- pullbacks of one call ----------------------------------------------------------------------------------


Taken = Callable[[Tensor], "Tensor | None"]
"""The gradient of a result, None where nothing reads it."""
Contribution = tuple[Tensor, Tensor]
"""A tensor, and something to add to its gradient."""


def _pull_back(call: RecordedCall, taken: Taken, tape: Tape) -> Iterator[Contribution]:
    """The pullback of a call: what it adds to the adjoints of its operands."""
    primitive = call.place.primitive
    if primitive is not None:
        return _pull_primitive(call, primitive, taken, tape)
    rule = VIEWS.get(call.operator)
    gradient = taken(next(call.tensors()))
    return iter(()) if rule is None or gradient is None else rule(call, gradient, tape)


# --- primitives -------------------------------------------------------------------------------------------------


def _is_derivable(call: RecordedCall, library: Library) -> bool:
    """Whether the gradient of every real operand follows from formulas."""
    definition = library.find(call.operator)
    if definition is None:
        return False
    names = [item.name for item in definition.operator.parameters("input")]
    real = [name for name, value in zip(names, call.inputs, strict=False) if _is_real(value)]
    return all(library.find(gradient_name(call.operator, name)) is not None for name in real)


def _unserved(call: RecordedCall, library: Library) -> Iterator[Tensor]:
    """The operands that get no adjoint, though their primitive computes with them."""
    primitive = call.place.primitive
    if primitive is None:
        return
    if primitive.operator("backward") is None and _is_derivable(call, library):
        return
    served = {(port.name or "").removeprefix("d_") for port in gradient_ports(primitive)}
    for port, value in zip(ports(primitive), call.inputs, strict=False):
        # Optional operands (masks, positions) need none; C of a GEMM is a summand, so it does.
        free = is_optional(port) and port.name != "C"
        if port.name not in served and not (free and served):
            yield from flat((value,))


def _pull_primitive(
    call: RecordedCall, primitive: Primitive, taken: Taken, tape: Tape
) -> Iterator[Contribution]:
    operator = primitive.operator("backward")
    values = named_values(call, primitive)
    if operator is None:
        yield from _pull_derived(call, taken, tape)
        return
    place = CallSite(f"{primitive.name}_backward", call.place.span, call.place.origin)
    inputs = [_operand(port, primitive, values, taken, tape, place) for port in saved_ports(primitive)]
    names = [f"{_stem(call)}.{port.name}" for port in gradient_ports(primitive)]
    found = tape.call(operator, inputs, _attributes_of(operator, call.attributes, tape), names, place)
    for port, given in zip(gradient_ports(primitive), found, strict=False):
        operand = values.get((port.name or "").removeprefix("d_"))
        yield from zip(flat((operand,)), flat((given,)), strict=False)


def _pull_derived(call: RecordedCall, taken: Taken, tape: Tape) -> Iterator[Contribution]:
    """The pullback of a primitive that names no backward: the gradients that follow from its operator's formulas."""
    library = tape.settings.library
    definition = library.find(call.operator)
    if definition is None:
        return
    names = [item.name for item in definition.operator.parameters("input")]
    values: dict[str, Given] = dict(zip(names, call.inputs, strict=False))
    place = CallSite(f"{call.place.name}_backward", call.place.span, call.place.origin)
    for item, result in zip(definition.operator.parameters("output"), call.results, strict=False):
        values[item.name] = result
        if isinstance(result, Tensor) and result.element.is_float:
            values[f"d_{item.name}"] = taken(result) or tape.zeros_like(result, place)
    for name, operand in zip(names, call.inputs, strict=False):
        derived = library.find(gradient_name(call.operator, name)) if _is_real(operand) else None
        if derived is None or not isinstance(operand, Tensor):
            continue
        inputs = [values.get(item.name) for item in derived.operator.parameters("input")]
        attributes = _attributes_of(derived.name, call.attributes, tape)
        found = tape.call(derived.name, inputs, attributes, (f"{_stem(call)}.d_{name}",), place)
        yield operand, next(flat(found))


def _is_real(value: Given) -> bool:
    return isinstance(value, Tensor) and value.element.is_float


def _stem(call: RecordedCall) -> str:
    """What the results of a backward call are called after."""
    origin = call.place.origin
    return graph_name(origin.what) if origin is not None else call.place.name


def _operand(
    port: Port,
    primitive: Primitive,
    values: Mapping[str, Given],
    taken: Taken,
    tape: Tape,
    place: CallSite,
) -> Given:
    """What a backward takes under a name: the gradient of a result, or a tensor of the forward graph."""
    name = port.name or ""
    if name in values:
        return values[name]
    result = values.get(name.removeprefix("d_"))
    if isinstance(result, Tensor):
        gradient = taken(result)
        return gradient if gradient is not None or is_optional(port) else tape.zeros_like(result, place)
    if isinstance(port.type, SequenceType) and isinstance(result, tuple):
        return tuple(taken(item) or tape.zeros_like(item, place) for item in result)
    return None


def _attributes_of(operator: str, attributes: Mapping[str, Value], tape: Tape) -> dict[str, Value]:
    """Those of the attributes that an operator has too."""
    definition = tape.settings.library.find(operator)
    if definition is None:
        raise LookupError(operator)
    own = {item.name for item in definition.operator.parameters("attrib")}
    return {name: value for name, value in attributes.items() if name in own}


# --- views and casts --------------------------------------------------------------------------------------------

Rule = Callable[[RecordedCall, Tensor, Tape], Iterator[Contribution]]


def _one(
    tape: Tape, operator: str, gradient: Tensor, attributes: Mapping[str, Value], call: RecordedCall
) -> Tensor:
    """The one result of an operator of a backward graph."""
    place = CallSite(operator, call.place.span, call.place.origin)
    return next(flat(tape.call(operator, (gradient,), attributes, (f"{_stem(call)}.d_view",), place)))


def _pass(call: RecordedCall, gradient: Tensor, tape: Tape) -> Iterator[Contribution]:
    yield next(call.operands()), gradient


def _uncast(call: RecordedCall, gradient: Tensor, tape: Tape) -> Iterator[Contribution]:
    source = next(call.operands())
    yield source, tape.cast(gradient, source.element, call.place.origin)


def _unslice(call: RecordedCall, gradient: Tensor, tape: Tape) -> Iterator[Contribution]:
    """Zeros around the gradient of a part."""
    source = next(call.operands())
    axes, begins, ends = (_extents(call.attributes.get(name)) for name in ("axes", "begin", "end"))
    after = [dim.sub(source.shape[int(str(axis))], end) for axis, end in zip(axes, ends, strict=True)]
    attributes: dict[str, Value] = {"axes": axes, "padding": (*begins, *after)}
    yield source, _one(tape, "layout.pad", gradient, attributes, call)


def _extents(value: Value) -> tuple[Extent, ...]:
    items = value if isinstance(value, tuple) else (value,)
    return tuple(item for item in items if isinstance(item, int | dim.Dim))


def _unsqueeze(call: RecordedCall, gradient: Tensor, tape: Tape) -> Iterator[Contribution]:
    attributes = {"axes": call.attributes.get("axes")}
    yield next(call.operands()), _one(tape, "layout.unsqueeze", gradient, attributes, call)


def _unstack(call: RecordedCall, gradient: Tensor, tape: Tape) -> Iterator[Contribution]:
    place = CallSite("unstack", call.place.span, call.place.origin)
    found: tuple[Argument, ...] = tape.call(
        "layout.unstack", (gradient,), {"axis": 0}, (f"{_stem(call)}.d_parts",), place
    )
    yield from zip(call.operands(), flat(found), strict=True)


def _change(call: RecordedCall, gradient: Tensor, tape: Tape) -> Iterator[Contribution]:
    """What `@gradient` says is done to an adjoint."""
    operator = call.operator.removeprefix(ADJOINT)
    yield next(call.operands()), _one(tape, operator, gradient, call.attributes, call)


def _round(call: RecordedCall, gradient: Tensor, tape: Tape) -> Iterator[Contribution]:
    """What a recipe says is done to the adjoint of a product."""
    yield next(call.operands()), tape.changes[next(call.tensors()).name](gradient)


VIEWS: Mapping[str, Rule] = MappingProxyType(
    {
        IDENTITY: _pass,
        "layout.cast": _uncast,
        "layout.slice": _unslice,
        "layout.squeeze": _unsqueeze,
        "layout.stack": _unstack,
        f"{ADJOINT}{SCALED}": _change,
        f"{ADJOINT}{CLIPPED}": _change,
        f"{ADJOINT}{ROUNDED}": _round,
    }
)
"""Pullbacks of the operators that statements call without naming a primitive."""


def _refuse(call: RecordedCall, operand: Tensor) -> Diagnostic:
    """The finding that an adjoint would have to pass a call without a backward."""
    return gradients.NO_BACKWARD.at(call.place.span, operation=call.place.name, name=operand.name)


Explicit = Callable[[Visit, Sequence["Tensor | None"], "ReverseSweep"], None]
"""Runs the backward graph that an instance has itself, and adds what it gives."""
NARROW = 8
"""Gradients of tensors with elements of at most this many bits stay as wide as they come."""


class RequiresGradient:
    """The tensors that need adjoints: those that depend on a trainable parameter or on an input."""

    def __init__(self, parameters: Iterable[str], inputs: Iterable[str]) -> None:
        self.trained = set(parameters)
        """What depends on a trainable parameter."""
        self.all = self.trained | set(inputs)

    def follow(self, calls: Iterable[RecordedCall]) -> None:
        """Propagate forward through calls: what reads a marked tensor gives marked ones."""
        for call in calls:
            operands = {item.name for item in call.operands()}
            for marked in (self.trained, self.all):
                if operands & marked:
                    marked.update(item.name for item in call.tensors() if item.element.is_float)


class ReverseSweep:
    """One reverse sweep over a tape; parameters accumulate over all sweeps, other tensors within one."""

    def __init__(
        self, tape: Tape, wanted: RequiresGradient, explicit: Explicit, parameters: dict[str, list[Tensor]]
    ) -> None:
        self.tape, self.wanted, self.explicit = tape, wanted, explicit
        self.parameters = parameters
        self._local: dict[str, list[Tensor]] = {}

    def again(self) -> ReverseSweep:
        """Another sweep that accumulates into the same parameters."""
        return ReverseSweep(self.tape, self.wanted, self.explicit, self.parameters)

    def add(self, tensor: Bound, gradient: Bound) -> None:
        """Accumulate into the adjoint of a tensor that needs one."""
        if not isinstance(tensor, Tensor) or not isinstance(gradient, Tensor):
            return
        if tensor.name in self.wanted.all:
            # Parameters are shared between instances, whose sweeps may be separate; all else belongs to one.
            sums = self.parameters if self.tape.is_parameter(tensor) else self._local
            if tensor.element.bits > NARROW:
                gradient = self.tape.cast(gradient, tensor.element, None)
            self.tape.mark_gradients(gradient)
            sums.setdefault(tensor.name, []).append(gradient)

    def seed(self, tensor: Bound, gradient: Tensor) -> None:
        """Start with the adjoint of an output."""
        if isinstance(tensor, Tensor):
            self.tape.mark_gradients(gradient)
            self._local.setdefault(tensor.name, []).append(gradient)

    def take(self, tensor: Tensor) -> Tensor | None:
        """The adjoint of a tensor, which is spent by asking."""
        sums = self.parameters if self.tape.is_parameter(tensor) else self._local
        found = self.total(sums.pop(tensor.name, []), tensor.name)
        if found is not None:
            found = self.tape.set_apart(found)
            self.tape.adjoints[tensor.name] = found
        return found

    def total(self, parts: Sequence[Tensor], name: str) -> Tensor | None:
        """The sum of gradients; None where there is none."""
        found: Tensor | None = None
        root = self.tape.root
        for part in parts:
            if found is None or root is None:
                found = part
                continue
            place = CallSite("add", root.forward.span, None)
            found = next(flat(self.tape.call("math.add", (found, part), {}, (f"{name}.d_sum",), place)))
        return found

    def run(self, visit: Visit) -> None:
        """Sweep over an instance, its last call first."""
        gradients = [self.take(item) if isinstance(item, Tensor) else None for item in visit.outputs]
        with self.tape.reading(visit.reads):
            if visit.backward is not None:
                if any(item is not None for item in gradients):
                    self.explicit(visit, gradients, self)
                return
            for output, gradient in zip(visit.outputs, gradients, strict=True):
                self.add(output, gradient)
            for step in reversed(visit.steps):
                if isinstance(step, Visit):
                    self.run(step)
                else:
                    self._pull(step, visit)

    def _pull(self, call: RecordedCall, visit: Visit) -> None:
        # All uses of a tensor follow its call on the tape, so its adjoint is complete when the sweep gets here.
        found = {item.name: self.take(item) for item in call.tensors() if item.element.is_float}
        if not any(found.values()) or not any(item.name in self.wanted.all for item in call.operands()):
            return
        visit.pulled.append(call)
        for operand in _unserved(call, self.tape.settings.library):
            if operand.name in self.wanted.trained and operand.element.is_float:
                self.tape.report(_refuse(call, operand), call.place.origin)
        for tensor, gradient in _pull_back(call, lambda item: found.get(item.name), self.tape):
            self.add(tensor, gradient)
