"""Groups of operations that one kernel computes: which are legal, which pay, and why.

Greedy over the topological order: each operation joins the groups that make its operands where the union is legal,
convex and cheaper. What is legal follows from index maps:

- *map*: chains of maps; what several steps need is computed again only where that costs less than a round trip;
- *row*: reductions with the maps around them, where every step stays in its row: softmax, layer norm, RMS norm;
- *contract*: one contraction with the maps that read its result element by element, and operands that are only spread;
- *attention*: a contraction, a row group on its result, and a contraction over those rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from lamella.base.diagnostic import Diagnostic
from lamella.graph.binding import signature
from lamella.graph.model import FusionHint
from lamella.graph.nodes import Graph, Node, Operation, Tensor, tensors
from lamella.graph.passes.fuse.kinds import (
    OPAQUE,
    Facts,
    Kind,
    Places,
    Read,
    facts_of,
    is_identity,
    sample_extents,
)
from lamella.graph.rewrite import defined, operands_of, results_of
from lamella.ops.library import Library

MOST_MEMBERS = 64
MOST_OPERANDS = 24
"""Tensors that one kernel reads and writes, at most."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured ceilings of one core: what a round trip through memory costs in computation."""

    gflops: float = 60.0
    """Floating-point operations of elementwise code, in 10⁹ a second."""
    bandwidth: float = 12.0
    """Memory traffic in 10⁹ bytes a second."""
    cache_bandwidth: float = 60.0
    """Traffic of what the second-level cache holds, in 10⁹ bytes a second."""
    cache: int = 1 << 20
    """Bytes of the second-level cache."""
    launch: float = 0.5
    """Microseconds that one more kernel costs."""

    def seconds(self, size: int) -> float:
        """The time to move bytes once."""
        rate = self.cache_bandwidth if size <= self.cache // 2 else self.bandwidth
        return size / rate * 1e-9

    def compute(self, flops: float) -> float:
        """The time of floating-point operations."""
        return flops / self.gflops * 1e-9


DEFAULT_MACHINE = Machine()


class GroupKind(Enum):
    """What a group computes."""

    MAP = "map"
    ROW = "row"
    CONTRACT = "contract"
    ATTENTION = "attention"


