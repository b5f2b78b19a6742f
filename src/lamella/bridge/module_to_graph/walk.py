"""Lowers statement by statement, through an instance and all that it calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.base.source import Span
from lamella.bridge.module_to_graph.annotations import annotate, annotate_port
from lamella.bridge.module_to_graph.calls import PrimitiveCall, bind, is_unknown
from lamella.bridge.module_to_graph.lowering import GraphLowering, match_type, require_call
from lamella.bridge.module_to_graph.nodes import UNKNOWN, Bound, BuiltStep, InstanceFrame, Members, Unknown
from lamella.bridge.module_to_graph.precision import by_recipe, perform, precisely
from lamella.bridge.module_to_graph.statements import (
    find_callee,
    find_forward,
    find_inputs,
    find_outputs,
    order_flows,
)
from lamella.bridge.module_to_graph.values import find_name, is_data, members, select_members, value_of
from lamella.graph.nodes import Tensor
from lamella.lang.module.annotations import GRADIENT
from lamella.lang.module.check.names import DROPPED
from lamella.lang.module.instantiate.build import instantiate
from lamella.lang.module.instantiate.evaluate import evaluate
from lamella.lang.module.instantiate.nodes import Instance, Known
from lamella.lang.module.nodes import (
    Argument,
    Call,
    Expr,
    Flow,
    Forward,
    Index,
    Member,
    Module,
    Name,
    Operation,
    Param,
    Port,
    Primitive,
    ScalarType,
    SequenceType,
    ShapeAssertion,
    TensorType,
)
from lamella.lang.module.resolve.nodes import Declared
from lamella.lang.module.rules import constants, graphs, names, syntax
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import STACKED

# --- a module called by its name: its parameters are the tensors that the call gives ------------------------


def _bind_parameters(
    declared: Declared, operation: Operation, frame: InstanceFrame, lowering: GraphLowering
) -> tuple[Instance | None, Mapping[str, Bound]]:
    """The instance that a call means, and the tensors that are its parameters; None where one of these is unknown."""
    module = declared.declaration
    if not isinstance(module, Module):
        raise TypeError("only modules are called with parameters")
    params = [item for item in module.tensors if isinstance(item.type, TensorType)]
    given, config = _arguments(module, params, operation, frame, lowering)
    if any(isinstance(value, Unknown) for value in given.values()):
        return None, given
    for param in params:
        value = given.get(param.path.parts[0].name)
        if isinstance(value, Tensor) and isinstance(param.type, TensorType):
            _learn(param.type, value, config, param)
    _switch(module, params, given, config)
    found = instantiate(declared, config, frame.instance.scope.of(declared))
    for finding in found.findings:
        lowering.report(finding, frame.origin)
    if found.instance is None:
        what = f"'{declared.name}'"
        finding = constants.KIND.at(
            operation.span, what=what, found="not complete", wanted="all its values", repair=""
        )
        raise Found(finding)
    return found.instance, given


def _arguments(
    module: Module,
    params: Sequence[Param],
    operation: Operation,
    frame: InstanceFrame,
    lowering: GraphLowering,
) -> tuple[dict[str, Bound], dict[str, Known]]:
    """Tensors by the parameter they are for, and constants by theirs."""
    given: dict[str, Bound] = {}
    config: dict[str, Known] = {}
    order = [item.path.parts[0].name for item in params]
    heads = [item.name for item in module.params or ()]
    for argument in operation.arguments:
        if is_data(argument.value, frame) and (argument.name is None or argument.name in order):
            name = argument.name or next((item for item in order if item not in given), None)
            if name is None:
                raise _unknown(module, argument)
            given[name] = value_of(argument.value, frame, lowering)
        elif argument.name in heads:
            config[argument.name or ""] = Known(
                evaluate(argument.value, frame.known), "argument", argument.span
            )
        else:
            raise _fresh_weights(module, argument) if argument.name is None else _unknown(module, argument)
    return given, config


def _unknown(module: Module, argument: Argument) -> Found:
    name = argument.name or argument.value.span.text
    return Found(names.UNKNOWN_ARGUMENT.at(argument.span, module=module.name, name=name, repair=""))


def _fresh_weights(module: Module, argument: Argument) -> Found:
    """Constants alone would make an instance with weights that nothing declares."""
    repair = f"declare it in params: as name: {module.name}(…), and call it by that name"
    what, found = f"the argument of '{module.name}'", "a constant"
    return Found(
        constants.KIND.at(argument.span, what=what, found=found, wanted="one of its tensors", repair=repair)
    )


def _learn(type: TensorType, tensor: Tensor, config: dict[str, Known], param: Param) -> None:
    """Bind the names of dimensions from the shape of a given parameter."""
    if len(type.dims) != len(tensor.shape):
        return
    for item, extent in zip(type.dims, tensor.shape, strict=True):
        if isinstance(item, Name) and item.id not in config and isinstance(extent, int):
            config[item.id] = Known(extent, f"the shape of '{param.path.parts[0].name}'", item.span)


def _switch(
    module: Module, params: Sequence[Param], given: Mapping[str, Bound], config: dict[str, Known]
) -> None:
    """Flags that say whether a parameter exists are true where it is given."""
    heads = {item.name for item in module.params or ()}
    for name in list(config):
        if name not in heads:
            del config[name]
    for param in params:
        if isinstance(param.condition, Name) and param.condition.id in heads:
            value = given.get(param.path.parts[0].name) is not None
            config.setdefault(param.condition.id, Known(value, "the tensors given", param.span))


DEEPEST = 60
"""Modules in modules; each level takes several calls of Python's own stack."""


