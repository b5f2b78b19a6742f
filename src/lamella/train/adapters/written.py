"""Adapters in a model with `backward:` sections: what they add is put between the gradients that are written.

y = f(x, W)    becomes    y' = f(x, W), y = a(y', x)     where `a` is the adapter, whose gradients follow from formulas
d_y            gives      d_y · ∂a/∂y' for d_y', which f goes on with; d_y · ∂a/∂x, to be added to d_x; d_y · ∂a/∂(A, B)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lamella.base.errors import InputError
from lamella.graph.build import Builder
from lamella.graph.gradient import differentiate_all
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Graph, Node, Operation, Tensor
from lamella.graph.passes.cse import merge_equal
from lamella.graph.rewrite import (
    FreshNames,
    Substitution,
    defined,
    members,
    operands_of,
    producers,
    results_of,
)
from lamella.ops.library import Library
from lamella.train.adapters.places import ADDITIONS, ROUNDING
from lamella.train.adapters.rewrite import Adapted, AdapterPart
from lamella.train.mixed import cast
from lamella.train.sources import TrainableGraph, halves

IDENTITY = "math.iden"
OUTER = "outer of {}"
"""What a tensor that an adapter reads is called while the adapter is differentiated."""


@dataclass(frozen=True, slots=True)
class WrittenGradients:
    """A model with the gradients that its text writes, each a tensor of its own."""

    graph: TrainableGraph
    needed: Collection[str]
    """The tensors that gradients have to go back to."""

    @classmethod
    def of(cls, graph: TrainableGraph, needed: Collection[str]) -> WrittenGradients:
        """What is computed again in a `backward:` section is the tensor that the forward graph has computed.

        The memory policy says whether it is kept, and an adapter changes it once for both ways.
        """
        return cls(replace(graph, model=merge_equal(graph.model, (IDENTITY,))), needed)

    @property
    def forward(self) -> Model:
        """The model without the way back."""
        graph = self.graph.model.graph
        nodes, _ = halves(graph.nodes, self.graph.gradient_inputs)
        return replace(self.graph.model, graph=replace(graph, nodes=tuple(nodes)))


def differentiate_adapted(adapted: Adapted, written: WrittenGradients) -> TrainableGraph:
    """The graph with adapters, its gradients those of the text with what the adapters change of them."""
    return _Composition(adapted, written).run()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What adapters add, with the gradients of it that follow from formulas."""

    library: Library
    nodes: tuple[Node, ...]
    constants: tuple[Constant, ...]
    gradients: Mapping[str, Tensor]
    """By the tensors that the parts read, and the variables that they train."""
    seeds: Mapping[str, str]
    """What stands in the nodes for the gradient of a result, by the result."""
    names: tuple[str, ...]


