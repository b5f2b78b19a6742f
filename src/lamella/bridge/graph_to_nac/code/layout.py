"""Instructions in their places: parameters loaded before their users, results relayed where offsets do not reach."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamella.base.liveness import last_uses
from lamella.base.origin import Origin
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_nac.calls.restate import PASS
from lamella.bridge.graph_to_nac.code.tables import Tables
from lamella.bridge.graph_to_nac.code.words import Ref, Word
from lamella.lang.nac import nodes as n
from lamella.lang.nac.operations import FINAL, PARAMETER, STATE, SUBGRAPH, USER
from lamella.lang.nac.rules import roads as rules
from lamella.ops.problem import Problem

REACH = 32768
"""How far back an offset reaches."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An instruction that blocks stand behind: field A, field B, and how many there are."""

    operation: int
    variant: int
    count: int


@dataclass(frozen=True, slots=True)
class Item:
    """An instruction that has no place yet; `name` is None for outputs and for what opens blocks.

    An output that `closes` hands over the results of a block and ends it.
    """

    name: str | None
    words: tuple[Word, ...]
    gives: str = ""
    origin: Origin | None = None
    opened: Opened | None = None
    closes: bool = False

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The results that it reads."""
        return tuple(item.value for item in self.words if isinstance(item.value, Ref))


@dataclass(frozen=True, slots=True)
class Placed:
    """Instructions in order, what each one gives, and from what it was made."""

    instructions: tuple[n.Instruction, ...]
    results: tuple[str, ...]
    origins: Mapping[int, Origin]
    branches: Mapping[int, int]
    """How many results each branch has."""


@dataclass(slots=True)
class _Frame:
    """Blocks that are being placed: whose they are, how long those before were, what they changed."""

    owner: int
    count: int
    start: int
    lengths: list[int] = field(default_factory=list)
    changed: list[tuple[str, int | None]] = field(default_factory=list)
    """Where results were before the block."""


def place(
    inputs: Sequence[str],
    items: Sequence[Item],
    parameters: Mapping[str, int],
    tables: Tables,
    states: Mapping[str, int] | None = None,
) -> Placed:
    """All instructions: inputs first, then states, then items, each behind the parameters that it is the first to use.

    States that nothing reads are not loaded.
    """
    layout = _Layout(items, parameters, tables)
    for name in inputs:
        layout.add(n.Instruction(n.INPUT, USER), name)
    for name, id_ in (states or {}).items():
        if name in layout.last:
            layout.add(n.Instruction(n.INPUT, STATE, (id_,)), name)
    for number, item in enumerate(items):
        layout.take(number, item)
    return Placed(tuple(layout.instructions), tuple(layout.results), layout.origins, layout.branches)


class _Layout:
    """Gives instructions their places, one after the other."""

    def __init__(self, items: Sequence[Item], parameters: Mapping[str, int], tables: Tables) -> None:
        self.parameters = parameters
        self.tables = tables
        self.instructions: list[n.Instruction] = []
        self.results: list[str] = []
        self.origins: dict[int, Origin] = {}
        self.places: dict[str, int] = {}
        self.last = last_uses([ref.key for ref in item.refs] for item in items)
        self.items = items
        self.outputs = len(items[-1].words) if items else 0
        self.branches: dict[int, int] = {}
        self.frames: list[_Frame] = []
        self.waiting: deque[tuple[int, str]] = deque()
        """Results in the order of their places, for as long as they may need a relay."""

    def add(self, instruction: n.Instruction, gives: str) -> None:
        """Put an instruction at the end."""
        index = len(self.instructions)
        self.instructions.append(instruction)
        self.results.append(gives)
        if gives:
            if self.frames:
                self.frames[-1].changed.append((gives, self.places.get(gives)))
            self.places[gives] = index
            if gives not in self.parameters and gives in self.last:
                self.waiting.append((index, gives))

    def take(self, number: int, item: Item) -> None:
        """Put an item at the end, behind the relays and the loads that it needs."""
        room = len(item.words) + 1 + self._ahead(number, item)
        self._relay(number, room)
        for ref in item.refs:
            if ref.key in self.parameters and not self._reaches(ref.key, room):
                self.add(n.Instruction(n.INPUT, PARAMETER, (self.parameters[ref.key],)), ref.key)
        if item.origin is not None:
            self.origins[len(self.instructions)] = item.origin
        if item.closes:
            self._close(item)
            return
        self.add(self._instruction(item), item.gives)
        if item.opened is not None:
            here = len(self.instructions)
            self.frames.append(_Frame(here - 1, item.opened.count, here))

    # --- blocks ---------------------------------------------------------------------------------------------

    def _ahead(self, number: int, item: Item) -> int:
        """About how many instructions stand before the join of blocks that open here; results are relayed before."""
        if item.opened is None or self.frames:
            return 0
        total, left = 0, [item.opened.count]
        for inner in self.items[number + 1 :]:
            total += len(inner.words) + 1
            left += [inner.opened.count] if inner.opened is not None else []
            left[-1] -= inner.closes
            while left and not left[-1]:
                left.pop()
            if not left or total > REACH // 2:
                break
        return min(total, REACH // 2)

    def _close(self, item: Item) -> None:
        """Hand results over and end a block: what it made is not there behind it."""
        frame, width = self.frames[-1], self.outputs
        if not width:
            what = "results of a block"
            raise Problem(rules.TOO_MANY.at(NOWHERE, count=len(item.words), what=what, limit=0))
        for start in range(0, len(item.words), width):
            words = item.words[start : start + width]
            filled = (*words, *words[-1:] * (width - len(words)))
            self.add(n.Instruction(n.OUTPUT, SUBGRAPH, (), self._offsets(filled)), "")
        for key, before in reversed(frame.changed):
            if before is None:
                del self.places[key]
            else:
                self.places[key] = before
        frame.changed.clear()
        here, owner = len(self.instructions), self.instructions[frame.owner]
        frame.lengths.append(here - frame.start)
        frame.start = here
        if owner.operation == n.CONTROL_FLOW:
            self.branches[frame.owner] = len(item.words)
        if len(frame.lengths) == frame.count:
            self.frames.pop()
            self.instructions[frame.owner] = replace(owner, constants=tuple(frame.lengths))

    def _offsets(self, words: Sequence[Word]) -> tuple[int, ...]:
        here = len(self.instructions)
        found = tuple(
            self.places[word.value.key] - here if isinstance(word.value, Ref) else 0 for word in words
        )
        if min(found, default=0) < -REACH:
            what = "instructions between a result and its use behind blocks"
            raise Problem(rules.TOO_MANY.at(NOWHERE, count=-min(found), what=what, limit=REACH))
        return found

    # --- reach ----------------------------------------------------------------------------------------------

    def _reaches(self, key: str, room: int) -> bool:
        return key in self.places and len(self.instructions) + room - self.places[key] <= REACH

    def _relay(self, number: int, room: int) -> None:
        """Pass on what is needed later and would be out of reach behind the next `room` instructions."""
        relayed = 0
        while self.waiting and self.waiting[0][0] + REACH < len(self.instructions) + room + 1:
            place_, key = self.waiting.popleft()
            if self.places.get(key) != place_ or self.last[key] < number:
                continue
            relayed += 1
            if relayed > REACH:
                count = f"more than {REACH}"
                raise Problem(rules.TOO_MANY.at(NOWHERE, count=count, what="results at once", limit=REACH))
            self.add(self._instruction(Item(PASS, (Word("T", Ref(key)),), key)), key)

    def _instruction(self, item: Item) -> n.Instruction:
        offsets = self._offsets(item.words)
        if item.opened is not None:
            return n.Instruction(item.opened.operation, item.opened.variant, (), offsets)
        if item.name is None:
            return n.Instruction(n.OUTPUT, FINAL, (), offsets)
        codes = "".join(word.code for word in item.words)
        return n.Instruction(
            self.tables.operation(item.name),
            self.tables.signature(codes),
            self.tables.constants(item.words),
            offsets,
        )
