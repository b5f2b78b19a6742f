"""From statement to statement through an instance and all that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.bridge.module_to_graph.annotating.annotate import annotate, annotate_port
from lamella.bridge.module_to_graph.annotating.precision import by_recipe, perform, precisely
from lamella.bridge.module_to_graph.calls.binding import bind_parameters
from lamella.bridge.module_to_graph.calls.primitives import bind, is_unknown
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound, Members, Unknown
from lamella.bridge.module_to_graph.numbers.constants import require_call
from lamella.bridge.module_to_graph.road import Road
from lamella.bridge.module_to_graph.shapes import match_type
from lamella.bridge.module_to_graph.statements.order import Folding, reads, sort_flows
from lamella.bridge.module_to_graph.statements.patterns import expand_pattern, residual_type
from lamella.bridge.module_to_graph.values import find_name, members, select_members, value_of
from lamella.graph.nodes import Tensor
from lamella.lang.module.check.names import DROPPED, drop_rebound, find_rebound
from lamella.lang.module.instantiate.evaluate import Problem, evaluate
from lamella.lang.module.instantiate.nodes import Instance
from lamella.lang.module.nodes import (
    Call,
    Expr,
    Flow,
    Forward,
    Index,
    Member,
    Module,
    Name,
    Operation,
    Port,
    Primitive,
    ScalarType,
    Select,
    ShapeAssertion,
    TensorType,
)
from lamella.lang.module.resolve.nodes import Declared
from lamella.lang.module.rules import constants, graphs, inheritance, syntax
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import STACKED, SUGAR

# --- statements behind a barrier run behind it --------------------------------------------------------------


BARRIER = "barrier"


def keep_barriers(sorted_flows: list[Flow], written: Sequence[Flow]) -> list[Flow]:
    """Statements in an order that they can run in, those written behind a barrier behind it where they can be.

    What a barrier itself needs runs before it wherever it is written.
    """
    places = {id(flow): number for number, flow in enumerate(written)}
    barriers = [number for number, flow in enumerate(written) if is_barrier(flow)]
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


def is_barrier(flow: Flow) -> bool:
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


UNKNOWN = Unknown()
DEEPEST = 60
"""Modules in modules; each level takes several calls of Python's own stack."""


# --- graphs -----------------------------------------------------------------------------------------------------


def find_forward(frame: Frame) -> Forward:
    """The forward section of an instance, written or made from its pattern."""
    module = frame.instance.module
    if module.sublayers is not None and (module.forward is None or module.forward.graph is None):
        return expand_pattern(
            module.sublayers,
            module.forward,
            lambda: residual_type(_sublayer_types(frame.instance), frame.known),
        )
    if module.forward is None or module.forward.graph is None:
        raise Problem(inheritance.NO_GRAPH.at(module.span, name=module.name))
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


def run_graph(frame: Frame, forward: Forward, road: Road) -> tuple[Bound, ...]:
    """Build the forward graph of a frame whose inputs are bound, and give its outputs."""
    for name, built in frame.instance.constants.items():
        try:
            require_call(name, built)
        except Problem as problem:
            road.report(problem.finding, frame.origin)
    flows = order_flows(frame, forward, road)
    with by_recipe(frame, road):
        for flow in flows:
            if road.spend(max(len(flow.steps), 1), flow.span, frame):
                run_flow(flow, frame, road)
            else:
                frame.bound.update({target.name: UNKNOWN for target in flow.targets})
    road.names += [
        (frame.place(name), item) for name, item in frame.bound.items() if isinstance(item, Tensor)
    ]
    return tuple(_output(name, port, frame, road) for name, port in find_outputs(forward, flows))


