"""The one walk that changes graphs: nodes in order, regions inside out, tensors replaced on the way.

A pass is a function that is shown each node after everything before it was renewed. It keeps the node, or puts other
nodes in its place and says which tensors now stand for those that are no longer made. Names and origins stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias

from lamella.base.origin import Origin
from lamella.graph.nodes import (
    Argument,
    Branch,
    Constant,
    Graph,
    Node,
    Operation,
    Pack,
    Region,
    Tensor,
    Update,
)
from lamella.graph.rewrite.members import Fresh, defined, made, members
from lamella.graph.rewrite.renewal import Renewal, rename


@dataclass(frozen=True, slots=True)
class Change:
    """What takes the place of a node: other nodes, constants, and for tensors no longer made those that stand in."""

    nodes: tuple[Node, ...] = ()
    results: Mapping[str, Tensor] = field(default_factory=dict)
    constants: tuple[Constant, ...] = ()


class Walk:
    """One walk over a graph; a pass sees through it what was made so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = {item.tensor.name: item for item in graph.constants}
        self.outputs = frozenset(item.name for item in members(graph.outputs))
        self.path: tuple[int, ...] = ()
        """The regions around the current node, outermost first, as numbers."""
        self._makers: dict[str, Node] = {}
        self._results: dict[str, Tensor] = {}
        self._origins: dict[str, Origin | None] = {}
        self._names = Fresh(item.name for item in defined(graph))
        self._regions = count()
        self._renewal = Renewal(self._current)

    def maker(self, tensor: Argument) -> Operation | None:
        """The operation that makes a tensor, where it is one."""
        found = self._makers.get(tensor.name) if isinstance(tensor, Tensor) else None
        return found if isinstance(found, Operation) else None

    def constant(self, tensor: Argument) -> Constant | None:
        """The constant behind a tensor, where it is one."""
        return self.constants.get(tensor.name) if isinstance(tensor, Tensor) else None

    def fresh(self, stem: str) -> str:
        """A name that no tensor of the graph has."""
        return self._names.take(stem)

    def _current(self, tensor: Tensor) -> Tensor:
        return self._results.get(tensor.name, tensor)

    def run(self, visit: Visit) -> Graph:
        """The graph after a pass has seen every node."""
        nodes = self._nodes(self.graph.nodes, visit)
        graph = replace(self.graph, nodes=nodes, constants=tuple(self.constants.values()))
        updates = tuple(Update(item.variable, self._current(item.value)) for item in graph.updates)
        return self._keep_outputs(replace(graph, updates=updates))

    def _nodes(self, nodes: tuple[Node, ...], visit: Visit) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in nodes:
            renewed = self._renew(node, visit)
            change = visit(renewed, self)
            if change is None or not self.is_sound(renewed, change):
                change = Change((renewed,))
            for item in change.constants:
                self.constants[item.tensor.name] = item
            self._results.update(change.results)
            self._origins.update(dict.fromkeys(change.results, renewed.origin))
            for new in change.nodes:
                self._makers.update((item.name, new) for item in made(new))
            found += change.nodes
        return tuple(found)

    def _renew(self, node: Node, visit: Visit) -> Node:
        if isinstance(node, Operation):
            return replace(node, inputs=tuple(map(self._renewal.argument, node.inputs)))
        if isinstance(node, Branch):
            return replace(
                node,
                conditions=tuple(self._region(item, visit) for item in node.conditions),
                branches=tuple(self._region(item, visit) for item in node.branches),
            )
        return replace(
            node,
            carried=tuple(map(self._current, node.carried)),
            scans=tuple(
                scan if isinstance(scan, Pack) else tuple(map(self._current, scan)) for scan in node.scans
            ),
            count=self._renewal.count(node.count),
            body=self._region(node.body, visit),
            condition=None if node.condition is None else self._region(node.condition, visit),
        )

    def _region(self, region: Region, visit: Visit) -> Region:
        outer = self.path
        self.path = (*outer, next(self._regions))
        nodes = self._nodes(region.nodes, visit)
        self.path = outer
        return replace(region, nodes=nodes, outputs=tuple(map(self._current, region.outputs)))

    def is_sound(self, node: Node, change: Change) -> bool:
        """Only an equal type and shape may stand in for a tensor, and a quantised one is never taken away."""
        old = {item.name: item for item in made(node)}
        return all(
            isinstance(gone := old.get(name), Tensor)
            and gone.quantization is None
            and (gone.element, gone.shape) == (new.element, new.shape)
            for name, new in change.results.items()
        )

    def _keep_outputs(self, graph: Graph) -> Graph:
        """Outputs of the graph keep their names: what stands in for one takes its name, or is copied."""
        names: dict[str, str] = {}
        copies: list[Node] = []
        inner = {item.name for node in graph.nodes for item in made(node)}
        for output in [item for item in members(graph.outputs) if isinstance(item, Tensor)]:
            new = self._results.get(output.name)
            if new is None:
                continue
            free = new.name in inner and new.name not in names and new.name not in self.outputs
            if free and new.quantization is None:
                names[new.name] = output.name
            else:
                origin = self._origins.get(output.name) or output.origin
                copies.append(replace(copy_of(new, output), origin=origin))
        graph = replace(graph, nodes=(*graph.nodes, *copies))
        return rename(graph, names) if names else graph


Visit: TypeAlias = Callable[[Node, Walk], Change | None]


def rewrite(graph: Graph, visit: Visit) -> Graph:
    """The graph after a pass has seen every node, each after those it depends on."""
    return Walk(graph).run(visit)


def copy_of(source: Tensor, target: Tensor) -> Operation:
    """The operation that gives a tensor a second name."""
    return Operation("math.iden", (source,), (target,), types=(("T", source.element),), origin=target.origin)
