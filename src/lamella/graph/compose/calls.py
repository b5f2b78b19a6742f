"""One call of an operator: what it is bound to, and the operation it becomes when it is kept whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lamella.base.dim import Dim
from lamella.base.dtype import ElementType
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.scope.frame import Frame, Place
from lamella.graph.compose.scope.keeping import is_open
from lamella.graph.compose.scope.names import Scope
from lamella.graph.compose.scope.session import Named, Session
from lamella.graph.compose.scope.wanted import Simple, Wanted
from lamella.graph.compose.values import as_argument, as_attribute
from lamella.graph.nodes import Argument, Operation, Pack, Tensor
from lamella.lang.skriptnd.nodes import Attribute, Dtype, Invocation, Omitted
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Declared, Definition, Fill, Instance, Value
from lamella.ops.instantiate import instantiate
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import show


class Call(NamedTuple):
    """A bound call: its instance, the scope of what is inside it, where it was made, what its results are called."""

    instance: Instance
    scope: Scope
    origin: Origin | None
    wanted: Sequence[Wanted]
    span: Span
    results: Sequence[str] = ()
    """The names of results that are taken already, because extents that only the run tells are named after them."""


def bind_call(frame: Frame, text: Invocation, place: Place) -> Call:
    """Find the operator of an invocation and bind its attributes and shapes."""
    session = frame.session
    definition = find_operator(frame, text.operator, text.span)
    scope = _scope_of(frame, text, definition, place.label)
    origin = Origin(_what(definition, scope, frame.scope), place.span, frame.origin)
    arguments = [
        None if isinstance(item, Omitted) else as_argument(frame.value(item), "an argument", item.span)
        for item in text.arguments
    ]
    attributes = given_attributes(frame, text.attributes)
    types = given_types(frame, definition, text.types)
    wanted = place.names(sum(1 for _ in definition.operator.parameters("output")))
    results = _results(session, definition, wanted, scope)
    instance = instantiate(session.library, definition, arguments, attributes, types, results, text.span)
    return Call(instance, scope, origin, wanted, place.span, results)


def find_operator(frame: Frame, name: str, span: Span) -> Definition:
    """The definition of an operator, by the name that stands in the text of a module."""
    found = frame.session.library.find(name if "." in name else f"{frame.module}.{name}")
    if found is None:
        raise Problem(rules.WRONG_VALUE.at(span, what=f"'{name}'", found="unknown", wanted="an operator"))
    return found


def _scope_of(frame: Frame, text: Invocation, definition: Definition, label: str | None) -> Scope:
    """A graph is the root of its own names unless the call has a label of its own."""
    if definition.operator.graph and text.label is None:
        return Scope(f"{definition.name}.")
    return frame.open(text.label or label)


def _what(definition: Definition, scope: Scope, outer: Scope) -> str:
    if scope == outer or not scope.prefix:
        return definition.name
    return f"{scope.prefix[:-1]}: {definition.name}"


def given_types(frame: Frame, definition: Definition, given: Sequence[str]) -> Mapping[str, ElementType]:
    """The types between `<` and `>`, in the order of the declaration."""
    declared = [item.name for item in definition.operator.items("dtype") if isinstance(item, Dtype)]
    found = ((name, frame.element(text)) for name, text in zip(declared, given, strict=False))
    return {name: element for name, element in found if element is not None}


def given_attributes(frame: Frame, given: Sequence[Attribute]) -> Mapping[str, Value]:
    """The attributes between `{` and `}`."""
    return {item.name: as_attribute(frame.value(item.value), f"'{item.name}'", item.span) for item in given}


def _results(
    session: Session, definition: Definition, wanted: Sequence[Wanted], scope: Scope
) -> Sequence[str]:
    """The names of results whose extents only the run tells: those extents are named after them."""
    if not is_open(definition) or not session.keep(definition):
        return ()
    declared = [item.name for item in definition.operator.parameters("output")]
    pairs = zip(wanted, declared, strict=True)
    return [session.take(_name(item, scope, name)) for item, name in pairs]


def _name(wanted: Wanted, scope: Scope, output: str) -> Named:
    return wanted.single() or Named(scope.name(output))


# --- operations ---------------------------------------------------------------------------------------------


def keep_whole(frame: Frame, call: Call) -> tuple[Argument, ...]:
    """The call as one operation."""
    session, instance = frame.session, call.instance
    inputs = tuple(argument_of(frame, instance.symbols[name], call.span) for name, _ in instance.inputs)
    spare = [""] * len(instance.outputs)
    outputs = tuple(
        _result(session, declared, wanted, call, taken)
        for declared, wanted, taken in zip(instance.outputs, call.wanted, call.results or spare, strict=True)
    )
    attributes, types = instance.attributes, tuple(instance.types.items())
    name = instance.definition.name
    session.nodes.append(Operation(name, inputs, outputs, attributes, types, origin=call.origin))
    return outputs


def _result(session: Session, declared: Declared, wanted: Wanted, call: Call, taken: str) -> Argument:
    """The tensor or the pack of one output; with a name that is `taken`, its extents are symbols named after it."""
    named = _name(wanted, call.scope, declared.name)
    if taken:
        named = Named(taken, named.exposed)
        session.learn([declared.shape or (), *(declared.items or ())])
    if declared.items is not None:
        names = _item_names(wanted, named, len(declared.items), bool(taken))
        pairs = zip(names, declared.items, strict=True)
        return tuple(session.tensor(item, declared.element, shape, call.origin) for item, shape in pairs)
    if declared.size is not None:
        name = taken or session.take(named)
        return Pack(name, declared.element, declared.shape or (), declared.size, origin=call.origin)
    return session.tensor(named, declared.element, declared.shape or (), call.origin, bool(taken))


def _item_names(wanted: Wanted, named: Named, count: int, taken: bool) -> Sequence[Named]:
    spare = [Named(f"{named.name}:{number + 1}", named.exposed) for number in range(count)]
    if taken:
        return spare
    return [item or other for item, other in zip(wanted.items(count), spare, strict=True)]


def argument_of(frame: Frame, value: object, span: Span) -> Argument:
    """What an operation takes for a value: scalars become constants."""
    if value is None or isinstance(value, Tensor | Pack):
        return value
    if isinstance(value, Fill):
        return _constant(frame, value, span)
    if isinstance(value, tuple):
        return tuple(_constant(frame, item, span) for item in value)
    raise Problem(
        rules.WRONG_VALUE.at(span, what="an argument", found=f"the value {show(value)}", wanted="a tensor")
    )


def _constant(frame: Frame, value: object, span: Span) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Fill) and isinstance(value.value, int | float | str | Dim):
        return frame.session.scalar(frame.scope.prefix, value.value, value.element, value.shape)
    raise Problem(
        rules.WRONG_VALUE.at(span, what="an argument", found=f"the value {show(value)}", wanted="a tensor")
    )


def call_library(
    frame: Frame, operator: str, tensor: Tensor, named: Named, span: Span, **types: ElementType
) -> Tensor:
    """One operation of the standard library that the composition adds itself."""
    definition = find_operator(frame, operator, span)
    instance = instantiate(frame.session.library, definition, [tensor], types=types, span=span)
    origin = Origin(operator, span, frame.origin)
    (made,) = keep_whole(frame, Call(instance, frame.scope, origin, [Simple(named)], span))
    return made if isinstance(made, Tensor) else tensor
