"""Regions: parts of a body that the run executes under a condition or again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from lamella.base import dim
from lamella.base.dim import Extent, symbols
from lamella.base.dtype import BOOL
from lamella.base.source import Span
from lamella.graph.compose.operations import as_tensor
from lamella.graph.compose.scope.frame import Frame, Place
from lamella.graph.compose.scope.session import Session
from lamella.graph.compose.values import describe, is_single, need
from lamella.graph.nodes import Node, Region, Shape, Tensor
from lamella.lang.skriptnd.nodes import Callee
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Check
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import word_of

Compose: TypeAlias = Callable[[Frame, Callee, Place], Sequence[object]]
"""How a callee is composed: the function that knows invocations and blocks."""


class Part(NamedTuple):
    """A composed region: its nodes, what it gives, and what the run tests in it."""

    nodes: tuple[Node, ...]
    values: Sequence[object]
    span: Span
    checks: tuple[Check, ...]


def compose_part(frame: Frame, callee: Callee, label: str | None, compose: Compose) -> Part | None:
    """A callee in a region of its own; None where it failed, which is reported so that the others can go on."""
    try:
        with frame.session.region(callee.span) as (nodes, checks):
            values = need(compose(frame, callee, Place(None, label, callee.span)))
    except Problem as problem:
        frame.session.report(frame.origin, *problem.findings)
        return None
    return Part(tuple(nodes), values, callee.span, tuple(checks))


def compose_condition(
    frame: Frame, callee: Callee, label: str | None, compose: Compose, inputs: tuple[Tensor, ...] = ()
) -> Region | None:
    """The region of a condition, which gives one bool."""

    def decide(inner: Frame, test: Callee, place: Place) -> Sequence[object]:
        return (_truth(inner, compose(inner, test, place), test.span),)

    part = compose_part(frame, callee, label, decide)
    if part is None:
        return None
    outputs = tuple(item for item in part.values if isinstance(item, Tensor))
    return Region(inputs, part.nodes, outputs, part.checks)


def _truth(frame: Frame, values: Sequence[object], span: Span) -> Tensor:
    """A condition as a tensor of one bool; one on extents is computed by the run."""
    value = need(values)[0] if len(values) == 1 else None
    known = isinstance(value, Tensor) and value.element == BOOL and is_single(value)
    if known or (not isinstance(value, Tensor) and word_of(value) == "bool"):
        return as_tensor(frame, value, "the condition", span)
    found = describe(value) if len(values) == 1 else f"{len(values)} tensors"
    raise Problem(rules.CONDITION.at(span, found=found))


def settle_shape(
    session: Session, name: str, shapes: Sequence[Shape], hidden: frozenset[str] = frozenset()
) -> Shape:
    """The shape of a tensor that takes one of several; an extent that differs, or that is hidden outside, is new."""
    found: list[Extent] = []
    for axis, extents in enumerate(zip(*shapes, strict=True)):
        first = extents[0]
        if all(item == first for item in extents) and not any(item.name in hidden for item in symbols(first)):
            found.append(first)
            continue
        ends = [dim.bounds(item) for item in extents]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        found.append(session.symbol(f"{name}.shape[{axis}]", max(low, 0), high))
    return tuple(found)
