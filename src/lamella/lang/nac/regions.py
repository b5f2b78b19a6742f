"""Blocks: the runs of instructions that belong to a branch or to a convergence, as regions nested in each other.

They stand behind their instruction, one after the other; the first instruction behind the last of them is the join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lamella.lang.nac.nodes import CONTROL_FLOW, CONVERGENCE, OUTPUT, Instruction
from lamella.lang.nac.operations import SUBGRAPH

PROGRAM = -1
"""Stands for the program itself where a block is asked for."""
MOST_NESTED = 64
"""Blocks that may stand inside each other."""


@dataclass(frozen=True, slots=True)
class InstructionBlock:
    """The instructions from `start` to before `stop`; `around` is the place of the block around it, or PROGRAM."""

    owner: int
    number: int
    start: int
    stop: int
    around: int
    depth: int

    def holds(self, index: int) -> bool:
        """Whether an instruction stands in it, in a block of it too."""
        return self.start <= index < self.stop


@dataclass(frozen=True, slots=True)
class MisplacedBlocks:
    """An instruction whose blocks do not fit behind it, and where the block around it ends."""

    index: int
    end: int


@dataclass(frozen=True, slots=True)
class InstructionBlocks:
    """All blocks in the order of their owners; for each instruction the innermost one; what fits nowhere."""

    found: list[InstructionBlock] = field(default_factory=list)
    inside: list[int] = field(default_factory=list)
    owned: dict[int, tuple[InstructionBlock, ...]] = field(default_factory=dict)
    misfits: list[MisplacedBlocks] = field(default_factory=list)

    def at(self, index: int) -> InstructionBlock | None:
        """The innermost block of an instruction; None in the program itself."""
        place = self.inside[index]
        return None if place == PROGRAM else self.found[place]

    def around(self, block: InstructionBlock) -> InstructionBlock | None:
        """The block around another one."""
        return None if block.around == PROGRAM else self.found[block.around]

    def handing(self, instructions: Sequence[Instruction], block: InstructionBlock) -> range:
        """The instructions at the end of a block that hand its results over."""
        first, place = block.stop, self.inside[block.stop - 1] if block.stop > block.start else PROGRAM
        if place == PROGRAM or self.found[place] is not block:
            return range(first, first)
        while first > block.start and is_handing(instructions[first - 1]) and self.inside[first - 1] == place:
            first -= 1
        return range(first, block.stop)

    def sees(self, index: int, target: int) -> bool:
        """Whether the result of an earlier instruction is there for another one, whichever blocks run."""
        block = self.at(target)
        return (block is None or block.holds(index)) and index >= self.join(target)

    def join(self, index: int) -> int:
        """The first instruction for which the result of another one can be there."""
        owned = self.owned.get(index)
        return owned[-1].stop if owned else index + 1

    def start(self, index: int) -> int:
        """The first instruction of the innermost block of an instruction."""
        block = self.at(index)
        return 0 if block is None else block.start


def block_lengths(item: Instruction) -> tuple[int, ...]:
    """How many instructions the blocks of an instruction have."""
    if item.operation == CONTROL_FLOW:
        return (*item.constants, 0, 0)[:2]
    return item.constants if item.operation == CONVERGENCE else ()


def has_blocks(item: Instruction) -> bool:
    """Whether blocks stand behind an instruction."""
    return item.operation in (CONTROL_FLOW, CONVERGENCE)


def is_handing(item: Instruction) -> bool:
    """Whether an instruction hands results of its block over."""
    return (item.operation, item.variant) == (OUTPUT, SUBGRAPH)


def read_blocks(instructions: Sequence[Instruction]) -> InstructionBlocks:
    """The blocks of a program; those that do not fit are in `misfits`."""
    blocks = InstructionBlocks()
    open_: list[int] = []  # blocks that are not over yet, the next one last
    for index, item in enumerate(instructions):
        while open_ and blocks.found[open_[-1]].stop <= index:
            open_.pop()
        blocks.inside.append(open_[-1] if open_ else PROGRAM)
        if has_blocks(item):
            end = blocks.found[open_[-1]].stop if open_ else len(instructions)
            open_ += _open(blocks, index, block_lengths(item), end)
    return blocks


def _open(blocks: InstructionBlocks, index: int, lengths: tuple[int, ...], end: int) -> list[int]:
    """Add the blocks of an instruction; their places, the last one first."""
    if min(lengths, default=0) < 0 or index + 1 + sum(lengths) > end:
        blocks.misfits.append(MisplacedBlocks(index, end))
        return []
    around, start, first = blocks.inside[index], index + 1, len(blocks.found)
    depth = 1 if around == PROGRAM else blocks.found[around].depth + 1
    for number, length in enumerate(lengths):
        blocks.found.append(InstructionBlock(index, number, start, start + length, around, depth))
        start += length
    blocks.owned[index] = tuple(blocks.found[first:])
    return list(range(len(blocks.found) - 1, first - 1, -1))
