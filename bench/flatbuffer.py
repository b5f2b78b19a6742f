"""A flatbuffer written forward: tables behind their tables of fields, everything they point to behind them.

Just what TensorFlow Lite files need; the format is public (flatbuffers.dev).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

SIZES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "f": 4, "q": 8}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number in a table, with the letter that `struct` gives its type."""

    letter: str
    value: float


@dataclass(frozen=True, slots=True)
class Numbers:
    """A vector of numbers, as bytes; `align` is that of its first element."""

    data: bytes
    count: int
    align: int = 4


@dataclass(frozen=True, slots=True)
class Table:
    """A table: values by the numbers of its fields."""

    fields: Mapping[int, Value]


Value: TypeAlias = "Scalar | Numbers | Table | str | Sequence[Table]"


def integers(*values: int) -> Numbers:
    """A vector of 32-bit integers."""
    return Numbers(struct.pack(f"<{len(values)}i", *values), len(values))


def write(root: Table, identifier: bytes) -> bytes:
    """A file with one root table."""
    out = bytearray(8)
    out[4:8] = identifier
    struct.pack_into("<I", out, 0, _Writer(out).table(root))
    return bytes(out)


class _Writer:
    """Appends to the file; an offset is filled in when what it points to has been written."""

    def __init__(self, out: bytearray) -> None:
        self.out = out

    def table(self, table: Table) -> int:
        """Write a table and all it points to; the answer is its place."""
        places, size = self._layout(table)
        count = max(table.fields, default=-1) + 1
        self._pad(2, 0)
        start = len(self.out)
        room = start + 4 + 2 * count
        place = room + -room % 8
        self.out += struct.pack("<HH", 4 + 2 * count, size)
        self.out += struct.pack(f"<{count}H", *(places.get(field, 0) for field in range(count)))
        self.out += bytes(place - len(self.out) + size)
        struct.pack_into("<i", self.out, place, place - start)
        for field, value in table.fields.items():
            at = place + places[field]
            if isinstance(value, Scalar):
                number = value.value if value.letter == "f" else int(value.value)
                struct.pack_into(f"<{value.letter}", self.out, at, number)
            else:
                struct.pack_into("<I", self.out, at, self._object(value) - at)
        return place

    @staticmethod
    def _layout(table: Table) -> tuple[dict[int, int], int]:
        """Where each field stands in a table, which begins with an offset of four bytes, and its size."""
        places: dict[int, int] = {}
        size = 4
        for field, value in table.fields.items():
            width = SIZES[value.letter] if isinstance(value, Scalar) else 4
            size += -size % width
            places[field] = size
            size += width
        return places, size

    def _object(self, value: Numbers | Table | str | Sequence[Table]) -> int:
        if isinstance(value, Table):
            return self.table(value)
        if isinstance(value, str):
            data = value.encode()
            return self._vector(Numbers(data + b"\0", len(data), 4))
        if isinstance(value, Numbers):
            return self._vector(value)
        self._pad(4, 0)
        place = len(self.out)
        self.out += struct.pack("<I", len(value)) + bytes(4 * len(value))
        for number, item in enumerate(value):
            at = place + 4 + 4 * number
            struct.pack_into("<I", self.out, at, self.table(item) - at)
        return place

    def _vector(self, value: Numbers) -> int:
        self._pad(value.align, 4)
        place = len(self.out)
        self.out += struct.pack("<I", value.count) + value.data
        return place

    def _pad(self, align: int, before: int) -> None:
        self.out += bytes(-(len(self.out) + before) % align)
