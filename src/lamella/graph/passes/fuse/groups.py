"""Groups of operations that one kernel computes, found greedily, and why neighbours stay apart.

In topological order each operation joins the groups that make its operands where the union is legal, convex and
cheaper; what the model asks for comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lamella.base.diagnostic import Diagnostic
from lamella.base.records import dataclass
from lamella.graph.model import FusionHint
from lamella.graph.nodes import Operation, Tensor
from lamella.graph.passes.fuse.gradients import find_gradients
from lamella.graph.passes.fuse.kinds import Kind
from lamella.graph.passes.fuse.legality import FUSIBLE, Candidate, GroupKind, Illegal, judge
from lamella.graph.passes.fuse.machine import Machine
from lamella.graph.passes.fuse.parts import Part
from lamella.graph.passes.fuse.vectors import count_vectors


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
        """What groups depend on, of the nodes that were looked at so far: nothing before them depends on others."""
        self._last = np.zeros(len(part.nodes), np.int64)
        """The last node that a group depends on, from 1 on; 0 for what depends on nothing, or is no group any more."""
        self._seen = 0
        """How many nodes those are."""
        self._apart: set[int] = set()
        """Nodes of ways back through attentions."""

    def run(self) -> None:
        """Form the groups that are asked for, then let every operation join those of its operands, in order."""
        wanted = [request for request in self.requests if request.hint.is_together]
        if wanted:
            self._see(len(self.part.nodes))
        for request in wanted:
            self._form(request)
        gradients = list(find_gradients(self.part)) if self.machine.joins_gradients else []
        self._apart = {number for members in gradients for number in members}
        whole = {members[-1]: members for members in gradients}
        for number, node in enumerate(self.part.nodes):
            self._see(number + 1)
            facts = self.part.facts[number]
            if isinstance(node, Operation) and facts.kind is Kind.GATHER and self.machine.joins_views:
                self._join_picked(number)
            if not isinstance(node, Operation) or facts.kind not in FUSIBLE or self._is_mover(number):
                continue
            if number in self._apart:
                # The way back through an attention is a group of its own, which nothing joins.
                if number in whole:
                    self._merge([self.group_of[member] for member in whole[number]], None)
                continue
            if number in self.part.decoding:
                self._join_codes(number)
            elif not self._waits(number):
                self._join_attention(number)
                for item in self._by_worth(number):
                    self._join(number, item)
                self._join_widened(number)
                self._join_gate(number)
        if self.machine.joins_views:
            self._join_views()

    def _waits(self, number: int) -> bool:
        """Whether an operation goes with its one reader: behind what makes its source it would write more bytes.

        So it is where it widens numbers, and where one number is left of all that it makes while its source is stored.
        """
        sources, (made, *others) = self.part.sources(number), self.part.made[number]
        readers = self.part.readers.get(made.name, [])
        alone = len(readers) == 1 and made.name not in self.part.visible and not others
        if not self.machine.joins_views or not alone or len(sources) != 1:
            return False
        if not self.part.facts[number].is_pointwise:
            return False
        source = sources[0]
        widens = source.element.is_float and source.element.bits < made.element.bits
        return widens or (self._leaves_one(readers[0]) and self._is_stored(source.name, number))

    def _leaves_one(self, number: int) -> bool:
        facts = self.part.facts[number]
        return facts.kind is Kind.REDUCE and facts.size == 1

    def _is_stored(self, name: str, reader: int) -> bool:
        """Whether a tensor is stored whatever its maker and one of its readers become."""
        maker = self.part.makers.get(name)
        return maker is None or self.part.is_visible(name, {maker, reader}) or self._waits(maker)

    def _join_widened(self, number: int) -> None:
        """What was widened for an operation brings what made it, where one kernel can do all of it."""
        for source in self.part.sources(number):
            maker = self.part.makers.get(source.name)
            if maker is None or self.group_of[maker] != self.group_of[number] or not self._waits(maker):
                continue
            for item in self._by_worth(maker):
                self._join(maker, item)

    def _join_gate(self, number: int) -> None:
        """Maps of several parts of a product with few vectors join it at once: one alone would let it be stored."""
        group = self.group_of[number]
        if not self.machine.vectors or self.kinds.get(group) is not GroupKind.MAP:
            return
        reached = [(name, *self._find_movers(name)) for name in dict.fromkeys(self._operands(group))]
        found = [item for item in reached if item[2] is not None and not self.part.static[item[2]]]
        owners = {self.group_of[maker] for _, _, maker in found if maker is not None} - {group}
        if len(owners) == 1 and all(map(self._is_vector_product, owners)):
            movers = [self.group_of[item] for _, items, _ in found for item in items]
            self._try([*owners, *movers, group], found[0][0], number)

    def _is_vector_product(self, group: int) -> bool:
        return any(count_vectors(self.part, number, self.machine) for number in self.groups[group])

    def _join_picked(self, number: int) -> None:
        """What data pick from takes in what widens it: of a large tensor few elements are picked."""
        for item in self.part.sources(number):
            maker = self.part.makers.get(item.name)
            if maker is not None and self.groups.get(maker) == [maker] and self._waits(maker):
                self._try([maker, self.group_of[number]], item.name, number)

    def _join_views(self) -> None:
        """Attention takes in what only moves its operands: its kernel reads them one by one, wherever they lie."""
        for group in [item for item, kind in self.kinds.items() if kind is GroupKind.ATTENTION]:
            for name in dict.fromkeys(self._operands(group)):
                movers, _ = self._find_movers(name)
                inside, taken = {*self.groups[self.group_of[group]], *movers}, list[int]()
                for number in movers:
                    made = [item.name for item in self.part.made[number]]
                    shared = any(self.part.is_visible(item, inside) for item in made)
                    if shared or not self.part.facts[number].is_pointwise:
                        break
                    taken.append(number)
                if taken:
                    self._merge([*taken, self.group_of[group]], group)

    def _see(self, count: int) -> None:
        """Know what the first nodes depend on."""
        part = self.part
        for number in range(self._seen, count):
            found = 0
            for name in part.read[number]:
                if name not in part.makers:
                    continue
                group = self.group_of[part.makers[name]]
                found |= self._ancestors[group] | self._bits[group]
            self._ancestors[number], self._last[number] = found, found.bit_length()
        self._seen = max(self._seen, count)

    def _join_codes(self, number: int) -> None:
        """What decodes joins what decodes before it, never what makes the codes: those are to be in memory."""
        for item in self.part.sources(number):
            _, maker = self._find_movers(item.name)
            if maker in self.part.decoding:
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
        name = next(iter(part.made[members[-1]])).name
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
        names = [item.name for item in self.part.made[number]]
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
                held = scores is not None and self._holds_contraction(scores)
                # What was merged is no group of its own any more: the other makers keep to theirs.
                if (
                    scores is not None
                    and held
                    and self._try([scores, rows, self.group_of[number]], item.name, number)
                ):
                    break

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
        if maker is not None and (maker in self._apart or self._holds_sums_apart(number, maker)):
            return
        if maker is not None and self.group_of[maker] != group:
            fused = self._try([self.group_of[maker], *movers, group], item.name, number)
            if not fused and movers and self.machine.joins_views and self.part.facts[number].kind is Kind.MAP:
                self._try([*movers, group], item.name, number)
            if fused or self.part.facts[number].kind is not Kind.CONTRACT:
                return
        spread = [place for place, mover in enumerate(movers) if self._spreads(mover)]
        if spread and self.part.facts[number].kind is Kind.CONTRACT:
            self._try([*movers[: max(spread) + 1], group], item.name, number)

    def _holds_sums_apart(self, number: int, maker: int) -> bool:
        """Whether one number would join two sums: that saves a launch, and lets all that reads either wait for both."""
        if not self.machine.joins_views or self.part.facts[number].size != 1:
            return False
        groups = [self.groups[self.group_of[item]] for item in (number, maker)]
        sums = [any(self.part.facts[item].kind is Kind.REDUCE for item in group) for group in groups]
        return all(sums) and groups[0] is not groups[1]

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
        facts, names = self.part.facts, [item.name for item in self.part.made[reader]]
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
                for name in self.part.read[number]:
                    maker = self._maker_group(name)
                    if maker is not None and maker not in groups and self._ancestors[maker] & bits:
                        raise Illegal("something between them is not of the group")

    def _update_ancestors(self, first: int, groups: set[int]) -> None:
        bits = ancestors = 0
        for group in groups:
            bits |= self._bits.pop(group)
            ancestors |= self._ancestors.pop(group)
            self._last[group] = 0
        ancestors &= ~bits
        self._bits[first], self._ancestors[first] = bits, ancestors
        self._last[first] = ancestors.bit_length()
        lowest = (bits & -bits).bit_length()
        for group in np.flatnonzero(self._last >= lowest).tolist():
            found = self._ancestors[group]
            if found & bits:
                self._ancestors[group] = found = found | ancestors | bits
                self._last[group] = found.bit_length()

    # --- what is left -----------------------------------------------------------------------------------------

    def finish(self) -> list[Group]:
        """The groups of more than one operation, those that only rename memory at their borders peeled off."""
        found: list[Group] = []
        for group, members in sorted(self.groups.items()):
            kind, name = self.kinds.get(group), self.names.get(group, "")
            if kind is None:
                continue
            whole = name or (
                self.machine.joins_views and kind in (GroupKind.ATTENTION, GroupKind.MAP, GroupKind.GRADIENT)
            )
            kept = members if whole else self._peeled(members, kind)
            if name or (len(kept) > 1 and not self._only_moves(kept)):
                found.append(Group(kept, kind, self._saved(kept), name))
        return found

    def _only_moves(self, members: Sequence[int]) -> bool:
        return all(self.part.facts[number].is_strided for number in members)

    def _peeled(self, members: list[int], kind: GroupKind) -> list[int]:
        """Without strided views that read or are read outside alone: strides make them free.

        On a GPU rows read a part of a tensor where it lies: another kernel would copy it for them.
        """
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
                and not (number in inner[0] and self._is_part_of_rows(number, kind))
                and not self._leads_back(number, kept)
            ]
            if not border or len(kept) <= 1:
                return kept
            kept = [number for number in kept if number not in border]

    def _is_part_of_rows(self, number: int, kind: GroupKind) -> bool:
        """Whether a view takes a part of a tensor, which no layout makes free, for rows that work-items read."""
        facts = self.part.facts[number]
        return self.machine.joins_views and kind is GroupKind.ROW and facts.size < sum(facts.sizes)

    def _leads_back(self, number: int, members: Sequence[int]) -> bool:
        """Whether a view reads a member and a member reads it, be it for its extents alone: it cannot stand outside."""
        made = [self.part.makers.get(name) for name in self.part.read[number]]
        readers = (
            reader for item in self.part.made[number] for reader in self.part.readers.get(item.name, ())
        )
        return any(maker in members for maker in made) and any(reader in members for reader in readers)

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
