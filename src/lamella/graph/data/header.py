"""The 128 bytes in front of a tensor file: what they say, and whether it can be true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NoReturn

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.limits import OutOfRange, product
from lamella.base.reader import Reader
from lamella.base.shape import bytes_for
from lamella.base.source import Source, Span
from lamella.lang.skriptnd.rules import data as rules

SIZE = 128
MOST_EXTENTS = 8
LARGEST_WORD = (1 << 32) - 1
_MAGIC = b"\x4e\xef"
_RESERVED_WORDS = 19


class Item(IntEnum):
    """What the bits of an item mean, by the code of the format."""

    FLOAT = 0
    UNSIGNED = 1
    QUANTIZED_UNSIGNED = 2
    QUANTIZED_SIGNED = 3
    SIGNED = 4
    BOOL = 5

    @property
    def is_code(self) -> bool:
        """Whether an item is the code of a quantised value."""
        return self in (Item.QUANTIZED_UNSIGNED, Item.QUANTIZED_SIGNED)

    @property
    def is_signed(self) -> bool:
        """Whether an item is an integer in two's complement."""
        return self in (Item.QUANTIZED_SIGNED, Item.SIGNED)


_WIDTHS: Mapping[Item, tuple[int, ...]] = MappingProxyType(
    {Item.FLOAT: (16, 32, 64), Item.BOOL: (1, 8)}
    | dict.fromkeys((Item.UNSIGNED, Item.SIGNED), tuple(range(1, 65)))
    | dict.fromkeys((Item.QUANTIZED_UNSIGNED, Item.QUANTIZED_SIGNED), tuple(range(1, 65)))
)


@dataclass(frozen=True, slots=True)
class Header:
    """The extents of a tensor and how its items are stored."""

    extents: tuple[int, ...]
    item: Item
    bits: int

    @property
    def count(self) -> int:
        """How many items follow."""
        return product(self.extents)

    @property
    def length(self) -> int:
        """How many bytes the items take."""
        return bytes_for(self.count, self.bits)


def whole(name: str) -> Span:
    """The place of findings in a file of bytes; the sentences say the byte."""
    return Span(Source(name, ""), 0, 0)


def refuse(finding: Diagnostic) -> NoReturn:
    """Leave with one finding."""
    raise LamellaError([finding])


def read_header(data: bytes | memoryview, name: str) -> Header:
    """The header of a whole file, once everything it says agrees with the file; LamellaError otherwise."""
    if len(data) < SIZE:
        refuse(rules.SHORT_HEADER.at(whole(name), size=len(data)))
    reader = Reader(data)
    magic = reader.take(2)
    if magic != _MAGIC:
        refuse(rules.WRONG_MAGIC.at(whole(name), found=magic.hex(" ")))
    major, minor = reader.u8(), reader.u8()
    if (major, minor) != (1, 0):
        refuse(rules.WRONG_VERSION.at(whole(name), major=major, minor=minor))
    length = reader.u32()
    if length != len(data) - SIZE:
        refuse(rules.WRONG_LENGTH.at(whole(name), length=length, found=len(data) - SIZE))
    extents = _read_extents(reader, name)
    item, bits = _read_item(reader, name)
    header = Header(extents, item, bits)
    _check_volume(header, length, name)
    return header


def _read_extents(reader: Reader, name: str) -> tuple[int, ...]:
    rank = reader.u32()
    if rank > MOST_EXTENTS:
        refuse(rules.WRONG_RANK.at(whole(name), rank=rank))
    found = []
    for axis in range(MOST_EXTENTS):
        offset, extent = reader.position, reader.u32()
        if axis < rank and extent == 0:
            refuse(rules.WRONG_EXTENT.at(whole(name), offset=offset, extent=extent, axis=axis))
        if axis >= rank and extent:
            refuse(rules.UNUSED_EXTENT.at(whole(name), offset=offset, extent=extent, axis=axis, rank=rank))
        found.append(extent)
    return tuple(found[:rank])


def _read_item(reader: Reader, name: str) -> tuple[Item, int]:
    bits, code, vendor = reader.u32(), reader.u16(), reader.u16()
    if vendor or code not in list(Item):
        refuse(rules.WRONG_ITEM.at(whole(name), code=code, vendor=vendor))
    item = Item(code)
    # Files of the first version mark signed integers by the first reserved word.
    first = reader.u32()
    if first and item is not Item.UNSIGNED:
        refuse(rules.WRONG_RESERVED.at(whole(name), offset=reader.position - 4, value=first))
    for _ in range(_RESERVED_WORDS - 1):
        word = reader.u32()
        if word:
            refuse(rules.WRONG_RESERVED.at(whole(name), offset=reader.position - 4, value=word))
    if bits not in _WIDTHS[item]:
        refuse(rules.WRONG_BITS.at(whole(name), bits=bits, kind=_words(item), widths=_widths(item)))
    return (Item.SIGNED if first else item), bits


def _words(item: Item) -> str:
    return item.name.lower().replace("_", " ")


def _widths(item: Item) -> str:
    widths = _WIDTHS[item]
    return "1 to 64" if len(widths) == 64 else f"{', '.join(map(str, widths[:-1]))} or {widths[-1]}"


def _check_volume(header: Header, length: int, name: str) -> None:
    try:
        needed: int | str = header.length
    except OutOfRange:
        needed = "more than 2^60"
    if needed != length:
        shape = list(header.extents)
        refuse(
            rules.WRONG_VOLUME.at(whole(name), shape=shape, bits=header.bits, needed=needed, length=length)
        )


def header_bytes(header: Header) -> bytes:
    """The header as it stands in a file; the caller has seen that every number fits."""
    words = [header.length, len(header.extents), *header.extents]
    words += [0] * (MOST_EXTENTS - len(header.extents))
    words += [header.bits, int(header.item), *[0] * _RESERVED_WORDS]
    return _MAGIC + b"\x01\x00" + b"".join(word.to_bytes(4, "little") for word in words)