# --- graphs -----------------------------------------------------------------------------------------------------


def run_graph(frame: InstanceFrame, forward: Forward, lowering: GraphLowering) -> tuple[Bound, ...]:
    """Build the forward graph of a frame whose inputs are bound, and give its outputs."""
    for name, built in frame.instance.constants.items():
        try:
            require_call(name, built)
        except Found as problem:
            lowering.report(problem.finding, frame.origin)
    flows = order_flows(frame, forward, lowering)
    with by_recipe(frame, lowering):
        for flow in flows:
            if lowering.spend(max(len(flow.steps), 1), flow.span, frame):
                run_flow(flow, frame, lowering)
            else:
                frame.bound.update({target.name: UNKNOWN for target in flow.targets})
    lowering.names += [
        (frame.place(name), item) for name, item in frame.bound.items() if isinstance(item, Tensor)
    ]
    return tuple(_output(name, port, frame, lowering) for name, port in find_outputs(forward, flows))


def _output(name: str, port: Port | None, frame: InstanceFrame, lowering: GraphLowering) -> Bound:
    if name not in frame.bound and port is not None:
        if isinstance(port.type, TensorType) and port.type.optional:
            return None
        text = f"'{frame.name}'"
        finding = constants.MISSING_SECTION.at(
            port.span,
            module=frame.name,
            section=f"statement that binds its output '{name}'",
            repair=f"bind it in the graph of {text}",
        )
        lowering.report(finding, frame.origin)
    value = frame.bound.get(name, UNKNOWN)
    if isinstance(value, Tensor) and port is not None and isinstance(port.type, TensorType):
        try:
            for finding in match_type(name, value, port.type, frame, lowering.checks):
                lowering.report(finding, frame.origin)
            value = annotate_port(value, port, name, frame, lowering)
            for item in port.annotations:
                if item.name == GRADIENT and isinstance(value, Tensor):
                    value = lowering.control_gradient(value, item, frame)
        except Found as problem:
            lowering.report(problem.finding, frame.origin)
    return value


# --- statements -------------------------------------------------------------------------------------------------