class _Composition:
    """The way from the gradients of a model to those of its adapters."""

    def __init__(self, adapted: Adapted, written: WrittenGradients) -> None:
        self.adapted, self.source, self.needed = adapted, written.graph, written.needed
        self.graph = adapted.model.graph
        self.parts = adapted.parts
        self.tensors = {item.name: item for item in defined(self.graph) if isinstance(item, Tensor)}
        self.outer = {name: self.tensors[name] for part in self.parts for name in self._outer(part)}
        self.makers = producers(self.graph)
        self.readers: dict[str, list[Operation]] = {}
        nodes, _ = halves(self.graph.nodes, written.graph.gradient_inputs)
        for operation in (node for node in nodes if isinstance(node, Operation)):
            for item in operands_of(operation):
                self.readers.setdefault(item.name, []).append(operation)
        self.plain = {part.plain.name for part in self.parts}
        self.variables = [item.variable for item in adapted.weights]
        self.trained = set(self.variables)
        """What depends on the arrays that are trained."""
        for node in nodes:
            if any(item.name in self.trained for item in operands_of(node)):
                self.trained.update(_names_of(node))

    def run(self) -> TrainableGraph:
        """The graph of the way forward, of what is written, and of the adapters, in an order that can run."""
        parts = self._differentiate()
        builder = Builder(parts.library, self.graph.name)
        for name in (*self.tensors, *parts.names):
            builder.fresh(name)
        totals: dict[str, Tensor] = {}
        for name in self.outer:
            adjoint = None if name in self.plain else self._adjoint(self._source(name))
            if adjoint is not None:
                before = totals.get(adjoint.name, adjoint)
                more = cast(builder, parts.gradients[name], adjoint.element)
                totals[adjoint.name] = builder.call("math.add", before, more)
        stands, seeds = dict(totals), dict[str, Tensor]()
        for part in self.parts:
            adjoint = self._incoming(part)
            given = cast(builder, totals.get(adjoint.name, adjoint), part.result.element)
            seeds[parts.seeds[part.result.name]] = given
            stands[adjoint.name] = cast(builder, parts.gradients[part.plain.name], adjoint.element)
        made = {name for part in self.parts for node in part.nodes for name in _names_of(node)}
        old = [node for node in self.graph.nodes if not made.issuperset(_names_of(node))]
        nodes = [_reading(node, stands) for node in old]
        nodes += [_reading(node, seeds) for node in parts.nodes]
        whole = _ordered((*nodes, *builder.finish().nodes))
        wanted = {name: parts.gradients[name].name for name in self.variables}
        return self._pruned(parts, whole, wanted, {name: item.name for name, item in totals.items()})

    # --- what is known of a part ----------------------------------------------------------------------------------

    def _outer(self, part: AdapterPart) -> Iterator[str]:
        """The real tensors that a part reads and does not make, without what is trained or given to a step."""
        made = {name for node in part.nodes for name in _names_of(node)}
        fixed = {item.name for item in self.graph.variables}
        fixed |= {item.tensor.name for item in self.graph.constants}
        fixed |= {item.name for item in members(self.graph.inputs)}
        # What several parts share, such as a network, is differentiated with them.
        every = {name for one in self.parts for node in one.nodes for name in _names_of(node)}
        fixed |= every - {one.result.name for one in self.parts}
        for node in part.nodes:
            for item in operands_of(node):
                if isinstance(item, Tensor) and item.name not in made | fixed and item.element.is_float:
                    yield item.name

    def _target(self, name: str) -> str:
        """The tensor whose written gradient is that of a result: itself, or what a bias or a rounding makes of it."""
        while name not in self.source.adjoints:
            nodes = self.readers.get(name, [])
            # A copy has the gradient of a tensor for itself; what else reads that computes it again.
            copies = [node for node in nodes if node.operator == IDENTITY] or nodes
            passed = [_names_of(node)[0] for node in copies if node.operator in (*ADDITIONS, *ROUNDING)]
            if len(copies) != 1 or not passed or not self._is_like(name, passed[0]):
                break
            name = passed[0]
        return name

    def _source(self, name: str) -> str:
        """The tensor whose written gradient is that of something that is read: itself, or what was rounded to it."""
        while name not in self.source.adjoints:
            node = self.makers.get(name)
            operands = [item.name for item in operands_of(node)] if node is not None else []
            if not isinstance(node, Operation) or node.operator not in ROUNDING:
                break
            if not operands or not self._is_like(name, operands[0]):
                break
            name = operands[0]
        return name

    def _is_like(self, name: str, other: str) -> bool:
        one, two = self.tensors.get(name), self.tensors.get(other)
        return one is not None and two is not None and one.shape == two.shape

    def _adjoint(self, name: str) -> Tensor | None:
        """The gradient of a tensor that the text writes; None where none has to go back to it."""
        found = self.tensors.get(self.source.adjoints.get(name, ""))
        if found is None and name in self.needed and name in self.trained:
            raise _unnamed(name)
        return found

    def _incoming(self, part: AdapterPart) -> Tensor:
        """The gradient of what a part gives."""
        found = self._adjoint(self._target(part.result.name))
        if found is None:
            raise _unnamed(part.result.name)
        return found

    # --- the parts alone ------------------------------------------------------------------------------------------

    def _differentiate(self) -> _Parts:
        """All parts with their gradients, each apart from the others, under names that nothing else has."""
        given = {name: replace(item, name=OUTER.format(name)) for name, item in self.outer.items()}
        nodes: list[Node] = []
        made: set[str] = set()
        for part in self.parts:
            own = {name for node in part.nodes for name in _names_of(node)}
            apart = {name: item for name, item in given.items() if name not in own}
            nodes += [_reading(node, apart) for node in part.nodes]
            made |= own
        graph = replace(
            self.graph,
            inputs=(*self.graph.inputs, *given.values()),
            outputs=tuple(part.result for part in self.parts),
            nodes=tuple(nodes),
            updates=(),
        )
        wanted = [*(item.name for item in given.values()), *self.variables]
        found, _ = differentiate_all(replace(self.adapted.model, graph=graph), wanted, (), {})
        before = {item.name for item in members(graph.inputs)}
        added = {item.name for item in members(found.graph.inputs)} - before
        seeds = {
            part.result.name: name
            for part in self.parts
            for name in (f"d_{part.result.name}", f"d_{part.result.name}_in")
            if name in added
        }
        fresh = FreshNames((*self.tensors, *added))
        names = {item.name: self.outer[name] for name, item in given.items()}
        for item in (*(one for node in found.graph.nodes for one in results_of(node)), *_new(found, graph)):
            if isinstance(item, Tensor) and item.name not in made:
                names.setdefault(item.name, replace(item, name=fresh.take(item.name)))
        change = Substitution(lambda item: names.get(item.name, item))
        outputs = map(
            change.tensor, (item for item in members(found.graph.outputs) if isinstance(item, Tensor))
        )
        return _Parts(
            found.library,
            tuple(map(change.node, found.graph.nodes)),
            tuple(replace(item, tensor=change.tensor(item.tensor)) for item in _constants(found, graph)),
            dict(zip((*self.outer, *self.variables), outputs, strict=True)),
            seeds,
            tuple(item.name for item in names.values()),
        )

    # --- the whole ------------------------------------------------------------------------------------------------

    def _pruned(
        self, parts: _Parts, nodes: Sequence[Node], wanted: Mapping[str, str], totals: Mapping[str, str]
    ) -> TrainableGraph:
        """Of the way back what the gradients of adapters need, and of the outputs those of the model."""
        forward, backward = halves(nodes, self.source.gradient_inputs)
        live = set(wanted.values())
        kept: list[Node] = []
        for node in reversed(backward):
            if any(item.name in live for item in results_of(node)):
                live |= {item.name for item in operands_of(node)}
                kept.append(node)
        tensors = {item.name: item for node in nodes for item in results_of(node)}
        made = {item.name for node in forward for item in results_of(node)}
        outputs = [item for item in self.graph.outputs if {one.name for one in members((item,))} <= made]
        gradients = [item for name in wanted.values() if isinstance(item := tensors[name], Tensor)]
        graph = replace(
            self.graph,
            nodes=(*forward, *reversed(kept)),
            outputs=(*outputs, *gradients),
            constants=(*self.graph.constants, *parts.constants),
        )
        adjoints = {name: totals.get(item, item) for name, item in self.source.adjoints.items()}
        return replace(
            self.source,
            model=replace(self.adapted.model, graph=graph, library=parts.library),
            gradients=dict(wanted),
            origin=self.adapted,
            adjoints={name: item for name, item in adjoints.items() if item in live},
            kept=None,
        )


