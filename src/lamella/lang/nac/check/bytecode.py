"""The instruction set of plans and the decoder of their bytecode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from lamella.lang.nac.nodes import Data

# --- the instructions of an orchestrator's plan: what follows each opcode, byte by byte ---------------------


LOAD_MODEL, LOAD_DATA, LOAD_EXTERN, LOAD_ARRAY, UNLOAD = 0x10, 0x11, 0x12, 0x14, 0x1F
PROMPT, CONSTANT, GET_ID, FORMAT, DEBUG_PRINT, WRITE = 0x02, 0x04, 0x22, 0x2A, 0x5F, 0xF0
TRAIN_STEP = 0x82
RUN_BLOCK, RUN_PARALLEL = 0x90, 0x91
LOOP_START, LOOP_END, BRANCH, BREAK = 0xA0, 0xA1, 0xA8, 0xA9
JUMPS = (LOOP_END, BRANCH, BREAK)
"""Instructions whose last operand is a distance."""
RETURN, HALT = 0xFE, 0xFF


class OperandKind(Enum):
    """What an operand is; constants, jumps and indices have two bytes, all others one."""

    READ = "a slot that is read"
    WRITE = "a slot that is written"
    READS = "a count, and as many slots that are read"
    WRITES = "a count, and as many slots that are written"
    CONSTANT = "a constant"
    OPTIONAL = "a constant, or 0 for none"
    MODEL = "a model that is used"
    LOADED = "a model that is loaded"
    JUMP = "a signed distance"
    INDEX = "an instruction of a model"
    PLAIN = "any byte"
    CHOICE = "one of a few variants"

    @property
    def size(self) -> int:
        """Bytes of the operand itself, without the slots that a count announces."""
        return 2 if self in _WIDE else 1


_WIDE = (OperandKind.CONSTANT, OperandKind.OPTIONAL, OperandKind.JUMP, OperandKind.INDEX)


@dataclass(frozen=True, slots=True)
class PlanOperand:
    """One operand; the variants that a choice has, and those that it has in newer versions."""

    kind: OperandKind
    variants: tuple[int, ...] = ()
    newer: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Opcode:
    """One instruction: its name and operands; `more` follow where the first choice is a certain variant."""

    name: str
    operands: tuple[PlanOperand, ...]
    more: Mapping[int, tuple[PlanOperand, ...]]
    is_new: bool = False


_LETTERS = MappingProxyType(
    {
        **{
            "r": OperandKind.READ,
            "w": OperandKind.WRITE,
            "r*": OperandKind.READS,
            "w*": OperandKind.WRITES,
            "c": OperandKind.CONSTANT,
        },
        **{
            "o": OperandKind.OPTIONAL,
            "m": OperandKind.MODEL,
            "l": OperandKind.LOADED,
            "j": OperandKind.JUMP,
            "u": OperandKind.PLAIN,
        },
        "i": OperandKind.INDEX,
    }
)


def _operands(text: str) -> tuple[PlanOperand, ...]:
    """Operands from their letters; digits are variants, those behind a slash are newer."""
    return tuple(_operand(word) for word in text.split())


def _operand(word: str) -> PlanOperand:
    if word in _LETTERS:
        return PlanOperand(_LETTERS[word])
    old, _, newer = word.partition("/")
    return PlanOperand(OperandKind.CHOICE, tuple(map(int, old)), tuple(map(int, newer)))


def _old(name: str, text: str, **more: str) -> Opcode:
    """An instruction that a file of any version may have; `more` names a variant like `v1`."""
    return Opcode(name, _operands(text), {int(key[1:]): _operands(value) for key, value in more.items()})


def _new(name: str, text: str) -> Opcode:
    """An instruction of versions 1.7 and 1.8."""
    return Opcode(name, _operands(text), {}, is_new=True)


OPCODES: Mapping[int, Opcode] = MappingProxyType(
    {
        PROMPT: _old("SRC_USER_PROMPT", "w 0/12 c"),
        CONSTANT: _old("SRC_CONSTANT", "w c"),
        0x05: _new("SRC_EXEC_MODE", "w"),
        LOAD_MODEL: _old("RES_LOAD_MODEL", "l c"),
        LOAD_DATA: _old("RES_LOAD_DATAFILE", "w 2 c"),
        LOAD_EXTERN: _old("RES_LOAD_EXTERN", "w 01 c"),
        0x13: _old("RES_LOAD_DYNAMIC", "w r 23"),
        LOAD_ARRAY: _new("RES_LOAD_ARRAY", "w c"),
        UNLOAD: _old("RES_UNLOAD", "01 u"),
        0x20: _old("PREPROC_ENCODE", "r r w"),
        0x21: _old("PREPROC_DECODE", "r r w"),
        GET_ID: _old("PREPROC_GET_ID", "r c w"),
        FORMAT: _old("STRING_FORMAT", "w c r*"),
        0x30: _old("TENSOR_CREATE", "w 05 012/3 r"),
        0x38: _old("TENSOR_MANIPULATE", "1/23 w r", v1="r r", v2="r", v3="r"),
        0x39: _old("TENSOR_COMBINE", "0 w r* r"),
        0x3A: _old("TENSOR_INFO", "012 w r", v1="r"),
        0x3B: _old("TENSOR_EXTRACT", "w r r"),
        0x59: _old("SYS_COPY", "w r"),
        DEBUG_PRINT: _old("SYS_DEBUG_PRINT", "r c"),
        0x60: _old("MATH_UNARY", "0/12345 w r"),
        0x61: _old("MATH_BINARY", "012/3456 w r r"),
        0x62: _old("MATH_AGGREGATE", "0 w r"),
        0x68: _old("LOGIC_COMPARE", "0123 w r r"),
        0x70: _new("ANALYSIS_TOP_K", "r r w w"),
        0x71: _new("ANALYSIS_SAMPLE", "r r r w"),
        0x80: _old("MODEL_RUN_STATIC", "m r* w*"),
        TRAIN_STEP: _new("MODEL_TRAIN_STEP", "m 01 r* r* w r u o o"),
        0x83: _new("MODEL_ZERO_GRAD", "m"),
        0x85: _new("MODEL_SAVE_WEIGHTS", "m r u"),
        RUN_BLOCK: _old("MODEL_RUN_BLOCK", "m i i r* w*"),
        RUN_PARALLEL: _old("MODEL_RUN_PARALLEL", "m i i r* w* m i i r* w*"),
        LOOP_START: _old("FLOW_LOOP_START", "r"),
        LOOP_END: _old("FLOW_LOOP_END", "j"),
        BRANCH: _old("FLOW_BRANCH_IF", "r j"),
        BREAK: _old("FLOW_BREAK_LOOP_IF", "r j"),
        0xE0: _old("SERIALIZE_OBJECT", "w r 012"),
        WRITE: _old("IO_WRITE", "r 012 u 012"),
        RETURN: _old("EXEC_RETURN", "r*"),
        HALT: _old("EXEC_HALT", ""),
    }
)
"""Every instruction, by opcode; MODEL_RUN_BLOCK and MODEL_RUN_PARALLEL are ours, for what section 9.3 speaks of."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One instruction of a plan: where it begins, what follows it, its operands with their values."""

    offset: int
    end: int
    code: int
    operands: tuple[tuple[PlanOperand, int], ...]
    """Every operand with its value; the slots of a list stand one by one."""
    fields: tuple[int | tuple[int, ...], ...]
    """The values alone, where a list of slots is one value."""

    @property
    def opcode(self) -> Opcode:
        """What the instruction is."""
        return OPCODES[self.code]

    def values(self, kind: OperandKind) -> list[int]:
        """The values of the operands of a kind."""
        return [value for operand, value in self.operands if operand.kind is kind]

    @property
    def target(self) -> int | None:
        """Where a jump leads; distances count from the end of the instruction."""
        return self.end + self.operands[-1][1] if self.code in JUMPS else None