def run_flow(flow: Flow, frame: InstanceFrame, lowering: GraphLowering) -> None:
    """Build one statement; where it is wrong, what it binds is unknown."""
    steps: list[BuiltStep] = []
    try:
        values = _flow_values(flow, frame, lowering, steps)
    except Found as problem:
        lowering.report(problem.finding, frame.origin)
        values = [UNKNOWN] * len(flow.targets)
    last = flow.steps[-1] if flow.steps and isinstance(flow.steps[-1], Operation) else Operation(Name(""))
    for target, value in zip(flow.targets, values, strict=False):
        if target.name != DROPPED:
            # In rising rank: of two @dtype the last one holds.
            marks = (*last.annotations, *target.annotations, *flow.annotations)
            frame.bound[target.name] = annotate(value, marks, target.name, frame, lowering, tuple(steps))


def _flow_values(
    flow: Flow, frame: InstanceFrame, lowering: GraphLowering, steps: list[BuiltStep]
) -> list[Bound]:
    """What a statement binds; `steps` gets what each of its operations made."""
    values = [_source(item, frame, lowering) for item in flow.sources]
    for number, step in enumerate(flow.steps):
        last = number == len(flow.steps) - 1
        if isinstance(step, ShapeAssertion):
            _assert_shape(step, values[0], frame, lowering)
            continue
        targets = tuple(target.name for target in flow.targets) if last else ()
        with precisely((*step.annotations, *(flow.annotations if last else ())), frame, lowering):
            before = lowering.builder.length
            values = list(_apply(step, values, targets, frame, lowering))
            steps.append(BuiltStep(step.callee.span.text, lowering.builder.made_since(before)))
        if not last:
            own = (steps[-1],)
            values = [annotate(item, step.annotations, "", frame, lowering, own) for item in values[:1]]
    if len(flow.targets) > len(values) and not any(isinstance(item, Unknown) for item in values):
        operation = flow.steps[-1].span.text if flow.steps else flow.span.text
        raise Found(_arity(flow.span, operation, len(values), len(flow.targets)))
    return values + [UNKNOWN] * (len(flow.targets) - len(values))


def _source(expr: Expr, frame: InstanceFrame, lowering: GraphLowering) -> Bound:
    """A source: a value, or a call that makes one."""
    if isinstance(expr, Call):
        operation = Operation(expr.callee, expr.arguments, span=expr.span)
        return _apply(operation, [], (), frame, lowering)[0]
    return value_of(expr, frame, lowering)


def _assert_shape(step: ShapeAssertion, value: Bound, frame: InstanceFrame, lowering: GraphLowering) -> None:
    if isinstance(value, Tensor):
        for finding in match_type("the value here", value, step.type, frame, lowering.checks):
            lowering.report(finding, frame.origin)


# --- operations -------------------------------------------------------------------------------------------------


def _apply(
    operation: Operation,
    values: Sequence[Bound],
    targets: tuple[str, ...],
    frame: InstanceFrame,
    lowering: GraphLowering,
) -> Sequence[Bound]:
    """What an operation gives for the values that flow into it."""
    callee = operation.callee
    root = callee
    while isinstance(root, Member | Index):
        root = root.operand
    if isinstance(root, Name) and root.id in frame.instance.lost:
        return [UNKNOWN] * max(len(targets), 1)
    # Before names of the module: `x.backward` would be taken for a member of the parameter x.
    found = lowering.apply_backward(operation, values, targets, frame)
    if found is not None:
        return found
    if isinstance(callee, Name) and callee.id in frame.instance.children:
        return _fold_members(members(callee.id, frame), values, operation, frame, lowering)
    if isinstance(callee, Name) and callee.id == STACKED:
        return _stacked(operation, values, frame, lowering)
    if isinstance(callee, Index):
        owner = value_of(callee.operand, frame, lowering)
        if isinstance(owner, Members):
            return _fold_members(select_members(owner, callee, frame), values, operation, frame, lowering)
    if isinstance(callee, Member):
        owner = value_of(callee, frame, lowering) if _is_child(callee, frame) else None
        if isinstance(owner, Members):
            return _fold_members(owner, values, operation, frame, lowering)
    declared = find_callee(callee, frame)
    if declared is None:
        raise Found(_not_found(callee, frame))
    if isinstance(declared.declaration, Primitive):
        request = bind(declared.declaration, values, operation, targets, frame, lowering)
        return _unknown_results(request) if is_unknown(request) else perform(request, lowering)
    if isinstance(declared.declaration, Module):
        return _call_declared(declared, values, operation, frame, lowering)
    raise Found(graphs.NOT_AN_OPERATION.at(callee.span, name=declared.name, found="a recipe", repair=""))


