"""One call of an operator: what it is bound to, and the operation it becomes when it is kept whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.dim import Dim, Extent, Logic, Test
from lamella.base.dtype import ElementType, name_in
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.scope import (
    BodyScope,
    LabelPath,
    ResultNames,
    ResultPlace,
    Session,
    TensorName,
    is_open,
)
from lamella.graph.nodes import Pack, Tensor
from lamella.lang.skriptnd.nodes import Attribute, Dtype, Invocation, Omitted
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Argument as ArgumentValue
from lamella.ops.instance import Definition, Fill, Instance, Repeated, Value
from lamella.ops.instantiate import instantiate
from lamella.ops.scalars.values import TERMS, Unknown, show

# --- values of a composition: tensors, packs of them and scalars, their words, and scalars that -------------


SCALARS = (int, float, str, Dim, Test, Logic, Repeated)
PASSED = (*SCALARS, *TERMS, Tensor, Pack, Fill)


def describe_type(element: ElementType, shape: Iterable[Extent | None]) -> str:
    """A tensor's type as the language spells it."""
    word = name_in("skriptnd", element) or element.name
    return f"{word}[{', '.join('~' if extent is None else str(extent) for extent in shape)}]"


def describe(value: object) -> str:
    """A value in the words of a message."""
    if isinstance(value, Tensor):
        return describe_type(value.element, value.shape)
    if isinstance(value, Pack):
        return f"{describe_type(value.element, value.shape)}..({value.size})"
    if isinstance(value, tuple) and all(isinstance(item, Tensor) for item in value):
        return f"a pack of {len(value)} tensors"
    return "null" if value is None else f"the value {show(value)}"


def need(values: Sequence[object]) -> Sequence[object]:
    """The values, all of which must be there; what failed was reported where it did."""
    if any(isinstance(item, Unknown) for item in values):
        raise Found()
    return values


def as_argument(value: object, what: str, span: Span) -> ArgumentValue:
    """A value that a call may pass; what only a formula can compute is none."""
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if item is not None and not isinstance(item, PASSED):
            raise Found(
                rules.WRONG_VALUE.at(
                    span, what=what, found=describe(item), wanted="a tensor or a known value"
                )
            )
    return cast("ArgumentValue", value)


def as_attribute(value: object, what: str, span: Span) -> Value:
    """A value that an attribute may have: known, or an expression of extents."""
    items = value if isinstance(value, tuple) else (value,)
    for item in items:
        if item is not None and not isinstance(item, SCALARS):
            raise Found(
                rules.WRONG_VALUE.at(
                    span, what=what, found=describe(item), wanted="a value known before the run"
                )
            )
    return cast("Value", value)


def is_single(tensor: Tensor) -> bool:
    """Whether a tensor has one element."""
    return all(dim.equal(extent, 1) is True for extent in tensor.shape)


MAKERS = 4
"""Tensors of one call whose makers a finding points to."""


class BoundCall(NamedTuple):
    """A bound call: its instance, the scope of what is inside it, where it was made, what its results are called."""

    instance: Instance
    scope: LabelPath
    origin: Origin | None
    wanted: Sequence[ResultNames]
    span: Span
    results: Sequence[str] = ()
    """The names of results that are taken already, because extents that only the run tells are named after them."""


def bind_call(frame: BodyScope, text: Invocation, place: ResultPlace) -> BoundCall:
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
    results, kept = _results(session, definition, wanted, scope), session.keep(definition)
    try:
        instance = instantiate(session.library, definition, arguments, attributes, types, results, text.span)
    except Found as problem:
        raise _with_makers(problem, arguments) from None
    return BoundCall(instance, scope, origin, wanted, place.span, results if kept else ())


def _with_makers(problem: Found, arguments: Sequence[ArgumentValue]) -> Found:
    """The findings on a call, with the places where the tensors were made whose shapes they speak of."""
    given = (argument if isinstance(argument, tuple) else (argument,) for argument in arguments)
    tensors = [item for group in given for item in group if isinstance(item, Tensor)]

    def extended(finding: Diagnostic) -> Diagnostic:
        named = (item for item in tensors if f"[{', '.join(map(str, item.shape))}]" in finding.message)
        labels = [
            Label(item.origin.span, f"'{item.name}' is made here")
            for item in dict.fromkeys(named)
            if item.origin is not None and item.origin.span is not None
        ]
        return replace(finding, labels=(*finding.labels, *labels[:MAKERS]))

    return Found(*(extended(item) for item in problem.findings))


def find_operator(frame: BodyScope, name: str, span: Span) -> Definition:
    """The definition of an operator, by the name that stands in the text of a module."""
    library = frame.session.library
    found = library.find(library.resolve(name, frame.module))
    if found is None:
        raise Found(rules.WRONG_VALUE.at(span, what=f"'{name}'", found="unknown", wanted="an operator"))
    return found


def _scope_of(frame: BodyScope, text: Invocation, definition: Definition, label: str | None) -> LabelPath:
    """A graph is the root of its own names unless the call has a label of its own."""
    if definition.operator.graph and text.label is None:
        return LabelPath(f"{definition.name}.")
    return frame.behind(text.label or label)


def _what(definition: Definition, scope: LabelPath, outer: LabelPath) -> str:
    if scope == outer or not scope.prefix:
        return definition.name
    return f"{scope.prefix[:-1]}: {definition.name}"


def given_types(frame: BodyScope, definition: Definition, given: Sequence[str]) -> Mapping[str, ElementType]:
    """The types between `<` and `>`, in the order of the declaration."""
    declared = [item.name for item in definition.operator.items("dtype") if isinstance(item, Dtype)]
    found = ((name, frame.element(text)) for name, text in zip(declared, given, strict=False))
    return {name: element for name, element in found if element is not None}


def given_attributes(frame: BodyScope, given: Sequence[Attribute]) -> Mapping[str, Value]:
    """The attributes between `{` and `}`."""
    return {item.name: as_attribute(frame.value(item.value), f"'{item.name}'", item.span) for item in given}


def _results(
    session: Session, definition: Definition, wanted: Sequence[ResultNames], scope: LabelPath
) -> Sequence[str]:
    """The names of results whose extents only the run tells: those extents are named after them.

    What is composed takes the names itself, so they are only looked up for it.
    """
    if not is_open(definition):
        return ()
    declared = [item.name for item in definition.operator.parameters("output")]
    names = [result_name(item, scope, name) for item, name in zip(wanted, declared, strict=True)]
    return [session.take(item) if session.keep(definition) else item.name for item in names]


def result_name(wanted: ResultNames, scope: LabelPath, output: str) -> TensorName:
    """What an output is called: by the caller, or after the output itself."""
    return wanted.single() or TensorName(scope.name(output))
