"""Operations: calls that are kept whole, and the few that the composition adds itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.base import dim
from lamella.base.dim import Dim, Extent, Logic, Test
from lamella.base.dtype import BOOL, I64, ElementType
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.calls import BoundCall, describe, describe_type, result_name
from lamella.graph.compose.scope import BodyScope, ResultNames, Session, SingleName, TensorName
from lamella.graph.nodes import Argument, Operation, Pack, Tensor
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.formula import Apply
from lamella.ops.instance import Declared, Fill, Value
from lamella.ops.instantiate import instantiate
from lamella.ops.scalars.values import word_of, word_of_type

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


def keep_whole(frame: BodyScope, call: BoundCall) -> tuple[Argument, ...]:
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


def _result(
    session: Session, declared: Declared, wanted: ResultNames, call: BoundCall, taken: str
) -> Argument:
    """The tensor or the pack of one output; with a name that is `taken`, its extents are symbols named after it."""
    named = result_name(wanted, call.scope, declared.name)
    if taken:
        named = TensorName(taken, named.exposed)
        session.learn([declared.shape or (), *(declared.items or ())])
    if declared.items is not None:
        names = _item_names(wanted, named, len(declared.items), bool(taken))
        pairs = zip(names, declared.items, strict=True)
        return tuple(session.tensor(item, declared.element, shape, call.origin) for item, shape in pairs)
    if declared.size is not None:
        name = taken or session.take(named)
        return Pack(name, declared.element, declared.shape or (), declared.size, origin=call.origin)
    return session.tensor(named, declared.element, declared.shape or (), call.origin, bool(taken))


def _item_names(wanted: ResultNames, named: TensorName, count: int, taken: bool) -> Sequence[TensorName]:
    spare = [TensorName(f"{named.name}:{number + 1}", named.exposed) for number in range(count)]
    if taken:
        return spare
    return [item or other for item, other in zip(wanted.items(count), spare, strict=True)]


def call_library(
    frame: BodyScope,
    operator: str,
    inputs: Sequence[Tensor],
    named: TensorName,
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
    (made,) = keep_whole(frame, BoundCall(instance, frame.scope, origin, [SingleName(named)], span))
    if isinstance(made, Tensor):
        return made
    raise _no_tensor(made, operator, span)


def rename(frame: BodyScope, tensor: Tensor, named: TensorName, span: Span) -> Tensor:
    """The tensor under another name: a copy, which is an operation of its own."""
    return call_library(frame, "math.iden", [tensor], named, span)


# --- scalars that become tensors ----------------------------------------------------------------------------


def argument_of(frame: BodyScope, value: object, span: Span) -> Argument:
    """What an operation takes for a value; scalars become tensors."""
    if value is None or isinstance(value, Tensor | Pack):
        return value
    if isinstance(value, tuple):
        return tuple(_filled(frame, item, span) for item in value)
    return _filled(frame, value, span)


def _filled(frame: BodyScope, value: object, span: Span) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, Fill):
        raise _no_tensor(value, "an argument", span)
    return fill(frame, value.value, Tensor(value.name, value.element, value.shape), span)


def fill(frame: BodyScope, value: object, like: Tensor, span: Span) -> Tensor:
    """The tensor that a scalar fills: a constant, unless only the run knows its value or its shape."""
    known = all(isinstance(extent, int) for extent in like.shape)
    if known and isinstance(value, int | float):
        return frame.session.scalar(frame.scope.prefix, value, like.element, like.shape)
    single = _scalar(frame, value, like.element, span)
    if not like.shape:
        return single
    named = TensorName(frame.scope.name(like.name))
    return call_library(frame, "layout.uniform", [single], named, span, {"shape": like.shape})


def as_tensor(frame: BodyScope, value: object, what: str, span: Span, like: Tensor | None = None) -> Tensor:
    """A tensor for a value: itself, or a scalar of rank 0 with the width of `like`."""
    if isinstance(value, Tensor):
        return value
    element = _element_of(frame, value, like)
    if element is None:
        raise _no_tensor(value, what, span)
    return _scalar(frame, value, element, span)


def _element_of(frame: BodyScope, value: object, like: Tensor | None) -> ElementType | None:
    """The element type of a scalar that becomes a tensor; None where it cannot."""
    word = word_of(value)
    if word == "bool":
        return BOOL
    if word == "int":
        return like.element if like is not None and like.element.is_integer else I64
    if word == "real":
        return like.element if like is not None and like.element.is_float else frame.real
    return None


def _scalar(frame: BodyScope, value: object, element: ElementType, span: Span) -> Tensor:
    """A constant of rank 0, or the operations that compute what only the run can tell."""
    if isinstance(value, int | float):
        return frame.session.scalar(frame.scope.prefix, value, element)
    named = TensorName(frame.scope.name("value"))
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


def _computed(frame: BodyScope, term: Apply, element: ElementType, span: Span) -> Tensor:
    """A scalar that is computed from extents at run time, by operations on tensors of rank 0."""
    real = element if element.is_float else frame.real
    like = Tensor("", real, ())
    operands = [as_tensor(frame, item, "a value", span, like) for item in term.operands]
    if term.function == "cast":
        target = {"real": real, "bool": BOOL}.get(term.type, I64)
        return call_library(
            frame, "layout.cast", operands, TensorName(frame.scope.name("value")), span, R=target
        )
    operator = f"math.{FUNCTIONS.get(term.function, term.function)}"
    return call_library(frame, operator, operands, TensorName(frame.scope.name("value")), span)


def _no_tensor(value: object, what: str, span: Span) -> Found:
    return Found(rules.WRONG_VALUE.at(span, what=what, found=describe(value), wanted="a tensor"))


# --- types that a text gives to results and carried values: checked, or filled with a scalar ----------------


def give_type(frame: BodyScope, value: object, declared: nodes.TypeSpec, name: str) -> object:
    """A value with a type: a tensor that has it already, or the tensor of that type that a scalar fills."""
    element, shape = frame.element(declared.name), _shape(frame, declared)
    if isinstance(value, Tensor | Pack | tuple) or element is None:
        check_type(frame, value, declared, name)
        return value
    if word_of(value) != word_of_type(element) or shape is None or None in shape:
        raise _mismatch(frame, value, declared, name)
    extents = tuple(item for item in shape if item is not None)
    return fill(frame, value, Tensor(name, element, extents), declared.span)


def check_type(frame: BodyScope, value: object, declared: nodes.TypeSpec, name: str) -> None:
    """Refuse a tensor, or a pack of them, that is not of its declared type."""
    for item in value if isinstance(value, tuple) else (value,):
        if not isinstance(item, Tensor | Pack) or not _has_type(frame, item, declared):
            raise _mismatch(frame, item, declared, name)


def _has_type(frame: BodyScope, value: Tensor | Pack, declared: nodes.TypeSpec) -> bool:
    element, shape = frame.element(declared.name), _shape(frame, declared)
    same = {"real": value.element.is_float, "int": value.element.is_integer}.get(
        declared.name, value.element == element
    )
    return same and (shape is None or fits(value.shape, shape))


def fits(found: Sequence[Extent], wanted: Sequence[Extent | None]) -> bool:
    """Whether a shape can be another one; None stands for any extent."""
    return len(found) == len(wanted) and all(
        item is None or dim.equal(extent, item) is not False
        for extent, item in zip(found, wanted, strict=True)
    )


def _shape(frame: BodyScope, declared: nodes.TypeSpec) -> tuple[Extent | None, ...] | None:
    if declared.shape is None:
        return None
    return tuple(extent for item in declared.shape for extent in _extents(frame, item))


def _extents(frame: BodyScope, item: nodes.Extent) -> Iterator[Extent | None]:
    """The extents of one item of a shape; an optional one that is null vanishes."""
    value = None if isinstance(item.value, nodes.Omitted) else frame.value(item.value)
    length = item.pack.length if item.pack is not None else None
    count = 1 if length is None or isinstance(length, nodes.Omitted) else int(frame.known(length))
    if isinstance(value, tuple):
        yield from (extent for extent in value if isinstance(extent, int | Dim))
    elif isinstance(value, int | Dim):
        yield from [value] * count
    elif isinstance(item.value, nodes.Omitted):
        yield from [None] * count


def _mismatch(frame: BodyScope, value: object, declared: nodes.TypeSpec, name: str) -> Found:
    element, shape = frame.element(declared.name), _shape(frame, declared)
    wanted = declared.name if element is None or shape is None else describe_type(element, shape)
    return Found(rules.RESULT_TYPE.at(declared.span, name=name, declared=wanted, found=describe(value)))
