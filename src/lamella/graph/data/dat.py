"""Tensor files (`.dat`): one array each, with the meaning of its items."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from lamella.base import dtype as types
from lamella.base.arrays import Array, element_type_of
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import Kind
from lamella.base.limits import DEFAULT, Limits, OutOfRange, product
from lamella.base.paths import read_bytes, shown
from lamella.base.reader import Reader
from lamella.base.records import dataclass
from lamella.base.shape import bytes_for
from lamella.base.source import Source, Span
from lamella.base.writer import write_bytes
from lamella.lang.skriptnd.rules import data as rules

# --- the 128 bytes in front of a tensor file: what they say, and whether it can be true ---------------------


SIZE = 128
MOST_EXTENTS = 8
LARGEST_WORD = (1 << 32) - 1
_MAGIC = b"\x4e\xef"
_RESERVED_WORDS = 19


class DatItem(IntEnum):
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
        return self in (DatItem.QUANTIZED_UNSIGNED, DatItem.QUANTIZED_SIGNED)

    @property
    def is_signed(self) -> bool:
        """Whether an item is an integer in two's complement."""
        return self in (DatItem.QUANTIZED_SIGNED, DatItem.SIGNED)


_WIDTHS: Mapping[DatItem, tuple[int, ...]] = MappingProxyType(
    {DatItem.FLOAT: (16, 32, 64), DatItem.BOOL: (1, 8)}
    | dict.fromkeys((DatItem.UNSIGNED, DatItem.SIGNED), tuple(range(1, 65)))
    | dict.fromkeys((DatItem.QUANTIZED_UNSIGNED, DatItem.QUANTIZED_SIGNED), tuple(range(1, 65)))
)


@dataclass(frozen=True, slots=True)
class DatHeader:
    """The extents of a tensor and how its items are stored."""

    extents: tuple[int, ...]
    item: DatItem
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


def read_header(data: bytes | memoryview, name: str) -> DatHeader:
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
    header = DatHeader(extents, item, bits)
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


def _read_item(reader: Reader, name: str) -> tuple[DatItem, int]:
    bits, code, vendor = reader.u32(), reader.u16(), reader.u16()
    if vendor or code not in list(DatItem):
        refuse(rules.WRONG_ITEM.at(whole(name), code=code, vendor=vendor))
    item = DatItem(code)
    # Files of the first version mark signed integers by the first reserved word.
    first = reader.u32()
    if first and item is not DatItem.UNSIGNED:
        refuse(rules.WRONG_RESERVED.at(whole(name), offset=reader.position - 4, value=first))
    for _ in range(_RESERVED_WORDS - 1):
        word = reader.u32()
        if word:
            refuse(rules.WRONG_RESERVED.at(whole(name), offset=reader.position - 4, value=word))
    if bits not in _WIDTHS[item]:
        refuse(rules.WRONG_BITS.at(whole(name), bits=bits, kind=_words(item), widths=_widths(item)))
    return (DatItem.SIGNED if first else item), bits


def _words(item: DatItem) -> str:
    return item.name.lower().replace("_", " ")


def _widths(item: DatItem) -> str:
    widths = _WIDTHS[item]
    return "1 to 64" if len(widths) == 64 else f"{', '.join(map(str, widths[:-1]))} or {widths[-1]}"


def _check_volume(header: DatHeader, length: int, name: str) -> None:
    try:
        needed: int | str = header.length
    except OutOfRange:
        needed = "more than 2^60"
    if needed != length:
        shape = list(header.extents)
        refuse(
            rules.WRONG_VOLUME.at(whole(name), shape=shape, bits=header.bits, needed=needed, length=length)
        )


def header_bytes(header: DatHeader) -> bytes:
    """The header as it stands in a file; the caller has seen that every number fits."""
    words = [header.length, len(header.extents), *header.extents]
    words += [0] * (MOST_EXTENTS - len(header.extents))
    words += [header.bits, int(header.item), *[0] * _RESERVED_WORDS]
    return _MAGIC + b"\x01\x00" + b"".join(word.to_bytes(4, "little") for word in words)


