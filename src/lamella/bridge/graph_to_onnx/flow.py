"""Control flow of graphs as ONNX's own: branches as `If`, loops as `Loop`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lamella.base.dim import Extent
from lamella.base.dtype import BOOL, I64, ElementType
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_onnx.arithmetic import apply, cast
from lamella.bridge.graph_to_onnx.emitter import Emitter, Value, value_info
from lamella.bridge.graph_to_onnx.recurrent import emit_recurrent, find_recurrent
from lamella.bridge.graph_to_onnx.scope import Held, Scope, dimensions
from lamella.bridge.onnx.nodes import Graph
from lamella.graph.nodes import Argument, Branch, Loop, Node, Pack, Region, Tensor


class Translates(Protocol):
    """What translates the nodes of a region."""

    rows: dict[tuple[str, ...], Value]
    """Values whose rows are tensors, by the names of these."""
    makers: dict[str, Node]
    """The nodes that were translated, by the names of what they make."""

    def nodes(self, scope: Scope, nodes: Sequence[Node]) -> None:
        """Translate nodes in their order."""


# --- branches -------------------------------------------------------------------------------------------------


def emit_branch(translation: Translates, scope: Scope, node: Branch) -> list[Held]:
    """The results of a branch: conditions are tested in their order, each inside the last one's other side."""
    return list(_choose(translation, scope, node, 0))


def _choose(translation: Translates, scope: Scope, node: Branch, place: int) -> tuple[Value, ...]:
    (given,) = _region(translation, scope, node.conditions[place])
    condition = _single(scope, given)
    then = scope.emitter.inner()
    chosen = _region(translation, Scope(then, scope), node.branches[place])
    other = scope.emitter.inner()
    if place + 1 < len(node.conditions):
        rest = list(_choose(translation, Scope(other, scope), node, place + 1))
    else:
        rest = _region(translation, Scope(other, scope), node.branches[-1])
    elements = [item.element for item in chosen]
    return scope.emitter.add_all(
        "If",
        (condition,),
        elements,
        then_branch=_subgraph(then, "then", chosen),
        else_branch=_subgraph(other, "else", rest),
    )


def _region(translation: Translates, scope: Scope, region: Region) -> list[Value]:
    """The results of a region whose nodes go into a scope."""
    translation.nodes(scope, region.nodes)
    return [scope.value(item) for item in region.outputs]


def _subgraph(emitter: Emitter, name: str, results: Sequence[Value]) -> Graph:
    own = emitter.results(results)
    return emitter.graph(f"{emitter.stem}/{name}", (), [value_info(item) for item in own])


def _single(scope: Scope, value: Value) -> Value:
    """A condition of one element, whatever its rank."""
    return scope.reshape(cast(scope.emitter, value, BOOL), ())


# --- loops ----------------------------------------------------------------------------------------------------


def emit_loop(translation: Translates, scope: Scope, node: Loop) -> list[Held]:
    """The results of a loop: carried tensors, then what the steps gave, one below the other."""
    scans = [_stacked(translation, scope, item) for item in node.scans]
    network = find_recurrent(node, translation.makers)
    if network is not None:
        last, steps = emit_recurrent(scope, network, scans[0][0])
        return [*last, _rows(translation, scope, node.outputs[-1], steps)]
    count = _count(scope, node)
    carried = [scope.value(item) for item in node.carried]
    first = None
    if node.condition is not None and node.pretest:
        start = scope.emitter.number(0, I64)
        local = [*_items(scope, scans, start), *([start] if node.index else [])]
        first = _tested(translation, scope, node, [*carried, *local])
    elif not carried:
        # ONNX counts the inputs of a node without those left out at its end, and asks for two.
        first = scope.truth(True)
    body, elements = _body(translation, scope, node, scans)
    found = scope.emitter.add_all("Loop", (count, first, *carried), elements, body=body)
    kept = len(node.carried)
    results: list[Held] = list(found[:kept])
    pairs = zip(node.outputs[kept:], found[kept:], strict=True)
    return [*results, *(_rows(translation, scope, argument, value) for argument, value in pairs)]


