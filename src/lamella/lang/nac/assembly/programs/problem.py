"""What is wrong with an instruction of a manifest or a plan, and the numbers that their bytes are made of."""

from __future__ import annotations

from lamella.lang.nac.assembly.nodes import StepOperand


class StepProblem(Exception):
    """An instruction has no bytes; the reason continues a sentence that begins with its name."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WrongOperandError(Exception):
    """An operand is not what an instruction takes; never leaves this folder."""


def miscounted(wanted: int, given: int) -> str:
    """Why a number of operands is wrong."""
    return f"takes {wanted} operand{'s'[: wanted != 1]}; {given} {'is' if given == 1 else 'are'} given"


def pack_number(operand: StepOperand, size: int, signed: bool = False) -> bytes:
    """An operand that is a number of some bytes."""
    if not isinstance(operand, int):
        raise WrongOperandError("takes a number where none is given")
    try:
        return operand.to_bytes(size, "little", signed=signed)
    except OverflowError:
        raise WrongOperandError(f"holds {operand} in {size} byte{'s'[: size > 1]}") from None


def pack_text(operand: StepOperand, size: int) -> bytes:
    """An operand that is a text behind its length, which has some bytes."""
    if not isinstance(operand, str):
        raise WrongOperandError("takes a text where none is given")
    data = operand.encode("utf-8")
    if len(data) >= 256**size:
        raise WrongOperandError(f"holds a text of {len(data)} bytes; {256**size - 1} are the most")
    return len(data).to_bytes(size, "little") + data
