"""Fusion: groups of operations become one operation each, of an operator whose body is the group.

    y = relu(conv(x, w))   =   y = fused.conv_relu(x, w)   with   operator conv_relu { @compose { … } }

The operators stand in the module `fused` of the model's library. A body is made of operators with formulas, in
topological order, so the reference computes the same bits, and a target either writes one kernel for a group or takes
its members one by one (`compose_call`). Groups never cross the border of a region.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from math import prod

from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.model import FusionHint, Model
from lamella.graph.nodes import Branch, Constant, Graph, Loop, Node, Operation, Region, Tensor
from lamella.graph.passes.decompose_all import decompose_all
from lamella.graph.passes.fuse.groups import Group, Refusal, Request, plan_groups
from lamella.graph.passes.fuse.kinds import Kind, kind_of
from lamella.graph.passes.fuse.legality import GroupKind
from lamella.graph.passes.fuse.machine import DEFAULT_MACHINE, Machine
from lamella.graph.passes.fuse.outline import OperatorWriter, Outlined
from lamella.graph.passes.fuse.parts import KnownFacts, Part, make_part
from lamella.graph.passes.fuse.strips import find_strips
from lamella.graph.rewrite import members, operands_of, results_of

FEWEST_QUERIES, MOST_KEYS, FRAGMENTS = 16, 256, 32
"""Of an attention that one kernel of a GPU computes with all scores of its queries at hand: vectors are multiples."""

PANEL, MOST_WIDE, TILE = 64, 128, 128
"""Of one whose keys stream by: queries are at least so many, vectors are multiples, and this wide.