def _is_child(callee: Member, frame: InstanceFrame) -> bool:
    """Whether a dotted callee begins at a parameter."""
    inner: Expr = callee
    while isinstance(inner, Member | Index):
        inner = inner.operand
    return isinstance(inner, Name) and inner.id in frame.instance.children


def _not_found(callee: Expr, frame: InstanceFrame) -> Diagnostic:
    name = callee.span.text
    if isinstance(callee, Name) and find_name(callee.id, frame):
        repair = f"a tensor is an operand: (x, {name}) -> operation()"
        return graphs.NOT_AN_OPERATION.at(callee.span, name=name, found="a tensor", repair=repair)
    repair = suggest(name, [*frame.instance.children, *frame.instance.scope.names()])
    return graphs.UNKNOWN_OPERATION.at(callee.span, name=name, repair=repair)


def _unknown_results(request: PrimitiveCall) -> Sequence[Bound]:
    """As many unknown results as an operation with unknown operands gives, where its declaration says how many."""
    forward, taken = request.primitive.forward, len(request.targets)
    given = [] if forward is None else [port for port in forward.outputs or () if port.type is not None]
    if given and taken > len(given) and not any(isinstance(port.type, SequenceType) for port in given):
        raise Found(_arity(request.place.span, f"{request.name}()", len(given), taken))
    return [UNKNOWN] * max(taken, 1)


def _arity(span: Span, operation: str, given: int, taken: int) -> Diagnostic:
    text = f"{given} tensor{'s' if given != 1 else ''}"
    return constants.ARITY.at(span, operation=operation, given=text, taken=str(taken), repair="")


def _stacked(
    operation: Operation, values: Sequence[Bound], frame: InstanceFrame, lowering: GraphLowering
) -> Sequence[Bound]:
    """`StackedBlocks(blocks, n)`: every element of an array in turn, or one instance n times."""
    arguments = operation.arguments
    _require_stack(arguments)
    owner = value_of(arguments[0].value, frame, lowering) if arguments else None
    if isinstance(owner, Unknown):
        return [UNKNOWN] * max(len(values), 1)
    if not isinstance(owner, Members):
        raise Found(
            constants.KIND.at(
                operation.span,
                what=f"the first argument of {STACKED}",
                found="no array",
                wanted="an array of blocks",
                repair="",
            )
        )
    count = evaluate(arguments[1].value, frame.known) if len(arguments) > 1 else len(owner.items)
    if len(owner.items) == 1 and not owner.items[0][0].endswith("]") and isinstance(count, int) and count > 0:
        owner = Members(owner.items * count)
    if count != len(owner.items):
        what = f"'{arguments[0].value.span.text}'"
        raise Found(
            constants.LENGTH.at(operation.span, what=what, found=len(owner.items), wanted=count, repair="")
        )
    return _fold_members(owner, values, Operation(operation.callee, span=operation.span), frame, lowering)


def _require_stack(arguments: Sequence[Argument]) -> None:
    """`StackedBlocks` takes an array and its length, and nothing else."""
    for number, item in enumerate(arguments):
        if item.name not in (None, "blocks", "n"):
            raise Found(
                names.UNKNOWN_ARGUMENT.at(
                    item.span, module=STACKED, name=item.name, repair="there are blocks, n"
                )
            )
        if number > 1:
            found = f"given {len(arguments)} arguments"
            raise Found(
                constants.KIND.at(item.span, what=f"'{STACKED}'", found=found, wanted="at most 2", repair="")
            )


