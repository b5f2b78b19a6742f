"""Convergences with their blocks: what only one of the merged tensors needs stands in the block of that tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lamella.graph.nodes import Node, Operation, Tensor, tensors
from lamella.graph.rewrite import made, used

CONVERGE = "nac.converge"
DEEPEST = 16
"""Blocks of convergences that stand inside each other; what is deeper stands before them."""
Place: TypeAlias = tuple[int, int]
"""A block: the node that merges, and the number of the tensor that it makes."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A convergence, what each of its blocks holds, and a tensor from outside that the blocks may share."""

    node: Operation
    blocks: tuple[tuple[Arranged, ...], ...]
    shared: Tensor

    @property
    def merged(self) -> tuple[Tensor, ...]:
        """The tensors that the blocks hand over."""
        return merged(self.node)


Arranged: TypeAlias = "Node | Merge"


def merged(node: Node) -> tuple[Tensor, ...]:
    """The tensors that a node merges, none where it is no convergence."""
    if isinstance(node, Operation) and node.operator == CONVERGE:
        return tuple(item for argument in node.inputs for item in tensors(argument))
    return ()


def arrange(nodes: Sequence[Node], kept: Collection[str], constants: Collection[str]) -> tuple[Arranged, ...]:
    """Nodes in an order in which they can run, those of blocks inside their convergences.

    `kept` are the tensors that are used elsewhere, `constants` those that no instruction gives.
    """
    if not any(map(merged, nodes)):
        return tuple(nodes)
    plain: set[int] = set()
    while True:
        found = _Arranger(nodes, kept, constants, plain)
        lonely = {place for place, node in enumerate(nodes) if merged(node) and found.shared(place) is None}
        if lonely <= plain:
            return found.build(found.rows[()])
        plain |= lonely


class _Arranger:
    """Finds for each node the innermost block that holds all that use it."""

    def __init__(
        self, nodes: Sequence[Node], kept: Collection[str], constants: Collection[str], plain: Collection[int]
    ) -> None:
        self.nodes, self.constants, self.plain = nodes, constants, plain
        self.paths: list[tuple[Place, ...]] = [()] * len(nodes)
        users: dict[str, list[tuple[Place, ...]]] = {name: [()] for name in kept}
        for place in reversed(range(len(nodes))):
            ways = [way for item in made(nodes[place]) for way in users.get(item.name, ())]
            self.paths[place] = _common(ways)
            for name, way in self._uses(place):
                users.setdefault(name, []).append(way)
        self.rows: defaultdict[tuple[Place, ...], list[int]] = defaultdict(list)
        for place, path in enumerate(self.paths):
            self.rows[path].append(place)

    def _uses(self, place: int) -> Iterator[tuple[str, tuple[Place, ...]]]:
        """What a node reads, and the block that this is for."""
        path, node = self.paths[place], self.nodes[place]
        opens = place not in self.plain and len(path) < DEEPEST
        found = merged(node)
        for number, item in enumerate(found):
            yield item.name, (*path, (place, number)) if opens else path
        yield from ((item.name, path) for item in used(node) if not found)

    def shared(self, place: int) -> Tensor | None:
        """The first tensor from outside that the blocks of a convergence read, or merge."""
        depth = len(self.paths[place])
        inside = [number for number in range(place) if self._is_in(self.paths[number], depth, place)]
        own = {item.name for number in inside for item in made(self.nodes[number])}
        read = [item for number in inside for item in used(self.nodes[number])]
        for item in (*read, *merged(self.nodes[place])):
            if isinstance(item, Tensor) and item.name not in own and item.name not in self.constants:
                return item
        return None

    @staticmethod
    def _is_in(path: tuple[Place, ...], depth: int, place: int) -> bool:
        return len(path) > depth and path[depth][0] == place

    def build(self, row: Sequence[int]) -> tuple[Arranged, ...]:
        """The nodes of a block, convergences with what stands in theirs."""
        return tuple(self._one(place) for place in row)

    def _one(self, place: int) -> Arranged:
        node = self.nodes[place]
        if not isinstance(node, Operation) or not merged(node):
            return node
        shared = self.shared(place) or merged(node)[0]
        paths = [(*self.paths[place], (place, number)) for number in range(len(merged(node)))]
        return Merge(node, tuple(self.build(self.rows[path]) for path in paths), shared)


def _common(ways: Sequence[tuple[Place, ...]]) -> tuple[Place, ...]:
    """What all ways begin with."""
    if not ways:
        return ()
    first, last = min(ways), max(ways)
    count = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[: min(len(first), len(last)) if count is None else count]
