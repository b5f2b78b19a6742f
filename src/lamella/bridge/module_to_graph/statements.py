"""The statements of a graph: patterns expanded, guards folded, in topological order; its inputs and outputs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.bridge.module_to_graph.lowering import GraphLowering
from lamella.bridge.module_to_graph.nodes import UNKNOWN, InstanceFrame
from lamella.bridge.module_to_graph.values import find_name
from lamella.lang.module.check.names import DROPPED, drop_rebound, find_rebound, find_runtime
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate_bool, evaluate_int
from lamella.lang.module.instantiate.nodes import Instance
from lamella.lang.module.nodes import (
    Call,
    Conditional,
    Dim,
    Expr,
    Flow,
    Forward,
    Index,
    Integer,
    Member,
    Module,
    Name,
    Operation,
    Port,
    Primitive,
    Recompute,
    Select,
    Star,
    Statement,
    Stub,
    Sublayers,
    Target,
    TensorType,
    Unchanged,
)
from lamella.lang.module.nodes.expressions import names_in
from lamella.lang.module.resolve.nodes import Declared
from lamella.lang.module.rules import annotated, graphs, inheritance, syntax
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import SUGAR

BARRIER = "barrier"


def _keep_barriers(sorted_flows: list[Flow], written: Sequence[Flow]) -> list[Flow]:
    """Statements in an order that they can run in, those written behind a barrier behind it where they can be.

    What a barrier itself needs runs before it wherever it is written.
    """
    places = {id(flow): number for number, flow in enumerate(written)}
    barriers = [number for number, flow in enumerate(written) if _is_barrier(flow)]
    if not barriers:
        return sorted_flows
    needs = _needs(written)
    done: set[int] = set()
    found: list[Flow] = []
    for last in (*barriers, len(written) - 1):
        group = _closure(range(last + 1), needs, done)
        found += [flow for flow in sorted_flows if places[id(flow)] in group]
        done |= group
    return found


def _is_barrier(flow: Flow) -> bool:
    """Whether a statement is annotated with `@barrier`."""
    marks = (*flow.annotations, *(item for target in flow.targets for item in target.annotations))
    return any(item.name == BARRIER for item in marks)


def _needs(flows: Sequence[Flow]) -> list[set[int]]:
    makers: dict[str, list[int]] = {}
    for number, flow in enumerate(flows):
        for target in flow.targets:
            makers.setdefault(target.name, []).append(number)
    return [{maker for name in reads(flow) for maker in makers.get(name, ())} for flow in flows]


def _closure(numbers: range, needs: Sequence[set[int]], done: set[int]) -> set[int]:
    """These statements and all that they need, without those that ran before."""
    found: set[int] = set()
    todo = [number for number in numbers if number not in done]
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += needs[number] - done - found
    return found


# --- residual patterns of blocks, written out as the statements that they mean ------------------------------


SEQUENTIAL, PARALLEL = "sequential_residual", "parallel_residual"


def _expand_pattern(
    pattern: Sublayers, forward: Forward | None, type: Callable[[], TensorType | None]
) -> Forward:
    """The forward section of a block with a pattern: input `x` of a type that is asked for, output `out`.

    `sequential_residual`: x = x + last(… first(x)) for each tuple in turn; `parallel_residual`: x + the sum of all
    chains of x.
    """
    if pattern.pattern not in (SEQUENTIAL, PARALLEL):
        repair = f"write {SEQUENTIAL} or {PARALLEL}, or a forward section"
        raise Found(annotated.RESIDUAL.at(pattern.span, name=pattern.pattern, repair=repair))
    inputs = (
        (Port("x", type(), span=pattern.span),)
        if forward is None or forward.inputs is None
        else forward.inputs
    )
    outputs = (
        (Port("out", None, span=pattern.span),)
        if forward is None or forward.outputs is None
        else forward.outputs
    )
    return Forward(inputs, outputs, tuple(_statements(pattern)), span=pattern.span)


def _residual_type(types: Iterable[tuple[TensorType, Instance]], taken: Collection[str]) -> TensorType | None:
    """The type of the stream of a block, by what its sublayers say of their first inputs, each with its values.

    All of them take the same shape. The first that names every dimension is taken, else the first; a dimension that
    the inputs bind keeps its name unless the block has another constant of that name.
    """
    found = [item for item in (_in_block(type, inner, taken) for type, inner in types) if item is not None]
    whole = [item for item in found if not any(isinstance(dim, Star) for dim in item.dims)]
    return next(iter(whole or found), None)


def _in_block(type: TensorType, inner: Instance, taken: Collection[str]) -> TensorType | None:
    """A type of a sublayer with its constants as numbers; None where it counts with dimensions of the inputs."""
    dims: list[Dim] = []
    for item in type.dims:
        if isinstance(item, Star | Unchanged):
            dims.append(Star(item.span))
        elif isinstance(item, Name) and item.id not in inner.values:
            dims.append(Name(f"{item.id}_in" if item.id in taken else item.id, item.span))
        else:
            try:
                dims.append(Integer(evaluate_int(item, inner.values, "a dimension"), item.span))
            except Found:
                return None
    return replace(type, dims=tuple(dims), optional=False)


def _statements(pattern: Sublayers) -> Iterator[Flow]:
    last, stream = len(pattern.sublayers) - 1, "x"
    for number, chain in enumerate(pattern.sublayers):
        entry = stream if pattern.pattern == SEQUENTIAL else "x"
        yield _flow(pattern, (entry,), chain, f"branch{number}")
        result = "out" if number == last else f"x{number + 1}"
        yield _flow(pattern, (stream, f"branch{number}"), ("add",), result)
        stream = result


def _flow(pattern: Sublayers, sources: tuple[str, ...], steps: tuple[str, ...], target: str) -> Flow:
    span = pattern.span
    operations = tuple(Operation(Name(step, span), span=span) for step in steps)
    return Flow(
        tuple(Name(item, span) for item in sources), operations, (Target(target, span=span),), span=span
    )


class GuardFolding:
    """Decides the guards of a graph and collects its flows."""

    def __init__(self, frame: InstanceFrame) -> None:
        self.frame = frame
        self.flows: list[Flow] = []
        self.recomputed: list[Flow] = []
        self.lost: set[str] = set()
        """Names that only a statement with a wrong guard binds."""
        self.findings: list[Diagnostic] = []
        self.is_unfinished = False
        """Whether `...` stands in the place of statements."""
        self._tensors: set[str] = set()
        """Every name that the graph binds, in any arm."""

    def fold(self, statements: Sequence[Statement], into: list[Flow]) -> None:
        """Add the flows of statements, those of the arms that hold."""
        self._tensors.update(name for statement in statements for name in _targets(statement))
        for statement in statements:
            if isinstance(statement, Flow):
                into.append(statement)
            elif isinstance(statement, Conditional):
                self._conditional(statement, into)
            elif isinstance(statement, Recompute):
                self.fold(statement.body, self.recomputed)
            elif isinstance(statement, Stub):
                self.is_unfinished = True
                self.findings.append(syntax.STUB.at(statement.span, name=self.frame.name))

    def _conditional(self, statement: Conditional, into: list[Flow]) -> None:
        # A guard that reads a tensor is refused even where only an arm that is not taken binds it.
        values = self.frame.instance.values
        tensors = self._tensors.union(self.frame.data_names()) - values.keys()
        dims = self.frame.dims.keys() - values.keys()
        around = EvaluationContext(tensors=tensors)
        for arm in statement.arms:
            try:
                for finding in find_runtime(arm.condition, tensors, dims):
                    raise Found(finding)
                holds = evaluate_bool(arm.condition, values, "the guard", around)
            except Found as problem:
                self.findings.append(problem.finding)
                # Which arm would hold is not known: what any of them binds must not be reported as unknown.
                self.lost.update(_targets(statement))
                return
            if holds:
                self.fold(arm.body, into)
                return
        self.fold(statement.otherwise or (), into)


def _targets(statement: Statement) -> Iterator[str]:
    """Every name that a statement may bind."""
    if isinstance(statement, Flow):
        yield from (target.name for target in statement.targets)
    elif isinstance(statement, Conditional):
        for body in (*(arm.body for arm in statement.arms), statement.otherwise or ()):
            for item in body:
                yield from _targets(item)
    elif isinstance(statement, Recompute):
        for item in statement.body:
            yield from _targets(item)


def reads(flow: Flow) -> set[str]:
    """The names that a statement reads."""
    found = {name for source in flow.sources for name in names_in(source)}
    for step in flow.steps:
        if isinstance(step, Operation):
            found |= {name for argument in step.arguments for name in names_in(argument.value)}
    return found


def topological_order(flows: Sequence[Flow]) -> tuple[list[Flow], list[str]]:
    """The statements in an order in which each comes behind what it reads, the written order where that is free.

    The second is a cycle of names where there is one; its statements are left out then.
    """
    makers: dict[str, list[int]] = {}
    for number, flow in enumerate(flows):
        for target in flow.targets:
            makers.setdefault(target.name, []).append(number)
    needs = [
        {maker for name in reads(flow) for maker in makers.get(name, ()) if name != DROPPED} for flow in flows
    ]
    users: dict[int, list[int]] = {}
    for number, makers_of in enumerate(needs):
        for maker in makers_of:
            users.setdefault(maker, []).append(number)
    waiting = [len(item) for item in needs]
    ready = [number for number, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        # The smallest number is the one written first: order is stable where reads leave it free.
        number = heapq.heappop(ready)
        order.append(number)
        for user in users.get(number, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    cycle = [] if len(order) == len(flows) else _cycle(flows, needs, set(order))
    return [flows[number] for number in order], cycle


def _cycle(flows: Sequence[Flow], needs: Sequence[set[int]], done: set[int]) -> list[str]:
    """The names along one cycle of statements, the first again at the end."""
    number = next(item for item in range(len(flows)) if item not in done)
    seen: dict[int, int] = {}
    trail: list[int] = []
    while number not in seen:
        seen[number] = len(trail)
        trail.append(number)
        number = next(item for item in sorted(needs[number]) if item not in done)
    names = [flows[item].targets[0].name for item in reversed(trail[seen[number] :])]
    return [*names, names[0]]


def find_forward(frame: InstanceFrame) -> Forward:
    """The forward section of an instance, written or made from its pattern."""
    module = frame.instance.module
    if module.sublayers is not None and (module.forward is None or module.forward.graph is None):
        return _expand_pattern(
            module.sublayers,
            module.forward,
            lambda: _residual_type(_sublayer_types(frame.instance), frame.known),
        )
    if module.forward is None or module.forward.graph is None:
        raise Found(inheritance.NO_GRAPH.at(module.span, name=module.name))
    return module.forward


def _sublayer_types(instance: Instance) -> Iterator[tuple[TensorType, Instance]]:
    """Types that the stream of a block has, each with the instance in whose values it is read.

    The first of each chain takes the stream, the last gives what is added to it. A sublayer that is a pattern itself
    says what its own sublayers say.
    """
    todo = [(instance, True), (instance, False)][::-1]
    while todo:
        current, is_input = todo.pop()
        pattern, forward = current.module.sublayers, current.module.forward
        ports = None if forward is None else forward.inputs if is_input else forward.outputs
        if ports is not None and current is not instance:
            if ports and isinstance(ports[0].type, TensorType):
                yield ports[0].type, current
        elif pattern is not None:
            ends = (chain[0] if is_input else chain[-1] for chain in pattern.sublayers if chain)
            found = (current.children.get(name) for name in ends)
            inner = [item[0] if isinstance(item, tuple) and item else item for item in found]
            todo += reversed([(item, is_input) for item in inner if isinstance(item, Instance)])


def order_flows(frame: InstanceFrame, forward: Forward, lowering: GraphLowering) -> list[Flow]:
    """The statements of a graph with guards decided, each behind what it reads."""
    folding = GuardFolding(frame)
    folding.fold(forward.graph or (), folding.flows)
    rebound = list(find_rebound(folding.flows, set(frame.bound)))
    for finding in (*folding.findings, *rebound):
        lowering.report(finding, frame.origin)
    for name in folding.lost:
        frame.bound[name] = UNKNOWN
    found = drop_rebound(folding.flows, rebound)
    if rebound or folding.is_unfinished:
        outputs = [port.name or "out" for port in forward.outputs or ()]
        frame.bound.update(dict.fromkeys(find_orphans(found, outputs, frame), UNKNOWN))
    flows, cycle = topological_order(found)
    if cycle:
        span = next(flow.span for flow in found if flow.targets[0].name == cycle[0])
        lowering.report(graphs.CYCLE.at(span, name=cycle[0], cycle=" -> ".join(cycle)), frame.origin)
        frame.bound.update({target.name: UNKNOWN for flow in found for target in flow.targets})
    return _keep_barriers(flows, found)


def find_orphans(flows: Sequence[Flow], outputs: Sequence[str], frame: InstanceFrame) -> list[str]:
    """Names that nothing binds, in a graph where a statement binds another name a second time.

    That statement was probably meant to bind one of them; names that are nearly those of others are typos of their own.
    """
    bound = {target.name for flow in flows for target in flow.targets}
    names = [name for flow in flows for source in flow.sources for name in _tensor_names(source)]
    free = [name for name in dict.fromkeys(names) if name not in bound and not find_name(name, frame)]
    known = [*bound, *frame.data_names()]
    return [
        *(name for name in free if not suggest(name, known)),
        *(name for name in outputs if name not in bound),
    ]


def find_inputs(frame: InstanceFrame, forward: Forward) -> tuple[Port, ...]:
    """The inputs of a graph; those that are not declared are the names that it reads and never binds."""
    if forward.inputs is not None:
        return forward.inputs
    folding = GuardFolding(frame)
    folding.fold(forward.graph or (), folding.flows)
    bound = {target.name for flow in folding.flows for target in flow.targets}
    found: dict[str, Port] = {}
    for flow in folding.flows:
        for name in _tensors_read(flow, frame):
            if name not in bound and not find_name(name, frame) and name not in frame.known:
                found.setdefault(name, Port(name, None, span=flow.span))
    return tuple(found.values())


def _tensors_read(flow: Flow, frame: InstanceFrame) -> Iterator[str]:
    """The names that stand where a statement takes tensors, as they are written."""
    for source in flow.sources:
        yield from _tensor_names(source)
    for step in flow.steps:
        if isinstance(step, Operation):
            constants = _constant_arguments(step, frame)
            for argument in step.arguments:
                if argument.name not in constants:
                    yield from _tensor_names(argument.value)


def _constant_arguments(operation: Operation, frame: InstanceFrame) -> set[str | None]:
    """The names of the arguments that are attributes of a primitive, or values of a module."""
    declared = find_callee(operation.callee, frame)
    if declared is None or not isinstance(declared.declaration, Module | Primitive):
        return set()
    return {item.name for item in declared.declaration.params or ()}


def _tensor_names(expr: Expr) -> Iterator[str]:
    """The names that may be tensors in an expression: those that no arithmetic uses."""
    while isinstance(expr, Member | Index):
        expr = expr.operand
    if isinstance(expr, Name):
        yield expr.id
    elif isinstance(expr, Select):
        yield from _tensor_names(expr.value)
        yield from _tensor_names(expr.otherwise)
    elif isinstance(expr, Call):
        for argument in expr.arguments:
            yield from _tensor_names(argument.value)


def find_outputs(forward: Forward, flows: Sequence[Flow]) -> list[tuple[str, Port | None]]:
    """The names of the outputs with their ports.

    Where none are declared, `out`, or what nothing reads of the last statement that binds such a name.
    """
    if forward.outputs is not None:
        return [(port.name or "out", port) for port in forward.outputs]
    if any(target.name == "out" for flow in flows for target in flow.targets):
        return [("out", None)]
    read = {DROPPED, *(name for flow in flows for name in reads(flow))}
    for flow in reversed(flows):
        unread = [target.name for target in flow.targets if target.name not in read]
        if unread:
            return [(name, None) for name in unread]
    return []


def find_callee(callee: Expr, frame: InstanceFrame) -> Declared | None:
    """The declaration that an operation calls, sugar and standard names included."""
    name = callee.id if isinstance(callee, Name) else callee.span.text
    scope = frame.instance.scope
    found = scope.find(name)
    if found is None and name in SUGAR:
        found = scope.find(SUGAR[name])
    return found or scope.standard(name)