@dataclass(frozen=True, slots=True)
class DecodeStop:
    """Where the bytecode cannot be taken apart further: an unknown opcode, or operands cut short."""

    offset: int
    code: int
    wanted: int = 0


def decode(data: Data) -> Iterator[PlanStep | DecodeStop]:
    """The instructions in their order; the last item is a Stop where the bytes are wrong."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        if view[position] not in OPCODES:
            yield DecodeStop(position, view[position])
            return
        taken = _Taking(view, position + 1)
        taken.operands_of(OPCODES[view[position]])
        if taken.position > len(view):
            yield DecodeStop(position, view[position], taken.position - position)
            return
        yield PlanStep(position, taken.position, view[position], tuple(taken.found), tuple(taken.fields))
        position = taken.position


class _Taking:
    """Operands taken one after another; bytes behind the end read as 0 and leave the position behind the end."""

    __slots__ = ("_view", "fields", "found", "position")

    def __init__(self, view: memoryview, position: int) -> None:
        self._view = view
        self.position = position
        self.found: list[tuple[PlanOperand, int]] = []
        self.fields: list[int | tuple[int, ...]] = []

    def operands_of(self, opcode: Opcode) -> None:
        """All operands of an instruction."""
        for operand in opcode.operands:
            self.operand(operand)
        for operand in opcode.more.get(self.found[0][1], ()) if opcode.more else ():
            self.operand(operand)

    def operand(self, operand: PlanOperand) -> None:
        """One operand, and the slots that it counts."""
        value = self._number(operand.kind.size, operand.kind is OperandKind.JUMP)
        if operand.kind not in (OperandKind.READS, OperandKind.WRITES):
            self.found.append((operand, value))
            self.fields.append(value)
            return
        slot = PlanOperand(OperandKind.READ if operand.kind is OperandKind.READS else OperandKind.WRITE)
        listed = tuple(self._number(1, signed=False) for _ in range(value))
        self.found += [(slot, item) for item in listed]
        self.fields.append(listed)

    def _number(self, size: int, signed: bool) -> int:
        start, self.position = self.position, self.position + size
        return int.from_bytes(self._view[start : self.position], "little", signed=signed)
