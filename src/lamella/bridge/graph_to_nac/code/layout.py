"""Instructions in their places: parameters loaded before their users, results relayed where offsets do not reach."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamella.base.origin import Origin
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_nac.calls.restate import PASS
from lamella.bridge.graph_to_nac.code.tables import Tables
from lamella.bridge.graph_to_nac.code.words import Ref, Word
from lamella.lang.nac import nodes as n
from lamella.lang.nac.operations import FINAL, PARAMETER, USER
from lamella.lang.nac.rules import roads as rules
from lamella.ops.problem import Problem

REACH = 32768
"""How far back an offset reaches."""


@dataclass(frozen=True, slots=True)
class Item:
    """An instruction that has no place yet; `name` is None for the output."""

    name: str | None
    words: tuple[Word, ...]
    gives: str = ""
    origin: Origin | None = None

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


def place(
    inputs: Sequence[str], items: Sequence[Item], parameters: Mapping[str, int], tables: Tables
) -> Placed:
    """All instructions: inputs first, then items in order, each behind the parameters that it is the first to use."""
    layout = _Layout(items, parameters, tables)
    for name in inputs:
        layout.add(n.Instruction(n.INPUT, USER), name)
    for number, item in enumerate(items):
        layout.take(number, item)
    return Placed(tuple(layout.instructions), tuple(layout.results), layout.origins)


class _Layout:
    """Gives instructions their places, one after the other."""

    def __init__(self, items: Sequence[Item], parameters: Mapping[str, int], tables: Tables) -> None:
        self.parameters = parameters
        self.tables = tables
        self.instructions: list[n.Instruction] = []
        self.results: list[str] = []
        self.origins: dict[int, Origin] = {}
        self.places: dict[str, int] = {}
        self.last = {ref.key: number for number, item in enumerate(items) for ref in item.refs}
        self.waiting: deque[tuple[int, str]] = deque()
        """Results in the order of their places, for as long as they may need a relay."""

    def add(self, instruction: n.Instruction, gives: str) -> None:
        """Put an instruction at the end."""
        index = len(self.instructions)
        self.instructions.append(instruction)
        self.results.append(gives)
        if gives:
            self.places[gives] = index
            if gives not in self.parameters and gives in self.last:
                self.waiting.append((index, gives))

    def take(self, number: int, item: Item) -> None:
        """Put an item at the end, behind the relays and the loads that it needs."""
        room = len(item.words) + 1
        self._relay(number, room)
        for ref in item.refs:
            if ref.key in self.parameters and not self._reaches(ref.key, room):
                self.add(n.Instruction(n.INPUT, PARAMETER, (self.parameters[ref.key],)), ref.key)
        if item.origin is not None:
            self.origins[len(self.instructions)] = item.origin
        self.add(self._instruction(item), item.gives)

    def _reaches(self, key: str, room: int) -> bool:
        return key in self.places and len(self.instructions) + room - self.places[key] <= REACH

    def _relay(self, number: int, room: int) -> None:
        """Pass on what is needed later and would be out of reach behind the next `room` instructions."""
        relayed = 0
        while self.waiting and self.waiting[0][0] + REACH < len(self.instructions) + room + 1:
            place_, key = self.waiting.popleft()
            if self.places[key] != place_ or self.last[key] < number:
                continue
            relayed += 1
            if relayed > REACH:
                count = f"more than {REACH}"
                raise Problem(rules.TOO_MANY.at(NOWHERE, count=count, what="results at once", limit=REACH))
            self.add(self._instruction(Item(PASS, (Word("T", Ref(key)),), key)), key)

    def _instruction(self, item: Item) -> n.Instruction:
        here = len(self.instructions)
        offsets = tuple(
            self.places[word.value.key] - here if isinstance(word.value, Ref) else 0 for word in item.words
        )
        if item.name is None:
            return n.Instruction(n.OUTPUT, FINAL, (), offsets)
        codes = "".join(word.code for word in item.words)
        return n.Instruction(
            self.tables.operation(item.name),
            self.tables.signature(codes),
            self.tables.constants(item.words),
            offsets,
        )
