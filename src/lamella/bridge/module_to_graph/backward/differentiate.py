"""One graph of an instance and its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, Rule, errors
from lamella.base.source import Span
from lamella.bridge.module_to_graph import build_whole, finish
from lamella.bridge.module_to_graph.backward.nodes import Called, Differentiated, Visit
from lamella.bridge.module_to_graph.backward.operations import Operations
from lamella.bridge.module_to_graph.backward.recorder import (
    Recorder,
    bound_names,
    is_trainable,
    needs_gradient,
)
from lamella.bridge.module_to_graph.backward.saving import Saving
from lamella.bridge.module_to_graph.backward.sweep import Sweep, Wanted
from lamella.bridge.module_to_graph.backward.validate import Primal, Validation, find_primals
from lamella.bridge.module_to_graph.frames import Frame, graph_name
from lamella.bridge.module_to_graph.nodes import Bound, Compiled, Settings
from lamella.bridge.module_to_graph.road import Place
from lamella.bridge.module_to_graph.statements.order import Folding, sort_flows
from lamella.bridge.module_to_graph.values import SAVED, find_name
from lamella.bridge.module_to_graph.walk import UNKNOWN, find_orphans, run_flow
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Tensor
from lamella.lang.module.check.names import DROPPED, accumulates, drop_rebound, find_rebound
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import Instance
from lamella.lang.module.nodes import Backward, Flow, Member, Name, Operation, Port, Rest, Subscript, parts_of
from lamella.lang.module.rules import gradients

# --- backward graphs that are written: their names, their order, and the gradients that they give -----------


# --- which names the statements of a backward graph read, and which of them they may not --------------------


def read_names(flow: Flow) -> Iterator[Name]:
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


def bare_names(flows: Sequence[Flow]) -> set[str]:
    """All names that statements read without `saved.`."""
    return {name.id for flow in flows for name in read_names(flow)}


def check_reads(
    folding: Folding, frame: Frame, forward: Mapping[str, Tensor], saving: Saving
) -> Iterator[tuple[Diagnostic, str]]:
    """Forward tensors that are read but not there, each with its name."""
    made = {target.name for flow in (*folding.flows, *folding.recomputed) for target in flow.targets}
    inputs = {port.name or "in" for port, _ in saving.visit.inputs}
    for flows, again in ((folding.recomputed, True), (folding.flows, False)):
        for flow in flows:
            for name in read_names(flow):
                known = name.id in made or find_name(name.id, frame) or name.id not in forward
                if known or (name.id in inputs and name.id in saving.available):
                    continue
                yield _missing(name, flow, again, saving), name.id


def _missing(name: Name, flow: Flow, again: bool, saving: Saving) -> Diagnostic:
    if again:
        return gradients.NOT_DERIVABLE.at(name.span, name=flow.targets[0].name, leaf=name.id)
    there = name.id in saving.available
    repair = f"read it as saved.{name.id}" if there else f"add '{name.id}' to save:, and read saved.{name.id}"
    return gradients.NOT_SAVED.at(name.span, name=name.id, module=saving.visit.frame.name, repair=repair)


PREFIX = "d_"


class Saved(Mapping[str, Bound]):
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


def run_explicit(visit: Visit, given: Sequence[Tensor | None], sweep: Sweep) -> None:
    """Build the backward graph that an instance has itself, and add the gradients that it gives."""
    backward = visit.backward
    if backward is None:
        return
    graph = _Graph(visit, backward, sweep.road)
    graph.bind(given)
    operations = Operations(visit, sweep)
    before, sweep.road.backwards = sweep.road.backwards, operations.apply
    wrong = len(errors(sweep.road.findings))
    try:
        graph.run()
    finally:
        sweep.road.backwards = before
    primals = find_primals(visit, sweep.road)
    results = graph.results()
    validation = Validation(visit, backward, primals)
    for finding in (
        *validation.check_complete(results, operations.served),
        *validation.check_results(results, graph.spans),
        *validation.check_declared(list(graph.declared(primals)), graph.frame),
        *graph.saving.check_recomputed(),
    ):
        sweep.road.report(finding, visit.frame.origin)
    visit.is_wrong = len(errors(sweep.road.findings)) > wrong
    for name, primal in primals.items():
        sweep.add(primal.tensor, results.get(name))


class _Graph:
    """One backward graph under construction."""

    def __init__(self, visit: Visit, backward: Backward, road: Recorder) -> None:
        self.visit, self.backward, self.road = visit, backward, road
        instance = visit.frame.instance
        own = replace(instance, scope=instance.backward_scope)
        self.frame = Frame(own, visit.frame.path, visit.frame.origin)
        self.frame.given = dict(visit.frame.given)
        self.frame.dims = dict(visit.frame.dims)
        self.saving = Saving(visit, road)
        self.frame.saved = Saved(self.saving.available, visit.reads)
        self.spans: dict[str, Span] = {}
        """Where each name is bound."""

    def bind(self, given: Sequence[Tensor | None]) -> None:
        """Give the incoming gradients their names; those that nothing reads are zeros."""
        place = Place("zeros", self.backward.span, self.frame.origin)
        for name, tensor, gradient in zip(self._incoming(), self.visit.outputs, given, strict=False):
            if isinstance(tensor, Tensor) and tensor.element.is_float:
                value = gradient if gradient is not None else self.road.zeros_like(tensor, place)
                self.road.mark_gradients(value)
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
        folding = Folding(self.frame)
        folding.fold(self.backward.graph or (), folding.flows)
        inputs = {port.name or "in": value for port, value in self.visit.inputs}
        taken = {*self.frame.bound, *inputs}
        rebound = [
            *find_rebound(folding.recomputed, set(self.frame.bound)),
            *find_rebound(folding.flows, taken),
        ]
        for finding in (*folding.findings, *rebound):
            self.road.report(finding, self.frame.origin)
        for name in folding.lost:
            self.frame.bound[name] = UNKNOWN
        if rebound:
            folding.flows = drop_rebound(folding.flows, rebound)
            folding.recomputed = drop_rebound(folding.recomputed, rebound)
            flows = (*folding.recomputed, *folding.flows)
            wanted = [name for name, _ in self._outgoing()]
            wanted += [f"{PREFIX}{name}" for name in self.visit.frame.instance.tensors]
            self.frame.bound.update(dict.fromkeys(find_orphans(flows, wanted, self.frame), UNKNOWN))
        self._read(folding)
        self._run_all(folding.recomputed, gradients.RECOMPUTE_CYCLE)
        self._run_all(folding.flows, gradients.CYCLE)

    def _read(self, folding: Folding) -> None:
        """Bind bare names of inputs; other forward tensors are read with `saved.` only."""
        forward = bound_names(self.visit.frame)
        for finding, name in check_reads(folding, self.frame, forward, self.saving):
            self.road.report(finding, self.frame.origin)
            self.frame.bound[name] = UNKNOWN
        read = bare_names((*folding.flows, *folding.recomputed))
        for port, value in self.visit.inputs:
            name = port.name or "in"
            self.frame.bound.setdefault(name, value)
            if name in read and isinstance(value, Tensor):
                self.visit.reads.add(value.name)

    def _run_all(self, flows: Sequence[Flow], rule: Rule) -> None:
        ordered, cycle = sort_flows(flows)
        if cycle:
            span = next(flow.span for flow in flows if flow.targets[0].name == cycle[0])
            self.road.report(rule.at(span, name=cycle[0], cycle=" -> ".join(cycle)), self.frame.origin)
            for flow in flows:
                self.frame.bound.update({target.name: UNKNOWN for target in flow.targets})
        for flow in ordered:
            self._run(flow)

    def _run(self, flow: Flow) -> None:
        """One statement; one that accumulates adds to what its gradient was before."""
        bound = self.frame.bound
        self.spans |= {target.name: target.span for target in flow.targets}
        before = {target.name: bound[target.name] for target in flow.targets if target.name in bound}
        run_flow(flow, self.frame, self.road)
        for target in flow.targets:
            value, old = bound.get(target.name), before.get(target.name)
            if accumulates(flow) and isinstance(value, Tensor) and isinstance(old, Tensor):
                place = Place("add", flow.span, self.frame.at(target.name, flow.span))
                results = self.road.call(
                    "math.add", (old, value), {}, (self.frame.place(target.name),), place
                )
                bound[target.name] = next(item for item in results if isinstance(item, Tensor))

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
        for ports, names in ((self.backward.inputs, incoming), (self.backward.outputs, outgoing)):
            for port in ports or ():
                if names.get(port.name or "") in known:
                    yield port, known[names[port.name or ""]]


def _matched(ports: Sequence[Port] | None, names: list[str]) -> list[str]:
    """The names of a list of gradients where it has others than expected: by position."""
    given = [port.name or "" for port in ports] if ports is not None else names
    return names if set(given) == set(names) else given


def differentiate(instance: Instance, settings: Settings | None = None) -> Differentiated:
    """The graph of an instance with the gradients of its inputs and trainable parameters.

    Its inputs are those of the forward graph, then `d_<output>` for each floating output; its outputs are those of
    the forward graph, then `d_<input>` for each floating input without `@gradient(skip)`, then `d_<path>` for each
    trainable parameter.
    """
    settings = replace(settings or Settings(), cached=0)
    road = Recorder(settings, instance.name)
    whole = _Whole(road)
    graph = None
    try:
        graph = whole.build(Frame(instance))
    except Problem as problem:
        road.report(problem.finding)
    for finding, origin in road.late:
        road.report(finding, origin)
    model = None if graph is None or errors(road.findings) else Model(graph, settings.library)
    compiled = Compiled(
        model,
        tuple(road.weights.values()),
        tuple(road.marks),
        road.constants,
        tuple(road.findings),
        tuple(road.names),
    )
    if model is None:
        return Differentiated(compiled)
    return Differentiated(compiled, whole.gradients, whole.input_gradients, whole.seeds, whole.saved)


def declares_gradients(instance: Instance) -> bool:
    """Whether a declaration itself says something about its gradients that checking it has to look at."""
    forward = instance.module.forward
    lists = forward is not None and (forward.save is not None or forward.recompute is not None)
    return lists or instance.module.backward is not None


class _Whole:
    """The graph of an instance and back."""

    def __init__(self, road: Recorder) -> None:
        self.road = road
        self.gradients: dict[str, str] = {}
        self.input_gradients: dict[str, str] = {}
        self.seeds: dict[str, str] = {}
        self.saved: tuple[str, ...] = ()
        self._taken: set[str] = set()

    def build(self, frame: Frame) -> Graph | None:
        """Go forward, then back; nothing where the way forward is wrong already."""
        results = build_whole(frame, self.road)
        outputs = {name: item for name, item in results.items() if isinstance(item, Tensor)}
        root = self.road.root
        if root is None or errors(self.road.findings) or not outputs or len(outputs) != len(results):
            return None
        sweep = self._sweep(root)
        inputs = [value.name for _, value in root.inputs if isinstance(value, Tensor)]
        variables = [item.tensor.name for item in self.road.weights.values()]
        self._taken = {*outputs, *inputs, *variables, *self.road.constants}
        for name, tensor in outputs.items():
            if tensor.element.is_float:
                seed = self.road.builder.input(f"d_{name}", tensor.element, tensor.shape)
                self.seeds[name] = seed.name
                self._taken.add(seed.name)
                sweep.seed(tensor, seed)
        sweep.run(root)
        self._tell(root)
        self.saved = tuple(dict.fromkeys(self._saved(root)))
        found = {**outputs, **self._inputs(root, sweep), **self._parameters(root, sweep)}
        return finish(found, self.road)

    def _sweep(self, root: Visit) -> Sweep:
        parameters = [item.tensor.name for item in self.road.weights.values() if is_trainable(item)]
        inputs = [
            value.name
            for port, value in root.inputs
            if isinstance(value, Tensor) and needs_gradient(port, value)
        ]
        wanted = Wanted(parameters, inputs)
        wanted.follow(root.calls())
        return Sweep(self.road, wanted, run_explicit, {})

    def _saved(self, root: Visit) -> list[str]:
        """The tensors of the forward graph that the backward graph reads."""
        made = [item for call in root.calls() for item in call.tensors()]
        inputs = [value for _, value in root.inputs if isinstance(value, Tensor)]
        return [item.name for item in (*inputs, *made) if item.name in root.reads]

    def _inputs(self, root: Visit, sweep: Sweep) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for port, value in root.inputs:
            if isinstance(value, Tensor) and needs_gradient(port, value):
                name = self._free(f"d_{value.name}")
                found[name] = sweep.take(value) or self._zeros(value, root)
                self.input_gradients[port.name or "in"] = name
        return found

    def _parameters(self, root: Visit, sweep: Sweep) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for weight in self.road.weights.values():
            if is_trainable(weight):
                name = self._free(f"d_{graph_name(weight.path)}")
                found[name] = sweep.take(weight.tensor) or self._zeros(weight.tensor, root)
                self.gradients[weight.path] = name
        return found

    def _free(self, name: str) -> str:
        """A name like this that no input, variable or output has."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _zeros(self, tensor: Tensor, root: Visit) -> Tensor:
        return self.road.zeros_like(tensor, Place("zeros", root.forward.span, None))

    def _tell(self, visit: Visit) -> None:
        """What is wrong with the lists of what is saved, here and in all that is called."""
        forward = visit.forward
        for step in visit.steps:
            if not isinstance(step, Called):
                self._tell(step)
        if forward.save is None and forward.recompute is None:
            return
        saving = Saving(visit, self.road)
        findings = []
        if visit.backward is None:
            findings = [*saving.check_recomputed(), *saving.check_derived(saving.missing())]
        if visit.reads:
            findings += saving.check_used()
        for finding in findings:
            self.road.report(finding, visit.frame.origin)