# --- the items of a tensor file: arrays to bytes and back ---------------------------------------------------


_CHUNK = 1 << 16
"""Items unpacked at a time, so that the bits of a large file never stand in memory as bytes all at once."""


def decode_items(data: memoryview, header: DatHeader, name: str) -> Array:
    """The items behind a header that was read from the same bytes."""
    image = np.frombuffer(data, np.uint8, header.length, SIZE)
    if header.item is DatItem.FLOAT:
        flat: Array = image.view(f"<f{header.bits // 8}")
    elif header.bits % 8:
        flat = _unpack(image, header, name)
    else:
        flat = _whole(image, header, name)
    return flat.astype(flat.dtype.newbyteorder("="), copy=False).reshape(header.extents)


def encode_items(values: Array, header: DatHeader) -> bytes:
    """The bytes of items whose values fit the header."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if header.item is DatItem.FLOAT:
        return flat.astype(f"<f{header.bits // 8}").tobytes()
    if header.bits % 8:
        return _pack(flat, header)
    rows = _patterns(flat).astype("<u8").view(np.uint8).reshape(-1, 8)
    return rows[:, : header.bits // 8].tobytes()


def _whole(image: npt.NDArray[np.uint8], header: DatHeader, name: str) -> Array:
    """Integers of whole bytes."""
    width = header.bits // 8
    if header.item is DatItem.BOOL:
        wrong = np.flatnonzero(image > 1)
        if wrong.size:
            refuse(rules.WRONG_BOOL.at(whole(name), offset=SIZE + int(wrong[0]), value=int(image[wrong[0]])))
        return image.astype(np.bool_)
    if width in (1, 2, 4, 8):
        return image.view(f"<{'i' if header.item.is_signed else 'u'}{width}")
    rows = np.zeros((header.count, 8), np.uint8)
    rows[:, :width] = image.reshape(-1, width)
    return _narrow(rows.reshape(-1).view("<u8"), header)


def _unpack(image: npt.NDArray[np.uint8], header: DatHeader, name: str) -> Array:
    """Items of odd widths, from a stream of bits."""
    spare = -header.count * header.bits % 8
    if spare and int(image[-1]) & ((1 << spare) - 1):
        refuse(rules.PADDING_BITS.at(whole(name), offset=SIZE + len(image) - 1))
    if header.item is DatItem.BOOL:
        return np.unpackbits(image, count=header.count).astype(np.bool_)
    parts = [_unpack_some(image, start, header) for start in range(0, header.count, _CHUNK)]
    return _narrow(np.concatenate(parts), header)


def _unpack_some(image: npt.NDArray[np.uint8], start: int, header: DatHeader) -> npt.NDArray[np.uint64]:
    """A chunk of items; chunks begin at whole bytes because their size is a multiple of 8."""
    count = min(_CHUNK, header.count - start)
    first = start * header.bits // 8
    stream = np.unpackbits(image[first : first + -(-count * header.bits // 8)], count=count * header.bits)
    weights = np.uint64(1) << np.arange(header.bits - 1, -1, -1, dtype=np.uint64)
    return stream.reshape(count, header.bits) @ weights


def _narrow(patterns: npt.NDArray[np.uint64], header: DatHeader) -> Array:
    """Bit patterns as numbers, in the smallest type that holds their width."""
    size = next(width for width in (8, 16, 32, 64) if width >= header.bits)
    if not header.item.is_signed:
        return patterns.astype(f"u{size // 8}")
    shift = np.int64(64 - header.bits)
    return (patterns.view(np.int64) << shift >> shift).astype(f"i{size // 8}")


def _pack(flat: Array, header: DatHeader) -> bytes:
    if header.item is DatItem.BOOL:
        return np.packbits(flat.astype(np.uint8)).tobytes()
    parts = [_pack_some(flat[start : start + _CHUNK], header.bits) for start in range(0, flat.size, _CHUNK)]
    return b"".join(parts)


def _pack_some(flat: Array, bits: int) -> bytes:
    shifts = np.arange(bits - 1, -1, -1, dtype=np.uint64)
    return np.packbits((_patterns(flat)[:, None] >> shifts & np.uint64(1)).astype(np.uint8)).tobytes()


def _patterns(flat: Array) -> npt.NDArray[np.uint64]:
    """Integers as 64-bit patterns in two's complement."""
    wide: Array = flat.astype(np.int64 if flat.dtype.kind == "i" else np.uint64)
    return wide.view(np.uint64)


