"""Branches and convergences: their blocks stay inside the program and each other, end, and keep their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nac.nodes import CONTROL_FLOW, CONVERGENCE, OUTPUT, Instruction
from lamella.lang.nac.operations import FINAL
from lamella.lang.nac.regions import MOST_NESTED, Block, Blocks, block_lengths, is_handing, read_blocks
from lamella.lang.nac.rules import flow
from lamella.lang.nac.rules import instructions as rules

SHOWN = 8
"""Lengths that a message tells."""


def check_branches(instructions: Sequence[Instruction]) -> Iterator[Diagnostic]:
    """What is wrong with blocks: where they are, what they end with, and who uses what is inside."""
    blocks = read_blocks(instructions)
    yield from _check_fit(instructions, blocks)
    yield from _check_depth(instructions, blocks)
    for owned in blocks.owned.values():
        # One finding for each instruction: blocks cost a file two bytes.
        wrong = (finding for block in owned for finding in _check_block(instructions, blocks, block))
        yield from islice(wrong, 1)
    for index in blocks.owned:
        if instructions[index].operation == CONTROL_FLOW:
            yield from _check_counts(instructions, blocks, index)
    for index, item in enumerate(instructions):
        yield from _check_place(instructions, blocks, index)
        if blocks.found:
            yield from _check_uses(item, blocks, index)


def _check_fit(instructions: Sequence[Instruction], blocks: Blocks) -> Iterator[Diagnostic]:
    """All blocks fit behind their instruction; blocks inside another one end inside it."""
    for index, end in ((item.index, item.end) for item in blocks.misfits):
        item, left = instructions[index], len(instructions) - index - 1
        lengths = block_lengths(item)
        shown = _listed(lengths)
        if min(lengths, default=0) < 0 or sum(lengths) > left:
            yield rules.BRANCH_RANGE.at(item.span, lengths=shown, left=left)
        else:
            yield rules.BRANCH_CROSSES.at(item.span, lengths=shown, end=end)


def _listed(lengths: Sequence[int]) -> str:
    """Lengths in words."""
    if len(lengths) > SHOWN:
        return ", ".join(map(str, lengths[:SHOWN])) + " …"
    *first, last = map(str, lengths)
    return f"{', '.join(first)} and {last}" if first else last


def _check_depth(instructions: Sequence[Instruction], blocks: Blocks) -> Iterator[Diagnostic]:
    for index, owned in blocks.owned.items():
        if owned and owned[0].depth == MOST_NESTED + 1:
            depth, span = owned[0].depth - 1, instructions[index].span
            yield flow.NESTED.at(span, index=index, depth=depth, limit=MOST_NESTED)


def _check_block(instructions: Sequence[Instruction], blocks: Blocks, block: Block) -> Iterator[Diagnostic]:
    problem = "is empty"
    if block.stop > block.start:
        if blocks.handing(instructions, block):
            return
        problem = f"ends with instruction {block.stop - 1}, which hands nothing over"
    span = instructions[block.owner].span
    yield flow.BLOCK_END.at(span, number=block.number, owner=block.owner, problem=problem)


def _check_counts(instructions: Sequence[Instruction], blocks: Blocks, index: int) -> Iterator[Diagnostic]:
    one, other = (len(blocks.handing(instructions, block)) for block in blocks.owned[index])
    if one != other and one and other:
        problem = f"its blocks end with {one} and {other} instructions that hand results over"
        yield flow.RESULT_COUNT.at(instructions[index].span, index=index, problem=problem)


def _check_place(instructions: Sequence[Instruction], blocks: Blocks, index: int) -> Iterator[Diagnostic]:
    """Outputs stand where they belong, and convergences merge something."""
    item, block = instructions[index], blocks.at(index)
    if item.operation == CONVERGENCE:
        if not item.constants:
            yield flow.CONVERGENCE_EMPTY.at(item.span, index=index)
        if item.variant > 100:
            yield flow.THRESHOLD.at(item.span, index=index, threshold=item.variant)
    elif is_handing(item):
        after = index + 1
        if block is None:
            yield flow.HANDED_ELSEWHERE.at(item.span, index=index, problem="stands in no block")
        elif after < block.stop and not is_handing(instructions[after]):
            problem = f"instruction {after} of its block follows"
            yield flow.HANDED_ELSEWHERE.at(item.span, index=index, problem=problem)
    elif block is not None and (item.operation, item.variant) == (OUTPUT, FINAL):
        yield flow.FINAL_INSIDE.at(item.span, index=index, owner=block.owner)


def _check_uses(item: Instruction, blocks: Blocks, index: int) -> Iterator[Diagnostic]:
    """What an instruction uses was computed whichever blocks run."""
    for offset in item.offsets:
        target = index + offset
        if offset >= 0 or target < 0 or blocks.sees(index, target):
            continue
        block = blocks.at(target)
        problem = f"whose blocks end before instruction {blocks.join(target)}"
        if block is not None and not block.holds(index):
            problem = f"which stands in a block that instruction {index} is not in"
        yield flow.ACROSS.at(item.span, index=index, target=target, problem=problem)
