"""Records forward calls for reverse-mode differentiation, and which of their tensors a backward graph may read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.bridge.module_to_graph.calls import ports
from lamella.bridge.module_to_graph.lowering import CallSite, GraphLowering
from lamella.bridge.module_to_graph.nodes import (
    Bound,
    CompilationSettings,
    Compiled,
    InstanceFrame,
    Precision,
    Weight,
)
from lamella.bridge.module_to_graph.statements import find_forward, find_inputs, find_outputs, order_flows
from lamella.graph.build import Given
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Tensor, Value
from lamella.lang.module.check.names import DROPPED
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate, evaluate_bool
from lamella.lang.module.instantiate.nodes import Known
from lamella.lang.module.nodes import (
    Annotation,
    Backward,
    Flow,
    Forward,
    Name,
    Operation,
    Pattern,
    Port,
    Primitive,
    Selection,
    TensorType,
)
from lamella.lang.module.rules import gradients
from lamella.lang.module.suggest import suggest

# --- what a tape holds: calls and instances in the order in which they ran ----------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """One call of an operator on the tape: its operands, its attributes, its results."""

    operator: str
    inputs: tuple[Given, ...]
    attributes: Mapping[str, Value]
    results: tuple[Argument, ...]
    place: CallSite

    def tensors(self) -> Iterator[Tensor]:
        """The tensors that the call gives."""
        return flat(self.results)

    def operands(self) -> Iterator[Tensor]:
        """The tensors that the call reads."""
        return flat(self.inputs)


@dataclass(slots=True, eq=False)
class Visit:
    """An instance on the tape: what went in, what it called, what came out."""

    frame: InstanceFrame
    forward: Forward
    inputs: tuple[tuple[Port, Bound], ...]
    steps: list[RecordedCall | Visit] = field(default_factory=list)
    outputs: tuple[Bound, ...] = ()
    names: tuple[str, ...] = ()
    """What the outputs are called."""
    pulled: list[RecordedCall] = field(default_factory=list)
    """The calls of its own graph that gradients went back through."""
    reads: set[str] = field(default_factory=set)
    """The names of the tensors that its backward graph reads."""
    precision: Precision | None = None
    """The types of its products, as a recipe around it says."""
    is_wrong: bool = False
    """Whether its backward graph has mistakes: what it reads is not all known then."""
    done: bool = False
    """Whether `instance.backward()` was written for it."""

    @property
    def backward(self) -> Backward | None:
        """The backward section, where one with a graph is written."""
        found = self.frame.instance.module.backward
        return found if found is not None and found.graph is not None else None

    def calls(self) -> Iterator[RecordedCall]:
        """Every call of the instance and of all that it calls, in order."""
        for step in self.steps:
            if isinstance(step, RecordedCall):
                yield step
            else:
                yield from step.calls()

    def visits(self) -> Iterator[Visit]:
        """The instances that it calls itself."""
        return (step for step in self.steps if isinstance(step, Visit))


@dataclass(frozen=True, slots=True)
class AuxiliaryLosses:
    """Losses that parts of a model have of their own, such as routers of experts: scalars that are called so."""

    tensors: tuple[str, ...]
    trained: tuple[str, ...]
    """Those that gradients go back through: `@gradient(skip)` stops them."""
    seed: str
    """The input that is the gradient of each of these."""


@dataclass(frozen=True, slots=True)
class Differentiated:
    """A graph with its gradients: forward inputs and `d_<output>` in, forward outputs and gradients out."""

    compiled: Compiled
    """The graph with its weights, marks and constants."""
    gradients: Mapping[str, str] = field(default_factory=dict)
    """The output that is the gradient of a parameter, by the path of the parameter."""
    input_gradients: Mapping[str, str] = field(default_factory=dict)
    """The output that is the gradient of an input, by the input."""
    seeds: Mapping[str, str] = field(default_factory=dict)
    """The input that is the gradient of an output, by the output."""
    saved: tuple[str, ...] = ()
    """The tensors of the forward part that the backward part reads; parameters and constants are not among them."""
    auxiliary: AuxiliaryLosses | None = None
    """The losses of parts, where they were asked for and there are some."""
    adjoints: Mapping[str, str] = field(default_factory=dict)
    """The gradients of tensors of the forward part, by these."""
    needed: frozenset[str] = frozenset()
    """The tensors of the forward part that gradients have to go back to."""

    @property
    def model(self) -> Model | None:
        """The graph; None where something is wrong."""
        return self.compiled.model

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """Errors, warnings and notes."""
        return self.compiled.findings


def flat(arguments: Sequence[object]) -> Iterator[Tensor]:
    """The tensors among arguments, those of packs one by one."""
    for item in arguments:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, tuple):
            yield from flat(item)


IDENTITY = "math.iden"
ADJOINT = "adjoint "
"""What a recorded call begins with that is one of adjoints alone."""
SCALED, CLIPPED = "llm.scale", "optim.clip_norm"
"""What happens to an adjoint that `@gradient` scales or clips; recorded as a call that does nothing forward."""
ROUNDED = "rounded"
"""What happens to an adjoint in the backward of a product whose gradients have a type of their own."""

Backwards = Callable[[Operation, Sequence[Bound], tuple[str, ...], InstanceFrame], "Sequence[Bound] | None"]


class Tape(GraphLowering):
    """A lowering that records the calls of the forward graph, then which tensors are adjoints."""

    def __init__(self, settings: CompilationSettings, name: str) -> None:
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
        self.changes: dict[str, Callable[[Tensor], Tensor]] = {}
        """What is done to the adjoints of tensors on their way back."""
        self.is_apart = False
        """Whether every adjoint is a tensor of its own, though it has the numbers of another."""

    # --- forward --------------------------------------------------------------------------------------------

    def record(
        self,
        operator: str,
        inputs: Sequence[Given],
        attributes: Mapping[str, Value],
        results: Sequence[Argument],
        place: CallSite,
    ) -> None:
        """Put a call of the forward graph on the tape; of one in a backward graph, note reads and adjoints."""
        if self._stack:
            self._stack[-1].steps.append(
                RecordedCall(operator, tuple(inputs), attributes, tuple(results), place),
            )
            return
        operands = {item.name for item in flat(inputs)}
        for reads in self._reading:
            reads |= operands
        if operands & self._gradients:
            self.mark_gradients(*flat(results))

    def visit(self, frame: InstanceFrame, build: Callable[[], tuple[Bound, ...]]) -> tuple[Bound, ...]:
        """Build an instance and record what it calls."""
        # In a backward graph: what it calls is not differentiated again.
        if self.root is not None and not self._stack:
            return build()
        forward = self._with_lists(find_forward(frame), frame)
        ports = find_inputs(InstanceFrame(frame.instance), forward)
        for port in ports:
            self._stop_skipped(port, frame)
        inputs = tuple((port, frame.bound.get(port.name or "in")) for port in ports)
        visit = Visit(frame, forward, inputs, names=self._outputs(frame, forward), precision=self.precision)
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

    def _with_lists(self, forward: Forward, frame: InstanceFrame) -> Forward:
        """A forward section with its lists as they hold here: one whose condition is false is not there at all."""
        lists = {"save": forward.save, "recompute": forward.recompute}
        for word, selection in lists.items():
            if selection is None or selection.condition is None:
                continue
            try:
                holds = evaluate_bool(selection.condition, frame.known, f"the condition of '{word}:'")
            except Found as problem:
                self.late.append((problem.finding, frame.origin))
                holds = False
            lists[word] = selection if holds else None
        return replace(forward, save=lists["save"], recompute=lists["recompute"])

    def _outputs(self, frame: InstanceFrame, forward: Forward) -> tuple[str, ...]:
        flows: list[Flow] = []
        if forward.outputs is None:
            flows = order_flows(InstanceFrame(frame.instance), forward, GraphLowering(self.settings, ""))
        return tuple(name for name, _ in find_outputs(forward, flows))

    def _stop_skipped(self, port: Port, frame: InstanceFrame) -> None:
        """Nothing goes back through an input that is marked so."""
        name = port.name or "in"
        value = frame.bound.get(name)
        if is_skipped(port.annotations) and isinstance(value, Tensor):
            frame.bound[name] = self._copy(value, name)

    def _own(self, visit: Visit) -> Iterator[Bound]:
        """Outputs that the instance itself makes, each of them once: copies where it only passes tensors on."""
        made = {item.name for call in visit.calls() for item in call.tensors()}
        for value in visit.outputs:
            # Its adjoint would join that of the tensor passed on, and go past the written section.
            if isinstance(value, Tensor) and value.name not in made:
                place = CallSite("copy", visit.forward.span, visit.frame.origin)
                value = next(flat(self.call(IDENTITY, (value,), {}, (value.name,), place)))
            if isinstance(value, Tensor):
                made.discard(value.name)
            yield value

    def _copy(self, value: Tensor, name: str) -> Tensor:
        """The same tensor under another name, which no gradient knows."""
        # Not recorded: the sweep never meets the copy, so no adjoint gets past it.
        self.builder.origin = None
        return self.builder.call(IDENTITY, value, results=(f"{value.name}.{name}",))

    def control_gradient(self, value: Tensor, annotation: Annotation, frame: InstanceFrame) -> Tensor:
        """`@gradient(skip)` stops the adjoint, `scale` multiplies it, `clip` then bounds its norm."""
        if not value.element.is_float:
            return value
        if is_skipped((annotation,)):
            return self._copy(value, "kept")
        # Forward the first call is the last that an adjoint meets.
        steps = [(CLIPPED, "limit", "clip"), (SCALED, "factor", "scale")]
        for operator, attribute, word in steps if self._stack else reversed(steps):
            written = next((item.value for item in annotation.arguments if item.name == word), None)
            number = evaluate(written, frame.known) if written is not None else None
            if isinstance(number, int | float) and not isinstance(number, bool):
                place = CallSite(operator, annotation.span, frame.origin)
                value = self._change_adjoint(value, operator, {attribute: float(number)}, place)
        return value

    def change_adjoint(self, value: Tensor, change: Callable[[Tensor], Tensor], place: CallSite) -> Tensor:
        """A tensor whose adjoint a function changes; in a backward graph there is none."""
        if not self._stack:
            return value
        copy = self._copy(value, ROUNDED)
        self.changes[copy.name] = change
        self.record(
            f"{ADJOINT}{ROUNDED}", (value,), {}, (copy,), CallSite(place.name, place.span, place.origin)
        )
        return copy

    def _change_adjoint(
        self, value: Tensor, operator: str, attributes: Mapping[str, Value], place: CallSite
    ) -> Tensor:
        """A tensor whose adjoint an operator changes; in a backward graph the tensor is one itself."""
        if not self._stack:
            return next(flat(self.call(operator, (value,), attributes, (value.name,), place)))
        copy = self._copy(value, "changed")
        self.record(f"{ADJOINT}{operator}", (value,), attributes, (copy,), place)
        return copy

    # --- backward -----------------------------------------------------------------------------------------------

    def apply_backward(
        self, operation: Operation, values: Sequence[Bound], targets: tuple[str, ...], frame: InstanceFrame
    ) -> Sequence[Bound] | None:
        """What an operation of backward graphs gives; None where the operation is none, or where none is built."""
        if self.backwards is None or self._stack:
            return None
        return self.backwards(operation, values, targets, frame)

    def mark_gradients(self, *tensors: Tensor) -> None:
        """Remember that tensors are gradients."""
        self._gradients.update(item.name for item in tensors)

    @property
    def goes_back(self) -> bool:
        """Whether the way forward is done."""
        return self.root is not None and not self._stack

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

    def set_apart(self, adjoint: Tensor) -> Tensor:
        """The adjoint of one tensor alone, where that is asked for."""
        if not self.is_apart or self.root is None:
            return adjoint
        place = CallSite("adjoint", self.root.forward.span, None)
        return next(flat(self.call(IDENTITY, (adjoint,), {}, (f"{adjoint.name}.own",), place)))

    def memory_of(self, path: str) -> Annotation | None:
        """What `@memory` says of a forward tensor."""
        if self._memory is None:
            self._memory = {
                mark.path: mark.annotation for mark in self.marks if mark.annotation.name == "memory"
            }
        return self._memory.get(path)

    def is_given(self, tensor: Tensor) -> bool:
        """Whether a tensor is a parameter, a constant or a state, which needs no saving."""
        return self.is_parameter(tensor) or tensor.name in self.constants or tensor.name in self.states

    def zeros_like(self, tensor: Tensor, place: CallSite) -> Tensor:
        """Zeros in the shape of a tensor: the gradient of what nothing reads."""
        own = CallSite("zeros", place.span, place.origin)
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


def bound_names(frame: InstanceFrame) -> Mapping[str, Tensor]:
    """The tensors of a frame by name."""
    return {
        name: value for name, value in frame.bound.items() if isinstance(value, Tensor) and name != DROPPED
    }


def gradient_ports(primitive: Primitive) -> tuple[Port, ...]:
    """What the backward of a primitive gives."""
    return (primitive.backward.outputs or ()) if primitive.backward is not None else ()


def saved_ports(primitive: Primitive) -> tuple[Port, ...]:
    """What the backward of a primitive takes."""
    return (primitive.backward.inputs or ()) if primitive.backward is not None else ()


def is_optional(port: Port) -> bool:
    """Whether an input may be left out."""
    return isinstance(port.type, TensorType) and port.type.optional


def named_values(call: RecordedCall, primitive: Primitive) -> dict[str, Given]:
    """The operands and results of a call by the names that its primitive gives them."""
    forward = primitive.forward
    outputs = (forward.outputs or ()) if forward is not None else ()
    found: dict[str, Given] = {}
    for port, result in zip(outputs, call.results, strict=False):
        found[port.name or "out"] = result
    for port, value in zip(ports(primitive), call.inputs, strict=False):
        found[port.name or "in"] = value
    return found


# --- saved tensors: `save:`, `recompute:`, `@memory` --------------------------------------------------------


WHOLE = frozenset(("view", "reshape", "transpose", "permute", "contiguous", "alias"))
"""Primitives that only look at what they are given, and at all of it: who saved the one has the other."""

VIEWS = WHOLE | {"fork", "split", "split_and_reshape", "split_reshape"}
"""Primitives that look at what they are given, or at parts of it."""

MOST_NAMED = 12
"""Tensors that one finding names."""


class SavedTensors:
    """The tensors of an instance that are saved, those that are recomputed, and what can be made of them."""

    def __init__(self, visit: Visit, tape: Tape) -> None:
        self.visit, self.tape = visit, tape
        self.names = bound_names(visit.frame)
        forward = visit.forward
        self.listed = forward.save is not None
        """Whether there is a list; without one everything may be read."""
        modes = _memory_modes(visit, tape)
        chosen = {name for _, names in self.matches(forward.save) for name in names}
        self.saved = {
            name for name in self.names if modes.get(name, "save" if name in chosen else "") == "save"
        }
        again = {name for _, names in self.matches(forward.recompute) for name in names}
        marked = {name for name in self.names if modes.get(name) == "recompute"}
        self.recomputed = (again - self.saved) | marked
        self._calls = tuple(visit.calls())
        self._makers = {item.name: call for call in self._calls for item in call.tensors()}
        self._own = {item.name: name for name, item in reversed(list(self.names.items()))}
        self._leaves: dict[str, Tensor | None] = {}
        self._has = self.closure(self.names[name].name for name in self.saved)

    @property
    def available(self) -> Mapping[str, Tensor]:
        """What `saved.` may name."""
        if not self.listed:
            return self.names
        wanted = self.saved | {name for name in self.recomputed if not self.leaf(self.names[name])}
        return {name: self.names[name] for name in self.names if name in wanted}

    def matches(self, selection: Selection | None) -> Iterator[tuple[Pattern, list[str]]]:
        """The items of a list with the tensors that they name; what stands for the saves of blocks is left out."""
        if selection is None:
            return
        for item in selection.items:
            if not item.spread:
                yield item, [name for name in self.names if fnmatchcase(name, item.text)]

    def closure(self, names: Iterable[str]) -> set[str]:
        """Tensors, what they only look at, and all that only looks at them."""
        found = set(names)
        # From views to what they look at, then from there to all other views: a topological order and its
        # reverse meet a chain of any length in one pass each.
        for call in reversed(self._calls):
            primitive = call.place.primitive
            if primitive is not None and primitive.name in WHOLE and _touches(call.tensors(), found):
                found.update(item.name for item in call.operands())
        for call in self._calls:
            primitive = call.place.primitive
            looks = primitive is None or primitive.name in VIEWS
            if looks and _touches(call.operands(), found):
                found.update(item.name for item in call.tensors())
        return found

    def leaf(self, tensor: Tensor) -> str:
        """What is missing to compute a tensor again, as it is called; nothing where all is there."""
        missing = self._missing(tensor)
        return "" if missing is None else self.called(missing)

    def _missing(self, tensor: Tensor) -> Tensor | None:
        """A tensor that nothing can give and that this one is made of; each is followed once, however many ask."""
        todo = [tensor]
        while todo:
            # A stack of our own: chains are as long as the graph, and Python's stack is not.
            item = todo[-1]
            if item.name in self._leaves:
                todo.pop()
                continue
            maker = self._makers.get(item.name)
            if item.name in self._has or self.tape.is_given(item) or maker is None:
                known = item.name in self._has or self.tape.is_given(item)
                self._leaves[item.name] = None if known else item
                todo.pop()
                continue
            operands = list(maker.operands())
            ahead = [operand for operand in operands if operand.name not in self._leaves]
            if ahead:
                todo += reversed(ahead)
            else:
                found = (self._leaves[operand.name] for operand in operands)
                self._leaves[item.name] = next((leaf for leaf in found if leaf is not None), None)
                todo.pop()
        return self._leaves[tensor.name]

    def called(self, tensor: Tensor) -> str:
        """The name that the instance knows a tensor by; of an unnamed one, what makes it."""
        own = self._own.get(tensor.name)
        maker = self._makers.get(tensor.name)
        return own or (maker.place.name if maker is not None else tensor.name)

    # --- findings -------------------------------------------------------------------------------------------

    def missing(self) -> set[str]:
        """The tensors that are missing to recompute what is to be recomputed."""
        return {self.leaf(self.names[name]) for name in self.recomputed} - {""} if self.listed else set()

    def check_recomputed(self) -> Iterator[Diagnostic]:
        """Whether what is to be recomputed can be."""
        if not self.listed:
            return
        spans = {
            name: item.span for item, names in self.matches(self.visit.forward.recompute) for name in names
        }
        for name in self.recomputed:
            leaf = self.leaf(self.names[name])
            if leaf:
                mark = self.tape.memory_of(self.visit.frame.place(name))
                span = mark.span if mark is not None else spans.get(name, self.visit.forward.span)
                yield gradients.NOT_DERIVABLE.at(span, name=name, leaf=leaf)

    def check_derived(self, missing: Collection[str] = ()) -> Iterator[Diagnostic]:
        """Whether the list has all that the derived backward reads; `missing` are tensors known to be absent."""
        selection = self.visit.forward.save
        if selection is None:
            return
        module, extra = self.visit.frame.name, []
        again = {self.names[name].name for name in self.recomputed}
        for tensor in self._needed():
            if tensor.name in self._has or self.tape.is_given(tensor):
                continue
            name = self.called(tensor)
            if self.leaf(tensor) in missing:
                continue
            if self.leaf(tensor):
                repair = f"add '{self.leaf(tensor)}' to save:"
                yield gradients.NOT_SAVED.at(selection.span, name=name, module=module, repair=repair)
            elif tensor.name not in again:
                extra.append(f"'{name}'")
        if extra:
            named = list(dict.fromkeys(extra))
            more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
            names = ", ".join(named[:MOST_NAMED]) + more
            yield gradients.BEYOND.at(selection.span, module=module, names=names)

    def _needed(self) -> Iterator[Tensor]:
        """The tensors that the backwards of the calls of this instance need the values of."""
        seen: set[str] = set()
        for call in reversed(self.visit.pulled):
            for tensor in _needs(call):
                if tensor.name not in seen:
                    seen.add(tensor.name)
                    yield tensor

    def check_used(self) -> Iterator[Diagnostic]:
        """Whether all that is saved is read."""
        module, forward = self.visit.frame.name, self.visit.forward
        for section, selection in (("save", forward.save), ("recompute", forward.recompute)):
            for item, names in self.matches(selection):
                if not names:
                    repair = suggest(item.text, self.names) if "*" not in item.text else ""
                    yield gradients.NO_MATCH.at(
                        item.span, name=item.text, section=section, module=module, repair=repair
                    )
        for item, names in self.matches(forward.save):
            if (
                names
                and not self.visit.is_wrong
                and not self.closure(self.names[name].name for name in names) & self.visit.reads
            ):
                yield gradients.UNUSED.at(item.span, name=item.text, module=module)


def _touches(tensors: Iterable[Tensor], names: set[str]) -> bool:
    return any(item.name in names for item in tensors)


def _needs(call: RecordedCall) -> Iterator[Tensor]:
    """What the primitive of a call saves, but for what its backward can do without."""
    primitive = call.place.primitive
    if primitive is None or primitive.save is None or not _is_kept(call, primitive):
        return
    values = named_values(call, primitive)
    free = {port.name for port in saved_ports(primitive) if is_optional(port)}
    for item in primitive.save.items:
        if item.text not in free:
            yield from flat((values.get(item.text),))


def _is_kept(call: RecordedCall, primitive: Primitive) -> bool:
    """Whether the list of a primitive holds for a call; a condition that asks for its attributes may not."""
    condition = primitive.save.condition if primitive.save is not None else None
    if condition is None:
        return True
    known: dict[str, Known] = {}
    try:
        for param in primitive.params:
            if param.name in call.attributes:
                value = call.attributes[param.name]
                known[param.name] = Known(value if isinstance(value, int | float | str) else None)
            elif param.default is not None:
                known[param.name] = Known(evaluate(param.default, known, EvaluationContext(words=True)))
        return evaluate_bool(condition, known, "the condition of 'save:'")
    except Found:
        return True


def _memory_modes(visit: Visit, tape: Tape) -> dict[str, str]:
    """What `@memory` says of the tensors of an instance."""
    found: dict[str, str] = {}
    for name in visit.frame.bound:
        mark = tape.memory_of(visit.frame.place(name))
        for item in mark.arguments if mark is not None else ():
            if item.name in (None, "mode") and isinstance(item.value, Name):
                found[name] = item.value.id
    return found