def _stacked(translation: Translates, scope: Scope, scan: tuple[Tensor, ...] | Pack) -> tuple[Value, Extent]:
    """The items of a scan as one value, and how many they are."""
    if isinstance(scan, Pack):
        return scope.value(scan), scan.size
    whole = translation.rows.get(tuple(item.name for item in scan))
    if whole is not None:
        return whole, len(scan)
    if len({item.shape for item in scan}) > 1:
        shapes = " and ".join(f"{item.name}: {list(map(str, item.shape))}" for item in scan)
        raise Unsupported(f"a loop goes over tensors of different shapes, {shapes}")
    emitter, values = scope.emitter, [scope.value(item) for item in scan]
    rows = [emitter.add("Unsqueeze", (item, emitter.integers(0)), item.element) for item in values]
    return emitter.add("Concat", rows, values[0].element, axis=0), len(scan)


def _rows(translation: Translates, scope: Scope, argument: Argument, value: Value) -> Held:
    """What the steps of a loop gave, as the graph holds it: whole, or one value for each step."""
    if not isinstance(argument, tuple):
        return value
    translation.rows[tuple(item.name for item in argument)] = value
    emitter = scope.emitter
    places = [emitter.number(place, I64) for place in range(len(argument))]
    return tuple(emitter.add("Gather", (value, place), value.element, axis=0) for place in places)


def _count(scope: Scope, node: Loop) -> Value | None:
    """How many steps there are at most."""
    ends = [scope.extent(item.size if isinstance(item, Pack) else len(item)) for item in node.scans]
    if isinstance(node.count, Tensor):
        ends.append(cast(scope.emitter, scope.reshape(scope.value(node.count), ()), I64))
    elif node.count is not None:
        ends.append(scope.extent(node.count))
    found: Value | None = None
    for end in ends:
        found = end if found is None else apply(scope.emitter, "<<", (found, end), I64)
    return found


def _items(scope: Scope, scans: Sequence[tuple[Value, Extent]], step: Value) -> list[Value]:
    """The scanned items of a step."""
    emitter = scope.emitter
    return [emitter.add("Gather", (value, step), value.element, axis=0) for value, _ in scans]


def _tested(translation: Translates, scope: Scope, node: Loop, given: Sequence[Value]) -> Value:
    """Whether a loop goes on, in the scope of its body or around it; given are carried tensors, items and index."""
    if node.condition is None:
        return scope.truth(True)
    inner = Scope(scope.emitter, scope)
    for tensor, value in zip(node.condition.inputs, given, strict=True):
        inner.put(tensor, value)
    (found,) = _region(translation, inner, node.condition)
    return _single(scope, found)


def _body(
    translation: Translates, scope: Scope, node: Loop, scans: Sequence[tuple[Value, Extent]]
) -> tuple[Graph, list[ElementType]]:
    """The body of a loop, and the types of its results."""
    emitter = scope.emitter.inner()
    inner, take = Scope(emitter, scope), emitter.shared.names.take
    step, going = Value(I64, take(f"{emitter.stem}/step")), Value(BOOL, take(f"{emitter.stem}/going"))
    inputs = node.body.inputs
    state = [Value(item.element, take(f"{emitter.stem}/{item.name}")) for item in inputs[: len(node.carried)]]
    local = [*_items(inner, scans, step), *([step] if node.index else [])]
    for tensor, value in zip(inputs, [*state, *local], strict=True):
        inner.put(tensor, value)
    results = _region(translation, inner, node.body)
    still, *own = emitter.results(
        [_goes_on(translation, inner, node, results, (scans, step, local)) or going, *results]
    )
    given = [value_info(step, shape=()), value_info(going, shape=())]
    given += [
        value_info(value, shape=dimensions(item.shape)) for value, item in zip(state, inputs, strict=False)
    ]
    infos = [value_info(still, shape=()), *(value_info(item) for item in own)]
    return emitter.graph(f"{emitter.stem}/body", given, infos), [item.element for item in own]


def _goes_on(
    translation: Translates,
    scope: Scope,
    node: Loop,
    results: Sequence[Value],
    at: tuple[Sequence[tuple[Value, Extent]], Value, Sequence[Value]],
) -> Value | None:
    """Whether there is another step: tested with its own items where it is tested first; None without a test."""
    scans, step, local = at
    state = results[: len(node.carried)]
    if node.condition is None:
        return None
    if not node.pretest:
        return _tested(translation, scope, node, [*state, *local])
    emitter = scope.emitter
    following = place = apply(emitter, "+", (step, emitter.number(1, I64)), I64)
    for _, length in scans:
        last = apply(emitter, "-", (scope.extent(length), emitter.number(1, I64)), I64)
        place = apply(emitter, "<<", (place, last), I64)
    items = _items(scope, scans, place)
    return _tested(translation, scope, node, [*state, *items, *([following] if node.index else [])])
