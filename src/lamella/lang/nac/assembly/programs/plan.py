"""The plan of the orchestrator: opcodes by name, slots, constants and distances as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.base.errors import InputError
from lamella.base.reader import Reader
from lamella.lang.nac.assembly.nodes import Step, StepOperand
from lamella.lang.nac.assembly.programs.problem import StepProblem, WrongOperandError, miscounted, pack_number
from lamella.lang.nac.check.sections.opcodes import OPCODES, Kind, Opcode, Operand
from lamella.lang.nac.nodes import Data

PLAN_NAMES: Mapping[str, int] = MappingProxyType({opcode.name: code for code, opcode in OPCODES.items()})
"""The opcodes by name."""
_LISTS = (Kind.READS, Kind.WRITES)


def decode_plan(data: Data) -> tuple[Step, ...] | None:
    """The instructions of a plan, or None where its bytes are not instructions from first to last."""
    reader = Reader(data)
    found: list[Step] = []
    try:
        while reader.remaining:
            opcode = OPCODES.get(reader.u8())
            if opcode is None:
                return None
            found.append(Step(opcode.name, _take_operands(reader, opcode)))
    except InputError:
        return None
    return tuple(found)


def _take_operands(reader: Reader, opcode: Opcode) -> tuple[StepOperand, ...]:
    first = tuple(_take(reader, operand) for operand in opcode.operands)
    return first + tuple(_take(reader, operand) for operand in _more(opcode, first))


def _more(opcode: Opcode, first: Sequence[StepOperand]) -> tuple[Operand, ...]:
    """The operands that follow because of the first one."""
    choice = first[0] if first else None
    return opcode.more.get(choice, ()) if isinstance(choice, int) else ()


def _take(reader: Reader, operand: Operand) -> StepOperand:
    if operand.kind in _LISTS:
        return tuple(reader.take(reader.u8()))
    if operand.kind is Kind.JUMP:
        return reader.i16()
    return reader.u16() if operand.kind.size > 1 else reader.u8()


def encode_plan_step(step: Step) -> bytes:
    """The bytes of one instruction; StepProblem where it has none."""
    code = PLAN_NAMES[step.name]
    opcode = OPCODES[code]
    wanted = opcode.operands + _more(opcode, step.operands)
    if len(wanted) != len(step.operands):
        raise StepProblem(miscounted(len(wanted), len(step.operands)))
    try:
        return bytes([code]) + b"".join(map(_pack, step.operands, wanted))
    except WrongOperandError as problem:
        raise StepProblem(str(problem)) from None


def _pack(value: StepOperand, operand: Operand) -> bytes:
    if operand.kind not in _LISTS:
        return pack_number(value, operand.kind.size, operand.kind is Kind.JUMP)
    if not isinstance(value, tuple):
        raise WrongOperandError("takes a list of slots where none is given")
    return pack_number(len(value), 1) + b"".join(pack_number(item, 1) for item in value)
