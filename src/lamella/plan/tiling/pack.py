"""Weights as one imported buffer: the operands of each stage side by side, chunked ones channel by channel.

A transfer copies contiguous bytes. So what a stage needs lies together, and where it takes output channels in chunks, a
chunk is contiguous: the last axis of the operand becomes the outermost. Biases come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from lamella.base.arena import aligned
from lamella.base.arrays import Array
from lamella.lang.nem.resolved import Region
from lamella.plan.tiling.split import bits_of

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """An operand in the packed buffer at `offset`, taken from an imported buffer of the selected plan."""

    region: Region
    offset: int
    by_channel: bool

    def bytes_of(self, source: Array) -> Array:
        """Its bytes, in the order of the packed buffer."""
        start = self.region.offset.constant
        raw: Array = (
            np.ascontiguousarray(source).view(np.uint8).reshape(-1)[start : start + self.region.extent]
        )
        type = self.region.type
        if not self.by_channel or type is None:
            return raw
        shape = (prod(type.shape[:-1]), type.shape[-1])
        bits = bits_of(type.elem)
        if bits == 4:
            nibbles = np.stack([raw & 15, raw >> 4], axis=1).reshape(-1)[: prod(shape)]
            turned = nibbles.reshape(shape).T.reshape(-1)
            padded = np.concatenate([turned, np.zeros(turned.size % 2, np.uint8)])
            found: Array = padded[::2] | padded[1::2] << 4
            return found
        columns: Array = raw.view(f"u{bits // 8}").reshape(shape).T
        return np.ascontiguousarray(columns).view(np.uint8).reshape(-1)


@dataclass(slots=True)
class Packing:
    """The packed buffer: its name, its size, and what lies where."""

    name: str
    size: int = 0
    pieces: list[Piece] = field(default_factory=list)
    fills: list[tuple[int, int, int]] = field(default_factory=list)
    """Bytes that are all alike: offset, size, and the byte."""

    def fill(self, size: int, byte: int) -> int:
        """Append bytes that are all alike; their offset."""
        offset = aligned(self.size, ALIGN)
        self.fills.append((offset, size, byte))
        self.size = offset + size
        return offset

    def add(self, region: Region, by_channel: bool) -> int:
        """Append an operand; its offset."""
        offset = aligned(self.size, ALIGN)
        self.pieces.append(Piece(region, offset, by_channel))
        self.size = offset + region.extent
        return offset

    def share(self, region: Region) -> int:
        """The offset of an operand that others may have appended already."""
        for piece in self.pieces:
            known = piece.region
            same = (known.buffer.name, known.offset, known.extent) == (
                region.buffer.name,
                region.offset,
                region.extent,
            )
            if same and not piece.by_channel:
                return piece.offset
        return self.add(region, by_channel=False)

    def pack(self, arrays: Mapping[str, Array]) -> Array:
        """The bytes of the packed buffer, from those of the imported buffers of the selected plan."""
        found = np.zeros(self.size, np.uint8)
        for offset, size, byte in self.fills:
            found[offset : offset + size] = byte
        for piece in self.pieces:
            data = piece.bytes_of(arrays[piece.region.buffer.name])
            found[piece.offset : piece.offset + data.size] = data
        return found
