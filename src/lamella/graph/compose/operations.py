"""Operations: calls that are kept whole, and the few that the composition adds itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.base.dim import Dim, Logic, Test
from lamella.base.dtype import BOOL, I64, ElementType
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.calls import Call, result_name
from lamella.graph.compose.scope.frame import Frame
from lamella.graph.compose.scope.session import Named, Session
from lamella.graph.compose.scope.wanted import Simple, Wanted
from lamella.graph.compose.values import describe
from lamella.graph.nodes import Argument, Operation, Pack, Tensor
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.formula import Apply
from lamella.ops.instance import Declared, Fill, Value
from lamella.ops.instantiate import instantiate
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import word_of

FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        **{
            "+": "add",
            "-": "sub",
            "*": "mul",
            "/": "div",
            "**": "pow",
            "<<": "min",
            ">>": "max",
            "neg": "neg",
        },
        **{"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "?:": "select"},
        **{"&&": "and", "||": "or", "^": "xor", "!": "not"},
    }
)
"""The operators of the module `math` for the signs of expressions; built-in functions go by their own names."""
NO_VALUES: Mapping[str, Value] = MappingProxyType({})


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
    named = result_name(wanted, call.scope, declared.name)
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


def call_library(
    frame: Frame,
    operator: str,
    inputs: Sequence[Tensor],
    named: Named,
    span: Span,
    attributes: Mapping[str, Value] = NO_VALUES,
    **types: ElementType,
) -> Tensor:
    """One operation of the standard library that the composition adds itself."""
    definition = frame.session.library.find(operator)
    if definition is None:
        raise _no_tensor(None, operator, span)
    instance = instantiate(frame.session.library, definition, inputs, attributes, types, span=span)
    origin = Origin(operator, span, frame.origin)
    (made,) = keep_whole(frame, Call(instance, frame.scope, origin, [Simple(named)], span))
    if isinstance(made, Tensor):
        return made
    raise _no_tensor(made, operator, span)


def rename(frame: Frame, tensor: Tensor, named: Named, span: Span) -> Tensor:
    """The tensor under another name: a copy, which is an operation of its own."""
    return call_library(frame, "math.iden", [tensor], named, span)


# --- scalars that become tensors ----------------------------------------------------------------------------


def argument_of(frame: Frame, value: object, span: Span) -> Argument:
    """What an operation takes for a value; scalars become tensors."""
    if value is None or isinstance(value, Tensor | Pack):
        return value
    if isinstance(value, tuple):
        return tuple(_filled(frame, item, span) for item in value)
    return _filled(frame, value, span)


def _filled(frame: Frame, value: object, span: Span) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, Fill):
        raise _no_tensor(value, "an argument", span)
    return fill(frame, value.value, Tensor(value.name, value.element, value.shape), span)


def fill(frame: Frame, value: object, like: Tensor, span: Span) -> Tensor:
    """The tensor that a scalar fills: a constant, unless only the run knows its value or its shape."""
    known = all(isinstance(extent, int) for extent in like.shape)
    if known and isinstance(value, int | float):
        return frame.session.scalar(frame.scope.prefix, value, like.element, like.shape)
    single = _scalar(frame, value, like.element, span)
    if not like.shape:
        return single
    named = Named(frame.scope.name(like.name))
    return call_library(frame, "layout.uniform", [single], named, span, {"shape": like.shape})


def as_tensor(frame: Frame, value: object, what: str, span: Span, like: Tensor | None = None) -> Tensor:
    """A tensor for a value: itself, or a scalar of rank 0 with the width of `like`."""
    if isinstance(value, Tensor):
        return value
    element = _element_of(frame, value, like)
    if element is None:
        raise _no_tensor(value, what, span)
    return _scalar(frame, value, element, span)


def _element_of(frame: Frame, value: object, like: Tensor | None) -> ElementType | None:
    """The element type of a scalar that becomes a tensor; None where it cannot."""
    word = word_of(value)
    if word == "bool":
        return BOOL
    if word == "int":
        return like.element if like is not None and like.element.is_integer else I64
    if word == "real":
        return like.element if like is not None and like.element.is_float else frame.real
    return None


def _scalar(frame: Frame, value: object, element: ElementType, span: Span) -> Tensor:
    """A constant of rank 0, or the operations that compute what only the run can tell."""
    if isinstance(value, int | float):
        return frame.session.scalar(frame.scope.prefix, value, element)
    named = Named(frame.scope.name("value"))
    if isinstance(value, Dim | Test | Logic):
        natural = I64 if isinstance(value, Dim) else BOOL
        given: Mapping[str, Value] = {"shape": (), "value": (value,)}
        found = call_library(frame, "layout.constant", [], named, span, given, T=natural)
    elif isinstance(value, Apply):
        found = _computed(frame, value, element, span)
    else:
        raise _no_tensor(value, "a value", span)
    return (
        found
        if found.element == element
        else call_library(frame, "layout.cast", [found], named, span, R=element)
    )


def _computed(frame: Frame, term: Apply, element: ElementType, span: Span) -> Tensor:
    """A scalar that is computed from extents at run time, by operations on tensors of rank 0."""
    real = element if element.is_float else frame.real
    like = Tensor("", real, ())
    operands = [as_tensor(frame, item, "a value", span, like) for item in term.operands]
    if term.function == "cast":
        target = {"real": real, "bool": BOOL}.get(term.type, I64)
        return call_library(frame, "layout.cast", operands, Named(frame.scope.name("value")), span, R=target)
    operator = f"math.{FUNCTIONS.get(term.function, term.function)}"
    return call_library(frame, operator, operands, Named(frame.scope.name("value")), span)


def _no_tensor(value: object, what: str, span: Span) -> Problem:
    return Problem(rules.WRONG_VALUE.at(span, what=what, found=describe(value), wanted="a tensor"))