_ITEMS: Mapping[Kind, DatItem] = MappingProxyType(
    {
        Kind.SIGNED: DatItem.SIGNED,
        Kind.UNSIGNED: DatItem.UNSIGNED,
        Kind.BOOL: DatItem.BOOL,
        Kind.FLOAT: DatItem.FLOAT,
    }
)
_WITHOUT_ITEMS = (
    *(types.BF16, types.F8E4M3, types.F8E4M3FNUZ),
    *(types.F8E5M2, types.F8E5M2FNUZ, types.F4E2M1),
)


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """An array as a file holds it; `bits` and `item` say how. Codes of quantised values are plain integers."""

    values: Array
    item: DatItem
    bits: int


def read_dat(path: Path, limits: Limits = DEFAULT) -> Stored:
    """The array of a tensor file; LamellaError says at which byte something is wrong."""
    return decode_dat(read_bytes(path, limits), shown(path))


def decode_dat(data: bytes, name: str) -> Stored:
    """The array of a tensor file's bytes; nothing is made before all of its header is believed."""
    header = read_header(data, name)
    return Stored(decode_items(memoryview(data), header, name), header.item, header.bits)


def write_dat(path: Path, stored: Stored | Array) -> None:
    """Write a tensor file, whole or not at all."""
    write_bytes(path, encode_dat(stored, shown(path)))


def encode_dat(stored: Stored | Array, name: str) -> bytes:
    """The bytes of a tensor file; LamellaError where the format has no words for the array."""
    given = stored if isinstance(stored, Stored) else stored_as(stored, name)
    header = DatHeader(given.values.shape, given.item, given.bits)
    reason = _unfit(given, header)
    if reason:
        what = f"{given.values.dtype} {list(given.values.shape)}"
        refuse(rules.NOT_EXPRESSIBLE.at(whole(name), name=name, what=what, reason=reason))
    return header_bytes(header) + encode_items(given.values, header)


def stored_as(values: Array, name: str) -> Stored:
    """An array with the item type and width that say its element type."""
    element = element_type_of(values.dtype)
    if element is None or element.kind not in _ITEMS or element in _WITHOUT_ITEMS:
        what = f"{values.dtype} {list(values.shape)}"
        reason = f"it has no item type for {element or values.dtype}"
        refuse(rules.NOT_EXPRESSIBLE.at(whole(name), name=name, what=what, reason=reason))
    signed = element.kind is Kind.SIGNED
    plain = values.astype(np.int8 if signed else np.uint8) if element.bits < 8 else values
    return Stored(plain, _ITEMS[element.kind], 1 if element.kind is Kind.BOOL else element.bits)


def _unfit(stored: Stored, header: DatHeader) -> str:
    """Why an array cannot stand in a tensor file; empty where it can."""
    shape = stored.values.shape
    if len(shape) > MOST_EXTENTS:
        return f"it has {len(shape)} axes, and {MOST_EXTENTS} is the most"
    if not all(0 < extent <= LARGEST_WORD for extent in shape):
        return "each extent lies between 1 and 4294967295"
    if header.length > LARGEST_WORD:
        return f"it takes {header.length} bytes, and 4294967295 is the most"
    return _unfit_values(stored)


def _unfit_values(stored: Stored) -> str:
    if stored.item is DatItem.FLOAT or stored.values.dtype.kind == "b":
        return ""
    signed = stored.item.is_signed
    low, high = (
        (-(1 << stored.bits - 1), (1 << stored.bits - 1) - 1) if signed else (0, (1 << stored.bits) - 1)
    )
    least, most = int(stored.values.min()), int(stored.values.max())
    return "" if low <= least and most <= high else f"its values {least} .. {most} leave {low} .. {high}"
