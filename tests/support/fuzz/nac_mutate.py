"""NAC files that were right once: fields set to what they hardly can be, records left out, doubled and exchanged.

The places of records come from the spans of a file that was read; the table of sections is kept right where bytes are
moved, so that a mutant is wrong in one place and not everywhere behind it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import chain

from lamella.base.source import Span
from lamella.lang.nac.nodes import File
from lamella.lang.nac.parse import parse

EDGES = {
    1: (0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 20, 31, 127, 128, 200, 255),
    2: (0, 1, 2, 255, 256, 32767, 32768, 65534, 65535),
    4: (0, 1, 2, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
    8: (0, 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
}
"""Values at the ends of fields, by bytes."""
HEADER, TABLE, SLOTS = 88, 12, 11

Mutation = Callable[[bytearray, "Places", random.Random], None]


class Places:
    """The byte ranges of the records of a file."""

    def __init__(self, file: File) -> None:
        found = (getattr(file, field.name) for field in fields(File))
        records = chain.from_iterable(
            item for item in found if isinstance(item, tuple) and not isinstance(item, Span)
        )
        spans: list[Span] = [record.span for record in records]
        self.ranges = [(span.start, span.end) for span in spans if span.end > span.start]

    def pick(self, data: bytearray, chance: random.Random) -> tuple[int, int]:
        """A record, or any few bytes where there is none left."""
        start, end = chance.choice(self.ranges) if self.ranges else (HEADER, HEADER + 4)
        return min(start, len(data)), min(end, len(data))


def set_field(data: bytearray, places: Places, chance: random.Random) -> None:
    """Put a value that stands at the end of its range at the start of a record or within it."""
    size = chance.choice((1, 1, 2, 2, 4, 8))
    start, end = places.pick(data, chance) if chance.random() < 0.8 else (0, HEADER)
    place = chance.randrange(start, max(end, start + 1))
    data[place : place + size] = chance.choice(EDGES[size]).to_bytes(size, "little")


def nudge(data: bytearray, places: Places, chance: random.Random) -> None:
    """Make one byte a little larger or smaller."""
    start, end = places.pick(data, chance)
    place = chance.randrange(start, max(end, start + 1))
    if place < len(data):
        data[place] = (data[place] + chance.choice((-1, 1, 2, 16))) % 256


def leave_out(data: bytearray, places: Places, chance: random.Random) -> None:
    """Take a record away."""
    splice(data, *places.pick(data, chance), b"")


def double(data: bytearray, places: Places, chance: random.Random) -> None:
    """Put a record twice."""
    start, end = places.pick(data, chance)
    splice(data, end, end, bytes(data[start:end]))


def exchange(data: bytearray, places: Places, chance: random.Random) -> None:
    """Put a record in the place of another."""
    start, end = places.pick(data, chance)
    other = places.pick(data, chance)
    splice(data, start, end, bytes(data[slice(*other)]))


def move_section(data: bytearray, places: Places, chance: random.Random) -> None:
    """Let a slot of the table lead elsewhere."""
    slot = TABLE + 8 * chance.randrange(SLOTS)
    value = chance.choice((*EDGES[8], chance.randrange(len(data) + 1), HEADER, len(data) - 1))
    data[slot : slot + 8] = value.to_bytes(8, "little")


def turn_version(data: bytearray, places: Places, chance: random.Random) -> None:
    """Another version byte or another quantisation byte."""
    data[3:5] = bytes([chance.choice((1, 2)), chance.choice((0, 0x80, 0xC0, 0x40, 0x84, 5))])


def cut_off(data: bytearray, places: Places, chance: random.Random) -> None:
    """End the file early."""
    del data[chance.randrange(len(data)) :]


def splice(data: bytearray, start: int, end: int, new: bytes) -> None:
    """Put bytes in the place of others; sections behind them move."""
    data[start:end] = new
    table = TABLE + 8 * (SLOTS if data[3:4] == b"\2" else SLOTS - 2)
    for slot in range(TABLE, table if len(data) >= table else 0, 8):
        (offset,) = struct.unpack_from("<Q", data, slot)
        if end <= offset < 1 << 62:
            struct.pack_into("<Q", data, slot, max(0, offset + len(new) - (end - start)))


MUTATIONS: Sequence[Mutation] = (
    *(set_field, set_field, set_field, nudge, nudge, leave_out, double, exchange),
    *(move_section, turn_version, cut_off),
)


def mutants(files: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Files made from right ones by one to three mutations."""
    chance = random.Random(seed)
    known = [(data, Places(parse(data).file)) for data in files]
    for _ in range(count):
        data, places = chance.choice(known)
        mutant = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 3))):
            if mutant:
                chance.choice(MUTATIONS)(mutant, places, chance)
        yield bytes(mutant)
