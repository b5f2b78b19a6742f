"""What nodes make and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lamella.base.dim import Extent
from lamella.graph.nodes import Argument, Graph, Loop, Node, Operation, Pack, Tensor, regions, tensors, walk


def made(node: Node) -> Iterator[Tensor | Pack]:
    """The tensors and packs that a node makes, those inside its regions left out."""
    return members(node.outputs)


def used(node: Node) -> Iterator[Tensor | Pack]:
    """The tensors and packs that a node reads, by its regions too."""
    if isinstance(node, Operation):
        yield from members(node.inputs)
    elif isinstance(node, Loop):
        yield from (*node.carried, *members(node.scans))
        if isinstance(node.count, Tensor):
            yield node.count
    for region in regions(node):
        for inner in region.nodes:
            yield from used(inner)
        yield from region.outputs


def members(arguments: Iterable[Argument]) -> Iterator[Tensor | Pack]:
    """The tensors and the packs of unknown length among arguments."""
    for argument in arguments:
        if isinstance(argument, Pack):
            yield argument
        else:
            yield from tensors(argument)


def uses(graph: Graph) -> dict[str, int]:
    """How often each tensor is read, by nodes, as an output of the graph, and by updates."""
    found: dict[str, int] = {}
    read = [item for node in graph.nodes for item in used(node)]
    for item in (*read, *members(graph.outputs), *(update.value for update in graph.updates)):
        found[item.name] = found.get(item.name, 0) + 1
    return found


def producers(graph: Graph) -> dict[str, Node]:
    """The node that makes each tensor, for those inside regions too."""
    return {item.name: node for node in walk(graph.nodes) for item in made(node)}


def defined(graph: Graph) -> Iterator[Tensor | Pack]:
    """Every tensor and pack of a graph, once, where it is made or declared."""
    yield from (*members(graph.inputs), *graph.variables, *(item.tensor for item in graph.constants))
    for node in walk(graph.nodes):
        for region in regions(node):
            yield from region.inputs
        yield from made(node)


def extents(item: Tensor | Pack) -> tuple[Extent, ...]:
    """The extents of a tensor, or of a pack with its length."""
    return (*item.shape, item.size) if isinstance(item, Pack) else item.shape


class Fresh:
    """Names that are given away once: the one asked for, else the next like it with a number."""

    def __init__(self, taken: Iterable[str] = (), start: int = 1) -> None:
        self._taken = set(taken)
        self._start = start
        self._next: dict[str, int] = {}

    def take(self, stem: str) -> str:
        """A name that nothing has."""
        found = stem
        while found in self._taken:
            number = self._next.get(stem, self._start)
            self._next[stem] = number + 1
            found = f"{stem}_{number}"
        self._taken.add(found)
        return found
