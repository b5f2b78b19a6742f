"""A road that remembers what it built, so that it can go back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic
from lamella.base.origin import Origin
from lamella.bridge.module_to_graph.backward.nodes import Called, Visit, flat
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound, Settings, Weight
from lamella.bridge.module_to_graph.road import Place, Road
from lamella.bridge.module_to_graph.walk import find_forward, find_inputs, find_outputs, order_flows
from lamella.graph.build import Given
from lamella.graph.nodes import Argument, Tensor, Value
from lamella.lang.module.check.names import DROPPED
from lamella.lang.module.instantiate.evaluate import Problem, evaluate, evaluate_bool
from lamella.lang.module.nodes import Annotation, Flow, Forward, Name, Operation, Port

IDENTITY = "math.iden"
SCALED = "scaled gradient"
"""What a call is remembered as whose gradient is scaled."""

Backwards = Callable[[Operation, Sequence[Bound], tuple[str, ...], Frame], "Sequence[Bound] | None"]


class Recorder(Road):
    """A road that keeps the calls of the forward graph, then the tensors that are gradients."""

    def __init__(self, settings: Settings, name: str) -> None:
        super().__init__(settings, name)
        self.root: Visit | None = None
        self.backwards: Backwards | None = None
        """What operations of backward graphs mean, while one is built."""
        self.late: list[tuple[Diagnostic, Origin | None]] = []
        """Mistakes in the lists of what is saved: they keep nothing else from being looked at."""
        self._stack: list[Visit] = []
        self._gradients: set[str] = set()
        self._reading: list[set[str]] = []
        self._memory: dict[str, Annotation] | None = None

    # --- forward --------------------------------------------------------------------------------------------

    def watch(
        self,
        operator: str,
        inputs: Sequence[Given],
        attributes: Mapping[str, Value],
        results: Sequence[Argument],
        place: Place,
    ) -> None:
        """Keep a call of the forward graph; in a backward graph see what it reads and what it makes."""
        if self._stack:
            self._stack[-1].steps.append(
                Called(operator, tuple(inputs), attributes, tuple(results), place),
            )
            return
        operands = {item.name for item in flat(inputs)}
        for reads in self._reading:
            reads |= operands
        if operands & self._gradients:
            self.mark_gradients(*flat(results))

    def visit(self, frame: Frame, build: Callable[[], tuple[Bound, ...]]) -> tuple[Bound, ...]:
        """Build an instance and keep what it calls."""
        if self.root is not None and not self._stack:
            return build()
        forward = self._with_lists(find_forward(frame), frame)
        ports = find_inputs(Frame(frame.instance), forward)
        for port in ports:
            self._stop_skipped(port, frame)
        inputs = tuple((port, frame.bound.get(port.name or "in")) for port in ports)
        visit = Visit(frame, forward, inputs, names=self._outputs(frame, forward))
        if self._stack:
            self._stack[-1].steps.append(visit)
        self.root = self.root or visit
        self._stack.append(visit)
        try:
            visit.outputs = build()
            if visit.backward is not None:
                visit.outputs = tuple(self._own(visit))
        finally:
            self._stack.pop()
        return visit.outputs

    def _with_lists(self, forward: Forward, frame: Frame) -> Forward:
        """A forward section with its lists as they hold here: one whose condition is false is not there at all."""
        lists = {"save": forward.save, "recompute": forward.recompute}
        for word, selection in lists.items():
            if selection is None or selection.condition is None:
                continue
            try:
                holds = evaluate_bool(selection.condition, frame.known, f"the condition of '{word}:'")
            except Problem as problem:
                self.late.append((problem.finding, frame.origin))
                holds = False
            lists[word] = selection if holds else None
        return replace(forward, save=lists["save"], recompute=lists["recompute"])

    def _outputs(self, frame: Frame, forward: Forward) -> tuple[str, ...]:
        flows: list[Flow] = []
        if forward.outputs is None:
            flows = order_flows(Frame(frame.instance), forward, Road(self.settings, ""))
        return tuple(name for name, _ in find_outputs(forward, flows))

    def _stop_skipped(self, port: Port, frame: Frame) -> None:
        """Nothing goes back through an input that is marked so."""
        name = port.name or "in"
        value = frame.bound.get(name)
        if is_skipped(port.annotations) and isinstance(value, Tensor):
            frame.bound[name] = self._copy(value, name)

    def _own(self, visit: Visit) -> Iterator[Bound]:
        """Outputs that the instance itself makes, each of them once: copies where it only passes tensors on."""
        made = {item.name for call in visit.calls() for item in call.tensors()}
        for value in visit.outputs:
            if isinstance(value, Tensor) and value.name not in made:
                place = Place("copy", visit.forward.span, visit.frame.origin)
                value = next(flat(self.call(IDENTITY, (value,), {}, (value.name,), place)))
            if isinstance(value, Tensor):
                made.discard(value.name)
            yield value

    def _copy(self, value: Tensor, name: str) -> Tensor:
        """The same tensor under another name, which no gradient knows."""
        self.builder.origin = None
        return self.builder.call(IDENTITY, value, results=(f"{value.name}.{name}",))

    def control_gradient(self, value: Tensor, annotation: Annotation, frame: Frame) -> Tensor:
        """`@gradient(skip)` stops what comes back, `scale` multiplies it."""
        if not value.element.is_float:
            return value
        if is_skipped((annotation,)):
            return self._copy(value, "kept")
        factor = next((item.value for item in annotation.arguments if item.name == "scale"), None)
        scale = evaluate(factor, frame.known) if factor is not None else 1.0
        if isinstance(scale, bool) or not isinstance(scale, int | float) or scale == 1.0:
            return value
        place = Place(SCALED, annotation.span, frame.origin)
        if not self._stack:
            return next(
                flat(self.call("llm.scale", (value,), {"factor": float(scale)}, (value.name,), place))
            )
        copy = self._copy(value, "scaled")
        self.watch(SCALED, (value,), {"factor": float(scale)}, (copy,), place)
        return copy

    # --- back -----------------------------------------------------------------------------------------------

    def apply_backward(
        self, operation: Operation, values: Sequence[Bound], targets: tuple[str, ...], frame: Frame
    ) -> Sequence[Bound] | None:
        """What an operation of backward graphs gives; None where the operation is none, or where none is built."""
        if self.backwards is None or self._stack:
            return None
        return self.backwards(operation, values, targets, frame)

    def mark_gradients(self, *tensors: Tensor) -> None:
        """Remember that tensors are gradients."""
        self._gradients.update(item.name for item in tensors)

    def is_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor is a gradient, or is computed from one."""
        return tensor.name in self._gradients

    @contextmanager
    def reading(self, reads: set[str]) -> Iterator[None]:
        """Collect the names of the tensors that are read meanwhile."""
        self._reading.append(reads)
        try:
            yield
        finally:
            self._reading.pop()

    def memory_of(self, path: str) -> Annotation | None:
        """What `@memory` says of a forward tensor."""
        if self._memory is None:
            self._memory = {
                mark.path: mark.annotation for mark in self.marks if mark.annotation.name == "memory"
            }
        return self._memory.get(path)

    def is_given(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter or a constant, which needs no saving."""
        return self.is_parameter(tensor) or tensor.name in self.constants

    def zeros_like(self, tensor: Tensor, place: Place) -> Tensor:
        """Zeros in the shape of a tensor: the gradient of what nothing reads."""
        own = Place("zeros", place.span, place.origin)
        own.types = {"dtype": tensor.element}
        results = self.call("llm.zeros", (), {"shape": tensor.shape}, (f"{tensor.name}.zeros",), own)
        return next(flat(results))


def is_skipped(annotations: Sequence[Annotation]) -> bool:
    """Whether `@gradient(skip)` is among annotations."""
    for annotation in annotations:
        if annotation.name == "gradient":
            modes = (item.value for item in annotation.arguments if item.name in (None, "mode"))
            if any(isinstance(mode, Name) and mode.id == "skip" for mode in modes):
                return True
    return False


def needs_gradient(port: Port, value: Bound) -> bool:
    """Whether an input needs a gradient: it is floating and not marked otherwise."""
    return isinstance(value, Tensor) and value.element.is_float and not is_skipped(port.annotations)


def is_trainable(weight: Weight) -> bool:
    """Whether a parameter needs a gradient: it is floating, and the last word about it is not `@frozen`."""
    trainable = weight.tensor.element.is_float and not is_skipped(weight.slot.annotations)
    for annotation in weight.slot.annotations:
        if annotation.name in ("frozen", "trainable"):
            trainable = annotation.name == "trainable" and weight.tensor.element.is_float
    return trainable


def bound_names(frame: Frame) -> Mapping[str, Tensor]:
    """The tensors of a frame by name."""
    return {
        name: value for name, value in frame.bound.items() if isinstance(value, Tensor) and name != DROPPED
    }
