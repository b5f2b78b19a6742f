"""The lowering of an instance of the Module DSL to a composed graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base import dim
from lamella.base.diagnostic import errors
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import I64, find_in
from lamella.base.errors import Found
from lamella.base.source import Span
from lamella.bridge.module_to_graph.annotations import annotate_port
from lamella.bridge.module_to_graph.lowering import (
    OPEN,
    GraphLowering,
    element_of,
    evaluate_extent,
    unbound_names,
)
from lamella.bridge.module_to_graph.nodes import (
    UNKNOWN,
    Bound,
    BuiltStep,
    CompilationSettings,
    Compiled,
    Held,
    InstanceFrame,
    Mark,
    Weight,
    graph_name,
)
from lamella.bridge.module_to_graph.statements import find_forward, find_inputs, find_outputs, order_flows
from lamella.bridge.module_to_graph.walk import run_graph
from lamella.graph.model import FusionHint, Model
from lamella.graph.nodes import Graph, Tensor
from lamella.graph.passes.dce import dce
from lamella.graph.rewrite import members, rename
from lamella.lang.module.check import PATTERNS, plain
from lamella.lang.module.instantiate.nodes import Instance, Known
from lamella.lang.module.nodes import (
    Expr,
    Flow,
    Module,
    Name,
    Operation,
    Port,
    Primitive,
    ScalarType,
    Star,
    TensorType,
    Unchanged,
)
from lamella.lang.module.rules.annotated import FUSION
from lamella.lang.module.rules.constants import MISSING_SECTION

CHANGING = ("modify", "replace")
"""The modes of hooks that change what they are given: nothing is fused across one."""


def fusion_hints(marks: Iterable[Mark]) -> tuple[FusionHint, ...]:
    """The hints of a graph, in the order of their annotations."""
    return tuple(dict.fromkeys(hint for mark in marks for hint in _hints(mark)))


def _hints(mark: Mark) -> Iterator[FusionHint]:
    name, arguments = mark.annotation.name, mark.arguments
    if name == "hook" and arguments.get("mode") in CHANGING:
        yield FusionHint(frozenset((mark.tensor.name,)), is_apart=True, reason="a hook changes its result")
    elif name == "nofuse":
        reason = arguments.get("reason")
        said = f"@nofuse: {reason}" if isinstance(reason, str) else "@nofuse"
        yield FusionHint(_made(_last(mark)), is_apart=True, reason=said)
    elif name == "kernel":
        word = str(arguments.get("name"))
        made = _made(_last(mark))
        size, reason = arguments.get("workspace"), f"@kernel({word})"
        yield FusionHint(
            made,
            is_apart=True,
            is_together=True,
            kernel=word,
            workspace=size if isinstance(size, int) else None,
            is_tuned=arguments.get("autotune") is not False,
            reason=reason,
        )
    elif name in ("fuse", "fuse_required"):
        yield from _fused(mark)


def _fused(mark: Mark) -> Iterator[FusionHint]:
    steps = _chosen(mark)
    refused = None
    if mark.annotation.name == "fuse_required":
        pattern = mark.arguments.get("pattern") or ", ".join(item.name for item in steps)
        why, repair = "it is required, and cannot be one group here", "@fuse is a wish, and may be ignored"
        refused = FUSION.at(mark.annotation.span, name=pattern, why=why, repair=repair)
    wide = mark.arguments.get("scope") == "global" and refused is None
    reason = f"@{mark.annotation.name}"
    yield FusionHint(_made(steps), is_together=not wide, is_free=wide, reason=reason, refused=refused)


def _last(mark: Mark) -> Sequence[BuiltStep]:
    """The operation that makes an annotated tensor."""
    return mark.steps[-1:] or (BuiltStep("", (mark.tensor.name,)),)


def _made(steps: Iterable[BuiltStep]) -> frozenset[str]:
    return frozenset(name for item in steps for name in item.tensors)


def _chosen(mark: Mark) -> Sequence[BuiltStep]:
    """The operations of a statement that a pattern or a list names; all of them where it names none by themselves."""
    pattern, ops = mark.arguments.get("pattern"), mark.arguments.get("ops")
    wanted: Sequence[frozenset[str]] = PATTERNS.get(pattern, ()) if isinstance(pattern, str) else ()
    if isinstance(ops, tuple):
        wanted = [frozenset((plain(str(item)),)) for item in ops]
    names = [plain(item.name) for item in mark.steps]
    for start in range(len(names) - len(wanted) + 1 if wanted else 0):
        if all(names[start + number] in item for number, item in enumerate(wanted)):
            return mark.steps[start : start + len(wanted)]
    return mark.steps


__all__ = ["CompilationSettings", "Compiled", "Held", "Mark", "Weight", "graph_name", "module_to_graph"]
_LONGEST = (1 << 31) - 1
"""The largest extent of a dimension that is known only at run time."""
_DEEPEST = 8
"""Calls that are followed; a deeper chain of modules that only pass an input on is not looked through."""
_SUGAR = {"Embedding": "embedding"}


def module_to_graph(instance: Instance, settings: CompilationSettings | None = None) -> Compiled:
    """The forward graph of an instance, all that it calls written in place; without a model where it is wrong."""
    settings = settings or CompilationSettings()
    lowering = GraphLowering(settings, instance.name)
    frame = InstanceFrame(instance)
    try:
        graph = _build(frame, lowering)
    except Found as problem:
        lowering.report(problem.finding)
        graph = None
    if errors(lowering.findings):
        graph = None
    model = None if graph is None else Model(graph, settings.library, hints=fusion_hints(lowering.marks))
    weights = tuple(lowering.weights.values())
    return Compiled(
        model,
        weights,
        tuple(lowering.marks),
        lowering.constants,
        tuple(lowering.findings),
        tuple(lowering.names),
        lowering.controls,
    )


def _build(frame: InstanceFrame, lowering: GraphLowering) -> Graph | None:
    results = build_whole(frame, lowering)
    tensors = {name: item for name, item in results.items() if isinstance(item, Tensor)}
    if len(tensors) != len(results) or not tensors:
        return None
    if lowering.settings.held is Held.INSIDE:
        return finish(tensors, lowering)
    return _part(
        finish(lowering.held if lowering.settings.held is Held.OUTPUTS else tensors, lowering), lowering
    )


def _part(graph: Graph, lowering: GraphLowering) -> Graph:
    """What is left of a graph of which a part is computed elsewhere: without what nothing of this part reads."""
    graph = dce(Model(replace(graph, checks=()), lowering.settings.library)).graph
    read = {item.name for node in graph.operations() for item in members(node.inputs)}
    read |= {item.name for item in members((*graph.outputs, *(update.value for update in graph.updates)))}
    read |= {update.variable.name for update in graph.updates}
    inputs = tuple(item for item in graph.inputs if read & {one.name for one in members((item,))})
    variables = tuple(item for item in graph.variables if item.name in read)
    kept = {item.name for item in variables}
    lowering.weights = {path: item for path, item in lowering.weights.items() if item.tensor.name in kept}
    lowering.constants = {name: item for name, item in lowering.constants.items() if name in kept}
    lowering.marks, lowering.names = [], []
    return replace(graph, inputs=inputs, variables=variables)


def build_whole(frame: InstanceFrame, lowering: GraphLowering) -> dict[str, Bound]:
    """Build the instance that nothing calls: its inputs are those of the graph; its outputs by name."""
    forward = find_forward(frame)
    inputs = find_inputs(frame, forward)
    # A throwaway lowering: `run_graph` orders the statements again, and reports what is wrong with them.
    flows = order_flows(InstanceFrame(frame.instance), forward, GraphLowering(lowering.settings, ""))
    for port in inputs:
        _declare(port, flows, frame, lowering)
    results = lowering.visit(frame, lambda: run_graph(frame, forward, lowering))
    names = [name for name, _ in find_outputs(forward, flows)]
    # An optional output that no statement binds is not there; where names are bound twice, results may be fewer.
    return {name: item for name, item in zip(names, results, strict=False) if item is not None}


def finish(outputs: Mapping[str, Tensor], lowering: GraphLowering) -> Graph:
    """The graph with these outputs, each under its name."""
    if lowering.caches is not None:
        lowering.caches.finish()
    lowering.builder.origin = None
    named = [
        item if item.name == name else lowering.builder.call("math.iden", item, results=(name,))
        for name, item in outputs.items()
    ]
    graph = replace(lowering.builder.finish(*named), checks=tuple(dict.fromkeys(lowering.checks)))
    return _call_by_name(graph, tuple(outputs), lowering)


def _call_by_name(graph: Graph, names: Sequence[str], lowering: GraphLowering) -> Graph:
    """The graph whose outputs have these names, also those that something on the way to them took."""
    kept = {item.name for item in (*graph.inputs, *graph.variables) if isinstance(item, Tensor)}
    found = zip(graph.outputs, names, strict=True)
    changes = {
        item.name: name for item, name in found if isinstance(item, Tensor) and name not in (item.name, *kept)
    }
    if not changes:
        return graph
    # What has the name of an output now makes way for it.
    changes |= {name: lowering.builder.fresh(name) for name in changes.values() if name not in changes}
    lowering.marks = [_renamed_mark(item, changes) for item in lowering.marks]
    lowering.names = [(path, _renamed(tensor, changes)) for path, tensor in lowering.names]
    lowering.controls = {changes.get(name, name): item for name, item in lowering.controls.items()}
    lowering.adjoints = {
        changes.get(name, name): _renamed(tensor, changes) for name, tensor in lowering.adjoints.items()
    }
    return rename(graph, changes)


def _renamed_mark(mark: Mark, names: Mapping[str, str]) -> Mark:
    steps = tuple(
        replace(item, tensors=tuple(names.get(name, name) for name in item.tensors)) for item in mark.steps
    )
    return replace(mark, tensor=_renamed(mark.tensor, names), steps=steps)


def _renamed(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    return replace(tensor, name=names.get(tensor.name, tensor.name))


def _declare(port: Port, flows: Sequence[Flow], frame: InstanceFrame, lowering: GraphLowering) -> None:
    """An input of the whole model; an optional one is left out unless it is asked for."""
    name, type = port.name or "in", port.type
    if isinstance(type, TensorType) and type.optional and name not in lowering.settings.optional:
        frame.bound[name] = None
        return
    if isinstance(type, ScalarType) and type.name == "int":
        _declare_dimension(name, frame, port.span, lowering.settings.extents)
        return
    if not isinstance(type, TensorType) and lowering.settings.partial:
        frame.bound[name] = UNKNOWN
        return
    if not isinstance(type, TensorType):
        repair = f"declare it: in: {name}: [B, …]"
        raise Found(
            MISSING_SECTION.at(
                port.span, module=frame.name, section=f"type for its input '{name}'", repair=repair
            )
        )
    element = element_of(type, lowering.settings.element)
    if type.dtype is None and _holds_indices(name, flows, frame.instance):
        element = I64
    given = lowering.builder.input(name, element, _declare_shape(type, frame, lowering.settings.extents))
    frame.bound[name] = annotate_port(given, port, name, frame, lowering)


def _declare_shape(type: TensorType, frame: InstanceFrame, extents: Mapping[str, int]) -> tuple[Extent, ...]:
    """The shape of an input of the whole model: names that are not known yet are open extents, or what is given."""
    found: list[Extent] = []
    for item in type.dims:
        if isinstance(item, Star | Unchanged):
            found.append(_open(frame, "N", item.span, extents))
            continue
        for name in unbound_names(item, frame):
            _open(frame, name, item.span, extents)
        found.append(evaluate_extent(item, frame))
    return tuple(found)


def _declare_dimension(name: str, frame: InstanceFrame, span: Span, extents: Mapping[str, int]) -> None:
    """A dimension that an input of the whole model names on its own; the shapes of the others bind it."""
    if name not in frame.known:
        _open(frame, name, span, extents)


def _open(frame: InstanceFrame, name: str, span: Span, extents: Mapping[str, int]) -> Extent:
    if name in extents:
        frame.dims[name] = Known(extents[name], "--shape", span)
        return extents[name]
    found = dim.symbol(name, _LONGEST)
    frame.dims.setdefault(name, Known(found if isinstance(found, Dim) else _LONGEST, OPEN, span))
    return found


def has_graph(instance: Instance) -> bool:
    """Whether an instance has a graph, or a pattern that means one."""
    try:
        find_forward(InstanceFrame(instance))
    except Found:
        return False
    return True


def is_complete(instance: Instance) -> bool:
    """Whether an instance has a graph, or a pattern that means one, and all types of its inputs: it stands alone."""
    if not has_graph(instance):
        return False
    forward = find_forward(InstanceFrame(instance))
    return forward.inputs is not None and all(isinstance(port.type, TensorType) for port in forward.inputs)


# --- whether an input without a type of its own holds indices: inferred from what reads it ------------------


def _holds_indices(name: str, flows: Sequence[Flow], instance: Instance, depth: int = _DEEPEST) -> bool:
    """Whether a statement passes this name to an operand that is declared as an integer tensor."""
    if depth == 0:
        return False
    for flow in flows:
        step = flow.steps[0] if flow.steps else None
        if not isinstance(step, Operation):
            continue
        for number, source in enumerate(flow.sources):
            if (
                isinstance(source, Name)
                and source.id == name
                and _takes_integer(step, number, instance, depth)
            ):
                return True
    return False


def _takes_integer(step: Operation, number: int, instance: Instance, depth: int) -> bool:
    """Whether an operation declares this operand as integers, or passes it on to one that does."""
    child = _child(step.callee, instance)
    if child is not None:
        return _passes_on(child, number, depth)
    name = step.callee.id if isinstance(step.callee, Name) else ""
    declared = instance.scope.find(_SUGAR.get(name, name)) if name else None
    if declared is None or not isinstance(declared.declaration, Primitive):
        return False
    forward = declared.declaration.forward
    inputs = (forward.inputs or ()) if forward is not None else ()
    return number < len(inputs) and _is_integer_port(inputs[number])


def _child(callee: Expr, instance: Instance) -> Instance | None:
    found = instance.children.get(callee.id) if isinstance(callee, Name) else None
    if isinstance(found, tuple):
        return found[0] if found else None
    return found


def _passes_on(child: Instance, number: int, depth: int) -> bool:
    module: Module = child.module
    forward = module.forward
    if forward is None or forward.inputs is None or number >= len(forward.inputs):
        return False
    port = forward.inputs[number]
    flows = [item for item in forward.graph or () if isinstance(item, Flow)]
    return _is_integer_port(port) or _holds_indices(port.name or "in", flows, child, depth - 1)


def _is_integer_port(port: Port) -> bool:
    type = port.type
    element = find_in("module", type.dtype) if isinstance(type, TensorType) and type.dtype else None
    return element is not None and element.is_integer