def _fold_members(
    owner: Members,
    values: Sequence[Bound],
    operation: Operation,
    frame: InstanceFrame,
    lowering: GraphLowering,
) -> Sequence[Bound]:
    """Call instances one behind the other; inputs beyond what each gives are passed on unchanged."""
    state = [*values, *(value_of(item.value, frame, lowering) for item in operation.arguments)]
    given, done, cost = state, None, 0
    for path, instance in owner.items:
        kind = (id(instance), *map(_kind, state))
        # Equal elements on equal operands have the same mistakes: one is built, the cost of all is counted.
        if lowering.settings.once and kind == done and lowering.spend(cost, operation.span, frame):
            continue
        if lowering.is_spent:
            return [UNKNOWN] * max(len(given), 1)
        before, inner = lowering.steps, InstanceFrame(instance, path, frame.at(path, operation.span))
        given = list(_call_instance(inner, state, operation, lowering))
        state, done, cost = [*given, *state[len(given) :]], kind, lowering.steps - before
    return state if not owner.items else given


def _kind(value: Bound) -> object:
    """What of an operand decides what is wrong with its use."""
    return (value.element, value.shape, value.quantization) if isinstance(value, Tensor) else value


def _call_instance(
    inner: InstanceFrame, values: Sequence[Bound], operation: Operation, lowering: GraphLowering
) -> Sequence[Bound]:
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
        raise Found(finding)
    for number, port in enumerate(inputs):
        _bind_input(port, values[number] if number < len(values) else None, inner, operation, lowering)
        name = port.name or "in"
        if name in inner.bound:
            value = annotate_port(inner.bound[name], port, name, inner, lowering)
            inner.bound[name] = lowering.stop_input(value, port)
    if lowering.depth >= DEEPEST:
        raise _too_deep(inner, operation)
    lowering.depth += 1
    try:
        return lowering.visit(inner, lambda: run_graph(inner, forward, lowering))
    finally:
        lowering.depth -= 1


def _too_deep(inner: InstanceFrame, operation: Operation) -> Found:
    """Calls that do not end: of a module by its own name, further down, or of too many modules."""
    *above, last = inner.path.split(".")
    if last == inner.name and last in above:
        first = len(above) - 1 - above[::-1].index(last)
        cycle = " -> ".join([*above[first:], last])
        return Found(graphs.CONTAINS_ITSELF.at(operation.span, name=last, cycle=cycle))
    what = f"the nesting of '{inner.name}'"
    return Found(syntax.LIMIT.at(operation.span, what=what, limit=DEEPEST, option="max_depth"))


def _bind_input(
    port: Port, value: Bound, inner: InstanceFrame, operation: Operation, lowering: GraphLowering
) -> None:
    """Give an input its value, and compare it with its declared type."""
    name = port.name or "in"
    if value is None and not (isinstance(port.type, TensorType) and port.type.optional):
        if isinstance(port.type, ScalarType):
            return
        repair = f"'{inner.name}' needs '{name}'"
        raise Found(constants.NONE_GIVEN.at(operation.span, name=name, operation=inner.name, repair=repair))
    inner.bound[name] = value
    if isinstance(value, Tensor) and isinstance(port.type, TensorType):
        for finding in match_type(name, value, port.type, inner, lowering.checks):
            raise Found(finding)


def _call_declared(
    declared: Declared,
    values: Sequence[Bound],
    operation: Operation,
    frame: InstanceFrame,
    lowering: GraphLowering,
) -> Sequence[Bound]:
    """A module called by its name: its parameters are the tensors that the call gives."""
    instance, given = _bind_parameters(declared, operation, frame, lowering)
    if instance is None:
        return [UNKNOWN]
    inner = InstanceFrame(instance, frame.place(declared.name), frame.at(declared.name, operation.span))
    inner.given.update(given)
    return _call_instance(inner, values, Operation(operation.callee, span=operation.span), lowering)
