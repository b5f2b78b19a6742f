"""Instructions one by one: operations, inputs, outputs, branches, and how the program ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nac.check.arguments import Code, Form, Here, check_call, check_offsets
from lamella.lang.nac.check.tables import Tables
from lamella.lang.nac.nodes import (
    CONTROL_FLOW,
    CONVERGENCE,
    FIRST_REGULAR,
    INPUT,
    NONE,
    OUTPUT,
    File,
    Instruction,
)
from lamella.lang.nac.operations import (
    FINAL,
    LIFTED,
    PARAMETER,
    SAVED,
    SUBGRAPH,
    TARGET,
    TRAINED,
    UPDATE,
    USER,
)
from lamella.lang.nac.regions import MOST_NESTED, Block, Blocks, block_lengths, is_handing, read_blocks
from lamella.lang.nac.rules import data, flow, sections
from lamella.lang.nac.rules import instructions as rules

# --- branches and convergences: their blocks stay inside the program and each other, end, and keep ----------


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


LOST_TENSOR = "Tensor_"
"""How the string begins that stands where the elements of a lifted tensor should."""


def check_instructions(file: File, tables: Tables) -> Iterator[Diagnostic]:
    """Each instruction of the program, and the program as a whole."""
    code = Code(file.instructions, tables, file.header.version)
    yield from check_code(code)
    yield from check_branches(file.instructions)
    yield from _check_end(file)
    yield from _check_inputs(file)


def check_training(file: File, tables: Tables) -> Iterator[Diagnostic]:
    """The training graph: its instructions, what it takes from the program, and its end."""
    if not file.training:
        return
    yield from check_code(Code(file.training, tables, file.header.version, training=True))
    for index, item in enumerate(file.training):
        if item.operation == INPUT and item.variant == SAVED and not _has_saved(file, item):
            yield sections.TRAINING_SAVED.at(item.span, index=index, target=_only(item.constants))
    last = file.training[-1]
    if (last.operation, last.variant) != (OUTPUT, TRAINED):
        yield sections.TRAINING_END.at(last.span)


def _has_saved(file: File, item: Instruction) -> bool:
    target = _only(item.constants)
    if not 0 <= target < len(file.instructions):
        return False
    return file.instructions[target].operation not in (NONE, OUTPUT)


def _only(values: tuple[int, ...]) -> int:
    """The one value of a field, or one that nothing has."""
    return values[0] if values else -1


def check_code(code: Code) -> Iterator[Diagnostic]:
    """Each instruction by itself."""
    used, sound = _used(code.instructions), set[Form]()
    for index, item in enumerate(code.instructions):
        here = Here(code, index, item)
        if item.operation >= FIRST_REGULAR:
            yield from check_call(here, sound)
        elif item.operation != NONE:
            yield from _SYSTEM.get(item.operation, _check_unused)(here)
        elif index not in used:
            yield rules.CONSTANT_LOST_UNUSED.at(item.span, index=index)


def _used(instructions: tuple[Instruction, ...]) -> set[int]:
    """The places of instructions that others use."""
    return {index + offset for index, item in enumerate(instructions) for offset in item.offsets if offset}


def _check_unused(here: Here) -> Iterator[Diagnostic]:
    yield rules.UNUSED_SYSTEM.at(here.instruction.span, id=here.instruction.operation)


def _check_input(here: Here) -> Iterator[Diagnostic]:
    """An input is of a known variant and what it takes exists."""
    item, tables = here.instruction, here.code.tables
    id_ = _only(item.constants)
    if item.variant > (TARGET if here.code.training else LIFTED):
        yield rules.INPUT_VARIANT.at(item.span, variant=item.variant)
    elif item.variant == PARAMETER and id_ not in tables.parameters:
        yield data.PARAMETER_UNKNOWN.at(item.span, id=id_)
    elif item.variant == LIFTED:
        yield from _check_lifted(here, id_)


def _check_lifted(here: Here, id_: int) -> Iterator[Diagnostic]:
    """A lifted constant has its value in the table, not a description of it."""
    constant = here.code.tables.constants.get(id_)
    if constant is None:
        yield rules.CONSTANT_MISSING.at(here.instruction.span, id=id_)
    elif isinstance(constant.value, str) and constant.value.startswith(LOST_TENSOR):
        yield rules.LIFTED_LOST.at(here.instruction.span, id=id_, value=constant.value)


def _check_output(here: Here) -> Iterator[Diagnostic]:
    """An output is of a known variant; what it gives was computed before."""
    item = here.instruction
    known = (UPDATE, TRAINED) if here.code.training else (FINAL, SUBGRAPH)
    if item.variant not in known:
        yield rules.OUTPUT_VARIANT.at(item.span, variant=item.variant)
    elif item.variant == UPDATE and _only(item.constants) not in here.code.tables.parameters:
        yield data.PARAMETER_UNKNOWN.at(item.span, id=_only(item.constants))
    yield from check_offsets(here)


_SYSTEM: Mapping[int, Callable[[Here], Iterator[Diagnostic]]] = MappingProxyType(
    {
        INPUT: _check_input,
        OUTPUT: _check_output,
        CONTROL_FLOW: check_offsets,
        CONVERGENCE: check_offsets,
    }
)


def _check_end(file: File) -> Iterator[Diagnostic]:
    """One final output ends the program, and it names as many results as the header says."""
    finals = [
        index
        for index, item in enumerate(file.instructions)
        if (item.operation, item.variant) == (OUTPUT, FINAL)
    ]
    if not finals:
        if file.instructions:
            yield rules.NO_FINAL_OUTPUT.at(file.instructions[-1].span)
        return
    first = finals[0]
    for index in finals[1:]:
        yield rules.SECOND_FINAL_OUTPUT.at(file.instructions[index].span, index=index, first=first)
    if len(finals) == 1 and first + 1 < len(file.instructions):
        yield rules.AFTER_FINAL.at(file.instructions[first + 1].span, index=first + 1, first=first)
    count, wanted = len(file.instructions[first].offsets), file.header.outputs
    if count != wanted:
        yield rules.OUTPUT_COUNT.at(file.instructions[first].span, count=count, wanted=wanted)


def _check_inputs(file: File) -> Iterator[Diagnostic]:
    """As many instructions take a user input as the header says; what was not named is likely to be lost."""
    taken = [index for index, item in enumerate(file.instructions) if is_user_input(item)]
    wanted = file.header.inputs
    if len(taken) == wanted:
        return
    named = {item.index for item in file.inputs}
    lost = [index for index in taken if index not in named] if len(taken) > wanted else []
    for index in lost:
        span = file.instructions[index].span
        yield rules.INPUT_LOST.at(span, index=index, wanted=wanted, count=len(taken))
    if not lost:
        yield rules.INPUT_COUNT.at(file.header.span, wanted=wanted, count=len(taken))


def is_user_input(item: Instruction) -> bool:
    """Whether an instruction takes one of the model's inputs."""
    return item.operation == INPUT and item.variant == USER
