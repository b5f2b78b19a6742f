"""The part of a graph that is grouped by itself: its nodes with their facts, and who makes and reads what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lamella.graph.binding import signature
from lamella.graph.nodes import Graph, Node, Operation, Tensor, tensors
from lamella.graph.passes.fuse.kinds import OPAQUE, Facts, Kind, facts_of, sample_extents
from lamella.graph.rewrite import defined, operands_of, results_of
from lamella.ops.library import Library


@dataclass(slots=True)
class Part:
    """The nodes of a graph or region, with who makes and reads what; `visible` is read from outside."""

    nodes: Sequence[Node]
    facts: Sequence[Facts]
    visible: frozenset[str]
    weights: frozenset[str]
    """Tensors from outside that do not change from run to run."""
    makers: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    static: list[bool] = field(default_factory=list)
    """Which nodes compute from weights and constants alone, and so run once."""

    def operation(self, number: int) -> Operation:
        """A node that is an operation."""
        node = self.nodes[number]
        if not isinstance(node, Operation):
            raise TypeError(number)
        return node

    def sources(self, number: int) -> list[Tensor]:
        """The tensors that an operation reads, in the order in which its facts number them."""
        return [item for argument in self.operation(number).inputs for item in tensors(argument)]

    def is_static(self, name: str) -> bool:
        """Whether a tensor is the same in every run."""
        return self.static[self.makers[name]] if name in self.makers else name in self.weights

    def is_visible(self, name: str, group: Iterable[int]) -> bool:
        """Whether a tensor is read outside of a group; one that nothing reads is left for who wants it."""
        inside, readers = set(group), self.readers.get(name, ())
        return name in self.visible or not readers or any(item not in inside for item in readers)


def make_part(
    nodes: Sequence[Node], visible: frozenset[str], weights: frozenset[str], find: Callable[[Node], Facts]
) -> Part:
    """What grouping asks of a part of a graph; `weights` are the tensors that do not change from run to run."""
    facts = [find(node) for node in nodes]
    found = Part(nodes, facts, visible, weights)
    for number, node in enumerate(nodes):
        names = {item.name for item in operands_of(node)}
        for name in names:
            found.readers.setdefault(name, []).append(number)
        found.static.append(facts[number].kind is not Kind.OPAQUE and all(map(found.is_static, names)))
        found.makers.update((item.name, number) for item in results_of(node))
    return found


class KnownFacts:
    """The facts of the nodes of a graph, those of equal operations found once."""

    def __init__(self, library: Library, graph: Graph) -> None:
        self._library = library
        self._extents = sample_extents(defined(graph))
        self._known: dict[object, Facts] = {}

    def find(self, node: Node) -> Facts:
        """The facts of a node; control flow is opaque."""
        if not isinstance(node, Operation):
            return OPAQUE
        key = signature(node)
        if key not in self._known:
            self._known[key] = facts_of(self._library, node, self._extents)
        return self._known[key]
