"""The bytes of weights: in the order of their buffer or channel by channel, and how few of them a codec stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from lamella.base import dtype
from lamella.base.arena import aligned
from lamella.base.arrays import Array
from lamella.lang.nem.codecs import BLOCK, HEADER
from lamella.lang.nem.resolved import Region
from lamella.plan.wdm import stored_sizes

SMALLEST = 2 * BLOCK
"""Bytes of an operand below which a fetch of its own is not worth what a codec saves."""


def operand_bytes(region: Region, source: Array, by_channel: bool) -> Array:
    """The bytes of an operand from those of its buffer; by channel its last axis becomes the outermost."""
    type = region.type
    if not by_channel or type is None:
        return _raw_bytes(region, source)
    elements = elements_of(region, source).reshape(prod(type.shape[:-1]), type.shape[-1])
    return packed_elements(elements.T, _bits(type.elem))


def elements_of(region: Region, source: Array) -> Array:
    """The elements of a dense operand in its shape, as unsigned integers of their width (a byte for four bits)."""
    type, raw = region.type, _raw_bytes(region, source)
    assert type is not None
    bits = _bits(type.elem)
    if bits == 4:
        return np.stack([raw & 15, raw >> 4], axis=1).reshape(-1)[: prod(type.shape)].reshape(type.shape)
    return raw.view(f"u{bits // 8}").reshape(type.shape)


def packed_elements(elements: Array, bits: int) -> Array:
    """Such elements as bytes, in row-major order."""
    if bits != 4:
        return np.ascontiguousarray(elements).view(np.uint8).reshape(-1)
    flat = elements.reshape(-1)
    padded = np.concatenate([flat, np.zeros(flat.size % 2, np.uint8)])
    found: Array = padded[::2] | padded[1::2] << 4
    return found


def _raw_bytes(region: Region, source: Array) -> Array:
    start = region.offset.constant
    raw: Array = np.ascontiguousarray(source).view(np.uint8).reshape(-1)[start : start + region.extent]
    return raw


def _bits(elem: str) -> int:
    found = dtype.find(elem)
    return 8 if found is None else found.bits


@dataclass(frozen=True, slots=True)
class Stored:
    """How a codec stores an operand: its name, and the bytes beside the header."""

    codec: str
    size: int


class Codes:
    """Which operands a codec stores in fewer bytes, by the numbers that they hold."""

    def __init__(self, arrays: Mapping[str, Array], saves: Callable[[int, int], bool] | None = None) -> None:
        self.arrays = arrays
        self.saves = saves or (lambda size, stored: stored < size)
        """Whether it pays to store so many bytes in so many."""
        self._known: dict[tuple[str, int, int, bool], Stored | None] = {}

    def find(self, region: Region, by_channel: bool) -> Stored | None:
        """The codec that stores an operand in the fewest bytes; None where none saves any."""
        key = region.buffer.name, region.offset.constant, region.extent, by_channel
        if key not in self._known:
            self._known[key] = self._find(region, by_channel)
        return self._known[key]

    @property
    def useful(self) -> bool:
        """Whether a codec was found for anything."""
        return any(item is not None for item in self._known.values())

    def least(self, region: Region) -> int:
        """The fewest bytes in which any plan may store an operand."""
        found = (self.find(region, by_channel) for by_channel in (False, True))
        return min((item.size for item in found if item is not None), default=region.extent)

    def _find(self, region: Region, by_channel: bool) -> Stored | None:
        if region.extent < SMALLEST or region.buffer.name not in self.arrays:
            return None
        data = operand_bytes(region, self.arrays[region.buffer.name], by_channel)
        whole = np.zeros(aligned(data.size, BLOCK), np.uint8)
        whole[: data.size] = data
        wide = region.type is not None and _bits(region.type.elem) == 16
        sizes = [(size, codec) for width in (1, 2)[: 1 + wide] for codec, size in stored_sizes(whole, width)]
        if not sizes:
            return None
        size, codec = min(sizes, key=lambda item: item[0])
        pays = size < region.extent and self.saves(region.extent, size)
        return Stored(codec.name, size - HEADER) if pays else None
