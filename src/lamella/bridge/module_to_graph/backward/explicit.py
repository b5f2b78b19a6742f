"""Backward graphs that are written: their own operations, their statements, checks of the gradients they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic, Rule, errors
from lamella.base.dim import Extent
from lamella.base.dtype import ElementType, find_in
from lamella.base.errors import Found
from lamella.base.source import Span
from lamella.bridge.module_to_graph.backward.reverse_sweep import ReverseSweep
from lamella.bridge.module_to_graph.backward.tape import (
    SavedTensors,
    Tape,
    Visit,
    bound_names,
    gradient_ports,
    is_trainable,
    needs_gradient,
    saved_ports,
)
from lamella.bridge.module_to_graph.calls import PrimitiveCall, bind, is_unknown
from lamella.bridge.module_to_graph.lowering import CallSite, evaluate_extent, format_known, shape_text
from lamella.bridge.module_to_graph.nodes import UNKNOWN, Bound, InstanceFrame, Members, Weight
from lamella.bridge.module_to_graph.precision import going_back, perform
from lamella.bridge.module_to_graph.statements import GuardFolding, find_orphans, topological_order
from lamella.bridge.module_to_graph.values import SAVED, find_name, members, value_of
from lamella.bridge.module_to_graph.walk import run_flow
from lamella.graph.nodes import Tensor
from lamella.lang.module.check.names import DROPPED, accumulates, drop_rebound, find_rebound
from lamella.lang.module.instantiate.nodes import TensorSlot
from lamella.lang.module.nodes import (
    Backward,
    Expr,
    Field,
    Flow,
    Member,
    Name,
    Operation,
    Port,
    Primitive,
    Rest,
    Signature,
    Star,
    Subscript,
    TensorType,
    Unchanged,
)
from lamella.lang.module.nodes.expressions import names_in, parts_of
from lamella.lang.module.rules import constants, gradients, names
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import SUGAR

# --- whether a written backward graph gives every gradient that is needed, in its shape and type ------------


@dataclass(frozen=True, slots=True)
class Primal:
    """What a gradient is the gradient of."""

    name: str
    tensor: Tensor
    dtype: str | None = None
    """The element type that its declaration says."""
    weight: Weight | None = None


def _find_primals(visit: Visit, tape: Tape) -> dict[str, Primal]:
    """What `d_` names may be gradients of: inputs, parameters, and parameters of instances as `instance_name`."""
    instance, frame = visit.frame.instance, visit.frame
    found: dict[str, Primal] = {}
    for port, value in visit.inputs:
        if isinstance(value, Tensor):
            name = port.name or "in"
            found[name] = Primal(name, value, _dtype(port))
    for name, slot in instance.tensors.items():
        given = frame.given.get(name)
        weight = _find_weight(frame, slot, tape)
        if isinstance(given, Tensor):
            found[name] = Primal(name, given, slot.dtype)
        elif weight is not None:
            found[name] = Primal(name, weight.tensor, slot.dtype, weight)
    for path, child in instance.children.items():
        if not isinstance(child, tuple):
            inner = InstanceFrame(child, frame.place(path))
            for name, slot in child.tensors.items():
                weight = _find_weight(inner, slot, tape)
                if weight is not None:
                    found[f"{path}_{name}"] = Primal(f"{path}.{name}", weight.tensor, slot.dtype, weight)
    return found


def _find_weight(frame: InstanceFrame, slot: TensorSlot, tape: Tape) -> Weight | None:
    return tape.weights.get(frame.place(slot.tied or slot.name))


def _dtype(port: Port) -> str | None:
    return port.type.dtype if isinstance(port.type, TensorType) else None


class GradientChecks:
    """The findings about one backward graph."""

    def __init__(self, visit: Visit, backward: Backward, primals: Mapping[str, Primal]) -> None:
        self.visit, self.backward, self.primals = visit, backward, primals

    def check_complete(self, results: Mapping[str, Bound], served: set[str]) -> Iterator[Diagnostic]:
        """Gradients that are needed and not given."""
        frame, tensors = self.visit.frame, self.visit.frame.instance.tensors
        for port, value in self.visit.inputs:
            name = port.name or "in"
            if needs_gradient(port, value) and name not in results:
                yield self._missing(name, name, "@gradient(skip)")
        given = {self.primals[name].tensor.name for name in results if name in self.primals}
        for key, primal in self.primals.items():
            weight, owner = primal.weight, primal.name.partition(".")[0]
            if weight is None or not is_trainable(weight) or weight.tensor.name in given:
                continue
            if key in tensors or frame.place(owner) not in served:
                yield self._missing(key, primal.name, "@frozen")

    def _missing(self, key: str, name: str, repair: str) -> Diagnostic:
        return gradients.MISSING.at(
            _head(self.backward.span),
            module=self.visit.frame.name,
            name=f"d_{key}",
            what=f"'{name}'",
            repair=repair,
        )

    def check_results(self, results: Mapping[str, Bound], spans: Mapping[str, Span]) -> Iterator[Diagnostic]:
        """Gradients that are given in another shape or type than they need."""
        for name, value in results.items():
            primal = self.primals.get(name)
            if primal is None or not isinstance(value, Tensor):
                continue
            span = spans.get(f"d_{name}", self.backward.span)
            if not _may_be(value.shape, primal.tensor.shape):
                yield _shaped(f"d_{name}", value.shape, primal, span, "")
            elif not value.element.is_float:
                yield _typed(f"d_{name}", value.element.name, primal, span, "must be floating")

    def check_declared(
        self, pairs: Sequence[tuple[Port, Primal]], frame: InstanceFrame
    ) -> Iterator[Diagnostic]:
        """Gradients that are declared in another shape or type than they need."""
        for port, primal in pairs:
            type = port.type
            if not isinstance(type, TensorType):
                continue
            if not _is_declared(type, primal.tensor, frame):
                values = format_known(names_in(*type.dims), frame)
                yield _shaped(port.name or "", type.span.text, primal, port.span, values)
            why = _unfit(type, port, primal)
            if why:
                yield _typed(port.name or "", str(type.dtype), primal, port.span, why)


def _head(span: Span) -> Span:
    """The first word of a section."""
    return Span(span.source, span.start, min(span.end, span.start + len("backward")))


def _may_be(found: Sequence[Extent], wanted: Sequence[Extent]) -> bool:
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(dim.equal(one, other) is not False for one, other in pairs)


def _is_declared(type: TensorType, tensor: Tensor, frame: InstanceFrame) -> bool:
    """Whether a declared shape is that of a tensor, for every size of its open dimensions."""
    dims = [item for item in type.dims if not isinstance(item, Star | Unchanged)]
    free = len(tensor.shape) - len(dims)
    if free < 0 or (free and len(dims) == len(type.dims)):
        return False
    try:
        extents = [evaluate_extent(item, frame) for item in dims]
    except Found:
        return True
    return all(dim.is_same(one, other) for one, other in zip(extents, tensor.shape[free:], strict=True))


NARROWEST = 16
"""The bits of gradients of what says no element type: they may have those of bf16, the default."""


def _unfit(type: TensorType, port: Port, primal: Primal) -> str:
    """Why an element type does not do for a gradient."""
    element = _element(type.dtype)
    own = _element(primal.dtype)
    if element is None:
        return ""
    if not element.is_float:
        return "must be floating"
    explicit = any(item.name == "dtype" for item in port.annotations)
    narrow = element.bits < (own.bits if own is not None else NARROWEST)
    return "is narrowed without @dtype" if narrow and not explicit else ""


def _element(name: str | None) -> ElementType | None:
    return find_in("module", name) if name is not None else None


def _shaped(name: str, found: object, primal: Primal, span: Span, values: str) -> Diagnostic:
    text = found if isinstance(found, str) else shape_text(found) if isinstance(found, tuple) else ""
    wanted = shape_text(primal.tensor.shape)
    return gradients.SHAPE.at(span, name=name, found=text, primal=primal.name, wanted=wanted, values=values)


def _typed(name: str, found: str, primal: Primal, span: Span, why: str) -> Diagnostic:
    wanted = f"'{primal.name}' ({primal.dtype or primal.tensor.element.name})"
    return gradients.DTYPE.at(span, name=name, found=found, wanted=wanted, why=why)


BACKWARD = "backward"
STACKED = "StackedBlocksBackward"
LINEAR = ("Linear_backward", "LinearBackward")
PACKED = {"swiglu": "split_swiglu", "silu_mul": "split_swiglu"}
"""Primitives whose backward of one forward operand is that of another."""


class BackwardOperations:
    """What the operations of one backward graph mean."""

    def __init__(self, visit: Visit, sweep: ReverseSweep) -> None:
        self.visit, self.sweep, self.tape = visit, sweep, sweep.tape
        self.served: set[str] = set()
        """The instances whose backward was called."""

    def apply(
        self, operation: Operation, values: Sequence[Bound], targets: tuple[str, ...], frame: InstanceFrame
    ) -> Sequence[Bound] | None:
        """What an operation of backward graphs gives; None where it is another operation."""
        owner = self._owner(operation, frame)
        if owner is not None:
            return self._go_back(owner, values, operation)
        name = operation.callee.id if isinstance(operation.callee, Name) else ""
        if name in LINEAR:
            return self._linear(values, operation, targets, frame)
        stem = name.removesuffix("_backward").removesuffix("Backward")
        if stem == name or frame.instance.scope.find(name) is not None:
            return None
        primitive = self._primitive(stem, values, targets, frame)
        if primitive is None:
            return None
        return self._call(primitive, _fitted(name, values, targets), operation, targets, frame)

    # --- instances ------------------------------------------------------------------------------------------

    def _owner(self, operation: Operation, frame: InstanceFrame) -> Members | None:
        """The instances whose backward is called."""
        callee = operation.callee
        inner: Expr | None = None
        if isinstance(callee, Member) and callee.field == BACKWARD:
            inner = callee.operand
        elif isinstance(callee, Name) and callee.id == STACKED and operation.arguments:
            inner = operation.arguments[0].value
        elif isinstance(callee, Name) and callee.id.removesuffix("_backward") in frame.instance.children:
            return members(callee.id.removesuffix("_backward"), frame)
        if inner is None:
            return None
        owner = value_of(inner, frame, self.tape)
        if not isinstance(owner, Members):
            what = f"'{inner.span.text}'"
            raise Found(
                constants.KIND.at(
                    operation.span, what=what, found="no instance", wanted="one that went forward", repair=""
                )
            )
        return owner

    def _go_back(self, owner: Members, values: Sequence[Bound], operation: Operation) -> Sequence[Bound]:
        """The gradients of the inputs of instances, the last one first; what each passes on adds up."""
        state = [item for item in values if isinstance(item, Tensor)]
        passed: list[Tensor | None] = []
        for path, _ in reversed(owner.items):
            visit = self._find(path, operation)
            width = len(visit.outputs)
            found = self._pull(visit, state[:width])
            state, more = found[:width], found[width:]
            passed = [
                self.sweep.total([part for part in pair if part is not None], "passed")
                for pair in zip(more, passed or [None] * len(more), strict=True)
            ]
        return [*state, *passed, UNKNOWN]

    def _find(self, path: str, operation: Operation) -> Visit:
        """The last call of an instance that did not go back yet."""
        # Several calls of one instance are undone like a stack, the last one first.
        for visit in reversed(list(self.visit.visits())):
            if visit.frame.path == path and not visit.done:
                visit.done = True
                self.served.add(path)
                return visit
        module = self.visit.frame.name
        repair = f"call '{path}' in the forward graph as often as its backward"
        raise Found(gradients.NOT_SAVED.at(operation.span, name=path, module=module, repair=repair))

    def _pull(self, visit: Visit, given: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of the inputs of an instance, for these of its outputs."""
        sweep = self.sweep.again()
        for output, gradient in zip(visit.outputs, given, strict=False):
            sweep.seed(output, gradient)
        sweep.run(visit)
        found: list[Tensor] = []
        for port, value in visit.inputs:
            if isinstance(value, Tensor) and needs_gradient(port, value):
                found.append(sweep.take(value) or self.tape.zeros_like(value, _place(visit)))
        return found

    # --- primitives -----------------------------------------------------------------------------------------

    def _primitive(
        self, stem: str, values: Sequence[Bound], targets: tuple[str, ...], frame: InstanceFrame
    ) -> Primitive | None:
        """The primitive whose backward is meant, as one of its own."""
        name = SUGAR.get(stem, stem)
        if name in PACKED and len(values) == len(("gradient", "operand")):
            name = PACKED[name]
        if name == "rmsnorm" and len(targets) == len(("residual", "input", "weight")):
            name = "fused_residual_rmsnorm"
        declared = frame.instance.scope.find(name)
        primitive = declared.declaration if declared is not None else None
        return _as_primitive(primitive) if isinstance(primitive, Primitive) else None

    def _call(
        self,
        primitive: Primitive,
        values: Sequence[Bound],
        operation: Operation,
        targets: tuple[str, ...],
        frame: InstanceFrame,
    ) -> Sequence[Bound]:
        request = bind(primitive, values, operation, targets, frame, self.tape)
        self._complete(request, primitive, frame)
        if request.attributes.get("transpose") == "TN" and primitive.name.startswith("grouped_gemm"):
            request.attributes["transpose"] = "NT"
        return [UNKNOWN] * max(len(targets), 1) if is_unknown(request) else perform(request, self.tape)

    def _complete(self, request: PrimitiveCall, primitive: Primitive, frame: InstanceFrame) -> None:
        """Parameters that are not given are those that the gradients are of; a missing gradient is zeros."""
        takes = (primitive.forward.inputs or ()) if primitive.forward is not None else ()
        gives = (primitive.forward.outputs or ()) if primitive.forward is not None else ()
        meant = {
            (port.name or "").removeprefix("d_"): target.removeprefix("d_")
            for port, target in zip(gives, request.targets, strict=False)
        }
        for number, port in enumerate(takes):
            slot = frame.instance.tensors.get(meant.get(port.name or "", ""))
            if request.inputs[number] is None and slot is not None:
                request.inputs[number] = self.tape.parameter(frame, slot)
        first = next((item for item in request.inputs if isinstance(item, Tensor)), None)
        for number, port in enumerate(takes):
            absent = request.inputs[number] is None and (port.name or "") == "d_residual_out"
            if absent and first is not None:
                request.inputs[number] = self.tape.zeros_like(first, request.place)

    def _linear(
        self, values: Sequence[Bound], operation: Operation, targets: tuple[str, ...], frame: InstanceFrame
    ) -> Sequence[Bound]:
        """`(g, W)` gives g · W; with what went in, also the gradients of the weights and of the bias."""
        operands = [*values, *(value_of(item.value, frame, self.tape) for item in operation.arguments)]
        name = "matmul" if len(operands) == len(("gradient", "weight")) else "linear_backward"
        declared = frame.instance.scope.library.primitive(name)
        if declared is None or not isinstance(declared.declaration, Primitive):
            raise LookupError(name)
        plain = replace(operation, arguments=())
        request = bind(declared.declaration, operands, plain, targets, frame, self.tape)
        return [UNKNOWN] * max(len(targets), 1) if is_unknown(request) else perform(request, self.tape)


