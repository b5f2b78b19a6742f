"""Gradients from formulas: reverse-mode differentiation of a graph whose backward operators are derived, not written.

y = f(x)     gives     d_x = d_y · ∂f/∂x,     an operator of module `gradient`, as text like any other
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Unsupported
from lamella.base.origin import blamed, with_origin
from lamella.base.source import NOWHERE
from lamella.graph.build import Builder, Given
from lamella.graph.compose.decompose import decompose
from lamella.graph.gradient.control_flow import Adjoints, ControlFlow, mark, steps_of
from lamella.graph.gradient.views import is_view, passes_on, pull_view
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Branch,
    Graph,
    Loop,
    Node,
    Operation,
    Pack,
    Tensor,
    regions,
    tensors,
    walk,
)
from lamella.graph.passes.fold_transposes import fold_transposes
from lamella.graph.rewrite import copy_of, members, results_of
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.rules.graphs import NO_GRADIENT
from lamella.ops.gradient import MODULE, STOPPING, BackwardOperator, as_document, derive, derive_formulas
from lamella.ops.library import Library

AdjointChange = Callable[[Builder, Tensor], Tensor]
"""What makes another adjoint of that of a tensor."""
NARROW = 8
"""Bits of elements that are codes: no gradient fits them."""


class DerivedOperators:
    """The backward operators of a library, each derived when it is first asked for."""

    def __init__(self, library: Library) -> None:
        self.source = library
        self._found: dict[tuple[str, str], BackwardOperator | None] = {}

    def find(self, operator: str, wanted: str) -> BackwardOperator | None:
        """The backward operator for an input; None where nothing depends on it smoothly."""
        key = operator, wanted
        if key not in self._found:
            definition = self.source.find(operator)
            if definition is None:
                raise LookupError(operator)
            self._found[key] = derive_formulas(operator, definition.operator, wanted)
        return self._found[key]

    @property
    def document(self) -> n.Document:
        """The module with all operators that were derived."""
        return as_document(item for item in self._found.values() if item is not None)

    def library(self) -> Library:
        """The library with the module of derived operators."""
        return self.source.with_module(MODULE, self.document)


def differentiate(model: Model, wanted: Sequence[str], constant: Iterable[str] = ()) -> Model:
    """The model with gradients: it takes `d_y` too for each real output, and gives `d_x` for each wanted tensor.

    Compound operators are differentiated through their parts. No gradient goes through tensors that are `constant`.
    LamellaError has a finding for each operation whose gradient is needed and cannot be derived.
    """
    return differentiate_all(model, wanted, constant, {})[0]


def differentiate_all(
    model: Model, wanted: Sequence[str], constant: Iterable[str], changes: Mapping[str, AdjointChange]
) -> tuple[Model, Mapping[str, str]]:
    """The model with gradients, some of which are changed on their way back; and the adjoints by their tensors."""
    flat = decompose(model, lambda name: name in STOPPING or is_view(model.library, name))
    # Products that read a weight as it lies in memory give its gradient as it lies there too.
    sweep = _ReverseSweep(fold_transposes(flat), wanted, constant, changes)
    made = sweep.run()
    return made, {name: item.name for name, item in sweep.adjoints.items()}


def _without_gradient(node: Node, reason: object) -> Diagnostic:
    """The finding that a node has no gradient, where it stands in the model."""
    names = {Loop: "do", Branch: "if"}
    operator = node.operator if isinstance(node, Operation) else names[type(node)]
    link = blamed(node.origin)
    span = NOWHERE if link is None or link.span is None else link.span
    return with_origin(NO_GRADIENT.at(span, operator=operator, reason=reason), node.origin)


class _ReverseSweep:
    """One graph from its last node to its first: adjoints are collected for what needs them."""

    def __init__(
        self,
        model: Model,
        wanted: Sequence[str],
        constant: Iterable[str],
        changes: Mapping[str, AdjointChange],
    ) -> None:
        self.model, self.graph = model, model.graph
        self.wanted, self.changes = wanted, changes
        self.adjoints: dict[str, Tensor] = {}
        """The gradients of the tensors outside of loops and branches."""
        self.derived = DerivedOperators(model.library)
        self.needed = set(wanted)
        mark(self.graph.nodes, self.needed)
        self.needed -= set(constant)
        findings = [
            finding for node in walk(self.graph.nodes) if (finding := self._finding(node)) is not None
        ]
        if findings:
            raise LamellaError(findings)
        self.builder = Builder(self.derived.library(), self.graph.name)
        self.control_flow = ControlFlow(self)

    def _finding(self, node: Node) -> Diagnostic | None:
        """What is wrong where the gradient of a node is needed and cannot be derived."""
        try:
            if isinstance(node, Operation):
                list(self._pullbacks(node, self.needed))
            elif isinstance(node, Loop) and any(item.name in self.needed for item in results_of(node)):
                steps_of(node)
        except Unsupported as problem:
            return _without_gradient(node, problem)
        return None

    def _pullbacks(self, node: Operation, needed: set[str]) -> Iterator[tuple[int, BackwardOperator | None]]:
        """What goes back through an operation: to which input, and by which operator; None for a view."""
        if not any(item.name in needed for item in results_of(node)):
            return
        for number, (name, value) in enumerate(self._inputs(node)):
            if not any(item.name in needed for item in members((value,))):
                continue
            if passes_on(self.model.library, node, number):
                yield number, None
                continue
            found = self.derived.find(node.operator, name)
            if found is not None:
                yield number, found

    def _inputs(self, node: Operation) -> Iterator[tuple[str, Argument]]:
        definition = self.model.library.find(node.operator)
        if definition is None:
            raise LookupError(node.operator)
        yield from zip(
            (item.name for item in definition.operator.parameters("input")), node.inputs, strict=False
        )

    def run(self) -> Model:
        """The graph with the operations of the gradients behind those that it has."""
        graph, builder = self.graph, self.builder
        seeds = self._seeds()
        for name in _names(graph):
            builder.fresh(name)
        for seed in seeds.values():
            builder.fresh(seed.name)
        names = [builder.fresh(f"d_{name}") for name in self.wanted]
        adjoints, nodes = dict(seeds), self.control_flow.with_tapes(graph.nodes, self.needed)
        self.adjoints = adjoints
        self.sweep(nodes, adjoints, self.needed)
        given = [adjoints.get(name) or self.zero(self._tensor(name)) for name in self.wanted]
        outputs = [
            replace(item, name=name, quantization=None) for item, name in zip(given, names, strict=True)
        ]
        made = builder.finish()
        copies = [copy_of(*pair) for pair in zip(given, outputs, strict=True)]
        whole = replace(
            graph,
            inputs=(*graph.inputs, *seeds.values()),
            outputs=tuple(outputs),
            nodes=(*nodes, *made.nodes, *copies),
            constants=(*graph.constants, *made.constants),
            updates=(),
        )
        return replace(self.model, graph=whole, library=builder.library)

    def _seeds(self) -> dict[str, Tensor]:
        """The gradients that are given: one for each real output that depends on what is wanted."""
        taken = set(_names(self.graph))
        found: dict[str, Tensor] = {}
        for argument in self.graph.outputs:
            for item in tensors(argument):
                if item.name in self.needed:
                    name = f"d_{item.name}"
                    found[item.name] = replace(
                        item, name=name if name not in taken else f"{name}_in", quantization=None
                    )
        return found

    def _tensor(self, name: str) -> Tensor:
        candidates = [item for argument in self.graph.inputs for item in tensors(argument)]
        return next(item for item in (*candidates, *self.graph.variables) if item.name == name)

    def zero(self, tensor: Tensor) -> Tensor:
        """Zeros like a tensor."""
        return self.builder.constant(0.0, tensor.element, tensor.shape)

    def add(self, adjoints: Adjoints, target: Tensor, part: Tensor) -> None:
        """Add to the adjoint of a tensor, in the type of the tensor; codes have adjoints as wide as they come."""
        if target.element.bits > NARROW and part.element is not target.element:
            part = self.builder.call("layout.cast", part, types={"R": target.element})
        if len(part.shape) != len(target.shape):
            raise ValueError(
                f"the adjoint of '{target.name}' has {len(part.shape)} axes, not {len(target.shape)}"
            )
        known = adjoints.get(target.name)
        adjoints[target.name] = part if known is None else self.builder.call("math.add", known, part)

    def sweep(self, nodes: Sequence[Node], adjoints: Adjoints, needed: set[str]) -> None:
        """Go back through nodes, from adjoints to those of what the nodes read."""
        for node in reversed(nodes):
            if not any(item.name in needed for item in results_of(node)):
                continue
            self.builder.origin = node.origin
            try:
                self._go_back(node, adjoints, needed)
            except Unsupported as problem:
                raise LamellaError([_without_gradient(node, problem)]) from None

    def _go_back(self, node: Node, adjoints: Adjoints, needed: set[str]) -> None:
        if isinstance(node, Branch):
            self.control_flow.pull_branch(node, adjoints, needed)
        elif isinstance(node, Loop):
            self.control_flow.pull_loop(node, adjoints, needed)
        elif any(item.name in adjoints for item in results_of(node)):
            for item in results_of(node):
                if item.name in self.changes and item.name in adjoints:
                    adjoints[item.name] = self.changes[item.name](self.builder, adjoints[item.name])
            for number, found in self._pullbacks(node, needed):
                self._pull(node, number, found, adjoints)

    def _pull(self, node: Operation, number: int, found: BackwardOperator | None, adjoints: Adjoints) -> None:
        """Call a backward operator, and add what it gives to the adjoints of an input."""
        if found is None:
            made, target = node.outputs[0], node.inputs[number]
            if isinstance(made, Tensor) and isinstance(target, Tensor):
                self.add(adjoints, target, pull_view(self.builder, node, number, adjoints[made.name]))
            return
        operands = self._operands(node, adjoints)
        own = {item.name for item in found.operator.parameters("attrib")}
        given = {name: item for name, item in node.attributes if name in own and item is not None}
        generic = {item.name for item in found.operator.items("dtype") if isinstance(item, n.Dtype)}
        results = self.builder.call_all(
            f"{MODULE}.{found.operator.name}",
            *(operands[name] for name in found.operands),
            types={name: item for name, item in node.types if name in generic},
            results=(),
            **given,
        )
        parts = (item for one in results for item in tensors(one))
        for target, part in zip(tensors(node.inputs[number]), parts, strict=True):
            self.add(adjoints, target, part)

    def _operands(self, node: Operation, adjoints: Adjoints) -> Mapping[str, Given]:
        """What a backward operator may take, by the names of its parameters."""
        definition = self.model.library.find(node.operator)
        if definition is None:
            raise LookupError(node.operator)
        found: dict[str, Given] = {name: _given(value) for name, value in self._inputs(node)}
        for item, value in zip(definition.operator.parameters("output"), node.outputs, strict=True):
            found[item.name] = _given(value)
            if isinstance(value, Pack):
                raise Unsupported("a pack whose length only the run tells has no derivative here")
            parts = tuple(adjoints.get(part.name) or self.zero(part) for part in tensors(value))
            found[f"d_{item.name}"] = parts if isinstance(value, tuple) else parts[0]
        return found


def _given(value: Argument) -> Given:
    if isinstance(value, Pack):
        raise Unsupported("a pack whose length only the run tells has no derivative here")
    return value


def _names(graph: Graph) -> Iterator[str]:
    """Every name that a tensor of a graph has."""
    for argument in (*graph.inputs, *(item for node in walk(graph.nodes) for item in node.outputs)):
        yield from (item.name for item in tensors(argument))
        if isinstance(argument, Pack):
            yield argument.name
    yield from (item.name for item in graph.variables)
    yield from (item.tensor.name for item in graph.constants)
    for node in walk(graph.nodes):
        yield from (item.name for region in regions(node) for item in region.inputs)


__all__ = ["MODULE", "BackwardOperator", "DerivedOperators", "derive", "differentiate", "differentiate_all"]
