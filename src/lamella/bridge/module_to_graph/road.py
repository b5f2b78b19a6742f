"""The graph under construction, and what all parts of the road share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.base.origin import Origin, tell_origin
from lamella.base.source import Span
from lamella.bridge.module_to_graph.caching import Caches
from lamella.bridge.module_to_graph.constants import shape_of
from lamella.bridge.module_to_graph.frames import Frame, graph_name
from lamella.bridge.module_to_graph.nodes import Bound, Mark, Settings, Weight
from lamella.bridge.module_to_graph.shapes import describe_operands, element_of
from lamella.graph.build import Builder, Given
from lamella.graph.nodes import Argument, Tensor, Value
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import BuiltConstant, TensorSlot
from lamella.lang.module.nodes import TensorType
from lamella.lang.module.rules import graphs
from lamella.ops import problem as operators

ELEMENT_CODES = frozenset(("SKR071", "SKR076", "SKR086", "SKR211", "SKR273", "SKR274"))
"""Rules of operators that speak of element types, not of shapes."""


class Road:
    """Everything that the parts of one compilation add to."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.builder = Builder(settings.library, name)
        self.caches = Caches(self.builder, settings.cached) if settings.cached else None
        self.findings: list[Diagnostic] = []
        self.weights: dict[str, Weight] = {}
        self.marks: list[Mark] = []
        self.constants: dict[str, BuiltConstant] = {}
        self._parameters: set[str] = set()
        self._tables: dict[object, Tensor] = {}
        self._seen: set[tuple[str, int, int, str]] = set()

    def report(self, finding: Diagnostic, origin: Origin | None = None) -> None:
        """Record a finding; the same one from another element of an array is not said again."""
        key = (finding.code, finding.span.start, finding.span.end, finding.span.source.name)
        if key not in self._seen:
            self._seen.add(key)
            self.findings.append(tell_origin(finding, origin))

    # --- parameters and constants ---------------------------------------------------------------------------

    def parameter(self, frame: Frame, slot: TensorSlot) -> Bound:
        """The variable that a parameter is; None where an optional one has no numbers."""
        path = frame.place(slot.name)
        if slot.tied is not None:
            return self.weights[frame.place(slot.tied)].tensor
        if path not in self.weights:
            given = self.settings.given
            if slot.optional and (given is None or not given(path)):
                return None
            element = element_of(TensorType((), slot.dtype), self.settings.element)
            self.builder.origin = frame.at(slot.name, slot.span)
            tensor = self.builder.variable(graph_name(path), element, slot.dims)
            self.weights[path] = Weight(path, tensor, slot)
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
            return self.builder.call_all(
                operator,
                *inputs,
                types=place.types,
                results=tuple(map(graph_name, results)),
                **dict(attributes),
            )
        except operators.Problem as problem:
            first, *others = (self._said(item, place, inputs) for item in problem.findings)
            for item in others:
                self.report(item, place.origin)
            raise Problem(first) from None

    def _said(self, finding: Diagnostic, place: Place, inputs: Sequence[Given]) -> Diagnostic:
        """A finding of an operator at the statement that called it."""
        tensors = [item for item in inputs if isinstance(item, Tensor)]
        if finding.code in ELEMENT_CODES:
            types = ", ".join(dict.fromkeys(item.element.name for item in tensors))
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
        return self.builder.call("layout.cast", tensor, types={"R": element})


class Place:
    """Where a call is written: the name it is called by, its span, its origin, the types that it fixes."""

    __slots__ = ("frame", "name", "origin", "span", "types")

    def __init__(self, name: str, span: Span, origin: Origin | None, frame: Frame | None = None) -> None:
        self.name = name
        self.span = span
        self.origin = origin
        self.frame = frame
        self.types: Mapping[str, ElementType] | None = None