def _as_primitive(primitive: Primitive) -> Primitive | None:
    """The backward of a primitive as a primitive; None where it has none."""
    operator = primitive.operator(BACKWARD)
    if operator is None:
        return None
    first, *others = operator.split(".")
    value: Expr = Name(first)
    for part in others:
        value = Member(value, part)
    impl = Field("impl", (Field("forward", value),))
    signature = Signature(saved_ports(primitive), gradient_ports(primitive))
    name = f"{primitive.name}_{BACKWARD}"
    return Primitive(name, params=primitive.params, forward=signature, sections=(impl,), span=primitive.span)


def _fitted(name: str, values: Sequence[Bound], targets: tuple[str, ...]) -> list[Bound]:
    """The operands; where the norm of a sum is written as a plain norm, without the gradient of the sum."""
    fused = name == "rmsnorm_backward" and len(targets) == len(("residual", "input", "weight"))
    return [values[0], None, *values[1:]] if fused and values else list(values)


def _place(visit: Visit) -> CallSite:
    return CallSite("zeros", visit.forward.span, visit.frame.origin)


def _read_names(flow: Flow) -> Iterator[Name]:
    """The names that a statement reads without `saved.`."""
    todo: list[Subscript] = list(flow.sources)
    for step in flow.steps:
        if isinstance(step, Operation):
            todo += [argument.value for argument in step.arguments]
    while todo:
        item = todo.pop()
        if isinstance(item, Name):
            yield item
        elif not isinstance(item, Rest) and not _is_saved(item):
            todo += parts_of(item)


