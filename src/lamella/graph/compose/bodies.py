"""Bodies: the components of operators and blocks, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.graph.compose.calls import Call, bind_call
from lamella.graph.compose.declare import declare, open_frame, update
from lamella.graph.compose.flow.branches import compose_branch
from lamella.graph.compose.flow.loops import compose_loop
from lamella.graph.compose.flow.unrolled import unroll
from lamella.graph.compose.operations import keep_whole
from lamella.graph.compose.outputs import give_outputs
from lamella.graph.compose.quantize import expect_quantized
from lamella.graph.compose.results import assign, fail
from lamella.graph.compose.scope.frame import Frame, Place
from lamella.graph.compose.scope.wanted import UNNAMED, Wanted, names_in
from lamella.lang.skriptnd.nodes import Block, Branch, Callee, Component, Expr, Invocation, Loop, Name
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import Unknown


def compose_body(frame: Frame, call: Call) -> Sequence[object]:
    """The components of a call's operator, in the place of the call; gives the values of its outputs."""
    with frame.session.deeper(call.span):
        inner = open_frame(frame, call)
        expect_quantized(inner, call.instance.definition)
        return compose_inside(inner, call)


def compose_inside(frame: Frame, call: Call) -> Sequence[object]:
    """The components of an operator, in a frame in which its inputs have their meaning."""
    operator = call.instance.definition.operator
    frame.session.leave(call.instance.checks)
    declare(frame, call)
    components = [item for item in operator.items("compose") if isinstance(item, Component)]
    compose_components(frame, components, labelled=not passes_scope(call, components))
    update(frame, call, compose_components)
    return give_outputs(frame, call)


def passes_scope(call: Call, components: Sequence[Component]) -> bool:
    """Whether an operator is nothing but one component, which then stands in the scope of the operator itself."""
    return len(components) == 1 and not call.instance.variables and not call.instance.constants


def compose_components(frame: Frame, components: Sequence[Component], labelled: bool = True) -> None:
    """Compose components in order; one that fails leaves its results unusable and the rest goes on."""
    names = frame.session.names
    for component in components:
        for result in (item for pattern in component.results for item in names_in(pattern)):
            if result.name not in frame.outputs and names.promise(frame.scope.name(result.name)):
                frame.promised.add(result.name)
    for component in components:
        frame.session.spend(1, component.span)
        try:
            _compose_component(frame, component, labelled)
        except Problem as problem:
            frame.session.report(frame.origin, *problem.findings)
            fail(frame, component.results)


def _compose_component(frame: Frame, component: Component, labelled: bool) -> None:
    wanted = [frame.wanted(pattern) for pattern in component.results]
    place = Place(wanted, _automatic_label(component) if labelled else None, component.span)
    value = component.value
    if isinstance(value, Branch):
        found = compose_branch(frame, value, place, compose_callee)
    elif isinstance(value, Loop):
        found = (unroll if value.unroll else compose_loop)(frame, value, place, compose_callee)
    else:
        found = compose_callee(frame, value, place)
    assign(frame, component, found)


def _automatic_label(component: Component) -> str | None:
    """The name of the only result labels a call that has no label."""
    names = [item.name for pattern in component.results for item in names_in(pattern)]
    return names[0] if len(names) == 1 else None


def compose_callee(frame: Frame, callee: Callee, place: Place) -> Sequence[object]:
    """The results of an invocation, a block or an expression."""
    if isinstance(callee, Invocation):
        call = bind_call(frame, callee, place)
        whole = frame.session.keep(call.instance.definition)
        return keep_whole(frame, call) if whole else compose_body(frame, call)
    if isinstance(callee, Block):
        return _compose_block(frame, callee, place)
    return (frame.value(callee),)


def _compose_block(frame: Frame, block: Block, place: Place) -> Sequence[object]:
    with frame.session.deeper(block.span):
        wanted = place.names(len(block.results))
        inner = frame.inside(frame.behind(block.label or place.label), dict(_yielded(block, wanted)))
        compose_components(inner, block.components)
        return [_settle(inner, item) for item in block.results]


def _settle(frame: Frame, result: Expr) -> object:
    """What a block yields; what cannot be had spoils no other result."""
    try:
        return frame.value(result)
    except Problem as problem:
        frame.session.report(frame.origin, *problem.findings)
        return Unknown(Problem())


def _yielded(block: Block, wanted: Sequence[Wanted]) -> Iterator[tuple[str, Wanted]]:
    """What a block yields under the name it has inside goes by the name it gets outside."""
    own = {item.name for part in block.components for pattern in part.results for item in names_in(pattern)}
    seen: set[str] = set()
    for result, name in zip(block.results, wanted, strict=True):
        if name is UNNAMED or not isinstance(result, Name):
            continue
        if result.id in own and result.id not in seen:
            seen.add(result.id)
            yield result.id, name
