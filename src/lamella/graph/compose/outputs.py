"""The outputs of a body: what was composed for them, held against what is declared."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.dim import Condition, Dim, Extent
from lamella.base.source import Span
from lamella.graph.compose.calls import Call
from lamella.graph.compose.operations import as_tensor
from lamella.graph.compose.scope.frame import Frame
from lamella.graph.compose.types import fits
from lamella.graph.compose.values import describe, describe_type
from lamella.graph.nodes import Pack, Shape, Tensor
from lamella.lang.skriptnd.nodes import Operator
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Check, Declared
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import Unknown


def give_outputs(frame: Frame, call: Call) -> tuple[object, ...]:
    """The values of the declared outputs; one that failed is unusable and spoils no other.

    What only the run can compare is left to it.
    """
    values = tuple(_give(frame, call, declared) for declared in call.instance.outputs)
    seen: dict[Extent, Extent] = {}
    for declared, value in zip(call.instance.outputs, values, strict=True):
        for found, wanted in _shapes(declared, value):
            pairs = zip(found, wanted, strict=True)
            for condition, bound in [item for pair in pairs for item in _compare(seen, *pair)]:
                span = _span(call.instance.definition.operator, declared.name)
                told = f"{_finding(call, declared, value, span).message}{bound}"
                frame.session.leave([Check(condition, told, span)])
    return values


def _shapes(declared: Declared, value: object) -> Iterator[tuple[Shape, Shape]]:
    """The shapes of an output, each with the declared one."""
    if declared.shape is None:
        return
    if isinstance(value, Pack) and declared.size is not None:
        yield (value.size, *value.shape), (declared.size, *declared.shape)
    elif isinstance(value, Tensor):
        yield value.shape, declared.shape
    elif isinstance(value, tuple):
        yield from ((item.shape, shape) for item, shape in zip(value, declared.items or (), strict=True))


def _compare(seen: dict[Extent, Extent], found: Extent, wanted: Extent) -> Iterator[tuple[Condition, str]]:
    """What must hold of an extent: it is the declared one, within its bound, and the same wherever that stands."""
    if not isinstance(found, Dim) or found == wanted == seen.setdefault(wanted, found):
        return
    high = dim.bounds(wanted)[1]
    equal = (dim.equal(found, wanted), dim.equal(found, seen.setdefault(wanted, found)))
    yield from ((item, "") for item in equal if not isinstance(item, bool))
    within = dim.less_equal(found, high)
    if not isinstance(within, bool):
        yield within, f", with an extent of at most {high}"


def _give(frame: Frame, call: Call, declared: Declared) -> object:
    value = frame.env.find(declared.name)
    if isinstance(value, Unknown):
        return value
    try:
        return _checked(frame, call, declared, value)
    except Problem as problem:
        frame.session.report(frame.origin, *problem.findings)
        return Unknown(Problem())


def _checked(frame: Frame, call: Call, declared: Declared, value: object) -> object:
    """A composed output; a scalar is a constant of rank 0."""
    operator = call.instance.definition.operator
    span = _span(operator, declared.name)
    if isinstance(value, tuple) and declared.items is not None and len(value) == len(declared.items):
        shapes = declared.items if declared.shape is not None else (None,) * len(value)
        pairs = zip(value, shapes, strict=True)
        return tuple(_tensor(frame, call, declared, item, shape) for item, shape in pairs)
    if isinstance(value, Pack) and declared.size is not None:
        shape = value.shape if declared.shape is None else declared.shape
        if value.element == declared.element and fits(value.shape, shape):
            return value
    elif declared.items is None and declared.size is None and not isinstance(value, tuple | Pack | None):
        return _tensor(frame, call, declared, value, declared.shape)
    raise Problem(_finding(call, declared, value, span))


def _tensor(frame: Frame, call: Call, declared: Declared, value: object, shape: Shape | None) -> Tensor:
    span = _span(call.instance.definition.operator, declared.name)
    like = Tensor("", declared.element, ())
    found = as_tensor(frame, value, f"output '{declared.name}'", span, like)
    if found.element == declared.element and (shape is None or fits(found.shape, shape)):
        return found
    raise Problem(_finding(call, declared, found, span))


def _finding(call: Call, declared: Declared, value: object, span: Span) -> Diagnostic:
    name = call.instance.definition.name
    found = "never" if value is None else describe(value)
    hint = rules.OPEN_PACK if isinstance(value, Pack) else None
    origin = value.origin if isinstance(value, Tensor | Pack) else None
    labels = [Label(origin.span, "composed here")] if origin is not None and origin.span is not None else []
    words = _words(declared)
    return rules.OUTPUT_SHAPE.at(
        span, hint=hint, labels=labels, name=declared.name, operator=name, declared=words, found=found
    )


def _words(declared: Declared) -> str:
    """The declared type of an output."""
    word = describe_type(declared.element, [None] if declared.shape is None else declared.shape)
    if declared.items is not None:
        return f"a pack of {len(declared.items)} tensors" + (f" {word}" if declared.items else "")
    return word if declared.size is None else f"{word}..({declared.size})"


def _span(operator: Operator, name: str) -> Span:
    found = (item.span for item in operator.parameters("output") if item.name == name)
    return next(found, operator.span)
