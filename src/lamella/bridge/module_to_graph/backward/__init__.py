"""Reverse-mode autodiff of Module DSL instances: by the backwards of primitives, or as `backward:` sections say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lamella.base.diagnostic import errors
from lamella.base.errors import Found
from lamella.bridge.module_to_graph import build_whole, finish
from lamella.bridge.module_to_graph.backward.explicit import (
    run_explicit,
)
from lamella.bridge.module_to_graph.backward.reverse_sweep import RequiresGradient, ReverseSweep
from lamella.bridge.module_to_graph.backward.tape import (
    AuxiliaryLosses,
    Differentiated,
    RecordedCall,
    SavedTensors,
    Tape,
    Visit,
    is_trainable,
    needs_gradient,
)
from lamella.bridge.module_to_graph.lowering import CallSite
from lamella.bridge.module_to_graph.nodes import CompilationSettings, Compiled, InstanceFrame, graph_name
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Tensor
from lamella.lang.module.instantiate import children
from lamella.lang.module.instantiate.nodes import Instance

AUXILIARY = "aux_loss"
"""What a statement calls a loss of its own, beside the one that the whole model is trained for."""


def differentiate(
    instance: Instance,
    settings: CompilationSettings | None = None,
    auxiliary: bool = False,
    is_apart: bool = False,
) -> Differentiated:
    """The graph of an instance with the gradients of its inputs and trainable parameters.

    With `auxiliary` also those of the auxiliary losses inside it, whose gradient is one more input. With `is_apart`
    every tensor has an adjoint that is no other's, frozen parameters or not: something may be put in between.

    Its inputs are those of the forward graph, then `d_<output>` for each floating output; its outputs are those of
    the forward graph, then `d_<input>` for each floating input without `@gradient(skip)`, then `d_<path>` for each
    trainable parameter.
    """
    # Decode caches are updated from call to call; gradients are those of one whole sequence.
    settings = replace(settings or CompilationSettings(), cached=0)
    tape = Tape(settings, instance.name)
    tape.is_apart = is_apart
    whole = _Whole(tape, auxiliary)
    graph = None
    try:
        graph = whole.build(InstanceFrame(instance))
    except Found as problem:
        tape.report(problem.finding)
    # Last, so that a wrong list of saved tensors does not hide what the graph itself gets wrong.
    for finding, origin in tape.late:
        tape.report(finding, origin)
    model = None if graph is None or errors(tape.findings) else Model(graph, settings.library)
    compiled = Compiled(
        model,
        tuple(tape.weights.values()),
        tuple(tape.marks),
        tape.constants,
        tuple(tape.findings),
        tuple(tape.names),
    )
    if model is None:
        return Differentiated(compiled)
    return Differentiated(
        compiled,
        whole.gradients,
        whole.input_gradients,
        whole.seeds,
        whole.saved,
        whole.auxiliary,
        {name: item.name for name, item in tape.adjoints.items()},
        whole.needed,
    )


def declares_gradients(instance: Instance) -> bool:
    """Whether a declaration itself says something about its gradients that checking it has to look at."""
    forward = instance.module.forward
    lists = forward is not None and (forward.save is not None or forward.recompute is not None)
    return lists or instance.module.backward is not None


def writes_gradients(instance: Instance) -> bool:
    """Whether a declaration, or one of those that it is made of, has a backward graph that a user wrote.

    Those of the standard library are the derivatives of its forward graphs.
    """
    backward = instance.module.backward
    if backward is not None and backward.graph is not None and not instance.backward_scope.unit.standard:
        return True
    return any(writes_gradients(child) for _, child in children(instance))


def losses_of_parts(names: Iterable[tuple[str, Tensor]]) -> Iterator[Tensor]:
    """The auxiliary losses among the tensors that paths name: real scalars that are called so."""
    for path, tensor in names:
        if path.rpartition(".")[2] == AUXILIARY and tensor.element.is_float and not tensor.shape:
            yield tensor


class _Whole:
    """The graph of an instance and back."""

    def __init__(self, tape: Tape, with_auxiliary: bool) -> None:
        self.tape = tape
        self.auxiliary: AuxiliaryLosses | None = None
        self._with_auxiliary = with_auxiliary
        self.gradients: dict[str, str] = {}
        self.input_gradients: dict[str, str] = {}
        self.seeds: dict[str, str] = {}
        self.saved: tuple[str, ...] = ()
        self.needed: frozenset[str] = frozenset()
        self._taken: set[str] = set()

    def build(self, frame: InstanceFrame) -> Graph | None:
        """Go forward, then back; nothing where the way forward is wrong already."""
        results = build_whole(frame, self.tape)
        outputs = {name: item for name, item in results.items() if isinstance(item, Tensor)}
        root = self.tape.root
        if root is None or errors(self.tape.findings) or not outputs or len(outputs) != len(results):
            return None
        sweep = self._sweep(root)
        inputs = [value.name for _, value in root.inputs if isinstance(value, Tensor)]
        variables = [item.tensor.name for item in self.tape.weights.values()]
        # Inputs, variables and outputs share one space of names in a graph.
        self._taken = {*outputs, *inputs, *variables, *self.tape.constants}
        for name, tensor in outputs.items():
            if tensor.element.is_float:
                seed = self.tape.builder.input(f"d_{name}", tensor.element, tensor.shape)
                self.seeds[name] = seed.name
                self._taken.add(seed.name)
                sweep.seed(tensor, seed)
        if self._with_auxiliary:
            self._seed_auxiliary(root, sweep)
        sweep.run(root)
        self._report_saving(root)
        self.saved = tuple(dict.fromkeys(self._saved(root)))
        found = {**outputs, **self._inputs(root, sweep), **self._parameters(root, sweep)}
        return finish(found, self.tape)

    def _seed_auxiliary(self, root: Visit, sweep: ReverseSweep) -> None:
        """Start with the adjoints of the losses of parts too."""
        found = {item.name: item for item in losses_of_parts(self.tape.names)}
        if not found:
            return
        first = next(iter(found.values()))
        seed = self.tape.builder.input(f"d_{AUXILIARY}", first.element, ())
        self._taken.add(seed.name)
        made = {item.name for call in root.calls() for item in call.tensors()}
        trained = tuple(name for name in found if name in made)
        for name in trained:
            sweep.seed(found[name], seed)
        self.auxiliary = AuxiliaryLosses(tuple(found), trained, seed.name)

    def _sweep(self, root: Visit) -> ReverseSweep:
        parameters = [
            item.tensor.name
            for item in self.tape.weights.values()
            if is_trainable(item) or (self.tape.is_apart and item.tensor.element.is_float)
        ]
        inputs = [
            value.name
            for port, value in root.inputs
            if isinstance(value, Tensor) and needs_gradient(port, value)
        ]
        wanted = RequiresGradient(parameters, inputs)
        wanted.follow(root.calls())
        self.needed = frozenset(wanted.all)
        return ReverseSweep(self.tape, wanted, run_explicit, {})

    def _saved(self, root: Visit) -> list[str]:
        """The tensors of the forward graph that the backward graph reads."""
        made = [item for call in root.calls() for item in call.tensors()]
        inputs = [value for _, value in root.inputs if isinstance(value, Tensor)]
        return [item.name for item in (*inputs, *made) if item.name in root.reads]

    def _inputs(self, root: Visit, sweep: ReverseSweep) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for port, value in root.inputs:
            if isinstance(value, Tensor) and needs_gradient(port, value):
                name = self._free(f"d_{value.name}")
                found[name] = sweep.take(value) or self._zeros(value, root)
                self.input_gradients[port.name or "in"] = name
        return found

    def _parameters(self, root: Visit, sweep: ReverseSweep) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for weight in self.tape.weights.values():
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
        return self.tape.zeros_like(tensor, CallSite("zeros", root.forward.span, None))

    def _report_saving(self, visit: Visit) -> None:
        """What is wrong with the lists of what is saved, here and in all that is called."""
        forward = visit.forward
        for step in visit.steps:
            if not isinstance(step, RecordedCall):
                self._report_saving(step)
        if forward.save is None and forward.recompute is None:
            return
        saving = SavedTensors(visit, self.tape)
        findings = []
        if visit.backward is None:
            findings = [*saving.check_recomputed(), *saving.check_derived(saving.missing())]
        if visit.reads:
            findings += saving.check_used()
        for finding in findings:
            self.tape.report(finding, visit.frame.origin)


__all__ = [
    "AUXILIARY",
    "AuxiliaryLosses",
    "Differentiated",
    "declares_gradients",
    "differentiate",
    "losses_of_parts",
    "writes_gradients",
]
