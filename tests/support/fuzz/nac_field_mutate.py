"""Mutations that know what a field means: counts become huge, ids meet, sections overlap, names turn hostile.

One to three mutations make a mutant. Those that move bytes come last, so that the others find their fields.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping, Sequence

from tests.support.fuzz.nac_fields import Field, sections, walk
from tests.support.fuzz.nac_mutate import EDGES, splice

Seed = tuple[bytes, list[Field]]
Mutation = Callable[[bytearray, list[Field], random.Random], None]

SCALES = [struct.pack("<f", value) for value in (0.0, -0.0, -1.0, math.inf, math.nan, 1e-45, 3e38)]
TEXTS: Sequence[bytes] = (
    *(b"\xff\xfe", b"a\0b", b"\xed\xa0\x80", b"\xc3", b"../../x", b"/etc/x", b"C:\\x", b"CON", b"..", b""),
    *(b"\x1b]0;x\x07\x1b[2J", b"\xe2\x80\xae", b"%s%n{0.__class__}", b'"\\', b"; .ops", b"\n", b"T" * 255),
    *(b"TTTT", b"iiii", b"QKVMBWTPASifbsc", b"aten.add.Tensor", b"nac.view", b"lamella.json"),
)
WORDS: Mapping[str, Sequence[int]] = {
    "version": (0, 1, 2, 3, 255),
    "quantisation": (0, 4, 5, 0x40, 0x7F, 0x80, 0x84, 0x85, 0xC0, 0xFF),
    "operation": (0, 1, 2, 3, 4, 6, 7, 9, 10, 11, 17, 19, 20, 31, 200, 201, 202, 255),
    "variant": (0, 1, 2, 3, 4, 5, 6, 254, 255),
    "action": (0, 10, 11, 15, 20, 25, 30, 40, 41, 255),
    "type": (0, 1, 2, 3, 4, 5, 6, 7, 255),
    "dtype": (0, 1, 2, 7, 8, 9, 10, 255),
    "rank": (0, 1, 2, 7, 8, 9, 32, 64, 65, 255),
    "method": (0, 1, 2, 3, 4, 5, 255),
    "dim": (0, 1, 2, 3, 63, 64, 65, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
    "offset": (0, 1, 2, 7, 32767, 0x8000, 0x8001, 0xFFFF, 0xFFFE, 0xFFF9),
}
"""Values that a field of each kind can hardly have, or has in other places."""


def set_value(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """Give a field a value at the end of its range, or one of its neighbours."""
    kind = chance.choice(sorted({item.kind for item in fields}))
    item = chance.choice([field for field in fields if field.kind == kind])
    _put(data, item, _value(data, item, chance))


def _value(data: bytearray, item: Field, chance: random.Random) -> bytes:
    """Another content of the same length."""
    if item.kind == "scale":
        return chance.choice(SCALES)
    if item.kind == "text":
        return chance.choice(TEXTS).ljust(item.size, b"x")[: item.size]
    if item.kind in ("program", "bytes", "value", "magic", "tag", "reserved"):
        return _touched(data, item, chance)
    old = int.from_bytes(data[item.start : item.end], "little")
    values = [*WORDS.get(item.kind, EDGES[item.size]), old - 1, old + 1, 2 * old]
    return (chance.choice(values) % (1 << 8 * item.size)).to_bytes(item.size, "little")


def _touched(data: bytearray, item: Field, chance: random.Random) -> bytes:
    """The content with a few bytes replaced."""
    found = bytearray(data[item.start : item.end])
    for _ in range(chance.randrange(1, 4) if found else 0):
        found[chance.randrange(len(found))] = chance.choice((*EDGES[1], chance.randrange(256)))
    return bytes(found)


def _put(data: bytearray, item: Field, value: bytes) -> None:
    data[item.start : item.end] = value


def swap(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """Exchange the contents of two fields of one kind and size."""
    first = chance.choice(fields)
    second = chance.choice([item for item in fields if (item.kind, item.size) == (first.kind, first.size)])
    contents = bytes(data[first.start : first.end]), bytes(data[second.start : second.end])
    _put(data, second, contents[0])
    _put(data, first, contents[1])


def make_huge(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """Let a count, a length or a dimension be as large as can be."""
    item = chance.choice([field for field in fields if field.kind in ("count", "length", "dim", "rank")])
    _put(data, item, b"\xff" * (item.size - 1) + chance.choice((b"\xff", b"\x7f", b"\x0f")))


def make_equal(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """Give two records of a section one id, one tick or one target."""
    kind = chance.choice(("id", "tick", "target"))
    items = [field for field in fields if field.kind == kind]
    if items:
        first = chance.choice(items)
        second = chance.choice([item for item in items if item.section == first.section])
        _put(data, second, bytes(data[first.start : first.end]))


def misplace(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """Let a section begin in the header, behind the end, where another one does or in its middle."""
    _, start, end = chance.choice(list(sections(fields)))
    slot = chance.choice([item for item in fields if item.kind == "place"])
    inside = chance.randrange(start, end)
    places = (0, 1, 12, 87, start, inside, end, len(data), len(data) - 1, len(data) - 4, *EDGES[8])
    _put(data, slot, (chance.choice(places) % (1 << 64)).to_bytes(8, "little"))


# --- mutations that move bytes ------------------------------------------------------------------------------


def cut(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """End the file before, in or behind a field."""
    item = chance.choice(fields)
    del data[chance.choice((item.start, item.end, item.start + item.size // 2)) :]


def double_section(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """Put a section a second time, at the end or directly behind itself; its slot may name either."""
    _, start, end = chance.choice(list(sections(fields)))
    copy, place = bytes(data[start:end]), chance.choice((end, len(data)))
    splice(data, place, place, copy)
    if chance.random() < 0.5:
        slots = [item for item in fields if item.kind == "place"]
        slot = next(item for item in slots if _leads_to(data, item, start))
        _put(data, slot, place.to_bytes(8, "little"))


def _leads_to(data: bytearray, slot: Field, place: int) -> bool:
    return int.from_bytes(data[slot.start : slot.end], "little") == place or slot.start >= 76


def rename(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """Give a name or a string any text, with the length that belongs to it."""
    at = chance.choice([place for place, item in enumerate(fields) if item.kind == "text"])
    item, length = fields[at], fields[at - 1]
    text = chance.choice(TEXTS) if chance.random() < 0.8 else chance.randbytes(chance.randrange(40))
    if length.kind == "length":
        _put(data, length, len(text).to_bytes(length.size, "little"))
    splice(data, item.start, item.end, text)


def remove(data: bytearray, fields: list[Field], chance: random.Random) -> None:
    """Take a field away, or put bytes before it."""
    item = chance.choice([field for field in fields if field.section != "header"])
    start, end = chance.choice(((item.start, item.end), (item.start, item.start)))
    splice(data, start, end, b"" if end > start else chance.randbytes(chance.choice((1, 2, 4, 8))))


STILL: Sequence[Mutation] = (*[set_value] * 5, swap, make_huge, make_equal, misplace)
MOVING: Sequence[Mutation] = (cut, double_section, rename, rename, remove)


def known(files: Sequence[bytes]) -> list[Seed]:
    """Right files with their fields."""
    return [(data, walk(data)) for data in files]


def mutate(seeds: Sequence[Seed], chance: random.Random) -> bytes:
    """A file with one to three mutations."""
    data, fields = chance.choice(seeds)
    mutant = bytearray(data)
    moving = chance.random() < 0.3
    for _ in range(chance.choice((1, 1, 2, 3)) - moving):
        chance.choice(STILL)(mutant, fields, chance)
    if moving:
        chance.choice(MOVING)(mutant, fields, chance)
    return bytes(mutant)
