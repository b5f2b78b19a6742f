"""Dead-code elimination: leave out what nothing depends on.

An operation stays when an output of the graph, an update, or an operation that stays reads one of its results, or
when the extent of something that stays is only known once it has run. Inputs and variables stay: they are how others
see the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lamella.base.dim import Dim, symbols
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Branch,
    Graph,
    Loop,
    Node,
    Operation,
    Pack,
    Region,
    Tensor,
    regions,
    tensors,
)
from lamella.graph.rewrite import defined, extents, results_of
from lamella.ops.instance import singles


def dce(model: Model) -> Model:
    """The model without operations and constants that nothing depends on."""
    return replace(model, graph=_Liveness(model.graph).run())


class _Liveness:
    """Liveness, from the last node to the first: the names and the symbols of extents that are still needed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.needed: set[str] = set()
        self.symbols: set[str] = set()
        self._sources: dict[str, set[str]] = {}
        known = {name for item in defined(replace(graph, nodes=())) for name in _symbols_of(item)}
        self._find_sources(graph.nodes, known)
        self._tells = any(self._sources.values())
        """Whether any result is the first to have an extent: else nothing is asked for its shape."""

    def _find_sources(self, nodes: tuple[Node, ...], known: set[str]) -> None:
        """Note which results are the first to have an extent: it is known once they are computed."""
        for node in nodes:
            for region in regions(node):
                inner = {name for item in region.inputs for name in _symbols_of(item)}
                self._find_sources(region.nodes, known | inner)
            made = [(item.name, _symbols_of(item)) for item in results_of(node)]
            self._sources.update((name, set(found) - known) for name, found in made)
            for _, found in made:
                known.update(found)

    def run(self) -> Graph:
        """The graph without what is dead."""
        graph = self.graph
        for argument in (*graph.outputs, *(item.value for item in graph.updates)):
            self._need(argument)
        for item in (*graph.inputs, *graph.variables):
            self._need_extents(item)
        nodes = self._keep(graph.nodes)
        constants = tuple(item for item in graph.constants if item.tensor.name in self.needed)
        return replace(graph, nodes=nodes, constants=constants)

    def _keep(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        kept: list[Node] = []
        # Backwards, every reader of a result is judged before the node that computes it: one sweep is enough.
        for node in reversed(nodes):
            if self._is_needed(node):
                kept.append(self._shrink(node))
        return tuple(reversed(kept))

    def _is_needed(self, node: Node) -> bool:
        return any(self._is_live(item) for item in results_of(node))

    def _is_live(self, item: Tensor | Pack) -> bool:
        return item.name in self.needed or not self.symbols.isdisjoint(self._sources[item.name])

    def _shrink(self, node: Node) -> Node:
        """Note what a node needs, and leave out what is dead inside of it."""
        for item in results_of(node):
            self._need_extents(item)
        if isinstance(node, Operation):
            for argument in node.inputs:
                self._need(argument)
            for _, value in node.attributes:
                self._need_symbols(singles(value))
            return node
        return self._branch(node) if isinstance(node, Branch) else self._loop(node)

    def _branch(self, node: Branch) -> Branch:
        live = [index for index, item in enumerate(node.outputs) if self._is_live(item)]
        branches = [
            replace(item, outputs=tuple(item.outputs[index] for index in live)) for item in node.branches
        ]
        return replace(
            node,
            outputs=tuple(node.outputs[index] for index in live),
            branches=tuple(map(self._region, branches)),
            conditions=tuple(map(self._region, node.conditions)),
        )

    def _loop(self, node: Loop) -> Loop:
        # What a loop carries stays whole: a value that nobody reads at the end may steer the steps before it.
        for argument in (*node.carried, *node.scans):
            self._need(argument)
        if isinstance(node.count, Tensor):
            self._need(node.count)
        elif isinstance(node.count, Dim):
            self._need_symbols([node.count])
        body = self._region(node.body)
        condition = None if node.condition is None else self._region(node.condition)
        return replace(node, body=body, condition=condition)

    def _region(self, region: Region) -> Region:
        for item in (*region.inputs, *region.outputs):
            self._need(item)
        return replace(region, nodes=self._keep(region.nodes))

    def _need(self, argument: Argument) -> None:
        for item in (argument,) if isinstance(argument, Pack) else tensors(argument):
            self.needed.add(item.name)
            self._need_extents(item)

    def _need_extents(self, item: Argument) -> None:
        if not self._tells:
            return
        for part in (item,) if isinstance(item, Pack) else tensors(item):
            self.symbols.update(_symbols_of(part))

    def _need_symbols(self, values: Iterable[object]) -> None:
        for value in values:
            if isinstance(value, Dim):
                self.symbols.update(item.name for item in symbols(value))


def _symbols_of(item: Tensor | Pack) -> list[str]:
    return [
        found.name for extent in extents(item) if extent.__class__ is not int for found in symbols(extent)
    ]
