"""Which operations one kernel can compute together, told by the index maps between them.

- *map*: chains of maps; what several steps need is computed again only where that costs less than a round trip;
- *row*: reductions with the maps around them, where every step stays in its row: softmax, layer norm, RMS norm;
- *contract*: one contraction with the maps that read its result element by element, and operands that are only spread;
  of a matrix and few vectors also with the norm of these, and with maps of several parts of its rows (`vectors.py`);
- *attention*: a contraction, a row group on its result, and a contraction over those rows;
- *gradient*: the way back through an attention (`gradients.py`);
- *strip*: groups with a contraction each, the second over windows of what the first makes, which a kernel computes
  some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from enum import Enum

import numpy as np

from lamella.base.records import dataclass
from lamella.graph.nodes import Tensor
from lamella.graph.passes.fuse.gradients import PRODUCTS, SUMS, is_gradient
from lamella.graph.passes.fuse.kinds import Kind, Read, Rows, is_identity
from lamella.graph.passes.fuse.machine import Machine
from lamella.graph.passes.fuse.parts import Part
from lamella.graph.passes.fuse.vectors import count_vectors, is_fixed, reads_part

MOST_MEMBERS = 64
GRADIENT_CONTRACTIONS = PRODUCTS + SUMS
MOST_OPERANDS = 24
"""Tensors that one kernel reads and writes, at most."""


class GroupKind(Enum):
    """What a group computes."""

    MAP = "map"
    ROW = "row"
    CONTRACT = "contract"
    ATTENTION = "attention"
    GRADIENT = "gradient"
    STRIP = "strip"


class Illegal(Exception):
    """Why operations are no group."""


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
            for item in self.part.made[number]:
                self.made[item.name] = number
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
        inside = set(self.members)
        for number in self.members:
            for item in self.part.made[number]:
                if isinstance(item, Tensor) and self.part.is_visible(item.name, inside):
                    self.outputs.append(item)

    def of_kind(self, *kinds: Kind) -> list[int]:
        """The members of some kinds."""
        return [number for number in self.members if self.part.facts[number].kind in kinds]

    def size(self, number: int) -> int:
        """The elements that a member makes."""
        return self.part.facts[number].size

    def is_visible(self, number: int) -> bool:
        """Whether something outside reads what a member makes."""
        return any(self.made[item.name] == number for item in self.outputs)

    def expect(self, holds: bool, reason: str) -> None:
        """Refuse the group where something does not hold."""
        if not holds:
            raise Illegal(reason)


FUSIBLE = (Kind.MAP, Kind.VIEW, Kind.REDUCE, Kind.CONTRACT)


def judge(group: Candidate, machine: Machine | None) -> GroupKind:
    """The kind of a group; Illegal says why it is none. Without a machine it is wanted, whatever it costs."""
    if group.of_kind(Kind.GATHER):
        _check_gather(group)
        return GroupKind.MAP
    _check_members(group)
    contracts, reduces = group.of_kind(Kind.CONTRACT), group.of_kind(Kind.REDUCE)
    if not contracts:
        if not reduces:
            _check_map(group, machine)
            return GroupKind.MAP
        _check_rows(group, reduces)
        return GroupKind.ROW
    if len(contracts) == 1 and not reduces:
        _check_contraction(group, contracts[0], machine)
        return GroupKind.CONTRACT
    if len(contracts) == 1:
        _check_row_prologue(group, contracts[0], reduces, machine)
        return GroupKind.CONTRACT
    if len(contracts) == 2 and reduces:
        _check_attention(group, contracts, reduces)
        return GroupKind.ATTENTION
    if len(contracts) == GRADIENT_CONTRACTIONS and not reduces and is_gradient(group.part, group.members):
        return GroupKind.GRADIENT
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
            isinstance(item, Tensor) and item.quantization is not None for item in group.part.made[maker]
        )
        group.expect(not quantized, "the tensor between them is quantised")
    static = {group.part.static[number] for number in group.members}
    group.expect(len(static) == 1, "one runs once for all runs, the other each time")


def _check_gather(group: Candidate) -> None:
    """What data picks, with what widens the tensor that it is picked from: elements are widened that are picked."""
    (gather, *others) = group.of_kind(Kind.GATHER)
    names = {item.name for item in group.part.sources(gather)}
    group.expect(not others, "data pick twice")
    for number in group.members:
        results = group.part.made[number]
        inner = number != gather and all(item.name in names for item in results)
        free = inner and group.part.facts[number].is_pointwise and not group.is_visible(number)
        group.expect(number == gather or free, "it is gather")


def _check_map(group: Candidate, machine: Machine | None) -> None:
    """Maps that one loop nest computes: over the places of the outputs, which are the same for all."""
    sizes = {group.size(number) for number in group.members if group.is_visible(number)}
    group.expect(len(sizes) == 1, "the results have different iteration spaces")
    moved: dict[int, list[Read]] = {}
    for maker, reader, read, size in group.edges:
        if not is_identity(read, size, group.size(reader)):
            moved.setdefault(maker, []).append(read)
    for maker, reads in moved.items():
        facts = group.part.facts[maker]
        group.expect(not group.is_visible(maker), "it is read at another place, and must be in memory")
        group.expect(facts.is_pointwise, "its elements are written by several formulas")
        if machine is not None:
            _check_recomputed(group, maker, reads, machine)


def _check_recomputed(group: Candidate, maker: int, reads: Sequence[Read], machine: Machine) -> None:
    """What is read at several places is computed for each; that must take less time than a round trip."""
    facts = group.part.facts[maker]
    places = {(read.places.tobytes(), read.targets.tobytes()): read.steps for read in reads}
    there = any(
        other == maker and not any(read is item for item in reads) for other, _, read, _ in group.edges
    )
    steps = sum(places.values()) + (facts.size if there else 0)
    inlined = _ancestors(group, maker) | {maker}
    again = max(steps - facts.size, 0) * sum(group.part.facts[number].cost for number in inlined)
    saved = 2 * machine.seconds(4 * facts.size) + machine.launch * 1e-6
    group.expect(
        machine.compute(again) <= saved,
        f"computing it {steps} times takes longer than storing its {facts.size} elements",
    )


# --- rows -------------------------------------------------------------------------------------------------------


def _check_rows(group: Candidate, reduces: Sequence[int]) -> None:
    rows = next((found for number in reduces if (found := group.part.facts[number].rows) is not None), None)
    if rows is None:
        _check_single_reduction(group, reduces)
        return
    for number in group.members:
        facts = group.part.facts[number]
        if facts.kind is Kind.REDUCE:
            group.expect(facts.rows == rows, "their rows differ")
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


def _check_contraction(group: Candidate, contract: int, machine: Machine | None) -> None:
    """A contraction, what spreads its operands, and maps of the elements of its result."""
    before = _ancestors(group, contract)
    _check_spread(group, before)
    _check_epilogue(group, contract, before | {contract}, machine)


def _check_row_prologue(
    group: Candidate, contract: int, reduces: Sequence[int], machine: Machine | None
) -> None:
    """A contraction over rows that are normalised as they are packed: they may be packed twice.

    So only on request, or where they are few vectors that are read again for every row of a matrix anyway.
    """
    before = _ancestors(group, contract)
    group.expect(before >= set(reduces), "a reduction follows a contraction")
    few = machine is not None and count_vectors(group.part, contract, machine) > 0
    group.expect(
        machine is None or few, "the rows before it would be reduced again for every block of the contraction"
    )
    group.expect(
        not few or not any(map(group.is_visible, before)),
        "what stands before the contraction is read elsewhere",
    )
    rows = group.part.facts[reduces[0]].rows
    if rows is None:
        raise Illegal("the reduction does not run over rows")
    codes = {number for number in before & group.part.decoding if _is_fixed(group, number)}
    _check_spread(group, codes)
    for maker, reader, read, _ in group.edges:
        if maker in codes or reader in codes:
            continue
        if reader in before:
            _check_in_row(group, maker, reader, read, rows)
        elif reader == contract:
            whole = read.reduced == rows.length and group.size(maker) == rows.full
            group.expect(whole and _stays_in_row(read, rows), "the contraction is not over the rows")
    _check_epilogue(group, contract, before | {contract}, machine)


def _is_fixed(group: Candidate, number: int) -> bool:
    return all(is_fixed(group.part, item.name) for item in group.part.sources(number))


def _check_spread(group: Candidate, before: Iterable[int]) -> None:
    for number in before:
        facts = group.part.facts[number]
        free = number in group.part.decoding or (facts.is_moving and facts.is_pointwise)
        moved = free and not group.is_visible(number)
        group.expect(moved, "it would be computed again for every block of the contraction")


def _check_epilogue(group: Candidate, contract: int, done: set[int], machine: Machine | None) -> None:
    size = group.size(contract)
    after = [number for number in group.members if number not in done]
    vectors = 0 if machine is None else count_vectors(group.part, contract, machine)
    gated = vectors > 0 and any(group.size(number) < size for number in after)
    wanted = min(map(group.size, after)) if gated else size
    group.expect(
        not gated or not group.is_visible(contract),
        "the contraction is read elsewhere, and in several parts here",
    )
    for number in after:
        group.expect(group.size(number) == wanted, "its iteration space is not that of the contraction")
        group.expect(group.part.facts[number].is_pointwise, "its elements are written by several formulas")
    for maker, reader, read, elements in group.edges:
        if reader in done:
            continue
        if gated and maker == contract:
            fits = reads_part(read, size // vectors, wanted // vectors)
        else:
            fits = is_identity(read, elements, wanted)
        group.expect(fits, "it reads the result at another place")


def _check_attention(group: Candidate, contracts: Sequence[int], reduces: Sequence[int]) -> None:
    """Scores, their rows normalised, and a contraction over these rows; nothing of T × T elements is stored."""
    first, second = contracts
    middle = _ancestors(group, second)
    before = _ancestors(group, first)
    group.expect(first in middle, "two contractions side by side")
    for number in contracts:
        fixed = any(group.part.is_static(item.name) for item in group.part.sources(number))
        group.expect(not fixed, "weights would be read again for every block of rows")
    rows = group.part.facts[reduces[0]].rows
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
        fits = facts.size in (rows.full, rows.count) if facts.kind is not Kind.REDUCE else facts.rows == rows
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
