"""Instructions and memory commands as lines: each id by what it stands for, each offset by where it leads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from types import MappingProxyType

from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.nodes import (
    Argument,
    Call,
    Id,
    Label,
    Line,
    Moment,
    Order,
    Raw,
    System,
    Value,
)
from lamella.lang.nac.assembly.tables import Tables
from lamella.lang.nac.nodes import CONVERGENCE, FIRST_REGULAR, Command, File, Instruction, Tick

LONGEST_VALUE = 60
"""Characters of a constant that an instruction shows; longer ones are shown by id."""
_WORDS = MappingProxyType({fields: word for word, fields in words.SYSTEM.items()})
_LOADS = ("parameter", "state", "constant", "saved", "target")
_OPERANDS = MappingProxyType({"branch": 2, "update": 1, **dict.fromkeys(_LOADS, 1)})
_LABELS = MappingProxyType({"branch": 1, "input": 0, **dict.fromkeys(_LOADS, 0)})


class CodeDescriber:
    """Knows the tables of a file."""

    def __init__(self, file: File) -> None:
        self._count = len(file.instructions)
        self._tables = Tables(file.header.version)
        self._tables.fill(file)

    def lines(self, instructions: Sequence[Instruction], schedule: Sequence[Tick] = ()) -> list[Line]:
        """Instructions with the commands of their ticks."""
        orders = {tick.index: self.orders(tick.commands) for tick in schedule}
        count = len(instructions)
        return [
            Line(Label(str(index)), self.body(index, item, count), orders.get(index, ()))
            for index, item in enumerate(instructions)
        ]

    def body(self, index: int, item: Instruction, count: int) -> System | Call | Raw:
        """The most readable form that says exactly this."""
        reachable = all(0 <= index + offset < count for offset in item.offsets)
        found: System | Call | None = None
        if reachable and item.operation >= FIRST_REGULAR:
            found = self._call(index, item)
        elif reachable and 0 not in item.offsets:
            found = self._system(index, item)
        return found or Raw(item.operation, item.variant, item.constants, item.offsets)

    def _system(self, index: int, item: Instruction) -> System | None:
        if item.operation == CONVERGENCE and len(item.offsets) == 1:
            return System("converge", (item.variant, *item.constants), (_label(index, item.offsets[0]),))
        word = _WORDS.get((item.operation, item.variant))
        if word is None or len(item.constants) != _OPERANDS.get(word, 0):
            return None
        if len(item.offsets) != _LABELS.get(word, len(item.offsets)):
            return None
        labels = tuple(_label(index, offset) for offset in item.offsets)
        return System(word, self._operands(word, item.constants), labels)

    def _operands(self, word: str, constants: Sequence[int]) -> tuple[int | str | Value | Id, ...]:
        if word in ("parameter", "update"):
            name = self._tables.parameters.meaning(constants[0])
            return (constants[0] if name is None else name,)
        return (self._constant(constants[0]),) if word == "constant" else tuple(constants)

    def _call(self, index: int, item: Instruction) -> Call | None:
        name = self._tables.operation_name(item.operation)
        operation = Id(item.operation) if name is None else name
        if item.variant == 0 and not item.constants and not item.offsets:
            return Call(operation, None, ())
        codes = self._tables.signatures.meaning(item.variant)
        if codes is None or len(codes) != len(item.offsets):
            return None
        if item.offsets.count(0) != len(item.constants):
            return None
        constants = iter(item.constants)
        arguments: list[Argument] = [
            _label(index, offset) if offset else self._constant(next(constants)) for offset in item.offsets
        ]
        return Call(operation, codes, tuple(arguments))

    def _constant(self, number: int) -> Value | Id:
        key = self._tables.constants.meaning(number)
        if key is None or len(key) > LONGEST_VALUE:
            return Id(number)
        return Value(self._tables.types[key], self._tables.values[key])

    # --- memory commands ------------------------------------------------------------------------------------

    def moment(self, tick: Tick) -> Moment:
        """A tick as a row of its own."""
        return Moment(tick.index, self.orders(tick.commands))

    def orders(self, commands: Sequence[Command]) -> tuple[Order, ...]:
        """Commands, those of one action in a row together."""
        return tuple(
            Order(action, tuple(self._target(command.target) for command in group))
            for action, group in groupby(commands, lambda command: int(command.action))
        )

    def _target(self, target: int) -> Label | int:
        return Label(str(target)) if 0 <= target < self._count else target


def _label(index: int, offset: int) -> Label:
    return Label(str(index + offset))


def stands_behind(schedule: Sequence[Tick], count: int) -> bool:
    """Whether a schedule can be written behind instructions: its ticks ascend, are theirs and not empty."""
    if not all(0 <= tick.index < count and tick.commands for tick in schedule):
        return False
    return all(one.index < other.index for one, other in pairwise(schedule))