def order_flows(frame: Frame, forward: Forward, road: Road) -> list[Flow]:
    """The statements of a graph with guards decided, each behind what it reads."""
    folding = Folding(frame)
    folding.fold(forward.graph or (), folding.flows)
    rebound = list(find_rebound(folding.flows, set(frame.bound)))
    for finding in (*folding.findings, *rebound):
        road.report(finding, frame.origin)
    for name in folding.lost:
        frame.bound[name] = UNKNOWN
    found = drop_rebound(folding.flows, rebound)
    if rebound:
        outputs = [port.name or "out" for port in forward.outputs or ()]
        frame.bound.update(dict.fromkeys(find_orphans(found, outputs, frame), UNKNOWN))
    flows, cycle = sort_flows(found)
    if cycle:
        span = next(flow.span for flow in found if flow.targets[0].name == cycle[0])
        road.report(graphs.CYCLE.at(span, name=cycle[0], cycle=" -> ".join(cycle)), frame.origin)
        frame.bound.update({target.name: UNKNOWN for flow in found for target in flow.targets})
    return keep_barriers(flows, found)


def find_orphans(flows: Sequence[Flow], outputs: Sequence[str], frame: Frame) -> list[str]:
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


def find_inputs(frame: Frame, forward: Forward) -> tuple[Port, ...]:
    """The inputs of a graph; those that are not declared are the names that it reads and never binds."""
    if forward.inputs is not None:
        return forward.inputs
    folding = Folding(frame)
    folding.fold(forward.graph or (), folding.flows)
    bound = {target.name for flow in folding.flows for target in flow.targets}
    found: dict[str, Port] = {}
    for flow in folding.flows:
        for name in _tensors_read(flow, frame):
            if name not in bound and not find_name(name, frame) and name not in frame.known:
                found.setdefault(name, Port(name, None, span=flow.span))
    return tuple(found.values())


def _tensors_read(flow: Flow, frame: Frame) -> Iterator[str]:
    """The names that stand where a statement takes tensors, as they are written."""
    for source in flow.sources:
        yield from _tensor_names(source)
    for step in flow.steps:
        if isinstance(step, Operation):
            constants = _constant_arguments(step, frame)
            for argument in step.arguments:
                if argument.name not in constants:
                    yield from _tensor_names(argument.value)


def _constant_arguments(operation: Operation, frame: Frame) -> set[str | None]:
    """The names of the arguments that are attributes of a primitive, or values of a module."""
    declared = _find(operation.callee, frame)
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


def _output(name: str, port: Port | None, frame: Frame, road: Road) -> Bound:
    value = frame.bound.get(name, UNKNOWN)
    if name not in frame.bound and port is not None:
        text = f"'{frame.name}'"
        finding = constants.MISSING_SECTION.at(
            port.span,
            module=frame.name,
            section=f"statement that binds its output '{name}'",
            repair=f"bind it in the graph of {text}",
        )
        road.report(finding, frame.origin)
    if isinstance(value, Tensor) and port is not None and isinstance(port.type, TensorType):
        try:
            for finding in match_type(name, value, port.type, frame, road.checks):
                road.report(finding, frame.origin)
            value = annotate_port(value, port, name, frame, road)
        except Problem as problem:
            road.report(problem.finding, frame.origin)
    return value


# --- statements -------------------------------------------------------------------------------------------------


def run_flow(flow: Flow, frame: Frame, road: Road) -> None:
    """Build one statement; where it is wrong, what it binds is unknown."""
    try:
        values = _flow_values(flow, frame, road)
    except Problem as problem:
        road.report(problem.finding, frame.origin)
        values = [UNKNOWN] * len(flow.targets)
    last = flow.steps[-1] if flow.steps and isinstance(flow.steps[-1], Operation) else Operation(Name(""))
    for target, value in zip(flow.targets, values, strict=False):
        if target.name != DROPPED:
            marks = (*last.annotations, *target.annotations, *flow.annotations)
            frame.bound[target.name] = annotate(value, marks, target.name, frame, road)


def _flow_values(flow: Flow, frame: Frame, road: Road) -> list[Bound]:
    values = [_source(item, frame, road) for item in flow.sources]
    for number, step in enumerate(flow.steps):
        last = number == len(flow.steps) - 1
        if isinstance(step, ShapeAssertion):
            _assert_shape(step, values[0], frame, road)
            continue
        targets = tuple(target.name for target in flow.targets) if last else ()
        with precisely((*step.annotations, *(flow.annotations if last else ())), frame, road):
            values = list(apply(step, values, targets, frame, road))
        if not last:
            values = [annotate(item, step.annotations, "", frame, road) for item in values[:1]]
    if len(flow.targets) > len(values) and not any(isinstance(item, Unknown) for item in values):
        operation = flow.steps[-1].span.text if flow.steps else flow.span.text
        finding = constants.ARITY.at(
            flow.span,
            operation=operation,
            given=f"{len(values)} tensor{'s' if len(values) != 1 else ''}",
            taken=str(len(flow.targets)),
            repair="",
        )
        raise Problem(finding)
    return values + [UNKNOWN] * (len(flow.targets) - len(values))


