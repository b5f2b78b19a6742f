"""Uses of results: the first and the last instruction that reads each one, from which live ranges follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamella.lang.nac.nodes import INPUT, OUTPUT, Instruction
from lamella.lang.nac.operations import PARAMETER, STATE, SUBGRAPH
from lamella.lang.nac.regions import InstructionBlocks, read_blocks


@dataclass(frozen=True, slots=True)
class UseRanges:
    """The uses of each result: the first and the last instruction that takes it, -1 where none does."""

    first: list[int]
    last: list[int]
    outputs: set[int]
    """Results that the program gives to its caller."""
    blocks: InstructionBlocks


def read_flow(instructions: Sequence[Instruction]) -> UseRanges:
    """The uses in a program; offsets that lead nowhere are none."""
    flow = UseRanges([-1] * len(instructions), [-1] * len(instructions), set(), read_blocks(instructions))
    # Results are dense numbers: one loop over lists takes a third of the time of `last_uses` and its like.
    for index, item in enumerate(instructions):
        for offset in item.offsets:
            source = index + offset
            if offset >= 0 or source < 0:
                continue
            if flow.first[source] < 0:
                flow.first[source] = index
            flow.last[source] = index
            if is_end(item):
                flow.outputs.add(source)
    return flow


def is_end(item: Instruction) -> bool:
    """Whether an instruction gives results to the caller, and not to what is around its block."""
    return item.operation == OUTPUT and item.variant != SUBGRAPH


def is_load(item: Instruction) -> bool:
    """Whether an instruction loads a parameter."""
    return item.operation == INPUT and item.variant == PARAMETER


def is_state(item: Instruction) -> bool:
    """Whether an instruction loads a state."""
    return item.operation == INPUT and item.variant == STATE
