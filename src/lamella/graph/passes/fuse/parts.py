"""The part of a graph that is grouped by itself: its nodes with their facts, and who makes and reads what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from lamella.base.dim import Dim, is_told_by_result
from lamella.base.dtype import BF16, F8E4M3, F8E5M2, F16, F32, I4, I8, ElementType
from lamella.base.records import dataclass
from lamella.graph.binding import signature
from lamella.graph.nodes import Graph, Node, Operation, Pack, Tensor, tensors
from lamella.graph.passes.fuse.kinds import OPAQUE, Kind, OperationFacts, facts_of, sample_extents, size_of
from lamella.graph.rewrite import defined, operands_of, results_of
from lamella.ops.instance import singles
from lamella.ops.library import Library


@dataclass(slots=True)
class Part:
    """The nodes of a graph or region, with who makes and reads what; `visible` is read from outside."""

    nodes: Sequence[Node]
    facts: Sequence[OperationFacts]
    visible: frozenset[str]
    weights: frozenset[str]
    """Tensors from outside that do not change from run to run."""
    makers: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    static: list[bool] = field(default_factory=list)
    """Which nodes compute from weights and constants alone, and so run once."""
    decoding: frozenset[int] = frozenset()
    """Nodes that make numbers of narrow codes for contractions alone, which read the codes instead."""
    made: Sequence[tuple[Tensor | Pack, ...]] = ()
    """What each node makes."""
    read: Sequence[tuple[str, ...]] = ()
    """The names of what each node reads, once each."""
    _sources: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)

    def operation(self, number: int) -> Operation:
        """A node that is an operation."""
        node = self.nodes[number]
        if not isinstance(node, Operation):
            raise TypeError(number)
        return node

    def sources(self, number: int) -> tuple[Tensor, ...]:
        """The tensors that an operation reads, in the order in which its facts number them."""
        found = self._sources.get(number)
        if found is None:
            inputs = self.operation(number).inputs
            found = self._sources[number] = tuple(item for argument in inputs for item in tensors(argument))
        return found

    def is_static(self, name: str) -> bool:
        """Whether a tensor is the same in every run."""
        return self.static[self.makers[name]] if name in self.makers else name in self.weights

    def is_visible(self, name: str, group: Iterable[int]) -> bool:
        """Whether a tensor is read outside of a group; one that nothing reads is left for who wants it."""
        if name in self.visible:
            return True
        inside = group if isinstance(group, set) else set(group)
        readers = self.readers.get(name, ())
        return not readers or not inside.issuperset(readers)


def make_part(
    nodes: Sequence[Node],
    visible: frozenset[str],
    weights: frozenset[str],
    find: Callable[[Node], OperationFacts],
) -> Part:
    """What grouping asks of a part of a graph; `weights` are the tensors that do not change from run to run."""
    facts = [find(node) for node in nodes]
    found = Part(nodes, facts, visible, weights)
    found.made = [tuple(results_of(node)) for node in nodes]
    found.read = [tuple(dict.fromkeys(item.name for item in operands_of(node))) for node in nodes]
    for number, names in enumerate(found.read):
        for name in names:
            found.readers.setdefault(name, []).append(number)
        found.makers.update((item.name, number) for item in found.made[number])
    found.decoding = _find_decoding(found)
    for number in range(len(nodes)):
        fixed = all(map(found.is_static, found.read[number]))
        # What runs once would leave wide numbers in memory.
        fixed = fixed and facts[number].kind is not Kind.OPAQUE and number not in found.decoding
        found.static.append(fixed)
    return found


NARROW = (I4, I8, F8E4M3, F8E5M2, F16, BF16)
"""Types of codes that contractions read as they are."""


def _find_decoding(part: Part) -> frozenset[int]:
    """Chains from a cast of narrow codes to contractions: casts, scales, and what only moves elements."""
    ends: set[int] = set()
    for number in reversed(range(len(part.nodes))):
        names = [item.name for item in part.made[number]]
        readers = {reader for name in names for reader in part.readers.get(name, ())}
        inner = readers and all(
            reader in ends or part.facts[reader].kind is Kind.CONTRACT for reader in readers
        )
        inner = inner and part.facts[number].is_pointwise and not part.visible.intersection(names)
        if inner and not _makes_codes(part, number):
            ends.add(number)
    found: set[int] = set()
    for number in sorted(ends):
        sources = part.sources(number)
        widens = len(sources) == 1 and sources[0].element in NARROW and _element(part, number) == F32
        if widens or any(part.makers.get(item.name) in found for item in sources):
            found.add(number)
    return frozenset(found)


def _makes_codes(part: Part, number: int) -> bool:
    """Whether an operation rounds to narrow codes, which are to be in memory."""
    own = _element(part, number)
    return own in NARROW and any(item.element.bits > own.bits for item in part.sources(number))


def _element(part: Part, number: int) -> ElementType:
    return part.made[number][0].element


class KnownFacts:
    """The facts of the nodes of a graph, those of equal operations found once."""

    def __init__(self, library: Library, graph: Graph) -> None:
        self._library = library
        self._extents = sample_extents(defined(graph))
        self._known: dict[object, OperationFacts] = {}

    def bytes_of(self, tensor: Tensor) -> int:
        """The bytes of a tensor, open extents as they are sampled."""
        return size_of(tensor, self._extents) * tensor.element.bits // 8

    def find(self, node: Node) -> OperationFacts:
        """The facts of a node; control flow is opaque, and what has extents that only the run tells."""
        if not isinstance(node, Operation) or _is_told_by_results(node):
            return OPAQUE
        key = signature(node)
        if key not in self._known:
            self._known[key] = facts_of(self._library, node, self._extents)
        return self._known[key]


def _is_told_by_results(node: Operation) -> bool:
    """Whether an operation has an extent that only the run tells: no kernel is for it."""
    shapes = (item.shape for item in (*operands_of(node), *results_of(node)))
    attributes = (singles(value) for _, value in node.attributes)
    sizes = (item for items in (*shapes, *attributes) for item in items if isinstance(item, Dim))
    return any(map(is_told_by_result, sizes))
