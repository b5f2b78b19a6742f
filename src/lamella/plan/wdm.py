"""The codec of stored weights: bytes of a program packed as `docs/layers/wdm.md` says, and unpacked again.

Packing loses nothing, or is refused. There is one way to pack the same bytes; what was packed otherwise is refused.
Both ways take time in proportion to the bytes, whatever they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.lang.nem.codecs import BLOCK, CODECS, HEADER, LINE, Codec

MAGIC = b"LWDM"
VERSION = 1
_HEAD = struct.Struct("<4sBBBBQ")
"""Magic, version, bits of a code, flags, zero, bytes of the program."""
_FLAGS = {"shared": 1, "sparse": 2, "wide": 4}


# --- packing -------------------------------------------------------------------------------------------------


def pack(data: Array, codec: Codec) -> Array:
    """Bytes of a program as they are stored; an InputError says why the codec cannot hold them."""
    if data.size % codec.width:
        raise InputError(f"{data.size} bytes are no whole elements of {codec.width} bytes")
    blocks = [_pack_block(data[start : start + BLOCK], codec, start) for start in range(0, data.size, BLOCK)]
    parts = [_head(codec, data.size), _index(codec, data.size, blocks), *blocks]
    return np.concatenate(parts)


def _head(codec: Codec, size: int) -> Array:
    flags = (
        _FLAGS["shared"] * codec.shared
        | _FLAGS["sparse"] * codec.sparse
        | _FLAGS["wide"] * (codec.width == 2)
    )
    return _padded(np.frombuffer(_HEAD.pack(MAGIC, VERSION, codec.bits, flags, 0, size), np.uint8), HEADER)


def _index(codec: Codec, size: int, blocks: list[Array]) -> Array:
    lines = np.array([block.size // LINE for block in blocks], "<u2")
    return _padded(lines.view(np.uint8), codec.index_bytes(size)) if codec.sparse else np.empty(0, np.uint8)


def _padded(data: Array, size: int) -> Array:
    found = np.zeros(size, np.uint8)
    found[: data.size] = data
    return found


def _pack_block(data: Array, codec: Codec, start: int) -> Array:
    elements = np.ascontiguousarray(data).view("<u1" if codec.width == 1 else "<u2")
    kept = elements[elements != 0] if codec.sparse else elements
    parts = [_to_bits(elements != 0, 1)] if codec.sparse else []
    if codec.shared:
        table, codes = np.unique(kept, return_inverse=True)
        if table.size > 1 << codec.bits:
            problem = f"{table.size} different elements, and {codec.name} tells {1 << codec.bits} apart"
            raise InputError(f"the block at byte {start} has {problem}")
        parts.append(_padded(table.view(np.uint8), codec.table))
    else:
        codes = kept
        if codec.bits == 4:
            signed = kept.view(np.int8)
            if signed.size and (signed.min() < -8 or signed.max() > 7):
                raise InputError(f"the block at byte {start} has elements outside -8 to 7")
            codes = kept & 15
    parts.append(_to_bits(codes, codec.bits))
    return _padded(np.concatenate(parts), LINE * codec.block_lines(elements.size, kept.size))


def _to_bits(values: Array, bits: int) -> Array:
    """Numbers of so many bits one behind the other, the lowest bit first."""
    spread = values.astype(np.uint32)[:, None] >> np.arange(bits, dtype=np.uint32) & 1
    found: Array = np.packbits(spread.astype(np.uint8).reshape(-1), bitorder="little")
    return found


# --- unpacking -----------------------------------------------------------------------------------------------


def unpack(stored: Array, codec: Codec, size: int) -> Array:
    """The bytes of a program from what is stored; an InputError says what is wrong with it."""
    if size % codec.width or stored.dtype != np.uint8 or stored.ndim != 1:
        raise InputError(f"this cannot hold {size} bytes in elements of {codec.width}")
    if stored.size < codec.smallest(size) or stored[:HEADER].tobytes() != _head(codec, size).tobytes():
        raise InputError(f"this is not {size} bytes packed as {codec.name}")
    lines = _lines(stored, codec, size)
    place = HEADER + codec.index_bytes(size)
    if place + LINE * int(lines.sum()) != stored.size:
        raise InputError(f"{stored.size} bytes are stored; the blocks take {place + LINE * int(lines.sum())}")
    found = np.empty(size, np.uint8)
    for number, start in enumerate(range(0, size, BLOCK)):
        count = min(BLOCK, size - start)
        end = place + LINE * int(lines[number])
        found[start : start + count] = _unpack_block(stored[place:end], codec, count // codec.width, start)
        place = end
    if pack(found, codec).tobytes() != stored.tobytes():
        raise InputError("these bytes are packed otherwise than the codec packs them")
    return found


def _lines(stored: Array, codec: Codec, size: int) -> Array:
    """The lines of each block."""
    starts = range(0, size, BLOCK)
    if not codec.sparse:
        sizes = [codec.block_lines(min(BLOCK, size - start) // codec.width) for start in starts]
        return np.array(sizes, np.int64)
    found: Array = stored[HEADER : HEADER + 2 * len(starts)].copy().view("<u2").astype(np.int64)
    return found


def _unpack_block(data: Array, codec: Codec, count: int, start: int) -> Array:
    there = np.ones(count, np.bool_)
    place = 0
    if codec.sparse:
        place = -(-count // 8)
        if place > data.size:
            raise InputError(f"the block at byte {start} is too short")
        there = np.unpackbits(data[:place], count=count, bitorder="little").astype(np.bool_)
    kept = int(there.sum())
    if codec.block_lines(count, kept) * LINE != data.size:
        raise InputError(f"the block at byte {start} has {data.size} bytes for {kept} elements")
    table = data[place : place + codec.table].copy().view("<u1" if codec.width == 1 else "<u2")
    codes = _from_bits(data[place + codec.table :], kept, codec.bits)
    values = table[codes] if codec.shared else codes
    if not codec.shared and codec.bits == 4:
        values = (codes ^ 8) - 8
    elements = np.zeros(count, "<u1" if codec.width == 1 else "<u2")
    elements[there] = values.astype(elements.dtype)
    found: Array = elements.view(np.uint8)
    return found


def _from_bits(data: Array, count: int, bits: int) -> Array:
    spread = np.unpackbits(data, count=count * bits, bitorder="little").reshape(count, bits)
    found: Array = spread.astype(np.int64) @ (1 << np.arange(bits))
    return found


# --- choosing, and random weights that a codec can hold ------------------------------------------------------


def best_codec(data: Array, width: int = 1) -> tuple[Codec, Array] | None:
    """The codec that stores these bytes in the fewest, and what it stores; None where none of them is smaller."""
    found = [(size, codec) for codec, size in stored_sizes(data, width) if size < data.size]
    if not found:
        return None
    codec = min(found, key=lambda item: item[0])[1]
    return codec, pack(data, codec)


def stored_sizes(data: Array, width: int = 1) -> Iterator[tuple[Codec, int]]:
    """The codecs that can hold these bytes in elements of so many, and the bytes that each stores of them."""
    if data.size % width or not data.size:
        return
    whole = data.size // BLOCK * BLOCK
    parts = [_Facts(part, width) for part in (data[:whole], data[whole:]) if part.size]
    for codec in CODECS.values():
        if codec.width == width and all(part.fits(codec) for part in parts):
            lines = sum(part.lines(codec) for part in parts)
            yield codec, HEADER + codec.index_bytes(data.size) + LINE * lines


class _Facts:
    """What decides how blocks are stored: different elements, elements that are not 0, and whether 4 bits hold them."""

    def __init__(self, data: Array, width: int) -> None:
        blocks = (
            np.ascontiguousarray(data)
            .view("<u1" if width == 1 else "<u2")
            .reshape(-(-data.size // BLOCK), -1)
        )
        ordered = np.sort(blocks, axis=1)
        self.count = blocks.shape[1]
        self.kept = np.count_nonzero(blocks, axis=1)
        self.different = 1 + np.count_nonzero(ordered[:, 1:] != ordered[:, :-1], axis=1)
        self.narrow = width == 1 and bool((data.view(np.int8) >= -8).all() and (data.view(np.int8) < 8).all())

    def fits(self, codec: Codec) -> bool:
        """Whether a codec can hold every block."""
        if not codec.shared:
            return codec.bits != 4 or self.narrow
        zeros = (self.kept < self.count) if codec.sparse else 0
        return bool((self.different - zeros <= 1 << codec.bits).all())

    def lines(self, codec: Codec) -> int:
        """Lines of all blocks."""
        if not codec.sparse:
            return codec.block_lines(self.count) * len(self.kept)
        return sum(codec.block_lines(self.count, kept) for kept in self.kept.tolist())


def make_packable(data: Array, codec: Codec, stored: int) -> Array:
    """Random bytes made so that a codec holds them in so many bytes: few different ones, and zeros where needed."""
    elements = data.copy().view("<u1" if codec.width == 1 else "<u2")
    if codec.shared:
        elements &= (1 << codec.bits) - 1
    elif codec.bits == 4:
        elements[...] = (((elements & 15) ^ 8) - np.uint8(8)).astype(np.uint8)
    if codec.sparse:
        count = BLOCK // codec.width
        keep = _kept_elements(codec, data.size, stored)
        elements[np.arange(elements.size) % count >= keep] = 0
    found: Array = elements.view(np.uint8)
    return found


def _kept_elements(codec: Codec, size: int, stored: int) -> int:
    """The largest number of elements of each block that may differ from 0, found by halving."""
    low, high = 0, BLOCK // codec.width
    while low < high:
        middle = (low + high + 1) // 2
        if codec.stored(size, middle) <= stored:
            low = middle
        else:
            high = middle - 1
    return low
