"""The graph under construction, and what all parts of the road share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.base.origin import Origin, tell_origin
from lamella.base.source import NOWHERE, Span
from lamella.bridge.module_to_graph.annotating.storage import called, marks_of, storage_of
from lamella.bridge.module_to_graph.calls.caching import Caches
from lamella.bridge.module_to_graph.frames import Frame, graph_name
from lamella.bridge.module_to_graph.nodes import Bound, Mark, Precision, Settings, Weight
from lamella.bridge.module_to_graph.numbers.constants import shape_of
from lamella.bridge.module_to_graph.shapes import describe_operands
from lamella.graph.build import Builder, Given
from lamella.graph.nodes import Argument, Tensor, Value
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import BuiltConstant, TensorSlot
from lamella.lang.module.instantiate.walk import slot_at
from lamella.lang.module.nodes import Annotation, Operation, Primitive
from lamella.lang.module.rules import graphs, syntax
from lamella.ops.instance import Check

ELEMENT_CODES = frozenset(("SKR071", "SKR076", "SKR086", "SKR211", "SKR273", "SKR274"))
"""Rules of operators that speak of element types, not of shapes."""


class Road:
    """Everything that the parts of one compilation add to."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.builder = Builder(settings.library, name)
        self.caches = Caches(self.builder, settings.cached) if settings.cached else None
        self.depth = 0
        """How many instances are being built inside each other."""
        self.findings: list[Diagnostic] = []
        self.weights: dict[str, Weight] = {}
        self.marks: list[Mark] = []
        self.constants: dict[str, BuiltConstant] = {}
        self.names: list[tuple[str, Tensor]] = []
        self.precision: Precision | None = None
        """What the statement or the recipe that is being built says about element types."""
        self._parameters: set[str] = set()
        self._tables: dict[object, Tensor] = {}
        self._seen: set[tuple[str, int, int, str]] = set()
        self.checks: list[Check] = []
        """Declared shapes that only the run can test."""
        self.steps = 0
        """Operations of the graph so far."""

    def report(self, finding: Diagnostic, origin: Origin | None = None) -> None:
        """Record a finding; the same one from another element of an array is not said again."""
        key = (finding.code, finding.span.start, finding.span.end, finding.span.source.name)
        if key not in self._seen:
            self._seen.add(key)
            self.findings.append(tell_origin(finding, origin))

    @property
    def is_spent(self) -> bool:
        """Whether the graph has more operations than a graph may have."""
        return self.steps > self.settings.library.limits.max_operations

    def spend(self, count: int, span: Span, frame: Frame) -> bool:
        """Whether so many operations may still be built; the first that may not are reported."""
        limit = self.settings.library.limits.max_operations
        before, self.steps = self.steps, self.steps + count
        if before <= limit < self.steps:
            what = "the number of operations of the graph"
            finding = syntax.LIMIT.at(span, what=what, limit=limit, option="max_operations")
            self.report(finding, frame.origin)
        return self.steps <= limit

    # --- parameters and constants ---------------------------------------------------------------------------

    def parameter(self, frame: Frame, slot: TensorSlot) -> Bound:
        """The variable that a parameter is; None where an optional one has no numbers."""
        path = frame.place(slot.name)
        if slot.tied is not None:
            home = slot_at(frame.instance, slot.tied)
            return None if home is None else self.parameter(frame, replace(home, name=slot.tied))
        if path not in self.weights:
            given = self.settings.given
            if slot.optional and (given is None or not given(path)):
                return None
            element = storage_of(slot, frame, self.precision) or self.settings.element
            self.builder.origin = frame.at(slot.name, slot.span)
            tensor = self.builder.variable(graph_name(path), element, slot.dims)
            self.weights[path] = Weight(path, tensor, slot)
            self.marks += marks_of(slot, path, tensor, frame)
            self._parameters.add(tensor.name)
        return self.weights[path].tensor

    def constant(self, frame: Frame, name: str, built: BuiltConstant) -> Tensor:
        """The variable that holds a built constant; equal ones are one."""
        key = (built.function, built.positional, tuple(sorted(built.named.items())))
        if key not in self._tables:
            shape = shape_of(name, built)
            tensor = self.builder.variable(graph_name(frame.place(name)), self.settings.element, shape)
            self.constants[tensor.name] = built
            self._tables[key] = tensor
        return self._tables[key]

    def is_parameter(self, value: Bound) -> bool:
        """Whether a tensor is a parameter of the model."""
        return isinstance(value, Tensor) and value.name in self._parameters

    # --- calls ----------------------------------------------------------------------------------------------

    def call(
        self,
        operator: str,
        inputs: Sequence[Given],
        attributes: Mapping[str, Value],
        results: Sequence[str],
        place: Place,
    ) -> tuple[Argument, ...]:
        """Call an operator of the library; what it finds wrong is said in the words of this language."""
        self.builder.origin = place.origin
        try:
            found = self.builder.call_all(
                operator,
                *inputs,
                types=place.types,
                results=tuple(map(graph_name, results)),
                **dict(attributes),
            )
        except Found as problem:
            first, *others = (self._said(item, place, inputs) for item in problem.findings)
            for item in others:
                self.report(item, place.origin)
            raise Problem(first) from None
        self.watch(operator, inputs, attributes, found, place)
        return found

    def _said(self, finding: Diagnostic, place: Place, inputs: Sequence[Given]) -> Diagnostic:
        """A finding of an operator at the statement that called it."""
        tensors = [item for item in inputs if isinstance(item, Tensor)]
        if finding.code in ELEMENT_CODES:
            types = ", ".join(dict.fromkeys(called(item.element) for item in tensors))
            return graphs.DTYPE.at(
                place.span,
                operation=place.name,
                found=types,
                what="an operand",
                repair="convert it with @dtype",
            )
        operands, values = describe_operands(tensors, place.frame)
        message = finding.message.partition(": ")[2] or finding.message
        why = f"{message}; operands {operands}" if operands else message
        return graphs.OPERANDS.at(
            place.span, operation=place.name, why=why, values=values, repair=finding.hint
        )

    def cast(self, tensor: Tensor, element: ElementType, origin: Origin | None) -> Tensor:
        """The tensor in another element type."""
        if tensor.element is element:
            return tensor
        self.builder.origin = origin
        found = self.builder.call("layout.cast", tensor, types={"R": element})
        span = NOWHERE if origin is None or origin.span is None else origin.span
        self.watch("layout.cast", (tensor,), {}, (found,), Place("cast", span, origin))
        return found

    # --- what a road that also goes back adds -----------------------------------------------------------------

    def watch(
        self,
        operator: str,
        inputs: Sequence[Given],
        attributes: Mapping[str, Value],
        results: Sequence[Argument],
        place: Place,
    ) -> None:
        """See a call that was made; a road that only goes forward does not look back."""

    def visit(self, frame: Frame, build: Callable[[], tuple[Bound, ...]]) -> tuple[Bound, ...]:
        """Build an instance whose inputs are bound."""
        return build()

    def apply_backward(
        self, operation: Operation, values: Sequence[Bound], targets: tuple[str, ...], frame: Frame
    ) -> Sequence[Bound] | None:
        """What an operation of backward graphs gives; None where the operation is none."""
        return None

    def is_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor is a gradient."""
        return tensor.name.rpartition(".")[2].startswith("d_")

    def control_gradient(self, value: Tensor, annotation: Annotation, frame: Frame) -> Tensor:
        """The value with its `@gradient`, which a graph without gradients does not need."""
        return value


class Place:
    """Where a call is written: the name it is called by, its span, its origin, the types that it fixes.

    `primitive` is what is called there, where that is a primitive.
    """

    __slots__ = ("frame", "name", "origin", "primitive", "span", "types")

    def __init__(self, name: str, span: Span, origin: Origin | None, frame: Frame | None = None) -> None:
        self.name = name
        self.span = span
        self.origin = origin
        self.frame = frame
        self.types: Mapping[str, ElementType] | None = None
        self.primitive: Primitive | None = None
