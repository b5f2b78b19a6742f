"""Every place of a declaration where annotations stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.lang.module.annotations.nodes import (
    DECLARATION,
    GRAPH,
    IDENTITY,
    INSTANCE,
    OPERATION,
    PARAMETER,
    PORT,
)
from lamella.lang.module.check.views import flows_in
from lamella.lang.module.nodes import (
    Annotation,
    ArrayType,
    Backward,
    Call,
    Flow,
    Forward,
    InstanceType,
    Module,
    Operation,
    Param,
    Statement,
)


@dataclass(frozen=True, slots=True)
class Spot:
    """Annotations that stand together, and on what.

    Of a statement: the operations that flow into the annotated tensor.
    """

    annotations: tuple[Annotation, ...]
    place: str
    operations: tuple[Operation, ...] = ()
    flow: Flow | None = None


def spots_of(module: Module) -> Iterator[Spot]:
    """All spots of a declaration that have annotations."""
    yield from (spot for spot in _all(module) if spot.annotations)


def _all(module: Module) -> Iterator[Spot]:
    yield Spot(module.annotations, DECLARATION)
    yield from (Spot(param.annotations, _place_of(param)) for param in module.tensors)
    for part in (module.forward, module.backward):
        if part is not None:
            yield Spot(part.annotations, GRAPH)
            yield from _ports(part)
            yield from _statements(part.graph or ())


def _ports(part: Forward | Backward) -> Iterator[Spot]:
    gradients = part.gradients if isinstance(part, Backward) else ()
    for port in (*(part.inputs or ()), *(part.outputs or ()), *gradients):
        yield Spot(port.annotations, PORT)


def _place_of(param: Param) -> str:
    kind = param.type.element if isinstance(param.type, ArrayType) else param.type
    return INSTANCE if isinstance(kind, InstanceType) else PARAMETER


def _statements(graph: tuple[Statement, ...]) -> Iterator[Spot]:
    for flow in flows_in(graph):
        operations = operations_before(flow, len(flow.steps))
        place = OPERATION if operations else IDENTITY
        yield Spot(flow.annotations, place, operations, flow)
        yield from (Spot(target.annotations, place, operations, flow) for target in flow.targets)
        for number, step in enumerate(flow.steps):
            if isinstance(step, Operation) and step.annotations:
                yield Spot(step.annotations, OPERATION, operations_before(flow, number + 1), flow)


def operations_before(flow: Flow, end: int) -> tuple[Operation, ...]:
    """The operations of the first steps of a statement; sources that are calls come first."""
    made = [
        Operation(item.callee, item.arguments, span=item.span)
        for item in flow.sources
        if isinstance(item, Call)
    ]
    return (*made, *(step for step in flow.steps[:end] if isinstance(step, Operation)))
