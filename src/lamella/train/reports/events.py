"""TensorBoard event files: records of scalars with CRC-32C, written without the package that reads them.

A record is the length of its data as u64, the masked CRC-32C of those eight bytes as u32, the data, and the masked CRC
of the data; all little-endian. The data are an `Event` message of protocol buffers: wall time (field 1, double), step
(field 2, varint), and the version of the format (field 3) or a summary (field 5) of values (field 1), each with a tag
(field 1) and a number (field 2, float).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache

VERSION = b"brain.Event:2"
_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, reflected."""
_MASK = 0xA282EAD8


@cache
def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return tuple(found)


def crc32c(data: bytes) -> int:
    """The cyclic redundancy check of Castagnoli's polynomial."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    """A check that stays one where data hold checks of their own: rotated by 15 bits, and shifted by a constant."""
    value = crc32c(data)
    rotated = ((value >> 15) | (value << 17)) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + _MASK) & 0xFFFFFFFF)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes, texts or messages."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def first_record(wall_time: float) -> bytes:
    """The record that an event file begins with."""
    return _record(b"\x09" + struct.pack("<d", wall_time) + _field(3, VERSION))


def scalar_record(wall_time: float, step: int, values: Mapping[str, float]) -> bytes:
    """The numbers of a step, by their tags."""
    summary = b"".join(
        _field(1, _field(1, tag.encode("utf-8")) + b"\x15" + struct.pack("<f", value))
        for tag, value in values.items()
    )
    head = b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step)
    return _record(head + _field(5, summary))