def _source(expr: Expr, frame: Frame, road: Road) -> Bound:
    """A source: a value, or a call that makes one."""
    if isinstance(expr, Call):
        operation = Operation(expr.callee, expr.arguments, span=expr.span)
        return apply(operation, [], (), frame, road)[0]
    return value_of(expr, frame, road)


def _assert_shape(step: ShapeAssertion, value: Bound, frame: Frame, road: Road) -> None:
    if isinstance(value, Tensor):
        for finding in match_type("the value here", value, step.type, frame, road.checks):
            road.report(finding, frame.origin)


# --- operations -------------------------------------------------------------------------------------------------


def apply(
    operation: Operation, values: Sequence[Bound], targets: tuple[str, ...], frame: Frame, road: Road
) -> Sequence[Bound]:
    """What an operation gives for the values that flow into it."""
    callee = operation.callee
    root = callee
    while isinstance(root, Member | Index):
        root = root.operand
    if isinstance(root, Name) and root.id in frame.instance.lost:
        return [UNKNOWN] * max(len(targets), 1)
    found = road.apply_backward(operation, values, targets, frame)
    if found is not None:
        return found
    if isinstance(callee, Name) and callee.id in frame.instance.children:
        return fold_members(members(callee.id, frame), values, operation, frame, road)
    if isinstance(callee, Name) and callee.id == STACKED:
        return _stacked(operation, values, frame, road)
    if isinstance(callee, Index):
        owner = value_of(callee.operand, frame, road)
        if isinstance(owner, Members):
            return fold_members(select_members(owner, callee, frame), values, operation, frame, road)
    if isinstance(callee, Member):
        owner = value_of(callee, frame, road) if _is_child(callee, frame) else None
        if isinstance(owner, Members):
            return fold_members(owner, values, operation, frame, road)
    declared = _find(callee, frame)
    if declared is None:
        raise Problem(_not_found(callee, frame))
    if isinstance(declared.declaration, Primitive):
        request = bind(declared.declaration, values, operation, targets, frame, road)
        return [UNKNOWN] * max(len(targets), 1) if is_unknown(request) else perform(request, road)
    if isinstance(declared.declaration, Module):
        return _call_declared(declared, values, operation, frame, road)
    raise Problem(graphs.NOT_AN_OPERATION.at(callee.span, name=declared.name, found="a recipe", repair=""))


def _is_child(callee: Member, frame: Frame) -> bool:
    """Whether a dotted callee begins at a parameter."""
    inner: Expr = callee
    while isinstance(inner, Member | Index):
        inner = inner.operand
    return isinstance(inner, Name) and inner.id in frame.instance.children


def _find(callee: Expr, frame: Frame) -> Declared | None:
    name = callee.id if isinstance(callee, Name) else callee.span.text
    scope = frame.instance.scope
    found = scope.find(name)
    if found is None and name in SUGAR:
        found = scope.find(SUGAR[name])
    return found or scope.standard(name)


def _not_found(callee: Expr, frame: Frame) -> Diagnostic:
    name = callee.span.text
    if isinstance(callee, Name) and find_name(callee.id, frame):
        repair = f"a tensor is an operand: (x, {name}) -> operation()"
        return graphs.NOT_AN_OPERATION.at(callee.span, name=name, found="a tensor", repair=repair)
    repair = suggest(name, [*frame.instance.children, *frame.instance.scope.names()])
    return graphs.UNKNOWN_OPERATION.at(callee.span, name=name, repair=repair)


