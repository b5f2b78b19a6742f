"""Operators that were kept whole, decomposed by their own definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import F32
from lamella.base.errors import Found
from lamella.base.limits import Limits
from lamella.base.origin import Origin
from lamella.base.source import NOWHERE
from lamella.graph.compose.bodies import compose_body
from lamella.graph.compose.calls import BoundCall
from lamella.graph.compose.operations import rename
from lamella.graph.compose.scope import (
    BodyScope,
    LabelPath,
    Session,
    SettledNames,
    SymbolTable,
    TensorName,
    keeper,
    recursion_limit,
)
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Branch,
    Constant,
    Graph,
    Loop,
    Node,
    Operation,
    Pack,
    Region,
    Tensor,
    regions,
    tensors,
    walk,
)
from lamella.ops.instance import Check, Definition
from lamella.ops.instantiate import instantiate
from lamella.ops.library import Library


class DecomposedCall(NamedTuple):
    """What a call decomposes to; its outputs keep their names."""

    nodes: tuple[Node, ...]
    constants: tuple[Constant, ...]
    checks: tuple[Check, ...]


def decompose(model: Model, keep: Callable[[str], bool], limits: Limits | None = None) -> Model:
    """The model with every compound operator that `keep` does not choose replaced by its components."""
    graph = model.graph
    session = _session(model.library, keep, limits)
    _reserve(session, graph.nodes, _names(graph))
    with recursion_limit(session.limits):
        body = _finish(session, lambda: _decompose_all(session, graph.nodes))
    constants = (*graph.constants, *body.constants)
    checks = (*graph.checks, *body.checks)
    return replace(model, graph=replace(graph, nodes=body.nodes, constants=constants, checks=checks))


def compose_call(
    library: Library,
    operation: Operation,
    keep: Callable[[str], bool] | None = None,
    limits: Limits | None = None,
) -> DecomposedCall:
    """The components of one call that was kept whole; without `keep` nothing compound is left."""
    session = _session(library, keep or (lambda name: False), limits)
    given = [tensor.name for item in operation.inputs for tensor in tensors(item)]
    _reserve(session, (operation,), given)
    with recursion_limit(session.limits):
        return _finish(session, lambda: _decompose_all(session, (operation,)))


def _session(library: Library, keep: Callable[[str], bool], limits: Limits | None) -> Session:
    return Session(library, keeper(library, keep), limits or library.limits)


def _names(graph: Graph) -> Iterator[str]:
    """Every name that a graph has given to a tensor outside of what its nodes give."""
    for item in (*graph.inputs, *graph.variables, *(constant.tensor for constant in graph.constants)):
        yield from _argument_names(item)
    for node in walk(graph.nodes):
        for region in regions(node):
            yield from (tensor.name for tensor in region.inputs)


def _argument_names(item: Argument) -> Iterator[str]:
    yield from [item.name] if isinstance(item, Pack) else [tensor.name for tensor in tensors(item)]


def _reserve(session: Session, nodes: tuple[Node, ...], names: Iterable[str]) -> None:
    """Take the names of what stays and promise those of what is made again."""
    for name in names:
        session.names.fresh(name)
    for node in walk(nodes):
        made = [tensor for item in node.outputs for tensor in tensors(item)]
        session.known.update({tensor.name: tensor for tensor in made})
        for item in node.outputs:
            for name in _argument_names(item):
                session.names.promise(name)


def _finish(session: Session, work: Callable[[], None]) -> DecomposedCall:
    """Do the work; raise what went wrong, which only a graph that was not verified can cause."""
    try:
        work()
    except Found as problem:
        session.report(None, *problem.findings)
    if session.findings:
        raise LamellaError(session.findings)
    return DecomposedCall(tuple(session.nodes), tuple(session.constants), tuple(session.checks))


def _decompose_all(session: Session, nodes: tuple[Node, ...]) -> None:
    for node in nodes:
        if isinstance(node, Operation):
            definition = session.library.find(node.operator)
            if definition is not None and not session.keep(definition):
                _expand(session, node, definition)
                continue
        session.nodes.append(_rebuild(session, node))


def _rebuild(session: Session, node: Node) -> Node:
    """A node that stays, with its regions decomposed."""
    if isinstance(node, Branch):
        conditions = tuple(_region(session, item) for item in node.conditions)
        return replace(
            node, conditions=conditions, branches=tuple(_region(session, item) for item in node.branches)
        )
    if isinstance(node, Loop):
        condition = None if node.condition is None else _region(session, node.condition)
        return replace(node, body=_region(session, node.body), condition=condition)
    return node


def _region(session: Session, region: Region) -> Region:
    with session.region(NOWHERE) as (nodes, checks):
        _decompose_all(session, region.nodes)
    return replace(region, nodes=tuple(nodes), checks=(*region.checks, *checks))


def _expand(session: Session, node: Operation, definition: Definition) -> None:
    """The components of one operation in its place."""
    span = node.origin.span if node.origin is not None and node.origin.span is not None else NOWHERE
    names = [next(_argument_names(item), "") for item in node.outputs]
    attributes, types = dict(node.attributes), dict(node.types)
    instance = instantiate(session.library, definition, node.inputs, attributes, types, names, span)
    first = next((name for item in node.outputs for name in _argument_names(item)), node.operator)
    scope = LabelPath(f"{first}.")
    frame = BodyScope(
        session=session,
        module=definition.module,
        compiler=session.library.plan(definition).compiler,
        types=instance.types,
        real=F32,
        env=SymbolTable({}),
        scope=scope,
        origin=node.origin,
        exposed=False,
        outputs={},
    )
    wanted = [
        SettledNames(tuple(TensorName(name, promised=True) for name in _argument_names(item)))
        for item in node.outputs
    ]
    values = compose_body(
        frame, BoundCall(instance, scope, Origin(node.operator, span, node.origin), wanted, span)
    )
    for item, value in zip(node.outputs, values, strict=True):
        _restore(frame, item, value)


def _restore(frame: BodyScope, wanted: Argument, value: object) -> None:
    """An output that is another name for an inner tensor becomes a tensor of its own."""
    found = value if isinstance(value, tuple) else (value,)
    for tensor, made in zip(tensors(wanted), found, strict=False):
        if isinstance(made, Tensor) and made.name != tensor.name:
            rename(frame, made, TensorName(tensor.name, promised=True), NOWHERE)
