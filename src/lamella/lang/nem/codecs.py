"""The codecs of stored weights, our extension: what an imported buffer holds in DDR, and what WDM makes of it.

A buffer `(size=S, import, codec=NAME, stored=N)` is S bytes to the program and N bytes in DDR. Blocks of 2048 bytes are
packed one by one, into whole lines of 64 bytes, so that any whole blocks can be fetched by themselves. An element is a
byte, or two of them where the name ends in `_16`.

    int4           elements from -8 to 7, as 4 bits
    shared2 … 5    at most 2^k different elements in a block, as k-bit places in a table of the block
    …_sparse       a bit for each element says whether it is 0; only the others are stored
    sparse         likewise, the others as they are

`docs/layers/wdm.md` has the layout to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.lang.nem.resolved import Index

BLOCK = 2048
"""Bytes of a program that are packed together."""
LINE = 64
"""Packed blocks are whole lines of so many bytes."""
HEADER = LINE


@dataclass(frozen=True, slots=True)
class Codec:
    """How elements of `width` bytes are stored: codes of `bits`, places in a table where they are shared."""

    name: str
    bits: int
    shared: bool
    sparse: bool
    width: int

    @property
    def table(self) -> int:
        """Bytes of the table of a block."""
        return self.width << self.bits if self.shared else 0

    def block_lines(self, count: int, kept: int | None = None) -> int:
        """Lines of a block of so many elements, of which so many are kept (all, where nothing else is said)."""
        stored = count if kept is None else min(kept, count)
        found = self.table + _bytes(stored * self.bits) + (_bytes(count) if self.sparse else 0)
        return -(-found // LINE)

    def index_bytes(self, size: int) -> int:
        """Bytes of the table of lines, which only sparse data need: two for each block."""
        return _lines(2 * -(-size // BLOCK)) if self.sparse else 0

    def smallest(self, size: int) -> int:
        """Bytes that so many bytes of a program take at least."""
        return self.stored(size, 0 if self.sparse else None)

    def largest(self, size: int) -> int:
        """Bytes that they take at most; the same where the codec is not sparse."""
        return self.stored(size, None)

    def stored(self, size: int, kept: int | None) -> int:
        """Bytes that they take where so many elements of each block are kept."""
        whole, rest = divmod(size, BLOCK)
        lines = whole * self.block_lines(BLOCK // self.width, kept)
        lines += self.block_lines(rest // self.width, kept) if rest else 0
        return HEADER + self.index_bytes(size) + lines * LINE


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def _lines(count: int) -> int:
    return -(-count // LINE) * LINE


def _all() -> Mapping[str, Codec]:
    found: dict[str, Codec] = {}
    for width, suffix in ((1, ""), (2, "_16")):
        for sparse, middle in ((False, ""), (True, "_sparse")):
            items = [(f"shared{bits}", bits, True) for bits in (2, 3, 4, 5)]
            items += [("int4", 4, False)] if width == 1 else []
            for stem, bits, shared in items:
                name = f"{stem}{middle}{suffix}"
                found[name] = Codec(name, bits, shared, sparse, width)
        found[f"sparse{suffix}"] = Codec(f"sparse{suffix}", 8 * width, False, True, width)
    return MappingProxyType(found)


CODECS = _all()


def whole_blocks(offset: Index, extent: int, size: int) -> bool:
    """Whether a range begins and ends where blocks do, in every iteration; the last block may be short."""
    if offset.constant % BLOCK or any(factor % BLOCK for _, factor in offset.terms):
        return False
    return extent % BLOCK == 0 or (offset.is_constant and offset.constant + extent == size)
