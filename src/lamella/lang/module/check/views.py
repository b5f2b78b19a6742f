"""A declaration with what it inherits, as far as it is known without values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lamella.base.errors import Found
from lamella.lang.module.annotations.table import (
    DECLARATION,
    GRAPH,
    IDENTITY,
    INSTANCE,
    OPERATION,
    PARAMETER,
    PORT,
)
from lamella.lang.module.nodes import (
    Annotation,
    ArrayType,
    Backward,
    Call,
    Conditional,
    ConfigParam,
    Expr,
    Flow,
    Forward,
    Index,
    InstanceType,
    Let,
    Member,
    Module,
    Operation,
    Param,
    Port,
    Recompute,
    RuntimeDim,
    Statement,
)
from lamella.lang.module.resolve.lineage import trace_lineage
from lamella.lang.module.resolve.nodes import Declared, Scope


@dataclass(frozen=True, slots=True, eq=False)
class DeclarationView:
    """A declaration, its ancestors with the scopes they are read in, and the names of its two worlds."""

    module: Module
    lineage: tuple[tuple[Module, Scope | None], ...]
    scope: Scope | None
    whole: bool
    """Whether all ancestors are known."""
    config: Mapping[str, ConfigParam]
    constants: frozenset[str]
    """Config parameters, let names and the dimensions that are declared."""
    params: Mapping[str, tuple[Param, Scope | None]]
    """What `params:` declares by a plain name, with the scope in which that was written."""
    built: frozenset[str]
    """The names of `constants:`."""

    @property
    def inputs(self) -> tuple[Port, ...] | None:
        """The declared inputs, own or inherited."""
        return _latest(module.forward.inputs for module, _ in self.lineage if module.forward is not None)

    @property
    def outputs(self) -> tuple[Port, ...] | None:
        """The declared outputs, own or inherited."""
        return _latest(module.forward.outputs for module, _ in self.lineage if module.forward is not None)

    def child(self, name: str) -> tuple[InstanceType, Scope | None] | None:
        """The instance type of a parameter that holds an instance or an array of them."""
        found = self.params.get(name)
        if found is None:
            return None
        param, scope = found
        for kind in (param.type, param.otherwise):
            inner = kind.element if isinstance(kind, ArrayType) else kind
            if isinstance(inner, InstanceType):
                return inner, scope
        return None

    def data_names(self) -> set[str]:
        """Every name of the data world that a declaration section gives."""
        ports = [port.name or "in" for port in self.inputs or ()]
        return {*self.params, *self.built, *ports}


def _latest(found: Iterator[tuple[Port, ...] | None]) -> tuple[Port, ...] | None:
    given = [item for item in found if item is not None]
    return given[-1] if given else None


def view_of(module: Module, scope: Scope | None) -> DeclarationView:
    """The view of a declaration; without a scope nothing that it inherits is known."""
    lineage, whole = _lineage(module, scope)
    heads = [item.params for item, _ in lineage if item.params is not None]
    config = {param.name: param for param in (heads[-1] if heads else ())}
    constants = set(config)
    params: dict[str, tuple[Param, Scope | None]] = {}
    built: set[str] = set()
    for item, place in lineage:
        constants |= {param.name for param in item.params or ()}
        constants |= {entry.name for entry in item.bindings if isinstance(entry, Let | RuntimeDim)}
        built |= {entry.name for entry in item.constants}
        params |= {param.path.parts[0].name: (param, place) for param in item.tensors if is_plain(param)}
    return DeclarationView(
        module, tuple(lineage), scope, whole, config, frozenset(constants), params, frozenset(built)
    )


def is_plain(param: Param) -> bool:
    """Whether a parameter has a plain name, not a path."""
    return len(param.path.parts) == 1 and not param.path.parts[0].indices


def _lineage(module: Module, scope: Scope | None) -> tuple[list[tuple[Module, Scope | None]], bool]:
    if module.extends is None:
        return [(module, scope)], True
    if scope is None:
        return [(module, scope)], False
    try:
        found = trace_lineage(Declared(scope.unit, module), scope)
    except Found:
        return [(module, scope)], False
    return [(item.module, item.scope) for item in found], True


# --- walking ------------------------------------------------------------------------------------------------


def own_graph(module: Module) -> tuple[Statement, ...]:
    """The statements of the forward graph that a declaration writes itself."""
    forward: Forward | None = module.forward
    return () if forward is None or forward.graph is None else forward.graph


def flows_in(statements: tuple[Statement, ...]) -> Iterator[Flow]:
    """Every data flow, in all arms and blocks."""
    for body in bodies_in(statements):
        yield from (item for item in body if isinstance(item, Flow))


def bodies_in(statements: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """A list of statements, then the lists inside it: arms and blocks that recompute."""
    todo = [statements]
    while todo:
        body = todo.pop()
        yield body
        for item in body:
            todo += inner_bodies(item)


def inner_bodies(statement: Statement) -> list[tuple[Statement, ...]]:
    """The lists of statements directly inside one."""
    if isinstance(statement, Conditional):
        return [*(arm.body for arm in statement.arms), statement.otherwise or ()]
    return [statement.body] if isinstance(statement, Recompute) else []


def operations_of(flow: Flow) -> Iterator[Operation]:
    """The operations of a statement, sources that are calls first."""
    for source in flow.sources:
        if isinstance(source, Call):
            yield Operation(source.callee, source.arguments, span=source.span)
    yield from (step for step in flow.steps if isinstance(step, Operation))


def root_of(expr: Expr) -> Expr:
    """The expression that members and elements are taken of: `blocks` of `blocks[0].attention`."""
    while isinstance(expr, Member | Index):
        expr = expr.operand
    return expr


def find_module(name: str, scope: Scope | None) -> tuple[Module, Scope | None] | None:
    """A module by its name, with the scope of its file."""
    declared = None if scope is None else scope.find(name)
    if scope is None or declared is None or not isinstance(declared.declaration, Module):
        return None
    return declared.declaration, scope.of(declared)


# --- every place of a declaration where annotations stand ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spot:
    """Annotations that stand together, and on what.

    Of a statement: the operations that flow into the annotated tensor.
    """

    annotations: tuple[Annotation, ...]
    place: str
    operations: tuple[Operation, ...] = ()
    flow: Flow | None = None
    port: str = ""
    """Of an input or output which it is: `input`, `output`, or `gradient` where it is one of a backward."""
    goes_back: bool = False
    """Whether it is in a backward graph: what is annotated is a gradient."""


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
            yield from _statements(part.graph or (), isinstance(part, Backward))


def _ports(part: Forward | Backward) -> Iterator[Spot]:
    inputs, outputs = part.inputs or (), part.outputs or ()
    if isinstance(part, Backward):
        every = (*inputs, *outputs, *part.gradients)
        yield from (Spot(port.annotations, PORT, port="gradient") for port in every)
        return
    yield from (Spot(port.annotations, PORT, port="input") for port in inputs)
    yield from (Spot(port.annotations, PORT, port="output") for port in outputs)


def _place_of(param: Param) -> str:
    kind = param.type.element if isinstance(param.type, ArrayType) else param.type
    return INSTANCE if isinstance(kind, InstanceType) else PARAMETER


def _statements(graph: tuple[Statement, ...], goes_back: bool) -> Iterator[Spot]:
    for flow in flows_in(graph):
        operations = operations_before(flow, len(flow.steps))
        place = OPERATION if operations else IDENTITY
        yield Spot(flow.annotations, place, operations, flow, goes_back=goes_back)
        for target in flow.targets:
            yield Spot(target.annotations, place, operations, flow, goes_back=goes_back)
        for number, step in enumerate(flow.steps):
            if isinstance(step, Operation) and step.annotations:
                before = operations_before(flow, number + 1)
                yield Spot(step.annotations, OPERATION, before, flow, goes_back=goes_back)


def operations_before(flow: Flow, end: int) -> tuple[Operation, ...]:
    """The operations of the first steps of a statement; sources that are calls come first."""
    made = [
        Operation(item.callee, item.arguments, span=item.span)
        for item in flow.sources
        if isinstance(item, Call)
    ]
    return (*made, *(step for step in flow.steps[:end] if isinstance(step, Operation)))
