"""The items of a tensor file: arrays to bytes and back.

Items of whole bytes are little endian. Items of other widths follow each other without gaps, each with its most
significant bit first, and the last byte is filled up with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.graph.data.header import SIZE, Header, Item, refuse, whole
from lamella.lang.skriptnd.rules import data as rules

_CHUNK = 1 << 16
"""Items unpacked at a time, so that the bits of a large file never stand in memory as bytes all at once."""


def decode_items(data: memoryview, header: Header, name: str) -> Array:
    """The items behind a header that was read from the same bytes."""
    image = np.frombuffer(data, np.uint8, header.length, SIZE)
    if header.item is Item.FLOAT:
        flat: Array = image.view(f"<f{header.bits // 8}")
    elif header.bits % 8:
        flat = _unpack(image, header, name)
    else:
        flat = _whole(image, header, name)
    return flat.astype(flat.dtype.newbyteorder("="), copy=False).reshape(header.extents)


def encode_items(values: Array, header: Header) -> bytes:
    """The bytes of items whose values fit the header."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if header.item is Item.FLOAT:
        return flat.astype(f"<f{header.bits // 8}").tobytes()
    if header.bits % 8:
        return _pack(flat, header)
    rows = _patterns(flat).astype("<u8").view(np.uint8).reshape(-1, 8)
    return rows[:, : header.bits // 8].tobytes()


def _whole(image: npt.NDArray[np.uint8], header: Header, name: str) -> Array:
    """Integers of whole bytes."""
    width = header.bits // 8
    if header.item is Item.BOOL:
        wrong = np.flatnonzero(image > 1)
        if wrong.size:
            refuse(rules.WRONG_BOOL.at(whole(name), offset=SIZE + int(wrong[0]), value=int(image[wrong[0]])))
        return image.astype(np.bool_)
    if width in (1, 2, 4, 8):
        return image.view(f"<{'i' if header.item.is_signed else 'u'}{width}")
    rows = np.zeros((header.count, 8), np.uint8)
    rows[:, :width] = image.reshape(-1, width)
    return _narrow(rows.reshape(-1).view("<u8"), header)


def _unpack(image: npt.NDArray[np.uint8], header: Header, name: str) -> Array:
    """Items of odd widths, from a stream of bits."""
    spare = -header.count * header.bits % 8
    if spare and int(image[-1]) & ((1 << spare) - 1):
        refuse(rules.PADDING_BITS.at(whole(name), offset=SIZE + len(image) - 1))
    if header.item is Item.BOOL:
        return np.unpackbits(image, count=header.count).astype(np.bool_)
    parts = [_unpack_some(image, start, header) for start in range(0, header.count, _CHUNK)]
    return _narrow(np.concatenate(parts), header)


def _unpack_some(image: npt.NDArray[np.uint8], start: int, header: Header) -> npt.NDArray[np.uint64]:
    """A chunk of items; chunks begin at whole bytes because their size is a multiple of 8."""
    count = min(_CHUNK, header.count - start)
    first = start * header.bits // 8
    stream = np.unpackbits(image[first : first + -(-count * header.bits // 8)], count=count * header.bits)
    weights = np.uint64(1) << np.arange(header.bits - 1, -1, -1, dtype=np.uint64)
    return stream.reshape(count, header.bits) @ weights


def _narrow(patterns: npt.NDArray[np.uint64], header: Header) -> Array:
    """Bit patterns as numbers, in the smallest type that holds their width."""
    size = next(width for width in (8, 16, 32, 64) if width >= header.bits)
    if not header.item.is_signed:
        return patterns.astype(f"u{size // 8}")
    shift = np.int64(64 - header.bits)
    return (patterns.view(np.int64) << shift >> shift).astype(f"i{size // 8}")


def _pack(flat: Array, header: Header) -> bytes:
    if header.item is Item.BOOL:
        return np.packbits(flat.astype(np.uint8)).tobytes()
    parts = [_pack_some(flat[start : start + _CHUNK], header.bits) for start in range(0, flat.size, _CHUNK)]
    return b"".join(parts)


def _pack_some(flat: Array, bits: int) -> bytes:
    shifts = np.arange(bits - 1, -1, -1, dtype=np.uint64)
    return np.packbits((_patterns(flat)[:, None] >> shifts & np.uint64(1)).astype(np.uint8)).tobytes()


def _patterns(flat: Array) -> npt.NDArray[np.uint64]:
    """Integers as 64-bit patterns in two's complement."""
    wide: npt.NDArray[Any] = flat.astype(np.int64 if flat.dtype.kind == "i" else np.uint64)
    return wide.view(np.uint64)
