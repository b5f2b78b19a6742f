"""One record as bytes: a header of 16 bytes, then words."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from lamella.lang.nem.resolved import AttributeValue
from lamella.plan.stcb.nodes import (
    PLAIN,
    UNIT_TYPES,
    WDM,
    RecordOrigin,
    StreamUnit,
    StridedAccess,
    TaskRecord,
    bad_stream,
    op_names,
)
from lamella.plan.stcb.words import WORD, TextTable, WordReader, Words

HEADER = struct.Struct("<BBBBIHHHH")
"""Magic, unit type, operation, flags, words that follow, unit index, then the low wait, set and clear masks."""
MAGIC = 0xB5
RECORD_BYTES = HEADER.size + 8 * WORD
LOW = 0xFFFF
CHAIN, WEIGHTS, MEMMOVE, WIDE, REMOTE = 1, 2, 4, 8, 16
_KINDS = (int, float, bool, str, tuple)
"""Kinds of attribute values; the place in this list is the number of the kind."""

WriteAccess = Callable[[Words, TextTable, StridedAccess], None]
ReadAccess = Callable[[WordReader], StridedAccess]


# --- writing ------------------------------------------------------------------------------------------------


def write_record(record: TaskRecord, texts: TextTable, write_access: WriteAccess) -> bytes:
    """The bytes of a record."""
    masks = [_mask(bits) for bits in (record.wait, record.set, record.clear)]
    flags = _flags(record, masks)
    body = Words()
    body.u32(record.seq)
    if flags & WIDE:
        body.u32(*(mask >> 16 for mask in masks))
    if flags & REMOTE:
        body.u32(len(record.remote), *(engine << 16 | bit for engine, bit in record.remote))
    body.u32(len(record.src), len(record.dst))
    for access in (*record.src, *record.dst):
        write_access(body, texts, access)
    body.u32(len(record.attrs))
    for name, value in record.attrs.items():
        _write_attribute(body, texts, name, value)
    _write_origin(body, texts, record.origin)
    unit, operation = UNIT_TYPES.index(record.unit.type), op_names().index(record.op)
    low = [mask & LOW for mask in masks]
    size = len(body.data) // WORD
    return HEADER.pack(MAGIC, unit, operation, flags, size, record.unit.index, *low) + bytes(body.data)


def _mask(bits: Iterable[int]) -> int:
    return sum(1 << bit for bit in bits)


def _flags(record: TaskRecord, masks: list[int]) -> int:
    return (
        CHAIN * record.chain
        | WEIGHTS * (record.path == WDM)
        | MEMMOVE * record.memmove
        | WIDE * any(mask > LOW for mask in masks)
        | REMOTE * bool(record.remote)
    )


def _write_attribute(body: Words, texts: TextTable, name: str, value: AttributeValue) -> None:
    kind = _KINDS.index(type(value))
    body.u32(texts.number(name), kind)
    if isinstance(value, str):
        body.u32(texts.number(value))
    elif isinstance(value, tuple):
        body.u32(len(value))
        body.i64(value)
    elif isinstance(value, float):
        body.f64((value,))
    else:
        body.i64((value,))


def _write_origin(body: Words, texts: TextTable, origin: RecordOrigin) -> None:
    body.u32(origin.line, *(texts.number(text) for text in (origin.token, origin.debug, origin.profile)))
    body.u32(len(origin.iteration))
    for name, value in origin.iteration:
        body.u32(texts.number(name))
        body.i64((value,))


# --- reading ------------------------------------------------------------------------------------------------


def read_record(words: WordReader, read_access: ReadAccess) -> TaskRecord:
    """What `write_record` wrote; a record that says the same in other bytes is refused."""
    start = words.reader.position
    header = words.reader.take(HEADER.size, "a record")
    magic, unit, operation, flags, size, index, *low = HEADER.unpack(header)
    if magic != MAGIC or flags > 2 * REMOTE - 1:
        raise words.wrong("this is no record")
    seq = words.u32()
    high = [words.u32() for _ in range(3)] if flags & WIDE else [0, 0, 0]
    if flags & WIDE and (max(high) > LOW or not any(high)):
        raise words.wrong("the high masks are not of 16 bits")
    remote = _read_remote(words) if flags & REMOTE else ()
    src, dst = _read_operands(words, read_access)
    wait, sets, clear = (_bits(one | other << 16) for one, other in zip(low, high, strict=True))
    record = TaskRecord(
        seq=seq,
        unit=StreamUnit(words.pick(unit, UNIT_TYPES, "a unit"), index),
        op=words.pick(operation, op_names(), "an operation"),
        wait=wait,
        set=sets,
        clear=clear,
        remote=remote,
        src=src,
        dst=dst,
        attrs=_read_attributes(words),
        chain=bool(flags & CHAIN),
        path=WDM if flags & WEIGHTS else PLAIN,
        memmove=bool(flags & MEMMOVE),
        origin=_read_origin(words),
    )
    if words.reader.position - start != HEADER.size + size * WORD:
        raise words.wrong("a record is longer or shorter than its header says")
    return record


def _bits(mask: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)


def _read_remote(words: WordReader) -> tuple[tuple[int, int], ...]:
    count = words.count(WORD, "remote bits")
    if not count:
        raise words.wrong("the remote bits are missing")
    found = [words.u32() for _ in range(count)]
    return tuple((item >> 16, item & LOW) for item in found)


def _read_operands(
    words: WordReader, read_access: ReadAccess
) -> tuple[tuple[StridedAccess, ...], tuple[StridedAccess, ...]]:
    sources, targets = words.u32(), words.u32()
    words.reader.count(sources + targets, 36, "operands")
    found = tuple(read_access(words) for _ in range(sources + targets))
    return found[:sources], found[sources:]


def _read_attributes(words: WordReader) -> dict[str, AttributeValue]:
    count = words.count(3 * WORD, "attributes")
    found = dict(_read_attribute(words) for _ in range(count))
    if len(found) < count:
        raise words.wrong("an attribute is given twice")
    return found


def _read_attribute(words: WordReader) -> tuple[str, AttributeValue]:
    name, kind = words.named(), words.u32()
    if kind >= len(_KINDS):
        raise words.wrong(f"{kind} is not a kind of attribute")
    if _KINDS[kind] is str:
        return name, words.named()
    if _KINDS[kind] is tuple:
        return name, words.i64s(words.u32())
    if _KINDS[kind] is float:
        return name, _finite(words.f64s(1)[0])
    (value,) = words.i64s(1)
    if _KINDS[kind] is bool and value not in (0, 1):
        raise words.wrong(f"{value} is not a flag")
    return name, bool(value) if _KINDS[kind] is bool else value


def _finite(value: float) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise bad_stream("an attribute is not a finite number")
    return value


def _read_origin(words: WordReader) -> RecordOrigin:
    line, token, debug, profile = words.u32(), words.named(), words.named(), words.named()
    count = words.count(3 * WORD, "an iteration")
    iteration = tuple((words.named(), words.i64s(1)[0]) for _ in range(count))
    if len(dict(iteration)) < count:
        raise words.wrong("a loop variable is given twice")
    return RecordOrigin(line, token, iteration, debug, profile)
