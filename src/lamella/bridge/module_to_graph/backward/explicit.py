"""Backward graphs that are written: their names, their order, and the gradients that they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Rule, errors
from lamella.base.source import Span
from lamella.bridge.module_to_graph.backward.nodes import Visit
from lamella.bridge.module_to_graph.backward.operations import Operations
from lamella.bridge.module_to_graph.backward.reading import bare_names, check_reads
from lamella.bridge.module_to_graph.backward.recorder import Recorder, bound_names, needs_gradient
from lamella.bridge.module_to_graph.backward.saving import Saving
from lamella.bridge.module_to_graph.backward.sweep import Sweep
from lamella.bridge.module_to_graph.backward.validate import Primal, Validation, find_primals
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound
from lamella.bridge.module_to_graph.road import Place
from lamella.bridge.module_to_graph.statements.order import Folding, sort_flows
from lamella.bridge.module_to_graph.walk import UNKNOWN, find_orphans, run_flow
from lamella.graph.nodes import Tensor
from lamella.lang.module.check.rebinding import DROPPED, accumulates, drop_rebound, find_rebound
from lamella.lang.module.nodes import Backward, Flow, Port
from lamella.lang.module.rules import gradients

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
