"""Instructions one by one: operations, inputs, outputs, branches, and how the program ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Malformed
from lamella.lang.nac.check.tables import SymbolTables
from lamella.lang.nac.nodes import (
    CONTROL_FLOW,
    CONVERGENCE,
    FIRST_REGULAR,
    INPUT,
    NONE,
    OUTPUT,
    Constant,
    File,
    Instruction,
    Signature,
)
from lamella.lang.nac.operations import (
    CONSTANT_CODES,
    FINAL,
    LIFTED,
    PARAMETER,
    SAVED,
    SUBGRAPH,
    SYSTEM_NAMES,
    TARGET,
    TENSOR_CODES,
    TRAINED,
    UPDATE,
    coerce,
    is_user_input,
)
from lamella.lang.nac.regions import (
    MOST_NESTED,
    InstructionBlock,
    InstructionBlocks,
    block_lengths,
    is_handing,
    read_blocks,
)
from lamella.lang.nac.rules import data, sections
from lamella.lang.nac.rules import instructions as rules

# --- calls of regular operations: offsets, constants, and how many of them ----------------------------------


@dataclass(frozen=True, slots=True)
class Code:
    """A sequence of instructions and the tables it refers to."""

    instructions: tuple[Instruction, ...]
    tables: SymbolTables
    version: str
    training: bool = False
    """Whether it is a training graph, which has variants of its own."""


@dataclass(frozen=True, slots=True)
class InstructionContext:
    """The instruction that is being checked."""

    code: Code
    index: int
    instruction: Instruction


Form = tuple[int, int, tuple[int, ...], tuple[bool, ...]]
"""What two calls share that differ only in where their arguments come from."""


def check_call(here: InstructionContext, sound: set[Form]) -> Iterator[Diagnostic]:
    """A regular operation has a name, a signature that suits it, and the arguments that the signature asks for.

    Programs repeat themselves: calls of a form that was found sound need a look at their offsets alone.
    """
    item = here.instruction
    form = (item.operation, item.variant, item.constants, tuple(map(bool, item.offsets)))
    if form not in sound:
        found = list(_check_form(here))
        yield from found
        if not found:
            sound.add(form)
    if item.variant in here.code.tables.signatures:
        yield from check_offsets(here, zero_is_constant=True)


def _check_form(here: InstructionContext) -> Iterator[Diagnostic]:
    """What is wrong with a call wherever it stands."""
    tables, item = here.code.tables, here.instruction
    if tables.name_of(item.operation) is None:
        yield rules.UNKNOWN_OPERATION.at(item.span, id=item.operation, version=here.code.version)
    signature = tables.signatures.get(item.variant) if item.variant else Signature(0, "")
    if signature is None:
        yield rules.UNKNOWN_SIGNATURE.at(item.span, id=item.variant)
        return
    yield from _check_count(here, signature.codes)
    yield from _check_zeros(here, signature.codes)
    yield from _check_constants(here, signature.codes)


def check_offsets(here: InstructionContext, zero_is_constant: bool = False) -> Iterator[Diagnostic]:
    """Offsets lead to earlier instructions that have a result."""
    for number, offset in enumerate(here.instruction.offsets, 1):
        if offset or not zero_is_constant:
            yield from _check_offset(here, number, offset)


def _check_offset(here: InstructionContext, number: int, offset: int) -> Iterator[Diagnostic]:
    span, target = here.instruction.span, here.index + offset
    if offset >= 0:
        yield rules.NOT_BEFORE.at(span, number=number, index=here.index, target=target)
        return
    if target < 0:
        yield rules.BEFORE_FIRST.at(span, number=number, index=here.index, offset=offset)
        return
    operation = here.code.instructions[target].operation
    if operation == OUTPUT:
        yield rules.NO_RESULT.at(span, number=number, target=target, name=SYSTEM_NAMES[operation])
    elif operation == NONE:
        yield rules.CONSTANT_LOST.at(span, user=here.index, index=target)


def _check_count(here: InstructionContext, codes: str) -> Iterator[Diagnostic]:
    """Standard operations take a certain number of arguments."""
    standard = here.code.tables.standard_of(here.instruction.operation)
    if standard is not None and not standard.takes(len(codes)):
        yield rules.ARGUMENT_COUNT.at(
            here.instruction.span,
            name=standard.name,
            counts=standard.counts,
            codes=codes,
            count=len(codes),
            arguments=", ".join(standard.arguments),
        )


def _check_zeros(here: InstructionContext, codes: str) -> Iterator[Diagnostic]:
    """Constants stand where the signature has them, one for each offset of 0."""
    item = here.instruction
    zeros = [number for number, offset in enumerate(item.offsets[: len(codes)]) if not offset]
    for number in zeros:
        if codes[number] in TENSOR_CODES:
            yield rules.TENSOR_WITHOUT_OFFSET.at(item.span, number=number + 1, code=codes[number])
    if len(item.constants) != len(zeros) and not any(codes[number] in TENSOR_CODES for number in zeros):
        yield rules.CONSTANT_COUNT.at(item.span, count=len(item.constants), codes=codes, wanted=len(zeros))


def _check_constants(here: InstructionContext, codes: str) -> Iterator[Diagnostic]:
    """Constants exist and can be what their codes say."""
    item, constants = here.instruction, here.code.tables.constants
    zeros = [number for number, offset in enumerate(item.offsets[: len(codes)]) if not offset]
    for id_ in item.constants:
        if id_ not in constants:
            yield rules.CONSTANT_MISSING.at(item.span, id=id_)
    for number, id_ in zip(zeros, item.constants, strict=False):
        if id_ in constants and codes[number] in CONSTANT_CODES:
            yield from _arguments_check_fit(here, number, codes[number], constants[id_])


def _arguments_check_fit(
    here: InstructionContext, number: int, code: str, constant: Constant
) -> Iterator[Diagnostic]:
    try:
        coerce(code, constant.value)
    except Malformed:
        yield rules.CONSTANT_UNFIT.at(
            here.instruction.span,
            number=number + 1,
            code=code,
            wanted=CONSTANT_CODES[code],
            id=constant.id,
            value=show_value(constant),
        )


def show_value(constant: Constant, longest: int = 40) -> str:
    """A constant as a message shows it."""
    value = constant.value
    if value is None:
        return "null"
    text = str(list(value[:longest])) if isinstance(value, tuple) else repr(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


# --- control flow: blocks nest, end with what they hand over, and hide what is inside -----------------------


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


def _check_fit(instructions: Sequence[Instruction], blocks: InstructionBlocks) -> Iterator[Diagnostic]:
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


def _check_depth(instructions: Sequence[Instruction], blocks: InstructionBlocks) -> Iterator[Diagnostic]:
    for index, owned in blocks.owned.items():
        if owned and owned[0].depth == MOST_NESTED + 1:
            depth, span = owned[0].depth - 1, instructions[index].span
            yield rules.NESTED.at(span, index=index, depth=depth, limit=MOST_NESTED)


def _check_block(
    instructions: Sequence[Instruction], blocks: InstructionBlocks, block: InstructionBlock
) -> Iterator[Diagnostic]:
    problem = "is empty"
    if block.stop > block.start:
        if blocks.handing(instructions, block):
            return
        problem = f"ends with instruction {block.stop - 1}, which hands nothing over"
    span = instructions[block.owner].span
    yield rules.BLOCK_END.at(span, number=block.number, owner=block.owner, problem=problem)


def _check_counts(
    instructions: Sequence[Instruction], blocks: InstructionBlocks, index: int
) -> Iterator[Diagnostic]:
    one, other = (len(blocks.handing(instructions, block)) for block in blocks.owned[index])
    if one != other and one and other:
        problem = f"its blocks end with {one} and {other} instructions that hand results over"
        yield rules.RESULT_COUNT.at(instructions[index].span, index=index, problem=problem)


def _check_place(
    instructions: Sequence[Instruction], blocks: InstructionBlocks, index: int
) -> Iterator[Diagnostic]:
    """Outputs stand where they belong, and convergences merge something."""
    item, block = instructions[index], blocks.at(index)
    if item.operation == CONVERGENCE:
        if not item.constants:
            yield rules.CONVERGENCE_EMPTY.at(item.span, index=index)
        if item.variant > 100:
            yield rules.THRESHOLD.at(item.span, index=index, threshold=item.variant)
    elif is_handing(item):
        after = index + 1
        if block is None:
            yield rules.HANDED_ELSEWHERE.at(item.span, index=index, problem="stands in no block")
        elif after < block.stop and not is_handing(instructions[after]):
            problem = f"instruction {after} of its block follows"
            yield rules.HANDED_ELSEWHERE.at(item.span, index=index, problem=problem)
    elif block is not None and (item.operation, item.variant) == (OUTPUT, FINAL):
        yield rules.FINAL_INSIDE.at(item.span, index=index, owner=block.owner)


def _check_uses(item: Instruction, blocks: InstructionBlocks, index: int) -> Iterator[Diagnostic]:
    """What an instruction uses was computed whichever blocks run."""
    for offset in item.offsets:
        target = index + offset
        if offset >= 0 or target < 0 or blocks.sees(index, target):
            continue
        block = blocks.at(target)
        problem = f"whose blocks end before instruction {blocks.join(target)}"
        if block is not None and not block.holds(index):
            problem = f"which stands in a block that instruction {index} is not in"
        yield rules.ACROSS.at(item.span, index=index, target=target, problem=problem)


LOST_TENSOR = "Tensor_"
"""How the string begins that stands where the elements of a lifted tensor should."""


def check_instructions(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """Each instruction of the program, and the program as a whole."""
    code = Code(file.instructions, tables, file.header.version)
    yield from check_code(code)
    yield from check_branches(file.instructions)
    yield from _check_end(file)
    yield from _check_inputs(file)


def check_training(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
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
        here = InstructionContext(code, index, item)
        if item.operation >= FIRST_REGULAR:
            yield from check_call(here, sound)
        elif item.operation != NONE:
            yield from _SYSTEM.get(item.operation, _check_unused)(here)
        elif index not in used:
            yield rules.CONSTANT_LOST_UNUSED.at(item.span, index=index)


def _used(instructions: tuple[Instruction, ...]) -> set[int]:
    """The places of instructions that others use."""
    return {index + offset for index, item in enumerate(instructions) for offset in item.offsets if offset}


def _check_unused(here: InstructionContext) -> Iterator[Diagnostic]:
    yield rules.UNUSED_SYSTEM.at(here.instruction.span, id=here.instruction.operation)


def _check_input(here: InstructionContext) -> Iterator[Diagnostic]:
    """An input is of a known variant and what it takes exists."""
    item, tables = here.instruction, here.code.tables
    id_ = _only(item.constants)
    if item.variant > (TARGET if here.code.training else LIFTED):
        yield rules.INPUT_VARIANT.at(item.span, variant=item.variant)
    elif item.variant == PARAMETER and id_ not in tables.parameters:
        yield data.PARAMETER_UNKNOWN.at(item.span, id=id_)
    elif item.variant == LIFTED:
        yield from _check_lifted(here, id_)


def _check_lifted(here: InstructionContext, id_: int) -> Iterator[Diagnostic]:
    """A lifted constant has its value in the table, not a description of it."""
    constant = here.code.tables.constants.get(id_)
    if constant is None:
        yield rules.CONSTANT_MISSING.at(here.instruction.span, id=id_)
    elif isinstance(constant.value, str) and constant.value.startswith(LOST_TENSOR):
        yield rules.LIFTED_LOST.at(here.instruction.span, id=id_, value=constant.value)


def _check_output(here: InstructionContext) -> Iterator[Diagnostic]:
    """An output is of a known variant; what it gives was computed before."""
    item = here.instruction
    known = (UPDATE, TRAINED) if here.code.training else (FINAL, SUBGRAPH)
    if item.variant not in known:
        yield rules.OUTPUT_VARIANT.at(item.span, variant=item.variant)
    elif item.variant == UPDATE and _only(item.constants) not in here.code.tables.parameters:
        yield data.PARAMETER_UNKNOWN.at(item.span, id=_only(item.constants))
    yield from check_offsets(here)


_SYSTEM: Mapping[int, Callable[[InstructionContext], Iterator[Diagnostic]]] = MappingProxyType(
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
