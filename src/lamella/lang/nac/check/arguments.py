"""What regular operations are called with: offsets, constants, and how many of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nac.check.tables import Tables
from lamella.lang.nac.nodes import NONE, OUTPUT, Constant, Instruction, Signature
from lamella.lang.nac.operations import SYSTEM_NAMES
from lamella.lang.nac.rules import instructions as rules
from lamella.lang.nac.signatures import CONSTANT_CODES, TENSOR_CODES, UnfitError, coerce


@dataclass(frozen=True, slots=True)
class Code:
    """A sequence of instructions and the tables it refers to."""

    instructions: tuple[Instruction, ...]
    tables: Tables
    version: str
    training: bool = False
    """Whether it is a training graph, which has variants of its own."""


@dataclass(frozen=True, slots=True)
class Here:
    """The instruction that is being checked."""

    code: Code
    index: int
    instruction: Instruction


Form = tuple[int, int, tuple[int, ...], tuple[bool, ...]]
"""What two calls share that differ only in where their arguments come from."""


def check_call(here: Here, sound: set[Form]) -> Iterator[Diagnostic]:
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


def _check_form(here: Here) -> Iterator[Diagnostic]:
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


def check_offsets(here: Here, zero_is_constant: bool = False) -> Iterator[Diagnostic]:
    """Offsets lead to earlier instructions that have a result."""
    for number, offset in enumerate(here.instruction.offsets, 1):
        if offset or not zero_is_constant:
            yield from _check_offset(here, number, offset)


def _check_offset(here: Here, number: int, offset: int) -> Iterator[Diagnostic]:
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


def _check_count(here: Here, codes: str) -> Iterator[Diagnostic]:
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


def _check_zeros(here: Here, codes: str) -> Iterator[Diagnostic]:
    """Constants stand where the signature has them, one for each offset of 0."""
    item = here.instruction
    zeros = [number for number, offset in enumerate(item.offsets[: len(codes)]) if not offset]
    for number in zeros:
        if codes[number] in TENSOR_CODES:
            yield rules.TENSOR_WITHOUT_OFFSET.at(item.span, number=number + 1, code=codes[number])
    if len(item.constants) != len(zeros) and not any(codes[number] in TENSOR_CODES for number in zeros):
        yield rules.CONSTANT_COUNT.at(item.span, count=len(item.constants), codes=codes, wanted=len(zeros))


def _check_constants(here: Here, codes: str) -> Iterator[Diagnostic]:
    """Constants exist and can be what their codes say."""
    item, constants = here.instruction, here.code.tables.constants
    zeros = [number for number, offset in enumerate(item.offsets[: len(codes)]) if not offset]
    for id_ in item.constants:
        if id_ not in constants:
            yield rules.CONSTANT_MISSING.at(item.span, id=id_)
    for number, id_ in zip(zeros, item.constants, strict=False):
        if id_ in constants and codes[number] in CONSTANT_CODES:
            yield from _check_fit(here, number, codes[number], constants[id_])


def _check_fit(here: Here, number: int, code: str, constant: Constant) -> Iterator[Diagnostic]:
    try:
        coerce(code, constant.value)
    except UnfitError:
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
