"""The wire format of Protocol Buffers: fields of a message where they lie in the bytes, and messages as bytes.

Reading copies nothing and never goes into a message before it is asked for, so the work is linear in the bytes that
are looked at. Every fault of untrusted bytes is an InputError with its offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from lamella.base.errors import InputError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types in use; groups (3 and 4) are refused."""
_LONGEST = 10
"""Bytes of the longest variable-length integer."""
_MASK = (1 << 64) - 1
_SIGN = 1 << 63
_KINDS = {VARINT: "an integer", FIXED64: "8 bytes", BYTES: "a block", FIXED32: "4 bytes"}

Buffer = bytes | memoryview


class Field(NamedTuple):
    """One field of a message: its number, its wire type, and where its value begins and ends.

    `value` is the number of an integer; of any other type it is 0.
    """

    number: int
    wire: int
    value: int
    start: int
    end: int


def _refuse(message: str, offset: int) -> NoReturn:
    raise InputError(message, offset)


def read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """A variable-length integer, as an unsigned number of 64 bits, and where the next thing begins."""
    value = shift = 0
    start = position
    while position < end and position - start < _LONGEST:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _MASK, position
        shift += 7
    _refuse("an integer has no end", start)


def read_fields(data: memoryview, start: int, end: int) -> Iterator[Field]:
    """The fields of the message between two offsets, in the order of the file."""
    position = start
    while position < end:
        begin = position
        tag = data[position]
        if tag < 128:
            position += 1
        else:
            tag, position = read_varint(data, position, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            _refuse("a field has the number 0", begin)
        if wire == BYTES:
            size, first = read_varint(data, position, end)
            position = first + size
            if position > end:
                _refuse(f"a field of {size} bytes is cut off after {end - first}", begin)
            yield Field(number, wire, 0, first, position)
        elif wire == VARINT:
            value, last = read_varint(data, position, end)
            yield Field(number, wire, value, position, last)
            position = last
        elif wire in (FIXED32, FIXED64):
            last = position + (4 if wire == FIXED32 else 8)
            if last > end:
                _refuse("a number is cut off", begin)
            yield Field(number, wire, 0, position, last)
            position = last
        else:
            _refuse(f"a field has the wire type {wire}, which messages of this kind do not have", begin)


def must_be(field: Field, wire: int, what: str) -> None:
    """Refuse a field of another wire type."""
    if field.wire != wire:
        _refuse(f"{what} should be {_KINDS[wire]} and is {_KINDS[field.wire]}", field.start)


def as_signed(value: int) -> int:
    """A number of 64 bits as two's complement."""
    return value - (1 << 64) if value & _SIGN else value


def integer_of(field: Field, what: str) -> int:
    """The signed integer that a field is."""
    must_be(field, VARINT, what)
    return as_signed(field.value)


def float_of(data: memoryview, field: Field, what: str) -> float:
    """The single-precision number that a field is."""
    must_be(field, FIXED32, what)
    value: float = struct.unpack_from("<f", data, field.start)[0]
    return value


def bytes_of(data: memoryview, field: Field, what: str) -> memoryview:
    """The bytes that a field is, where they lie."""
    must_be(field, BYTES, what)
    return data[field.start : field.end]


def text_of(data: memoryview, field: Field, what: str) -> str:
    """The text that a field is: strict UTF-8 without NUL."""
    must_be(field, BYTES, what)
    try:
        text = str(data[field.start : field.end], "utf-8")
    except UnicodeDecodeError as problem:
        _refuse(f"{what} is not UTF-8", field.start + problem.start)
    if "\0" in text:
        _refuse(f"{what} holds a NUL character", field.start)
    return text


def integers_of(data: memoryview, field: Field, what: str) -> list[int]:
    """The signed integers of a repeated field: one alone, or many in a block."""
    if field.wire == VARINT:
        return [as_signed(field.value)]
    must_be(field, BYTES, what)
    found: list[int] = decode_varints(data[field.start : field.end], field.start).tolist()
    return found


def floats_of(data: memoryview, field: Field, what: str) -> list[float]:
    """The single-precision numbers of a repeated field: one alone, or many in a block."""
    if field.wire == FIXED32:
        return [float_of(data, field, what)]
    must_be(field, BYTES, what)
    if (field.end - field.start) % 4:
        _refuse(f"{what} has {field.end - field.start} bytes, which are no whole numbers", field.start)
    found: list[float] = np.frombuffer(data[field.start : field.end], "<f4").tolist()
    return found


def decode_varints(block: memoryview, offset: int = 0) -> npt.NDArray[np.int64]:
    """The integers of a block in a row, as two's complement of 64 bits; the offset is that of the block in the file."""
    raw = np.frombuffer(block, np.uint8)
    if not len(raw):
        return np.empty(0, np.int64)
    last = np.flatnonzero(raw < 128)
    if not len(last) or last[-1] != len(raw) - 1:
        _refuse("an integer has no end", offset + len(raw) - 1)
    first = np.concatenate(([0], last[:-1] + 1))
    lengths = last - first + 1
    longest = int(lengths.max())
    if longest > _LONGEST:
        _refuse("an integer has no end", offset + int(first[int(lengths.argmax())]))
    found = np.zeros(len(last), np.uint64)
    for place in range(longest):
        there = lengths > place
        part = (raw[first[there] + place] & np.uint8(127)).astype(np.uint64)
        found[there] |= part << np.uint64(7 * place)
    return found.view(np.int64)


# --- writing --------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """An integer with as many bytes as it needs; negative ones take ten."""
    rest = value & _MASK
    found = bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    found.append(rest)
    return bytes(found)


class Message:
    """A message under construction: fields in the order of the calls, large blocks kept as they are given."""

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[Buffer] = []
        self.size = 0
        """Bytes of the message so far."""

    def raw(self, part: Buffer) -> None:
        """Bytes that are whole fields already."""
        self._parts.append(part)
        self.size += len(part)

    def parts(self) -> Iterable[Buffer]:
        """The bytes of the message, piece by piece: a file is written without joining them."""
        return self._parts

    def to_bytes(self) -> bytes:
        """The bytes of the message in one piece."""
        return b"".join(self._parts)

    def integer(self, number: int, value: int) -> None:
        """An integer field."""
        self.raw(varint(number << 3 | VARINT) + varint(value))

    def single(self, number: int, value: float) -> None:
        """A field of a single-precision number; what it cannot hold becomes an infinity."""
        self.raw(varint(number << 3 | FIXED32) + np.float32(value).astype("<f4").tobytes())

    def block(self, number: int, value: Buffer) -> None:
        """A field of bytes, which are not copied."""
        data = memoryview(value).cast("B") if isinstance(value, memoryview) else value
        self.raw(varint(number << 3 | BYTES) + varint(len(data)))
        self.raw(data)

    def text(self, number: int, value: str) -> None:
        """A field of text."""
        self.block(number, value.encode())

    def optional_text(self, number: int, value: str) -> None:
        """A field of text that is left out where there is none."""
        if value:
            self.text(number, value)

    def message(self, number: int, value: Message) -> None:
        """A field that is a message, whose pieces are taken over."""
        self.raw(varint(number << 3 | BYTES) + varint(value.size))
        self._parts += value._parts
        self.size += value.size

    def integers(self, number: int, values: Iterable[int]) -> None:
        """A repeated field of integers, in one block; nothing where there are none."""
        block = b"".join(map(varint, values))
        if block:
            self.block(number, block)

    def singles(self, number: int, values: Iterable[float]) -> None:
        """A repeated field of single-precision numbers, in one block; nothing where there are none."""
        found = np.asarray(list(values), "<f4")
        if len(found):
            self.block(number, found.tobytes())
