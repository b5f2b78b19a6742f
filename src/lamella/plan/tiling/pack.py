"""Weights as imported buffers: the operands of each stage side by side, chunked ones channel by channel.

A transfer copies contiguous bytes. So what a stage needs lies together, and where it takes output channels in chunks, a
chunk is contiguous: the last axis of the operand becomes the outermost. Biases come first.

On a device with WDM, operands that a codec stores in fewer bytes lie in a buffer of that codec, each from a block of
its own on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lamella.base.arena import aligned
from lamella.base.arrays import Array
from lamella.lang.nem.codecs import BLOCK, CODECS
from lamella.lang.nem.resolved import Region
from lamella.plan.operands import Codes, operand_bytes
from lamella.plan.wdm import pack

ALIGN = 64


@dataclass(frozen=True, slots=True)
class PackedOperand:
    """An operand in the packed buffer at `offset`, taken from an imported buffer of the selected plan."""

    region: Region
    offset: int
    by_channel: bool

    def bytes_of(self, source: Array) -> Array:
        """Its bytes, in the order of the packed buffer."""
        return operand_bytes(self.region, source, self.by_channel)


@dataclass(slots=True)
class PackedBuffer:
    """Weights that are imported as one buffer: what lies where; stored by a codec where one is named."""

    name: str
    codec: str = ""
    size: int = 0
    pieces: list[PackedOperand] = field(default_factory=list)
    fills: list[tuple[int, int, int]] = field(default_factory=list)
    """Bytes that are all alike: offset, size, and the byte."""
    stored: int = 0
    """Bytes that a codec stores of the pieces, about."""

    @property
    def align(self) -> int:
        """Where pieces begin: a codec gives whole blocks."""
        return BLOCK if self.codec else ALIGN

    @property
    def share(self) -> float:
        """The part of the bytes that comes from DDR."""
        return self.stored / self.size if self.codec and self.size else 1.0

    def fill(self, size: int, byte: int) -> int:
        """Append bytes that are all alike; their offset."""
        offset = aligned(self.size, ALIGN)
        self.fills.append((offset, size, byte))
        self.size = offset + size
        return offset

    def add(self, region: Region, by_channel: bool) -> int:
        """Append an operand; its offset."""
        offset = aligned(self.size, self.align)
        self.pieces.append(PackedOperand(region, offset, by_channel))
        self.size = offset + region.extent
        return offset

    def shared(self, region: Region) -> int:
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

    def bytes_of(self, arrays: Mapping[str, Array]) -> Array:
        """The bytes of the buffer, from those of the imported buffers of the selected plan."""
        found = np.zeros(self.size, np.uint8)
        for offset, size, byte in self.fills:
            found[offset : offset + size] = byte
        for piece in self.pieces:
            data = piece.bytes_of(arrays[piece.region.buffer.name])
            found[piece.offset : piece.offset + data.size] = data
        return found


class Packing:
    """The packed weights: those that are stored as they are, and for each codec those that it stores."""

    def __init__(self, name: str, codes: Codes | None = None) -> None:
        self.plain = PackedBuffer(name)
        self.codes = codes
        self.coded: dict[str, PackedBuffer] = {}

    @property
    def buffers(self) -> tuple[PackedBuffer, ...]:
        """All of them."""
        return self.plain, *self.coded.values()

    def buffer(self, codec: str) -> PackedBuffer:
        """The buffer of a codec."""
        return self.coded.setdefault(codec, PackedBuffer(f"{self.plain.name}_{codec}", codec))

    def pack(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """What is imported for each buffer that holds anything, as it lies in DDR."""
        return {
            item.name: pack(item.bytes_of(arrays), CODECS[item.codec])
            if item.codec
            else item.bytes_of(arrays)
            for item in self.buffers
            if item.size
        }