def _is_saved(item: object) -> bool:
    return isinstance(item, Member) and isinstance(item.operand, Name) and item.operand.id == SAVED


def _bare_names(flows: Sequence[Flow]) -> set[str]:
    """All names that statements read without `saved.`."""
    return {name.id for flow in flows for name in _read_names(flow)}


def _check_reads(
    folding: GuardFolding, frame: InstanceFrame, forward: Mapping[str, Tensor], saving: SavedTensors
) -> Iterator[tuple[Diagnostic, str]]:
    """Forward tensors that are read but not there, each with its name."""
    made = {target.name for flow in (*folding.flows, *folding.recomputed) for target in flow.targets}
    inputs = {port.name or "in" for port, _ in saving.visit.inputs}
    for flows, again in ((folding.recomputed, True), (folding.flows, False)):
        for flow in flows:
            for name in _read_names(flow):
                known = name.id in made or find_name(name.id, frame) or name.id not in forward
                if known or (name.id in inputs and name.id in saving.available):
                    continue
                yield _missing(name, flow, again, saving), name.id


def _missing(name: Name, flow: Flow, again: bool, saving: SavedTensors) -> Diagnostic:
    if again:
        return gradients.NOT_DERIVABLE.at(name.span, name=flow.targets[0].name, leaf=name.id)
    there = name.id in saving.available
    repair = f"read it as saved.{name.id}" if there else f"add '{name.id}' to save:, and read saved.{name.id}"
    return gradients.NOT_SAVED.at(name.span, name=name.id, module=saving.visit.frame.name, repair=repair)