def _unnamed(name: str) -> InputError:
    """The refusal of an adapter that a written backward graph leaves no place for."""
    last = name.rpartition(".")[2]
    return InputError(
        f"the backward: section around '{name[:80]}' has no gradient of that name, which an adapter needs",
        hint=f"bind it as d_{last[:40]} there, leave the adapter out, or let the gradients be derived",
    )


def _names_of(node: Node) -> list[str]:
    return [item.name for item in results_of(node)]


def _constants(model: Model, before: Graph) -> Iterator[Constant]:
    """The constants that gradients brought with them."""
    known = {item.tensor.name for item in before.constants}
    return (item for item in model.graph.constants if item.tensor.name not in known)


def _new(model: Model, before: Graph) -> Iterator[Tensor]:
    return (item.tensor for item in _constants(model, before))


def _reading(node: Node, tensors: Mapping[str, Tensor]) -> Node:
    """A node that reads other tensors."""
    made = {item.name for item in results_of(node)}
    change = Substitution(lambda item: item if item.name in made else tensors.get(item.name, item))
    return change.node(node)


def _ordered(nodes: Iterable[Node]) -> list[Node]:
    """Nodes in a topological order that keeps to theirs where it can."""
    every = list(nodes)
    maker = {item.name: number for number, node in enumerate(every) for item in results_of(node)}
    done: set[int] = set()
    found: list[Node] = []
    for first in range(len(every)):
        todo = [first]
        while todo:
            number = todo[-1]
            waits = [
                maker[item.name]
                for item in operands_of(every[number])
                if item.name in maker and maker[item.name] not in done
            ]
            if number in done or not waits:
                todo.pop()
                if number not in done:
                    done.add(number)
                    found.append(every[number])
                continue
            todo += waits
    return found


__all__ = ["WrittenGradients", "differentiate_adapted"]
