"""The bytecode of a plan taken apart, without executing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.lang.nac.check.sections.opcodes import JUMPS, OPCODES, Kind, Opcode, Operand
from lamella.lang.nac.nodes import Data


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a plan: where it begins, what follows it, its operands with their values."""

    offset: int
    end: int
    code: int
    operands: tuple[tuple[Operand, int], ...]
    """Every operand with its value; the slots of a list stand one by one."""
    fields: tuple[int | tuple[int, ...], ...]
    """The values alone, where a list of slots is one value."""

    @property
    def opcode(self) -> Opcode:
        """What the instruction is."""
        return OPCODES[self.code]

    def values(self, kind: Kind) -> list[int]:
        """The values of the operands of a kind."""
        return [value for operand, value in self.operands if operand.kind is kind]

    @property
    def target(self) -> int | None:
        """Where a jump leads; distances count from the end of the instruction."""
        return self.end + self.operands[-1][1] if self.code in JUMPS else None


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the bytecode cannot be taken apart further: an unknown opcode, or operands cut short."""

    offset: int
    code: int
    wanted: int = 0


def decode(data: Data) -> Iterator[Step | Stop]:
    """The instructions in their order; the last item is a Stop where the bytes are wrong."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        if view[position] not in OPCODES:
            yield Stop(position, view[position])
            return
        taken = _Taking(view, position + 1)
        taken.operands_of(OPCODES[view[position]])
        if taken.position > len(view):
            yield Stop(position, view[position], taken.position - position)
            return
        yield Step(position, taken.position, view[position], tuple(taken.found), tuple(taken.fields))
        position = taken.position


class _Taking:
    """Operands taken one after another; bytes behind the end read as 0 and leave the position behind the end."""

    __slots__ = ("_view", "fields", "found", "position")

    def __init__(self, view: memoryview, position: int) -> None:
        self._view = view
        self.position = position
        self.found: list[tuple[Operand, int]] = []
        self.fields: list[int | tuple[int, ...]] = []

    def operands_of(self, opcode: Opcode) -> None:
        """All operands of an instruction."""
        for operand in opcode.operands:
            self.operand(operand)
        for operand in opcode.more.get(self.found[0][1], ()) if opcode.more else ():
            self.operand(operand)

    def operand(self, operand: Operand) -> None:
        """One operand, and the slots that it counts."""
        value = self._number(operand.kind.size, operand.kind is Kind.JUMP)
        if operand.kind not in (Kind.READS, Kind.WRITES):
            self.found.append((operand, value))
            self.fields.append(value)
            return
        slot = Operand(Kind.READ if operand.kind is Kind.READS else Kind.WRITE)
        listed = tuple(self._number(1, signed=False) for _ in range(value))
        self.found += [(slot, item) for item in listed]
        self.fields.append(listed)

    def _number(self, size: int, signed: bool) -> int:
        start, self.position = self.position, self.position + size
        return int.from_bytes(self._view[start : self.position], "little", signed=signed)
