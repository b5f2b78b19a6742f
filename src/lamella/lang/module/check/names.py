"""Names of a graph that mean nothing, or a second thing, whatever the values are: E002, E014, E016, E017."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, Label
from lamella.lang.module.annotations import gradient_mode
from lamella.lang.module.check.views import (
    DeclarationView,
    bodies_in,
    flows_in,
    operations_of,
    own_graph,
    root_of,
)
from lamella.lang.module.nodes import (
    Bool,
    Conditional,
    Expr,
    Flow,
    Index,
    Member,
    Name,
    Operation,
    Port,
    Rest,
    Select,
    Slice,
    Star,
    Statement,
    Stub,
    TensorType,
    name_nodes,
    names_in,
)
from lamella.lang.module.rules import annotated, constants, gradients, graphs, names
from lamella.lang.module.rules.graphs import REBOUND
from lamella.lang.module.suggest import Suggestions, suggest
from lamella.lang.module.words import STACKED, SUGAR

# --- names that statements bind a second time: E017 ---------------------------------------------------------


DROPPED = "_"
"""The name of a result that is not kept."""


def find_rebound(flows: Iterable[Flow], taken: set[str]) -> Iterator[Diagnostic]:
    """Violations of single static assignment: names bound a second time; a gradient of a parameter may be added to."""
    first: dict[str, Flow] = {}
    for flow in flows:
        for target in flow.targets:
            name = target.name
            if name == DROPPED or (name in first and accumulates(flow)):
                continue
            if name in first or name in taken:
                labels = [Label(first[name].span, "bound here first")] if name in first else []
                yield REBOUND.at(target.span, labels=labels, name=name)
            first.setdefault(name, flow)


def drop_rebound(flows: Sequence[Flow], found: Iterable[Diagnostic]) -> list[Flow]:
    """The statements without the bindings that were found to be second ones: each name has one maker."""
    places = {(item.span.start, item.span.end) for item in found}
    if not places:
        return list(flows)
    return [
        replace(
            flow,
            targets=tuple(
                replace(target, name=DROPPED) if (target.span.start, target.span.end) in places else target
                for target in flow.targets
            ),
        )
        for flow in flows
    ]


def accumulates(flow: Flow) -> bool:
    """Whether a statement adds to the gradient that it writes: by its operation, or by `@gradient(accumulate)`."""
    last = flow.steps[-1] if flow.steps else None
    if not isinstance(last, Operation) or not flow.targets[0].name.startswith("d_"):
        return False
    if gradient_mode((*flow.annotations, *flow.targets[0].annotations)) == "accumulate":
        return True
    return any(argument.name == "accumulate" and argument.value != Bool(False) for argument in last.arguments)


PATTERNS = ("sequential_residual", "parallel_residual")


def check_names(view: DeclarationView) -> Iterator[Diagnostic]:
    """What the graphs of a declaration name."""
    graph = own_graph(view.module)
    yield from _check_pattern(view)
    yield from _check_guards(graph, view)
    yield from _check_operations(graph, view)
    yield from _check_backward(graph, view)
    inputs = {port.name or "in" for port in view.inputs or ()}
    for body in bodies_in(graph):
        yield from find_rebound((item for item in body if isinstance(item, Flow)), inputs)
    if view.inputs is not None and view.whole:
        yield from _check_sources(graph, view)


# --- patterns -----------------------------------------------------------------------------------------------


def _check_pattern(view: DeclarationView) -> Iterator[Diagnostic]:
    pattern = view.module.sublayers
    if pattern is None:
        return
    if pattern.pattern not in PATTERNS:
        repair = f"write {' or '.join(PATTERNS)}, or a forward section"
        yield annotated.RESIDUAL.at(pattern.span, name=pattern.pattern, repair=repair)
    for name in (name for chain in pattern.sublayers for name in chain):
        if view.whole and name not in view.params:
            where, repair = f"in '{view.module.name}'", suggest(name, view.params)
            yield names.UNKNOWN.at(pattern.span, name=name, where=where, repair=repair)
            return


# --- guards and indices -------------------------------------------------------------------------------------


def _check_guards(graph: tuple[Statement, ...], view: DeclarationView) -> Iterator[Diagnostic]:
    """Guards and indices are constants: they read no tensor."""
    tensors = (view.data_names() | set(_bound(graph))) - view.constants
    dims = dims_of(view.inputs or ()) - view.constants
    for body in bodies_in(graph):
        for item in body:
            if isinstance(item, Conditional):
                for arm in item.arms:
                    yield from find_runtime(arm.condition, tensors, dims)
    for flow in flows_in(graph):
        for source in flow.sources:
            yield from _check_indices(source, tensors)


def dims_of(ports: Iterable[Port]) -> set[str]:
    """The names in the shapes of inputs or outputs."""
    types = (port.type for port in ports if isinstance(port.type, TensorType))
    return {
        name for type in types for dim in type.dims if not isinstance(dim, Star) for name in names_in(dim)
    }


def find_runtime(condition: Expr, tensors: Collection[str], dims: Collection[str]) -> Iterator[Diagnostic]:
    """The first name in a guard that is known only when the graph runs."""
    for name in name_nodes(condition):
        if name.id in tensors or name.id in dims:
            why = "it is a tensor of the graph" if name.id in tensors else "it is a dimension of the inputs"
            yield constants.NOT_CONSTANT.at(name.span, what=f"'{name.id}'", why=why)
            return


def _check_indices(source: Expr, tensors: set[str]) -> Iterator[Diagnostic]:
    while isinstance(source, Member | Index):
        if isinstance(source, Index):
            for item in _bounds(source):
                if any(name.id in tensors for name in name_nodes(item)):
                    why = f"'{item.span.text}' is a tensor"
                    yield constants.NOT_CONSTANT.at(item.span, what="the index", why=why)
        source = source.operand


def _bounds(index: Index) -> Iterator[Expr]:
    for item in index.items:
        if isinstance(item, Slice):
            yield from (bound for bound in (item.begin, item.end) if bound is not None)
        elif not isinstance(item, Rest):
            yield item


# --- operations ---------------------------------------------------------------------------------------------


def _check_operations(graph: tuple[Statement, ...], view: DeclarationView) -> Iterator[Diagnostic]:
    if view.scope is None or not view.whole:
        return
    near = Suggestions(lambda: _operation_names(view))
    for flow in flows_in(graph):
        for operation in operations_of(flow):
            yield from _check_operation(operation, view, near)


def _check_backward(graph: tuple[Statement, ...], view: DeclarationView) -> Iterator[Diagnostic]:
    """What a backward graph names wrongly whatever is wrong with the forward one, without which it is not built.

    Operations that go back (`silu_backward`, `StackedBlocksBackward`) are known once there are values.
    """
    backward = view.module.backward
    if backward is None or not backward.graph or not graph or not view.whole:
        return
    near = Suggestions(lambda: _operation_names(view))
    known = view.data_names() | set(_bound(graph))
    for flow in flows_in(backward.graph):
        for operation in operations_of(flow):
            callee = operation.callee
            if isinstance(callee, Name) and "backward" not in callee.id.lower() and callee.id not in known:
                yield from _check_operation(operation, view, near)
        for source in flow.sources:
            match source:
                case Member(Name("saved"), field) if field not in known:
                    repair = suggest(field, known) or f"'{view.module.name}' computes no '{field}'"
                    yield gradients.NOT_SAVED.at(
                        source.span, name=field, module=view.module.name, repair=repair
                    )


def _operation_names(view: DeclarationView) -> Iterator[str]:
    yield from (item for item in view.params if view.child(item) is not None)
    if view.scope is not None:
        yield from view.scope.names()


def _check_operation(operation: Operation, view: DeclarationView, near: Suggestions) -> Iterator[Diagnostic]:
    callee, scope = operation.callee, view.scope
    root = root_of(callee)
    if scope is None or (isinstance(root, Name) and view.child(root.id) is not None):
        return
    name = callee.id if isinstance(callee, Name) else callee.span.text
    if name == STACKED or scope.find(SUGAR.get(name, name)) or scope.find(name) or scope.standard(name):
        return
    if isinstance(callee, Name) and name in view.params:
        repair = f"a tensor is an operand: (x, {name}) -> operation()"
        yield graphs.NOT_AN_OPERATION.at(callee.span, name=name, found="a tensor", repair=repair)
    elif isinstance(callee, Name | Member):
        yield graphs.UNKNOWN_OPERATION.at(callee.span, name=name, repair=near.suggest(name))


# --- tensors ------------------------------------------------------------------------------------------------


def _check_sources(graph: tuple[Statement, ...], view: DeclarationView) -> Iterator[Diagnostic]:
    """Sources that nothing gives; those in arms are left to the values, which may switch an arm off."""
    if any(isinstance(item, Stub) for body in bodies_in(graph) for item in body):
        return
    known = view.data_names() | view.constants | set(_bound(graph))
    near = Suggestions(lambda: known)
    inputs, reported = {port.name or "in" for port in view.inputs or ()}, set[str]()
    bodies = ((item for item in body if isinstance(item, Flow)) for body in bodies_in(graph))
    is_rebound = any(True for body in bodies for _ in find_rebound(body, inputs))
    flows = (item for item in graph if isinstance(item, Flow))
    for name in (name for flow in flows for source in flow.sources for name in _read_names(source)):
        if name.id in known or name.id in reported:
            continue
        where, repair = f"in '{view.module.name}'", near.suggest(name.id)
        # Without a near name, what is bound a second time somewhere was probably meant to be this one.
        if repair or not is_rebound:
            reported.add(name.id)
            yield names.UNKNOWN.at(name.span, name=name.id, where=where, repair=repair)


def _read_names(source: Expr) -> Iterator[Name]:
    """The tensors that a source reads for certain."""
    todo = [source]
    while todo:
        expr = root_of(todo.pop())
        if isinstance(expr, Name):
            yield expr
        elif isinstance(expr, Select):
            todo += [expr.value] if expr.value == expr.otherwise else []


def _bound(graph: tuple[Statement, ...]) -> Iterator[str]:
    return (target.name for flow in flows_in(graph) for target in flow.targets)