Few keys stream by too where queries and keys are whole tiles."""

__all__ = ["Fusion", "GroupKind", "Kind", "Machine", "find_kernels", "fuse", "fuse_model", "kind_of"]


@dataclass(frozen=True, slots=True)
class FusedGroup:
    """One group of a fused model, for people."""

    operator: str
    kind: GroupKind
    operators: tuple[str, ...]
    bytes_saved: int
    made: tuple[Tensor, ...] = ()
    """What its operations make."""
    outputs: int = 1
    """How many of these are read outside of it."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """A fused model, its groups, and the neighbours that stayed apart."""

    model: Model
    groups: tuple[FusedGroup, ...]
    refusals: tuple[Refusal, ...]

    def attentions(self) -> frozenset[str]:
        """The tensors that attentions of few keys make, which one kernel of a GPU computes: it rounds their factors."""
        return self._made(
            lambda item: (
                item.kind is GroupKind.ATTENTION and _has_few_keys(item.made) and not _is_streamed(item.made)
            )
        )

    def streams(self) -> frozenset[str]:
        """Those of attentions whose keys stream by, and of the ways back: kernels of a GPU round what they make."""
        return self._made(
            lambda item: (
                item.kind is GroupKind.GRADIENT
                or (item.kind is GroupKind.ATTENTION and _is_streamed(item.made))
            )
        )

    def _made(self, is_chosen: Callable[[FusedGroup], bool]) -> frozenset[str]:
        return frozenset(tensor.name for item in self.groups if is_chosen(item) for tensor in item.made)

    def lines(self) -> list[str]:
        """What was fused and what was not, for people: one line in all, then one for each."""
        after = sum(1 for _ in self.model.graph.operations())
        before = after + sum(len(item.operators) - 1 for item in self.groups)
        found = [f"{before} operations become {after}, of which {len(self.groups)} are groups"]
        found += [
            f"{item.operator}: {item.kind.value} of {len(item.operators)} ({', '.join(item.operators)}), "
            f"saves {item.bytes_saved} bytes"
            for item in self.groups
        ]
        found += [
            f"not fused: {item.maker} -> {item.tensor} -> {item.reader}: {item.reason}"
            for item in self.refusals
        ]
        return found


def _has_few_keys(made: Sequence[Tensor]) -> bool:
    """Whether the scores of an attention, its largest tensor, have few keys."""
    queries, keys, width = _sizes(made)
    return queries >= FEWEST_QUERIES and keys <= MOST_KEYS and width % FRAGMENTS == 0


def _is_streamed(made: Sequence[Tensor]) -> bool:
    """Whether they have enough queries for tiles, and the last tensor panels."""
    queries, keys, width = _sizes(made)
    fits = keys > MOST_KEYS or (queries % TILE == 0 and keys % TILE == 0)
    return queries >= PANEL and fits and width % PANEL == 0 and width <= MOST_WIDE


def _sizes(made: Sequence[Tensor]) -> tuple[int, int, int]:
    """The queries and keys of an attention and the width of its vectors; nothing where one of them is open."""
    shapes = [[extent for extent in item.shape if isinstance(extent, int)] for item in made]
    if any(len(known) < len(item.shape) for known, item in zip(shapes, made, strict=True)):
        return 0, 0, 1
    *_, queries, keys = [1, 1, *max(shapes, key=prod)]
    return queries, keys, shapes[-1][-1] if shapes[-1] else 1


def fuse(model: Model) -> Model:
    """The model with groups of operations as one each."""
    return fuse_model(model).model


def fuse_model(model: Model, machine: Machine = DEFAULT_MACHINE) -> Fusion:
    """The model with groups of operations as one each, and why; compound operators are decomposed before."""
    flat = decompose_all(model)
    fusing = _Fusing(flat, machine)
    nodes = fusing.nodes(flat.graph.nodes, _outside(flat.graph))
    graph = _without_unread(replace(flat.graph, nodes=nodes))
    fused = replace(flat, graph=graph, library=fusing.writer.finished())
    return Fusion(fused, tuple(fusing.groups), tuple(fusing.refusals))


def find_kernels(model: Model, machine: Machine) -> Fusion:
    """The groups that a model would have, and the model as it is: nobody writes their operators."""
    flat = decompose_all(model)
    fusing = _Fusing(flat, machine, is_written=False)
    fusing.nodes(flat.graph.nodes, _outside(flat.graph))
    return Fusion(model, tuple(fusing.groups), tuple(fusing.refusals))


def _outside(graph: Graph) -> frozenset[str]:
    """The tensors that are read beyond the nodes of a graph."""
    return frozenset(item.name for item in (*members(graph.outputs), *(item.value for item in graph.updates)))


def _without_unread(graph: Graph) -> Graph:
    """The graph without constants that only groups read, which hold them now."""
    read = {item.name for node in graph.nodes for item in operands_of(node)} | _outside(graph)
    return replace(graph, constants=tuple(item for item in graph.constants if item.tensor.name in read))


@dataclass(slots=True)
class _Fusing:
    """One model while its parts are fused."""

    model: Model
    machine: Machine
    is_written: bool = True
    """Whether operators are written for groups."""
    groups: list[FusedGroup] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    writer: OperatorWriter = field(init=False)
    _weights: frozenset[str] = field(init=False)
    _constants: dict[str, Constant] = field(init=False)
    _facts: KnownFacts = field(init=False)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.writer = OperatorWriter(self.model.library)
        self._facts = KnownFacts(self.model.library, graph)
        self._constants = {item.tensor.name: item for item in graph.constants}
        updated = {item.variable.name for item in graph.updates}
        weights = {item.name for item in graph.variables} - updated
        self._weights = frozenset(weights | self._constants.keys())

    def nodes(self, nodes: Sequence[Node], visible: frozenset[str]) -> tuple[Node, ...]:
        """The nodes of a part with its groups outlined; regions are fused inside themselves."""
        inner = [self._inside(node) for node in nodes]
        part = make_part(inner, visible, self._weights, self._facts.find)
        requests = [_request(part, hint) for hint in self.model.hints]
        plan = plan_groups(part, self.machine, [item for item in requests if item.members])
        if plan.findings:
            raise Found(*plan.findings)
        self.refusals += plan.refusals
        if not self.is_written:
            self.groups += [_described(part, item) for item in plan.groups]
            return tuple(inner)
        apart = [item.members for item in requests if item.hint.is_apart]
        apart += [
            frozenset(item.members) for item in plan.groups if item.name
        ]  # kernels that the model names
        return tuple(self._outlined(part, plan.groups, apart))

    def _inside(self, node: Node) -> Node:
        if isinstance(node, Branch):
            return replace(
                node,
                conditions=tuple(map(self._region, node.conditions)),
                branches=tuple(map(self._region, node.branches)),
            )
        if isinstance(node, Loop):
            condition = None if node.condition is None else self._region(node.condition)
            return replace(node, body=self._region(node.body), condition=condition)
        return node

    def _region(self, region: Region) -> Region:
        visible = frozenset(item.name for item in region.outputs)
        return replace(region, nodes=self.nodes(region.nodes, visible))

    def _outlined(
        self, part: Part, groups: Sequence[Group], apart: Sequence[frozenset[int]]
    ) -> Iterator[Node]:
        """The nodes with one call for each group, in topological order; what is to stay apart is in no chain."""
        owner = {number: place for place, group in enumerate(groups) for number in group.members}
        units = [group.members for group in groups]
        units += [[number] for number in range(len(part.nodes)) if number not in owner]
        chains = {chain[-1][0]: chain for chain in find_strips(part, units, self.machine, apart)}
        inner = {unit[0] for chain in chains.values() for unit in chain[:-1]}
        calls: dict[int, Node] = {}
        for unit in _in_order(part, units):
            group = owner.get(unit[0])
            calls[unit[0]] = part.nodes[unit[0]] if group is None else self._call(part, groups[group])
            if unit[0] in chains:
                yield self._strip([calls[item[0]] for item in chains[unit[0]]])
            elif unit[0] not in inner:
                yield calls[unit[0]]

    def _strip(self, calls: Sequence[Node]) -> Operation:
        """One call for a chain of groups, whose operator calls theirs: who writes no kernel for it takes them."""
        operations = tuple(item for item in calls if isinstance(item, Operation))
        self.writer.refresh()
        made = [item for operation in operations[:-1] for item in members(operation.outputs)]
        saved = sum(2 * self._facts.bytes_of(item) for item in made if isinstance(item, Tensor))
        inside = {item.name for item in made}
        self.refusals = [item for item in self.refusals if item.tensor not in inside]
        outputs = [item for item in members(operations[-1].outputs) if isinstance(item, Tensor)]
        return self._outline(operations, outputs, "", (GroupKind.STRIP, saved))

    def _call(self, part: Part, group: Group) -> Operation:
        operations = tuple(part.operation(number) for number in group.members)
        outputs = [
            item
            for operation in operations
            for item in results_of(operation)
            if isinstance(item, Tensor) and part.is_visible(item.name, group.members)
        ]
        return self._outline(operations, outputs, group.name, (group.kind, group.bytes_saved))

    def _outline(
        self,
        operations: tuple[Operation, ...],
        outputs: Sequence[Tensor],
        name: str,
        worth: tuple[GroupKind, int],
    ) -> Operation:
        """One call for operations, with what it is and the bytes that it saves."""
        made = {item.name for operation in operations for item in results_of(operation)}
        read = [
            item for operation in operations for item in members(operation.inputs) if item.name not in made
        ]
        outside = dict.fromkeys(item for item in read if isinstance(item, Tensor))
        held = {name: item for name, item in self._constants.items() if not isinstance(item.value, tuple)}
        found = Outlined(
            operations,
            tuple(item for item in outside if item.name not in held),
            tuple(outputs),
            tuple(held[item.name] for item in outside if item.name in held),
        )
        call = self.writer.call(found, name)
        names = tuple(item.operator for item in operations)
        results = tuple(
            item for operation in operations for item in results_of(operation) if isinstance(item, Tensor)
        )
        self.groups.append(FusedGroup(call.operator, worth[0], names, worth[1], results, len(outputs)))
        return call


def _described(part: Part, group: Group) -> FusedGroup:
    """A group whose operator nobody writes."""
    operations = [part.operation(number) for number in group.members]
    made = tuple(item for node in operations for item in results_of(node) if isinstance(item, Tensor))
    return FusedGroup("", group.kind, tuple(item.operator for item in operations), group.bytes_saved, made)


def _request(part: Part, hint: FusionHint) -> Request:
    """The nodes of a part that a hint speaks of."""
    made = enumerate([item.name for item in results_of(node)] for node in part.nodes)
    return Request(frozenset(number for number, names in made if any(map(hint.holds, names))), hint)


def _in_order(part: Part, units: Sequence[Sequence[int]]) -> Iterator[Sequence[int]]:
    """Groups of nodes in a topological order that keeps to that of the nodes where it can."""
    owner = {number: place for place, unit in enumerate(units) for number in unit}
    waits: list[set[int]] = []
    for place, unit in enumerate(units):
        names = {item.name for number in unit for item in operands_of(part.nodes[number])}
        waits.append({owner[part.makers[name]] for name in names if name in part.makers} - {place})
    readers: dict[int, list[int]] = {}
    for place, before in enumerate(waits):
        for other in before:
            readers.setdefault(other, []).append(place)
    ready = [(max(unit), place) for place, unit in enumerate(units) if not waits[place]]
    heapq.heapify(ready)
    while ready:
        _, place = heapq.heappop(ready)
        yield units[place]
        for other in readers.get(place, ()):
            waits[other].discard(place)
            if not waits[other]:
                heapq.heappush(ready, (max(units[other]), other))
