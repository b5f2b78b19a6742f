"""Assembler and disassembler of the programs beside the code: the tokenizer manifest and the orchestrator's plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.errors import InputError, Malformed
from lamella.base.reader import Reader
from lamella.lang.nac.assembly.nodes import ProgramStep, StepOperand
from lamella.lang.nac.check.bytecode import (
    BRANCH,
    BREAK,
    LOOP_END,
    LOOP_START,
    OPCODES,
    DecodeStop,
    Opcode,
    OperandKind,
    PlanOperand,
    decode,
)
from lamella.lang.nac.check.manifest import BEHAVES, MAGIC, TRIMS
from lamella.lang.nac.nodes import Data

# --- jumps of a plan: labels and loop ends become distances in bytes ----------------------------------------


LABEL = "FLOW_LABEL"
"""The word that names the place of the next instruction; it takes no bytes."""
PLAN_NAMES: Mapping[str, int] = MappingProxyType({opcode.name: code for code, opcode in OPCODES.items()})
"""The opcodes by name."""
_CONDITIONAL = 2
"""Operands of a branch: its condition and where it leads."""


@dataclass(slots=True)
class _JumpTargets:
    """Where things lie: the ends of steps, labels, and the loop that each break and each end belongs to."""

    ends: list[int]
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[int, int] = field(default_factory=dict)
    """By the number of a step that ends or leaves a loop, the byte it jumps to."""


def resolve_jumps(steps: Sequence[ProgramStep]) -> tuple[ProgramStep, ...]:
    """The steps with distances in place of labels and of what was left out; labels themselves are gone.

    A step that cannot be resolved stays as it is, for `encode_plan_step` to tell what is wrong with it.
    """
    places = _find_places(steps)
    resolved = (_resolve(number, step, places) for number, step in enumerate(steps))
    return tuple(step for step in resolved if step is not None)


def _find_places(steps: Sequence[ProgramStep]) -> _JumpTargets:
    places = _JumpTargets(list(accumulate(map(_size, steps))))
    open_: list[tuple[int, list[int]]] = []
    for number, step in enumerate(steps):
        code, end = PLAN_NAMES.get(step.name), places.ends[number]
        if step.name == LABEL and step.operands and isinstance(step.operands[0], str):
            places.labels.setdefault(step.operands[0], number)
        elif code == LOOP_START:
            open_.append((end, []))
        elif code == BREAK and open_:
            open_[-1][1].append(number)
        elif code == LOOP_END and open_:
            body, breaks = open_.pop()
            places.targets[number] = body
            places.targets.update(dict.fromkeys(breaks, end))
    return places


def _size(step: ProgramStep) -> int:
    """The bytes of a step, as far as they are known."""
    if step.name not in PLAN_NAMES:
        return 0
    opcode = OPCODES[PLAN_NAMES[step.name]]
    first = step.operands[0] if step.operands else None
    more = opcode.more.get(first, ()) if isinstance(first, int) else ()
    slots = sum(len(item) for item in step.operands if isinstance(item, tuple))
    return 1 + slots + sum(operand.kind.size for operand in (*opcode.operands, *more))


def _resolve(number: int, step: ProgramStep, places: _JumpTargets) -> ProgramStep | None:
    code, end = PLAN_NAMES.get(step.name), places.ends[number]
    if step.name == LABEL:
        is_first = len(step.operands) == 1 and places.labels.get(str(step.operands[0])) == number
        return None if is_first else step
    if code == BRANCH and len(step.operands) == _CONDITIONAL and isinstance(step.operands[1], str):
        label = places.labels.get(step.operands[1])
        return step if label is None else _with(step, places.ends[label] - end)
    wanted = {LOOP_END: 0, BREAK: 1}.get(code) if code is not None else None
    if wanted == len(step.operands) and number in places.targets:
        return _with(step, places.targets[number] - end)
    return step


def _with(step: ProgramStep, distance: int) -> ProgramStep:
    """The step with a distance as its last operand."""
    kept = tuple(item for item in step.operands if not isinstance(item, str))
    return replace(step, operands=(*kept, distance))


# --- operands as bytes; Malformed continues a sentence that begins with the name of the instruction ---------


def miscounted(wanted: int, given: int) -> str:
    """Why a number of operands is wrong."""
    return f"takes {wanted} operand{'s'[: wanted != 1]}; {given} {'is' if given == 1 else 'are'} given"


def pack_number(operand: StepOperand, size: int, signed: bool = False) -> bytes:
    """An operand that is a number of some bytes."""
    if not isinstance(operand, int):
        raise Malformed("takes a number where none is given")
    try:
        return operand.to_bytes(size, "little", signed=signed)
    except OverflowError:
        raise Malformed(f"holds {operand} in {size} byte{'s'[: size > 1]}") from None


def pack_text(operand: StepOperand, size: int) -> bytes:
    """An operand that is a text behind its length, which has some bytes."""
    if not isinstance(operand, str):
        raise Malformed("takes a text where none is given")
    data = operand.encode("utf-8")
    if len(data) >= 256**size:
        raise Malformed(f"holds a text of {len(data)} bytes; {256**size - 1} are the most")
    return len(data).to_bytes(size, "little") + data


# --- the tokenizer manifest: instructions by name, texts as texts -------------------------------------------


Operands = tuple[StepOperand, ...]


def decode_manifest(data: Data) -> tuple[ProgramStep, ...] | None:
    """The instructions of a manifest, or None where they would not give the same bytes again."""
    reader = Reader(data)
    found: list[ProgramStep] = []
    try:
        reader.expect(MAGIC, "a manifest")
        while reader.remaining:
            found.append(_take(reader))
        return tuple(found) if encode_manifest(found) == bytes(data) else None
    except (InputError, Malformed):
        return None


def _take(reader: Reader) -> ProgramStep:
    name = _NAMES.get(reader.u8())
    if name is None:
        raise Malformed("is no instruction")
    payload = Reader(reader.take(reader.u32()))
    operands = _RECORDS[name].take(payload)
    payload.finish(name)
    return ProgramStep(name, operands)


def encode_manifest(steps: Sequence[ProgramStep]) -> bytes:
    """The bytes of a manifest; Malformed where an instruction has none."""
    return MAGIC + b"".join(map(encode_manifest_step, steps))


def encode_manifest_step(step: ProgramStep) -> bytes:
    """The bytes of one instruction; Malformed where it has none."""
    record = _RECORDS[step.name]
    payload = record.pack(step.operands)
    return bytes([record.code]) + len(payload).to_bytes(4, "little") + payload


# --- payloads -----------------------------------------------------------------------------------------------


class _Record(NamedTuple):
    """How the payload of an instruction is read and written."""

    code: int
    take: Callable[[Reader], Operands]
    pack: Callable[[Operands], bytes]


def _texts(code: int, *sizes: int) -> _Record:
    """Some texts, whose lengths have these numbers of bytes."""

    def take(reader: Reader) -> Operands:
        return tuple(_text(reader, size) for size in sizes)

    def pack(operands: Operands) -> bytes:
        _expect(operands, len(sizes))
        return b"".join(map(pack_text, operands, sizes))

    return _Record(code, take, pack)


def _text(reader: Reader, size: int) -> str:
    return reader.string(reader.u8() if size == 1 else reader.u16())


def _expect(operands: Sequence[StepOperand], count: int) -> None:
    if len(operands) != count:
        raise Malformed(miscounted(count, len(operands)))


def _take_suffix(reader: Reader) -> Operands:
    return (_text(reader, 1),) if reader.remaining else ()


def _pack_suffix(operands: Operands) -> bytes:
    _expect(operands, min(len(operands), 1))
    return b"".join(pack_text(item, 1) for item in operands)


def _take_categories(reader: Reader) -> Operands:
    return tuple(_text(reader, 1) for _ in range(reader.u8()))


def _pack_categories(operands: Operands) -> bytes:
    return pack_number(len(operands), 1) + b"".join(pack_text(item, 1) for item in operands)


def _take_rules(reader: Reader) -> Operands:
    return tuple(_take_rule(reader) for _ in range(reader.u16()))


def _take_rule(reader: Reader) -> tuple[int | str, ...]:
    flags = reader.u8()
    found: tuple[int | str, ...] = (flags, _text(reader, 2))
    if flags & BEHAVES:
        found += (reader.u8(),)
    return (*found, _text(reader, 1)) if flags & TRIMS else found


def _pack_rules(operands: Operands) -> bytes:
    return pack_number(len(operands), 2) + b"".join(map(_pack_rule, operands))


def _pack_rule(operand: StepOperand) -> bytes:
    """`[flags, pattern]`, then the behaviour and the trim that the flags announce."""
    if not isinstance(operand, tuple) or len(operand) < 2:
        raise Malformed("takes rules as [flags, pattern, …]")
    flags = operand[0] if isinstance(operand[0], int) else 0
    behaves, trims = bool(flags & BEHAVES), bool(flags & TRIMS)
    _expect(operand, 2 + behaves + trims)
    data = pack_number(operand[0], 1) + pack_text(operand[1], 2)
    if behaves:
        data += pack_number(operand[2], 1)
    return data + pack_text(operand[-1], 1) if trims else data


def _take_template(reader: Reader) -> Operands:
    return tuple(_take_item(reader) for _ in range(reader.u8()))


def _take_item(reader: Reader) -> StepOperand:
    if not reader.u8():
        return ()
    return reader.i32() if reader.u8() else _text(reader, 1)


def _pack_template(operands: Operands) -> bytes:
    return pack_number(len(operands), 1) + b"".join(map(_pack_item, operands))


def _pack_item(operand: StepOperand) -> bytes:
    """`[]` is the place of the sequence, a number is an id, a text is a token."""
    if isinstance(operand, tuple):
        _expect(operand, 0)
        return b"\0"
    if isinstance(operand, int):
        return b"\1\1" + pack_number(operand, 4, signed=True)
    return b"\1\0" + pack_text(operand, 1)


def _fields(code: int, *kinds: str) -> _Record:
    """Numbers and texts in a row: `u8`, `u16` and `i32`, `s8` and `s16`."""

    def take(reader: Reader) -> Operands:
        return tuple(_take_field(reader, kind) for kind in kinds)

    def pack(operands: Operands) -> bytes:
        _expect(operands, len(kinds))
        return b"".join(map(_pack_field, operands, kinds))

    return _Record(code, take, pack)


def _take_field(reader: Reader, kind: str) -> int | str:
    match kind:
        case "u8":
            return reader.u8()
        case "u16":
            return reader.u16()
        case "i32":
            return reader.i32()
    return _text(reader, 1 if kind == "s8" else 2)


def _pack_field(operand: StepOperand, kind: str) -> bytes:
    size = int(kind[1:]) // 8
    if kind[0] == "s":
        return pack_text(operand, 1 if kind == "s8" else 2)
    return pack_number(operand, size, signed=kind[0] == "i")


_ADDED = ("u8", "i32", "s16")


def _take_added(reader: Reader) -> Operands:
    return tuple(tuple(_take_field(reader, kind) for kind in _ADDED) for _ in range(reader.u16()))


def _pack_added(operands: Operands) -> bytes:
    return pack_number(len(operands), 2) + b"".join(map(_pack_token, operands))


def _pack_token(operand: StepOperand) -> bytes:
    if not isinstance(operand, tuple):
        raise Malformed("takes tokens as [flags, id, text]")
    _expect(operand, len(_ADDED))
    return b"".join(map(_pack_field, operand, _ADDED))


_RECORDS: Mapping[str, _Record] = MappingProxyType(
    {
        "LOWERCASE": _texts(0x01),
        "UNICODE_NORM": _texts(0x02, 1),
        "REPLACE": _texts(0x03, 2, 2),
        "FILTER_CATEGORY": _Record(0x04, _take_categories, _pack_categories),
        "PREPEND": _texts(0x07, 2),
        "PARTITION_RULES": _Record(0x10, _take_rules, _pack_rules),
        "BYTE_ENCODE": _texts(0x15),
        "BPE_ENCODE": _Record(0x20, _take_suffix, _pack_suffix),
        "WORDPIECE_ENCODE": _texts(0x21, 1),
        "UNIGRAM_ENCODE": _texts(0x22),
        "COMPOSE": _Record(0x30, _take_template, _pack_template),
        # ours, from 0x80 on
        "ADDED_TOKENS": _Record(0x80, _take_added, _pack_added),
        "SPLIT": _fields(0x81, "u8", "u8", "s16"),
        "PREPEND_WHERE": _fields(0x82, "u8", "s16"),
        "REPLACE_PATTERN": _fields(0x83, "u8", "s16", "s16"),
        "ENCODE_OPTIONS": _fields(0x84, "u8", "u16", "s8", "s8"),
        "CHARSMAP": _fields(0x85, "s8"),
        "DECODE_BYTES": _fields(0x90),
        "DECODE_WORDPIECES": _fields(0x91, "s8", "u8"),
        "DECODE_SPACES": _fields(0x92, "s8", "u8"),
        "DECODE_FUSE": _fields(0x93),
        "DECODE_STRIP": _fields(0x94, "s8", "u16", "u16"),
        "DECODE_FALLBACK": _fields(0x95),
        "DECODE_REPLACE": _fields(0x96, "u8", "s16", "s16"),
        "DECODE_SUFFIX": _fields(0x97, "s8"),
        "DECODE_JOIN": _fields(0x98, "s8"),
    }
)
_NAMES: Mapping[int, str] = MappingProxyType({record.code: name for name, record in _RECORDS.items()})
MANIFEST_NAMES = tuple(_RECORDS)
"""The instructions of a manifest."""


# --- the plan of the orchestrator: opcodes by name, slots, constants and distances as numbers ---------------


PLAN_WORDS: tuple[str, ...] = (*PLAN_NAMES, LABEL)
"""What a line of a plan begins with."""
_LISTS = (OperandKind.READS, OperandKind.WRITES)


def decode_plan(data: Data) -> tuple[ProgramStep, ...] | None:
    """The instructions of a plan, or None where its bytes are not instructions from first to last."""
    found: list[ProgramStep] = []
    for item in decode(data):
        if isinstance(item, DecodeStop):
            return None
        found.append(ProgramStep(item.opcode.name, item.fields))
    return tuple(found)


def _more(opcode: Opcode, first: Sequence[StepOperand]) -> tuple[PlanOperand, ...]:
    """The operands that follow because of the first one."""
    choice = first[0] if first else None
    return opcode.more.get(choice, ()) if isinstance(choice, int) else ()


def encode_plan_step(step: ProgramStep) -> bytes:
    """The bytes of one instruction; Malformed where it has none."""
    if step.name == LABEL:
        raise Malformed("takes one name that no other label has")
    code = PLAN_NAMES[step.name]
    opcode = OPCODES[code]
    wanted = opcode.operands + _more(opcode, step.operands)
    if len(wanted) != len(step.operands):
        raise Malformed(miscounted(len(wanted), len(step.operands)))
    return bytes([code]) + b"".join(map(_pack, step.operands, wanted))


def _pack(value: StepOperand, operand: PlanOperand) -> bytes:
    if operand.kind is OperandKind.JUMP and isinstance(value, str):
        raise Malformed(f"jumps to the label '{value}', which the plan does not have")
    if operand.kind not in _LISTS:
        return pack_number(value, operand.kind.size, operand.kind is OperandKind.JUMP)
    if not isinstance(value, tuple):
        raise Malformed("takes a list of slots where none is given")
    return pack_number(len(value), 1) + b"".join(pack_number(item, 1) for item in value)


__all__ = [
    "MANIFEST_NAMES",
    "PLAN_NAMES",
    "PLAN_WORDS",
    "decode_manifest",
    "decode_plan",
    "encode_manifest",
    "encode_manifest_step",
    "encode_plan_step",
    "resolve_jumps",
]
