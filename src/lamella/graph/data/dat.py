"""Tensor files (`.dat`): one array each, with the meaning of its items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, element_type_of
from lamella.base.dtype import Kind
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import read_bytes, shown
from lamella.base.writer import write_bytes
from lamella.graph.data.header import (
    LARGEST_WORD,
    MOST_EXTENTS,
    Header,
    Item,
    header_bytes,
    read_header,
    refuse,
    whole,
)
from lamella.graph.data.items import decode_items, encode_items
from lamella.lang.skriptnd.rules import data as rules

_ITEMS: Mapping[Kind, Item] = MappingProxyType(
    {
        Kind.SIGNED: Item.SIGNED,
        Kind.UNSIGNED: Item.UNSIGNED,
        Kind.BOOL: Item.BOOL,
        Kind.FLOAT: Item.FLOAT,
    }
)
_WITHOUT_ITEMS = (types.BF16, types.F8E4M3, types.F8E5M2, types.F4E2M1)


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """An array as a file holds it; `bits` and `item` say how. Codes of quantised values are plain integers."""

    values: Array
    item: Item
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
    header = Header(given.values.shape, given.item, given.bits)
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
    plain = values.astype(np.int8 if signed else np.uint8) if element.bits == 4 else values
    return Stored(plain, _ITEMS[element.kind], 1 if element.kind is Kind.BOOL else element.bits)


def _unfit(stored: Stored, header: Header) -> str:
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
    if stored.item is Item.FLOAT or stored.values.dtype.kind == "b":
        return ""
    signed = stored.item.is_signed
    low, high = (
        (-(1 << stored.bits - 1), (1 << stored.bits - 1) - 1) if signed else (0, (1 << stored.bits) - 1)
    )
    least, most = int(stored.values.min()), int(stored.values.max())
    return "" if low <= least and most <= high else f"its values {least} .. {most} leave {low} .. {high}"