def _stacked(operation: Operation, values: Sequence[Bound], frame: Frame, road: Road) -> Sequence[Bound]:
    """`StackedBlocks(blocks, n)`: every element of an array in turn."""
    arguments = operation.arguments
    owner = value_of(arguments[0].value, frame, road) if arguments else None
    if not isinstance(owner, Members):
        raise Problem(
            constants.KIND.at(
                operation.span,
                what=f"the first argument of {STACKED}",
                found="no array",
                wanted="an array of blocks",
                repair="",
            )
        )
    count = evaluate(arguments[1].value, frame.known) if len(arguments) > 1 else len(owner.items)
    if count != len(owner.items):
        what = f"'{arguments[0].value.span.text}'"
        raise Problem(
            constants.LENGTH.at(operation.span, what=what, found=len(owner.items), wanted=count, repair="")
        )
    return fold_members(owner, values, Operation(operation.callee, span=operation.span), frame, road)


def fold_members(
    owner: Members, values: Sequence[Bound], operation: Operation, frame: Frame, road: Road
) -> Sequence[Bound]:
    """Call instances one behind the other; inputs beyond what each gives are passed on unchanged."""
    state = [*values, *(value_of(item.value, frame, road) for item in operation.arguments)]
    given, done, cost = state, None, 0
    for path, instance in owner.items:
        kind = (id(instance), *map(_kind, state))
        if road.settings.once and kind == done and road.spend(cost, operation.span, frame):
            continue
        if road.is_spent:
            return [UNKNOWN] * max(len(given), 1)
        before, inner = road.steps, Frame(instance, path, frame.at(path, operation.span))
        given = list(call_instance(inner, state, operation, road))
        state, done, cost = [*given, *state[len(given) :]], kind, road.steps - before
    return state if not owner.items else given


def _kind(value: Bound) -> object:
    """What of an operand decides what is wrong with its use."""
    return (value.element, value.shape, value.quantization) if isinstance(value, Tensor) else value


def call_instance(inner: Frame, values: Sequence[Bound], operation: Operation, road: Road) -> Sequence[Bound]:
    """Build an instance at its place, with these values as its inputs."""
    forward = find_forward(inner)
    inputs = find_inputs(inner, forward)
    if len(values) > len(inputs):
        finding = constants.KIND.at(
            operation.span,
            what=f"'{inner.name}'",
            found=f"given {len(values)} tensors",
            wanted=f"at most {len(inputs)}",
            repair="",
        )
        raise Problem(finding)
    for number, port in enumerate(inputs):
        bind_input(port, values[number] if number < len(values) else None, inner, operation, road)
        name = port.name or "in"
        if name in inner.bound:
            inner.bound[name] = annotate_port(inner.bound[name], port, name, inner, road)
    if road.depth >= DEEPEST:
        what = f"the nesting of '{inner.name}'"
        raise Problem(syntax.LIMIT.at(operation.span, what=what, limit=DEEPEST, option="max_depth"))
    road.depth += 1
    try:
        return road.visit(inner, lambda: run_graph(inner, forward, road))
    finally:
        road.depth -= 1


def bind_input(port: Port, value: Bound, inner: Frame, operation: Operation, road: Road) -> None:
    """Give an input its value, and compare it with its declared type."""
    name = port.name or "in"
    if value is None and not (isinstance(port.type, TensorType) and port.type.optional):
        if isinstance(port.type, ScalarType):
            return
        repair = f"'{inner.name}' needs '{name}'"
        raise Problem(constants.NONE_GIVEN.at(operation.span, name=name, operation=inner.name, repair=repair))
    inner.bound[name] = value
    if isinstance(value, Tensor) and isinstance(port.type, TensorType):
        for finding in match_type(name, value, port.type, inner, road.checks):
            raise Problem(finding)


def _call_declared(
    declared: Declared, values: Sequence[Bound], operation: Operation, frame: Frame, road: Road
) -> Sequence[Bound]:
    """A module called by its name: its parameters are the tensors that the call gives."""
    instance, given = bind_parameters(declared, operation, frame, road)
    inner = Frame(instance, frame.place(declared.name), frame.at(declared.name, operation.span))
    inner.given.update(given)
    return call_instance(inner, values, Operation(operation.callee, span=operation.span), road)