PREFIX = "d_"


class SavedNames(Mapping[str, Bound]):
    """The forward tensors that a backward graph may read; each that is read is remembered."""

    def __init__(self, available: Mapping[str, Tensor], reads: set[str]) -> None:
        self._available = available
        self._reads = reads

    def __getitem__(self, name: str) -> Bound:
        found = self._available[name]
        self._reads.add(found.name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._available

    def __iter__(self) -> Iterator[str]:
        return iter(self._available)

    def __len__(self) -> int:
        return len(self._available)


def run_explicit(visit: Visit, given: Sequence[Tensor | None], sweep: ReverseSweep) -> None:
    """Build the backward graph that an instance has itself, and add the gradients that it gives."""
    backward = visit.backward
    if backward is None:
        return
    graph = _BackwardGraph(visit, backward, sweep.tape)
    graph.bind(given)
    operations = BackwardOperations(visit, sweep)
    before, sweep.tape.backwards = sweep.tape.backwards, operations.apply
    wrong = len(errors(sweep.tape.findings))
    try:
        with going_back(visit.precision, graph.frame, sweep.tape):
            graph.run()
    finally:
        sweep.tape.backwards = before
    sweep.tape.adjoints |= dict(graph.adjoints())
    primals = _find_primals(visit, sweep.tape)
    results = graph.results()
    validation = GradientChecks(visit, backward, primals)
    for finding in (
        *validation.check_complete(results, operations.served),
        *validation.check_results(results, graph.spans),
        *validation.check_declared(list(graph.declared(primals)), graph.frame),
        *graph.check_names(primals),
        *graph.saving.check_recomputed(),
    ):
        sweep.tape.report(finding, visit.frame.origin)
    visit.is_wrong = len(errors(sweep.tape.findings)) > wrong
    for name, primal in primals.items():
        sweep.add(primal.tensor, results.get(name))


BUNDLE = "_params"
"""The end of the name of all gradients of an instance together."""


class _BackwardGraph:
    """One backward graph under construction."""

    def __init__(self, visit: Visit, backward: Backward, tape: Tape) -> None:
        self.visit, self.backward, self.tape = visit, backward, tape
        instance = visit.frame.instance
        own = replace(instance, scope=instance.backward_scope)
        self.frame = InstanceFrame(own, visit.frame.path, visit.frame.origin)
        self.frame.given = dict(visit.frame.given)
        self.frame.dims = dict(visit.frame.dims)
        self.saving = SavedTensors(visit, tape)
        self.frame.saved = SavedNames(self.saving.available, visit.reads)
        self.spans: dict[str, Span] = {}
        """Where each name is bound."""

    def bind(self, given: Sequence[Tensor | None]) -> None:
        """Give the incoming gradients their names; those that nothing reads are zeros."""
        place = CallSite("zeros", self.backward.span, self.frame.origin)
        for name, tensor, gradient in zip(self._incoming(), self.visit.outputs, given, strict=False):
            if isinstance(tensor, Tensor) and tensor.element.is_float:
                value = gradient if gradient is not None else self.tape.zeros_like(tensor, place)
                self.tape.mark_gradients(value)
                self.frame.bound[name] = value

    def _incoming(self) -> list[str]:
        """The names of the gradients that come in: by the outputs, or by position."""
        own = [f"{PREFIX}{name}" for name in self.visit.names]
        return _matched(self.backward.inputs, own)

    def _outgoing(self) -> list[tuple[str, str]]:
        """The gradients that go out, each with the input that it belongs to."""
        inputs = [port.name or "in" for port, value in self.visit.inputs if needs_gradient(port, value)]
        names = _matched(self.backward.outputs, [f"{PREFIX}{name}" for name in inputs])
        return list(zip(names, inputs, strict=False))

    def run(self) -> None:
        """Run the statements, those that recompute first."""
        folding = GuardFolding(self.frame)
        folding.fold(self.backward.graph or (), folding.flows)
        inputs = {port.name or "in": value for port, value in self.visit.inputs}
        taken = {*self.frame.bound, *inputs}
        rebound = [
            *find_rebound(folding.recomputed, set(self.frame.bound)),
            *find_rebound(folding.flows, taken),
        ]
        for finding in (*folding.findings, *rebound):
            self.tape.report(finding, self.frame.origin)
        for name in folding.lost:
            self.frame.bound[name] = UNKNOWN
        if rebound or folding.is_unfinished:
            folding.flows = drop_rebound(folding.flows, rebound)
            folding.recomputed = drop_rebound(folding.recomputed, rebound)
            flows = (*folding.recomputed, *folding.flows)
            wanted = [name for name, _ in self._outgoing()]
            wanted += [f"{PREFIX}{name}" for name in self.visit.frame.instance.tensors]
            self.frame.bound.update(dict.fromkeys(find_orphans(flows, wanted, self.frame), UNKNOWN))
        self._read(folding)
        self._run_all(folding.recomputed, gradients.RECOMPUTE_CYCLE)
        self._run_all(folding.flows, gradients.CYCLE)

    def _read(self, folding: GuardFolding) -> None:
        """Bind bare names of inputs; other forward tensors are read with `saved.` only."""
        forward = bound_names(self.visit.frame)
        for finding, name in _check_reads(folding, self.frame, forward, self.saving):
            self.tape.report(finding, self.frame.origin)
            self.frame.bound[name] = UNKNOWN
        read = _bare_names((*folding.flows, *folding.recomputed))
        for port, value in self.visit.inputs:
            name = port.name or "in"
            self.frame.bound.setdefault(name, value)
            if name in read and isinstance(value, Tensor):
                self.visit.reads.add(value.name)

    def _run_all(self, flows: Sequence[Flow], rule: Rule) -> None:
        ordered, cycle = topological_order(flows)
        if cycle:
            span = next(flow.span for flow in flows if flow.targets[0].name == cycle[0])
            self.tape.report(rule.at(span, name=cycle[0], cycle=" -> ".join(cycle)), self.frame.origin)
            for flow in flows:
                self.frame.bound.update({target.name: UNKNOWN for target in flow.targets})
        for flow in ordered:
            self._run(flow)

    def _run(self, flow: Flow) -> None:
        """One statement; one that accumulates adds to what its gradient was before."""
        bound = self.frame.bound
        self.spans |= {target.name: target.span for target in flow.targets}
        before = {target.name: bound[target.name] for target in flow.targets if target.name in bound}
        run_flow(flow, self.frame, self.tape)
        for target in flow.targets:
            value, old = bound.get(target.name), before.get(target.name)
            # A second statement may bind a gradient only to add to it; other rebinding is refused before.
            if accumulates(flow) and isinstance(value, Tensor) and isinstance(old, Tensor):
                place = CallSite("add", flow.span, self.frame.at(target.name, flow.span))
                results = self.tape.call(
                    "math.add", (old, value), {}, (self.frame.place(target.name),), place
                )
                value = next(item for item in results if isinstance(item, Tensor))
            if isinstance(value, Tensor) and target.name.startswith(PREFIX):
                bound[target.name] = self.tape.set_apart(value)

    def results(self) -> dict[str, Bound]:
        """The gradients that the graph gives, by what they are gradients of."""
        incoming = set(self._incoming())
        found = {
            name.removeprefix(PREFIX): value
            for name, value in self.frame.bound.items()
            if name.startswith(PREFIX) and name not in incoming and name != DROPPED
        }
        for name, primal in self._outgoing():
            found.pop(primal, None)
            if name in self.frame.bound:
                found[primal] = self.frame.bound[name]
        return found

    def adjoints(self) -> Iterator[tuple[str, Tensor]]:
        """The gradients of tensors of the forward graph, by these: `d_h` is that of `h`."""
        forward = bound_names(self.visit.frame)
        for name, value in self.frame.bound.items():
            primal = forward.get(name.removeprefix(PREFIX))
            if name.startswith(PREFIX) and primal is not None and isinstance(value, Tensor):
                yield primal.name, value

    def check_names(self, primals: Mapping[str, Primal]) -> Iterator[Diagnostic]:
        """Gradients that are declared of something that the forward graph does not have."""
        frame = self.visit.frame
        known = {*primals, *self.visit.names, *frame.data_names(), *frame.instance.switched_off}
        for port in self.backward.gradients:
            name = (port.name or "").removeprefix(PREFIX)
            if name not in known and name.removesuffix(BUNDLE) not in known:
                where, repair = f"in the forward graph of '{frame.name}'", suggest(name, known)
                yield names.UNKNOWN.at(port.span, name=name, where=where, repair=repair)

    def declared(self, primals: Mapping[str, Primal]) -> Iterator[tuple[Port, Primal]]:
        """The gradients with declared types, each with what it is the gradient of."""
        outputs = {
            f"{PREFIX}{name}": Primal(name, value)
            for name, value in zip(self.visit.names, self.visit.outputs, strict=True)
            if isinstance(value, Tensor)
        }
        known = {**{f"{PREFIX}{name}": item for name, item in primals.items()}, **outputs}
        for port in self.backward.gradients:
            if port.name in known:
                yield port, known[port.name]
        incoming = {
            name: f"{PREFIX}{own}" for name, own in zip(self._incoming(), self.visit.names, strict=False)
        }
        outgoing = {name: f"{PREFIX}{own}" for name, own in self._outgoing()}
        for ports, owners in ((self.backward.inputs, incoming), (self.backward.outputs, outgoing)):
            for port in ports or ():
                if owners.get(port.name or "") in known:
                    yield port, known[owners[port.name or ""]]


def _matched(ports: Sequence[Port] | None, names: list[str]) -> list[str]:
    """The names of a list of gradients where it has others than expected: by position."""
    given = [port.name or "" for port in ports] if ports is not None else names
    return names if set(given) == set(names) else given