@dataclass(slots=True, eq=False)
class Group:
    """Operations of one part of a graph that become one, by their numbers in it."""

    members: list[int]
    kind: GroupKind
    bytes_saved: int = 0
    name: str = ""
    """What the model calls it, where it does."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the model says of some nodes of a part."""

    members: frozenset[int]
    hint: FusionHint


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why two neighbours stay apart: the tensor between them, who makes it, who reads it."""

    tensor: str
    maker: str
    reader: str
    reason: str


class Illegal(Exception):
    """Why operations are no group."""


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


# --- one legal group --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Candidate:
    """Operations that may become a group, with the accesses between them."""

    part: Part
    members: list[int]
    made: dict[str, int] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    edges: list[tuple[int, int, Read, int]] = field(default_factory=list)
    """Maker, reader, access, elements of the tensor."""

    def __post_init__(self) -> None:
        self.members.sort()
        for number in self.members:
            self.made.update((item.name, number) for item in results_of(self.part.nodes[number]))
        self._find_edges()
        self._find_outputs()

    def _find_edges(self) -> None:
        for number in self.members:
            facts, sources = self.part.facts[number], self.part.sources(number)
            for read in facts.reads:
                source = sources[read.source]
                maker = self.made.get(source.name)
                if maker is not None:
                    self.edges.append((maker, number, read, facts.sizes[read.source]))

    def _find_outputs(self) -> None:
        for number in self.members:
            for item in results_of(self.part.nodes[number]):
                if isinstance(item, Tensor) and self.part.is_visible(item.name, self.members):
                    self.outputs.append(item)

    def of_kind(self, *kinds: Kind) -> list[int]:
        """The members of some kinds."""
        return [number for number in self.members if self.part.facts[number].kind in kinds]

    def size(self, number: int) -> int:
        """The elements that a member makes."""
        return self.part.facts[number].size

    def is_visible(self, number: int) -> bool:
        """Whether something outside reads what a member makes."""
        names = {item.name for item in results_of(self.part.nodes[number])}
        return any(item.name in names for item in self.outputs)

    def expect(self, holds: bool, reason: str) -> None:
        """Refuse the group where something does not hold."""
        if not holds:
            raise Illegal(reason)


FUSIBLE = (Kind.MAP, Kind.VIEW, Kind.REDUCE, Kind.CONTRACT)


def judge(group: Candidate, machine: Machine | None) -> GroupKind:
    """The kind of a group; Illegal says why it is none. Without a machine it is wanted, whatever it costs."""
    _check_members(group)
    contracts, reduces = group.of_kind(Kind.CONTRACT), group.of_kind(Kind.REDUCE)
    if not contracts:
        if not reduces:
            _check_map(group, machine)
            return GroupKind.MAP
        _check_rows(group, reduces)
        return GroupKind.ROW
    if len(contracts) == 1 and not reduces:
        _check_contraction(group, contracts[0])
        return GroupKind.CONTRACT
    if len(contracts) == 1:
        _check_row_prologue(group, contracts[0], reduces, wanted=machine is None)
        return GroupKind.CONTRACT
    if len(contracts) == 2 and reduces:
        _check_attention(group, contracts, reduces)
        return GroupKind.ATTENTION
    raise Illegal("two contractions")


def _check_members(group: Candidate) -> None:
    kinds = {group.part.facts[number].kind for number in group.members}
    for kind in kinds:
        group.expect(kind in FUSIBLE, f"it is {kind.value}")
    group.expect(len(group.members) <= MOST_MEMBERS, f"more than {MOST_MEMBERS} members")
    operands = {
        item.name
        for number in group.members
        for item in group.part.sources(number)
        if item.name not in group.made
    }
    group.expect(
        len(operands) + len(group.outputs) <= MOST_OPERANDS, f"more than {MOST_OPERANDS} operands in memory"
    )
    for maker, _, _, _ in group.edges:
        quantized = any(
            isinstance(item, Tensor) and item.quantization is not None
            for item in results_of(group.part.nodes[maker])
        )
        group.expect(not quantized, "the tensor between them is quantised")
    static = {group.part.static[number] for number in group.members}
    group.expect(len(static) == 1, "one runs once for all runs, the other each time")


def _check_map(group: Candidate, machine: Machine | None) -> None:
    """Maps that one loop nest computes: over the places of the outputs, which are the same for all."""
    sizes = {group.size(number) for number in group.members if group.is_visible(number)}
    group.expect(len(sizes) == 1, "the results have different iteration spaces")
    for maker, reader, read, size in group.edges:
        if is_identity(read, size, group.size(reader)):
            continue
        group.expect(not group.is_visible(maker), "it is read at another place, and must be in memory")
        facts = group.part.facts[maker]
        group.expect(
            facts.is_pointwise or facts.kind is Kind.VIEW, "its elements are written by several formulas"
        )
        if machine is None:
            continue
        again = max(read.steps - size, 0) * facts.cost
        saved = 2 * machine.seconds(4 * size) + machine.launch * 1e-6
        group.expect(
            machine.compute(again) <= saved,
            f"computing it again for each of {read.steps} steps takes longer than storing {size} elements",
        )


# --- rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """How the elements of a tensor fall into rows: `length` of them, `stride` apart."""

    full: int
    count: int
    stride: int

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.full // self.count

    def row(self, places: Places) -> Places:
        """The rows of elements."""
        block = self.length * self.stride
        return places // block * self.stride + places % self.stride


def find_rows(facts: Facts) -> Rows | None:
    """The rows that a reduction sums up; None where its steps do not fall into rows of one stride."""
    if not facts.reads or any(read.source != facts.reads[0].source for read in facts.reads):
        return None
    read, full, count = facts.reads[0], facts.sizes[facts.reads[0].source], facts.size
    if not count or full % count or read.steps != full:
        return None
    return next((rows for rows in _row_strides(full, count) if _is_in_rows(read, rows)), None)


def _row_strides(full: int, count: int) -> Iterable[Rows]:
    yield Rows(full, count, 1)
    yield from (Rows(full, count, stride) for stride in range(2, count + 1) if count % stride == 0)


def _is_in_rows(read: Read, rows: Rows) -> bool:
    return bool(np.array_equal(rows.row(read.places), read.targets))


def _check_rows(group: Candidate, reduces: Sequence[int]) -> None:
    rows = next(
        (found for number in reduces if (found := find_rows(group.part.facts[number])) is not None), None
    )
    if rows is None:
        _check_single_reduction(group, reduces)
        return
    for number in group.members:
        facts = group.part.facts[number]
        if facts.kind is Kind.REDUCE:
            own = find_rows(facts)
            group.expect(own == rows, "their rows differ")
        else:
            group.expect(
                facts.size in (rows.full, rows.count), "it has neither whole rows nor one element a row"
            )
    for maker, reader, read, _ in group.edges:
        _check_in_row(group, maker, reader, read, rows)


def _check_in_row(group: Candidate, maker: int, reader: int, read: Read, rows: Rows) -> None:
    """An access stays in its row: at the same place of it, or to the one element that the row has."""
    source, target = group.size(maker), group.size(reader)
    if group.part.facts[reader].kind is Kind.REDUCE:
        return  # its rows are those of the group
    if source == target:
        fits = np.array_equal(read.places, read.targets)
    elif source == rows.count:
        fits = np.array_equal(read.places, rows.row(read.targets))
    else:
        fits = False
    group.expect(bool(fits) and not read.guarded, "it reads other rows")


def _check_single_reduction(group: Candidate, reduces: Sequence[int]) -> None:
    """One reduction over any places, with maps before it that are read once, and maps behind it."""
    group.expect(len(reduces) == 1, "two reductions that do not run over rows")
    reduction = reduces[0]
    facts = group.part.facts[reduction]
    before = _ancestors(group, reduction)
    for maker, reader, read, size in group.edges:
        if reader == reduction:
            group.expect(
                read.steps == size, "each element before the reduction would be computed several times"
            )
        elif maker in before:
            group.expect(is_identity(read, size, group.size(reader)), "it is read at another place")
        else:
            same = size == facts.size and is_identity(read, size, group.size(reader))
            group.expect(same, "it is read at another place")
    for number in group.members:
        inner = number in before and group.is_visible(number)
        group.expect(not inner, "what the reduction reads must be in memory")


def _ancestors(group: Candidate, number: int) -> set[int]:
    found: set[int] = set()
    waiting = [number]
    while waiting:
        reader = waiting.pop()
        new = {maker for maker, other, _, _ in group.edges if other == reader} - found
        found |= new
        waiting += new
    return found


# --- contractions -------------------------------------------------------------------------------------------------


def _check_contraction(group: Candidate, contract: int) -> None:
    """A contraction, what spreads its operands, and maps of the elements of its result."""
    before = _ancestors(group, contract)
    _check_spread(group, before)
    _check_epilogue(group, contract, before | {contract})


def _check_row_prologue(group: Candidate, contract: int, reduces: Sequence[int], wanted: bool) -> None:
    """A contraction over rows that are normalised as they are packed: only on request, they may be packed twice."""
    before = _ancestors(group, contract)
    group.expect(before >= set(reduces), "a reduction follows a contraction")
    group.expect(wanted, "the rows before it would be reduced again for every block of the contraction")
    rows = find_rows(group.part.facts[reduces[0]])
    if rows is None:
        raise Illegal("the reduction does not run over rows")
    for maker, reader, read, _ in group.edges:
        if reader in before:
            _check_in_row(group, maker, reader, read, rows)
        elif reader == contract:
            whole = read.reduced == rows.length and group.size(maker) == rows.full
            group.expect(whole and _stays_in_row(read, rows), "the contraction is not over the rows")
    _check_epilogue(group, contract, before | {contract})


def _check_spread(group: Candidate, before: Iterable[int]) -> None:
    for number in before:
        facts = group.part.facts[number]
        moved = facts.is_moving and facts.is_pointwise and not group.is_visible(number)
        group.expect(moved, "it would be computed again for every block of the contraction")


def _check_epilogue(group: Candidate, contract: int, done: set[int]) -> None:
    size = group.size(contract)
    for number in group.members:
        if number not in done:
            group.expect(group.size(number) == size, "its iteration space is not that of the contraction")
            group.expect(
                group.part.facts[number].is_pointwise, "its elements are written by several formulas"
            )
    for _, reader, read, elements in group.edges:
        if reader not in done:
            group.expect(is_identity(read, elements, size), "it reads the result at another place")


def _check_attention(group: Candidate, contracts: Sequence[int], reduces: Sequence[int]) -> None:
    """Scores, their rows normalised, and a contraction over these rows; nothing of T × T elements is stored."""
    first, second = contracts
    middle = _ancestors(group, second)
    before = _ancestors(group, first)
    group.expect(first in middle, "two contractions side by side")
    for number in contracts:
        fixed = any(group.part.is_static(item.name) for item in group.part.sources(number))
        group.expect(not fixed, "weights would be read again for every block of rows")
    rows = find_rows(group.part.facts[reduces[0]])
    group.expect(rows is not None and rows.full == group.size(first), "the rows are not those of the scores")
    if rows is None:
        return
    after = {number for number in group.members if second in _ancestors(group, number)}
    inner = [number for number in group.members if number not in before | after | {first, second}]
    spread = {number for number in inner if first not in _ancestors(group, number)}
    _check_spread(group, before | spread)
    for number in (first, *inner):
        stored = group.is_visible(number) and group.size(number) == rows.full
        group.expect(number in spread or not stored, "the scores are read elsewhere")
    for number in inner:
        facts = group.part.facts[number]
        fits = (
            facts.size in (rows.full, rows.count)
            if facts.kind is not Kind.REDUCE
            else find_rows(facts) == rows
        )
        group.expect(number in spread or fits, "it has neither whole rows nor one element a row")
    for maker, reader, read, _ in group.edges:
        if reader in inner and reader not in spread and maker not in spread:
            _check_in_row(group, maker, reader, read, rows)
        elif reader == second and maker not in spread:
            whole = read.reduced == rows.length and group.size(maker) == rows.full
            group.expect(whole and _stays_in_row(read, rows), "the second contraction is not over the rows")
    _check_row_epilogue(group, second, set(group.members) - after, rows)


def _check_row_epilogue(group: Candidate, contract: int, done: set[int], rows: Rows) -> None:
    """Behind attention: maps of the elements of its result, which may read one element for each row of the scores."""
    size = group.size(contract)
    for number in group.members:
        fits = group.size(number) in (size, rows.count) and group.part.facts[number].is_pointwise
        group.expect(number in done or fits, "its iteration space is not that of the contraction")
    for _, reader, read, elements in group.edges:
        if reader in done:
            continue
        if elements == group.size(reader):
            fits = is_identity(read, elements, elements)
        else:
            # The rows of the result are those of the scores, each of as many elements as the values are wide.
            width = size // rows.count
            fits = elements == rows.count and bool(np.array_equal(read.places, read.targets // width))
        group.expect(fits, "it reads the result at another place")


def _stays_in_row(read: Read, rows: Rows) -> bool:
    """Whether the steps of each element of the result read one row."""
    return bool(np.array_equal(rows.row(read.places), rows.row(read.first)))


# --- the search ---------------------------------------------------------------------------------------------------


class Grouping:
    """Groups of a part of a graph while they grow."""

    def __init__(self, part: Part, machine: Machine, requests: Sequence[Request]) -> None:
        self.part = part
        self.machine = machine
        self.requests = requests
        self.names: dict[int, str] = {}
        self.findings: list[Diagnostic] = []
        self.denied: list[Refusal] = []
        """Groups that were asked for in vain."""
        self.group_of = list(range(len(part.nodes)))
        self.groups: dict[int, list[int]] = {number: [number] for number in range(len(part.nodes))}
        self.kinds: dict[int, GroupKind] = {}
        self.refusals: list[Refusal] = []
        self._bits = {number: 1 << number for number in range(len(part.nodes))}
        self._ancestors: dict[int, int] = {}
        for number, node in enumerate(part.nodes):
            found = 0
            for name in {item.name for item in operands_of(node)} & part.makers.keys():
                maker = part.makers[name]
                found |= self._ancestors[maker] | 1 << maker
            self._ancestors[number] = found

    def run(self) -> None:
        """Form the groups that are asked for, then let every operation join those of its operands, in order."""
        for request in self.requests:
            if request.hint.is_together:
                self._form(request)
        for number, node in enumerate(self.part.nodes):
            facts = self.part.facts[number]
            if isinstance(node, Operation) and facts.kind in FUSIBLE and not self._is_mover(number):
                self._join_attention(number)
                for item in self._by_worth(number):
                    self._join(number, item)

    def _by_worth(self, number: int) -> list[Tensor]:
        """The operands of an operation, those first that are worth most: of contractions, then large ones."""
        sizes = dict(
            zip((item.name for item in self.part.sources(number)), self.part.facts[number].sizes, strict=True)
        )

        def worth(item: Tensor) -> tuple[bool, int]:
            _, maker = self._find_movers(item.name)
            return maker is not None and self._holds_contraction(self.group_of[maker]), sizes[item.name]

        return sorted(self.part.sources(number), key=worth, reverse=True)

    def _form(self, request: Request) -> None:
        """One group of all operations that a request names, with the views between them."""
        part, hint = self.part, request.hint
        members = [
            number
            for number in sorted(request.members)
            if isinstance(part.nodes[number], Operation) and not self._is_mover(number)
        ]
        if not members:
            return
        inner = [
            number
            for number in request.members
            if self._is_mover(number) and self._is_between(number, members)
        ]
        groups = [self.group_of[number] for number in (*members, *inner)]
        name = next(iter(results_of(part.nodes[members[-1]]))).name
        problem = self._merge(groups, None)
        if problem is None:
            self.names[self.group_of[members[-1]]] = hint.kernel
        elif hint.refused is not None:
            self.findings.append(replace(hint.refused, message=f"{hint.refused.message}: {problem}"))
        else:
            first, last = (part.operation(number).operator for number in (members[0], members[-1]))
            self.denied.append(Refusal(name, first, last, f"{hint.reason}, but {problem}"))

    def _is_between(self, number: int, members: Sequence[int]) -> bool:
        """Whether a view leads from one member to another, by other views too."""
        names = [item.name for item in results_of(self.part.nodes[number])]
        readers = [reader for name in names for reader in self.part.readers.get(name, ())]
        _, maker = self._find_movers(names[0])
        return maker in members and any(reader in members or self._is_mover(reader) for reader in readers)

    def _join_attention(self, number: int) -> None:
        """A contraction over the rows of scores joins with the contraction that made them."""
        if self.part.facts[number].kind is not Kind.CONTRACT:
            return
        for item in self.part.sources(number):
            rows = self._maker_group(item.name)
            if rows is None or self.kinds.get(rows) is not GroupKind.ROW:
                continue
            makers = {self._maker_group(source) for source in self._operands(rows)} - {None, rows}
            for scores in makers:
                if scores is not None and self._holds_contraction(scores):
                    self._try([scores, rows, self.group_of[number]], item.name, number)

    def _holds_contraction(self, group: int) -> bool:
        return any(self.part.facts[number].kind is Kind.CONTRACT for number in self.groups[group])

    def _operands(self, group: int) -> list[str]:
        return [item.name for number in self.groups[group] for item in self.part.sources(number)]

    def _maker_group(self, name: str) -> int | None:
        maker = self.part.makers.get(name)
        return None if maker is None else self.group_of[maker]

    def _is_mover(self, number: int) -> bool:
        """Whether an operation only reads elements from elsewhere: alone it is a view, and needs no kernel."""
        facts = self.part.facts[number]
        return facts.is_strided or (facts.is_moving and facts.is_pointwise)

    def _join(self, number: int, item: Tensor) -> None:
        """Join the group behind an operand, with the views on the way; a contraction takes what spreads its operand."""
        movers, maker = self._find_movers(item.name)
        group = self.group_of[number]
        if maker is not None and self.group_of[maker] != group:
            fused = self._try([self.group_of[maker], *movers, group], item.name, number)
            if fused or self.part.facts[number].kind is not Kind.CONTRACT:
                return
        spread = [place for place, mover in enumerate(movers) if self._spreads(mover)]
        if spread and self.part.facts[number].kind is Kind.CONTRACT:
            self._try([*movers[: max(spread) + 1], group], item.name, number)

    def _spreads(self, number: int) -> bool:
        facts = self.part.facts[number]
        return facts.size > sum(facts.sizes)

    def _find_movers(self, name: str) -> tuple[list[int], int | None]:
        """The operations between a tensor and what computes it that only move elements, and what does."""
        found: list[int] = []
        maker = self.part.makers.get(name)
        while maker is not None and self._is_mover(maker) and self.groups[self.group_of[maker]] == [maker]:
            found.append(maker)
            maker = self.part.makers.get(self.part.sources(maker)[0].name)
        return found, maker if maker is not None and isinstance(self.part.nodes[maker], Operation) else None

    def _try(self, groups: list[int], tensor: str, reader: int) -> bool:
        """Merge the groups of a reader and of what it reads; whether that went."""
        problem = self._merge(groups, reader)
        if problem is not None:
            self._refuse(tensor, reader, problem)
        return problem is None

    def _merge(self, groups: list[int], reader: int | None) -> str | None:
        """Make groups one, or say why not; without a reader they are asked for, whatever that costs."""
        groups = list(dict.fromkeys(groups))
        members = sorted({number for group in groups for number in self.groups[group]})
        try:
            self._check_requests(members)
            if reader is not None:
                self._check_deferred(groups, reader)
            wanted = reader is None or any(group in self.names for group in groups) or self._is_free(members)
            kind = judge(Candidate(self.part, members), None if wanted else self.machine)
            self._check_convex(groups)
        except Illegal as problem:
            return str(problem)
        first = min(groups)
        self.groups[first] = members
        self.kinds[first] = kind
        for group in set(groups) - {first}:
            del self.groups[group]
            self.kinds.pop(group, None)
        for number in members:
            self.group_of[number] = first
        self._update_ancestors(first, set(groups))
        names = [self.names.pop(group) for group in groups if group in self.names]
        if names:
            self.names[first] = max(names)
        return None

    def _refuse(self, tensor: str, reader: int, reason: str) -> None:
        maker = self.part.operation(self.part.makers[tensor]).operator
        self.refusals.append(Refusal(tensor, maker, self.part.operation(reader).operator, reason))

    def _is_free(self, members: Sequence[int]) -> bool:
        """Whether the model wants these fused, whatever that costs."""
        return any(item.hint.is_free and item.members.issuperset(members) for item in self.requests)

    def _check_requests(self, members: Sequence[int]) -> None:
        inside = set(members)
        for request in self.requests:
            if request.hint.is_apart and inside & request.members and not inside <= request.members:
                raise Illegal(request.hint.reason)

    def _check_deferred(self, groups: Sequence[int], reader: int) -> None:
        """What only reductions read stays with them, where its operand must be in memory anyway.

        Behind a contraction it would be one more result to write; before the reduction it is computed on the way.
        """
        facts, names = self.part.facts, [item.name for item in results_of(self.part.nodes[reader])]
        readers = [number for name in names for number in self.part.readers.get(name, ())]
        if not readers or any(facts[number].kind is not Kind.REDUCE for number in readers):
            return
        inside = {number for group in groups for number in self.groups[group]}
        stored = any(self.part.is_visible(item.name, inside) for item in self.part.sources(reader))
        if stored and facts[reader].kind is Kind.MAP and any(map(self._holds_contraction, groups)):
            raise Illegal("its readers are reductions, and its operand is in memory anyway")

    def _check_convex(self, groups: Sequence[int]) -> None:
        """No path may leave the union and come back."""
        bits = 0
        for group in groups:
            bits |= self._bits[group]
        for group in groups:
            for number in self.groups[group]:
                for item in operands_of(self.part.nodes[number]):
                    maker = self._maker_group(item.name)
                    if maker is not None and maker not in groups and self._ancestors[maker] & bits:
                        raise Illegal("something between them is not of the group")

    def _update_ancestors(self, first: int, groups: set[int]) -> None:
        bits = ancestors = 0
        for group in groups:
            bits |= self._bits.pop(group)
            ancestors |= self._ancestors.pop(group)
        ancestors &= ~bits
        self._bits[first], self._ancestors[first] = bits, ancestors
        for group, found in self._ancestors.items():
            if found & bits:
                self._ancestors[group] = found | ancestors | bits

    # --- what is left -----------------------------------------------------------------------------------------

    def finish(self) -> list[Group]:
        """The groups of more than one operation, those that only rename memory at their borders peeled off."""
        found: list[Group] = []
        for group, members in sorted(self.groups.items()):
            kind, name = self.kinds.get(group), self.names.get(group, "")
            if kind is None:
                continue
            kept = members if name else self._peeled(members, kind)
            if name or (len(kept) > 1 and not self._only_moves(kept)):
                found.append(Group(kept, kind, self._saved(kept), name))
        return found

    def _only_moves(self, members: Sequence[int]) -> bool:
        return all(self.part.facts[number].is_strided for number in members)

    def _peeled(self, members: list[int], kind: GroupKind) -> list[int]:
        """Without strided views that read or are read outside alone: strides make them free."""
        kept = list(members)
        while True:
            group = Candidate(self.part, list(kept))
            inner = {maker for maker, _, _, _ in group.edges}, {reader for _, reader, _, _ in group.edges}
            border = [
                number
                for number in kept
                if self.part.facts[number].is_strided
                and self._is_idle(number, kind)
                and (number not in inner[0] or number not in inner[1])
            ]
            if not border or len(kept) <= 1:
                return kept
            kept = [number for number in kept if number not in border]

    def _is_idle(self, number: int, kind: GroupKind) -> bool:
        """An operand that is spread stays with its contraction: repeated elements have no strides once reshaped."""
        facts = self.part.facts[number]
        spread = facts.size > sum(facts.sizes)
        return not (spread and kind in (GroupKind.CONTRACT, GroupKind.ATTENTION))

    def _saved(self, members: Sequence[int]) -> int:
        """Bytes that need not be written and read: inner tensors, and operands that several members share."""
        group = Candidate(self.part, list(members))
        outputs = {item.name for item in group.outputs}
        readers: dict[Tensor, int] = {}
        sizes: dict[str, int] = {}
        for number in members:
            facts, sources = self.part.facts[number], self.part.sources(number)
            sizes.update((item.name, size) for item, size in zip(sources, facts.sizes, strict=True))
            for item in set(sources):
                readers[item] = readers.get(item, 0) + 1
        found = 0
        for item, count in readers.items():
            written = item.name in group.made and item.name not in outputs
            trips = count + 1 if written else count if item.name in group.made else count - 1
            found += trips * sizes[item.name] * item.element.bits // 8
        return found


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The groups of a part of a graph, which neighbours stay apart, and what was asked for in vain."""

    groups: list[Group]
    refusals: list[Refusal]
    findings: list[Diagnostic]


def plan_groups(part: Part, machine: Machine, requests: Sequence[Request] = ()) -> GroupPlan:
    """The groups of a part of a graph."""
    grouping = Grouping(part, machine, requests)
    grouping.run()
    groups = grouping.finish()
    inside: Mapping[int, int] = {
        number: place for place, item in enumerate(groups) for number in item.members
    }
    final = {item.tensor: item for item in grouping.refusals if _is_apart(part, item, inside)}
    return GroupPlan(groups, [*grouping.denied, *final.values()], grouping.findings)


def _is_apart(part: Part, refusal: Refusal, inside: Mapping[int, int]) -> bool:
    """Whether neighbours did not come together later by another way; views and what runs once need no reason."""
    maker = part.makers[refusal.tensor]
    if part.facts[maker].is_strided or part.static[maker]:
        return False
    readers = part.readers.get(refusal.tensor, ())
    return any(inside.get(maker, -1) != inside.get(reader, -2) for reader in readers)
