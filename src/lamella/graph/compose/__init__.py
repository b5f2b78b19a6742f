"""Composition: the text of a graph becomes tensors and operations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic, errors, sort_findings
from lamella.base.dtype import F32, ElementType
from lamella.base.errors import Found
from lamella.base.gc import gc_paused
from lamella.base.limits import Limits
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.bodies import compose_inside
from lamella.graph.compose.calls import BoundCall
from lamella.graph.compose.declare import declared_at, expect_quantized, report_missing
from lamella.graph.compose.decompose import compose_call, decompose
from lamella.graph.compose.operations import rename
from lamella.graph.compose.scope import (
    BodyScope,
    LabelPath,
    Session,
    SingleName,
    SymbolTable,
    TensorName,
    keeper,
    recursion_limit,
)
from lamella.graph.nodes import Argument, Graph, Loop, Pack, Region, Tensor
from lamella.graph.rewrite import uses
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Declared, Definition, Instance, Value
from lamella.ops.instantiate import bind_graph
from lamella.ops.library import LoadedModule
from lamella.ops.scalars.values import Unknown

# --- the graph of a module, composed from its text ----------------------------------------------------------


class Composed(NamedTuple):
    """A graph, or None where it could not be composed, and what was found."""

    graph: Graph | None
    findings: tuple[Diagnostic, ...]


def compose(
    module: LoadedModule,
    graph: str | None = None,
    attributes: Mapping[str, Value] | None = None,
    types: Mapping[str, ElementType] | None = None,
    keep: Callable[[str], bool] | None = None,
    limits: Limits | None = None,
) -> Composed:
    """Compose a graph of a module, the primary one where none is named.

    `keep` chooses by qualified name which compound operators stay whole; without it those of the shipped library do.
    """
    chosen = next((item for item in module.graphs if graph in (None, item.operator.name)), None)
    if chosen is None:
        return Composed(None, (_no_graph(module, graph or ""),))
    session = Session(module.library, keeper(module.library, keep), limits or module.library.limits)
    found = None
    with gc_paused(), recursion_limit(session.limits):
        try:
            found = _compose_graph(session, chosen, attributes or {}, types or {})
        except Found as problem:
            session.report(None, *problem.findings)
    findings = tuple(sort_findings(session.findings))
    return Composed(None if errors(findings) else found, findings)


def _no_graph(module: LoadedModule, name: str) -> Diagnostic:
    names = ", ".join(f"'{item.operator.name}'" for item in module.graphs) or "none"
    span = module.graphs[0].operator.span if module.graphs else module.document.span
    return rules.NO_GRAPH.at(span, name=name, graphs=names)


def _compose_graph(
    session: Session,
    definition: Definition,
    attributes: Mapping[str, Value],
    types: Mapping[str, ElementType],
) -> Graph | None:
    operator = definition.operator
    instance = bind_graph(session.library, definition, attributes, types)
    call = BoundCall(
        instance,
        LabelPath(),
        None,
        [SingleName(TensorName(item.name, True, True)) for item in instance.outputs],
        operator.span,
    )
    frame = _open_graph(session, instance)
    expect_quantized(frame, definition)
    for declared in instance.outputs:
        session.names.promise(declared.name)
        for number, _ in enumerate(declared.items or ()):
            session.names.promise(f"{declared.name}:{number + 1}")
    inputs = tuple(_input(frame, item, declared_at(operator, item.name, None)) for item in instance.declared)
    values = compose_inside(frame, call)
    report_missing(session)
    if any(isinstance(item, Unknown) for item in values):
        return None
    outputs = [
        _output(frame, item, value, operator.span)
        for item, value in zip(instance.outputs, values, strict=True)
    ]
    graph = Graph(
        operator.name,
        inputs,
        tuple(outputs),
        tuple(session.nodes),
        tuple(session.variables.values()),
        tuple(session.constants),
        tuple(session.updates),
        tuple(session.checks),
    )
    return _without_idle(graph, {item.name for item in instance.variables})


def _without_idle(graph: Graph, own: Collection[str]) -> Graph:
    """The graph without variables that called operators declare and do not use, such as a bias that is switched off."""
    needed = {*uses(graph), *(update.variable.name for update in graph.updates)}
    variables = (
        item for item in graph.variables if item.name in needed or item.name.partition(":")[0] in own
    )
    return replace(graph, variables=tuple(variables))


def _open_graph(session: Session, instance: Instance) -> BodyScope:
    """The frame of the main graph; its inputs are not there yet."""
    real = instance.symbols.get("real")
    return BodyScope(
        session=session,
        module=instance.definition.module,
        compiler=session.library.plan(instance.definition).compiler,
        types=instance.types,
        real=real if isinstance(real, ElementType) else F32,
        env=SymbolTable(instance.symbols),
        scope=LabelPath(),
        origin=None,
        exposed=True,
        outputs={item.name: SingleName(TensorName(item.name, True, True)) for item in instance.outputs},
    )


def _input(frame: BodyScope, declared: Declared, origin: Origin | None) -> Argument:
    """An input of the graph: a tensor, a pack of them, or a pack whose length the run tells."""
    session, name, element = frame.session, declared.name, declared.element
    made: Argument
    if declared.items is not None:
        pairs = enumerate(declared.items)
        made = tuple(
            session.tensor(TensorName(f"{name}:{k + 1}", True), element, shape, origin) for k, shape in pairs
        )
    elif declared.size is not None:
        made = Pack(session.names.fresh(name), element, declared.shape or (), declared.size, origin=origin)
    else:
        made = session.tensor(TensorName(name, True), element, declared.shape or (), origin)
    frame.env[name] = made
    return made


def _output(frame: BodyScope, declared: Declared, value: object, span: Span) -> Argument:
    """An output under its declared name; another name for a tensor is a tensor of its own."""
    if isinstance(value, Tensor):
        return _own(frame, value, declared.name, span)
    if isinstance(value, tuple):
        items = enumerate(item for item in value if isinstance(item, Tensor))
        return tuple(_own(frame, item, f"{declared.name}:{k + 1}", span) for k, item in items)
    return _own_pack(frame, value, declared.name, span) if isinstance(value, Pack) else None


def _own_pack(frame: BodyScope, pack: Pack, name: str, span: Span) -> Pack:
    """A pack under its declared name; another name for a pack is a loop that gives its tensors again."""
    if pack.name == name:
        return pack
    session, origin = frame.session, Origin(name, span, frame.origin)
    item = session.tensor(TensorName(f"{name}.item"), pack.element, pack.shape, origin)
    made = replace(pack, name=session.take(TensorName(name, True, True)), origin=origin)
    session.nodes.append(Loop((), (pack,), Region((item,), (), (item,)), (made,), origin=origin))
    return made


def _own(frame: BodyScope, tensor: Tensor, name: str, span: Span) -> Tensor:
    if tensor.name == name:
        return tensor
    return rename(frame, tensor, TensorName(name, True, True), span)


__all__ = ["Composed", "compose", "compose_call", "decompose"]
