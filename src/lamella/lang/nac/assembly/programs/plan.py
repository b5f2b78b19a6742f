"""The plan of the orchestrator: opcodes by name, slots and constants as numbers, distances as numbers or in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.lang.nac.assembly.nodes import Step, StepOperand
from lamella.lang.nac.assembly.programs.jumps import LABEL
from lamella.lang.nac.assembly.programs.problem import StepProblem, WrongOperandError, miscounted, pack_number
from lamella.lang.nac.check.sections.decode import Stop, decode
from lamella.lang.nac.check.sections.opcodes import OPCODES, Kind, Opcode, Operand
from lamella.lang.nac.nodes import Data

PLAN_NAMES: Mapping[str, int] = MappingProxyType({opcode.name: code for code, opcode in OPCODES.items()})
"""The opcodes by name."""
PLAN_WORDS: tuple[str, ...] = (*PLAN_NAMES, LABEL)
"""What a line of a plan begins with."""
_LISTS = (Kind.READS, Kind.WRITES)


def decode_plan(data: Data) -> tuple[Step, ...] | None:
    """The instructions of a plan, or None where its bytes are not instructions from first to last."""
    found: list[Step] = []
    for item in decode(data):
        if isinstance(item, Stop):
            return None
        found.append(Step(item.opcode.name, item.fields))
    return tuple(found)


def _more(opcode: Opcode, first: Sequence[StepOperand]) -> tuple[Operand, ...]:
    """The operands that follow because of the first one."""
    choice = first[0] if first else None
    return opcode.more.get(choice, ()) if isinstance(choice, int) else ()


def encode_plan_step(step: Step) -> bytes:
    """The bytes of one instruction; StepProblem where it has none."""
    if step.name == LABEL:
        raise StepProblem("takes one name that no other label has")
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
    if operand.kind is Kind.JUMP and isinstance(value, str):
        raise WrongOperandError(f"jumps to the label '{value}', which the plan does not have")
    if operand.kind not in _LISTS:
        return pack_number(value, operand.kind.size, operand.kind is Kind.JUMP)
    if not isinstance(value, tuple):
        raise WrongOperandError("takes a list of slots where none is given")
    return pack_number(len(value), 1) + b"".join(pack_number(item, 1) for item in value)
