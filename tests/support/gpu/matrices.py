"""Tensor cores and TMA: what they do with the registers of a warp or warpgroup, and with shared memory."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamella.base.arrays import Array
from tests.support.gpu.mathematics import from_bf16, from_byte
from tests.support.gpu.memory import DeviceFault

LANE = np.arange(32)
GROUP, TURN = LANE >> 2, LANE & 3
MAP = struct.Struct("<8sQII2Q1Q2I2II")
MAGIC = b"tensors!"
ELEMENT_BYTES = {0: 1, 6: 2, 7: 4, 9: 2}
LINE = 128


def swizzle(addresses: Array) -> Array:
    """The 128-byte swizzle: where bytes lie whose lines are permuted by their number."""
    return np.asarray(addresses ^ (((addresses >> 7) & 7) << 4))


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map: a matrix in global memory, as TMA is told of it."""

    address: int
    width: int
    """Bytes of an element."""
    shape: tuple[int, int]
    stride: int
    """Bytes from one line to the next."""
    box: tuple[int, int]

    def encode(self, kind: int) -> bytes:
        """The 128 bytes that kernels hand on."""
        return MAP.pack(MAGIC, self.address, kind, 2, *self.shape, self.stride, *self.box, 1, 1, 3).ljust(
            LINE, b"\0"
        )


def decode_map(content: bytes) -> TensorMap:
    """The matrix that 128 bytes tell of."""
    magic, address, kind, rank, *rest = MAP.unpack(content[: MAP.size])
    if magic != MAGIC or rank != 2:
        raise DeviceFault("a copy is told of a matrix by memory that holds no description")
    return TensorMap(address, ELEMENT_BYTES[kind], (rest[0], rest[1]), rest[2], (rest[3], rest[4]))


def cut_box(place: TensorMap, x: int, y: int) -> tuple[slice, slice, int, int, int]:
    """The part of a box that is inside: lines and bytes of it; where it begins in memory, its lines and bytes there."""
    width, lines = place.box
    left, right = max(0, -x), max(0, min(width, place.shape[0] - x))
    top, bottom = max(0, -y), max(0, min(lines, place.shape[1] - y))
    count, size = max(0, bottom - top), max(0, right - left) * place.width
    start = place.address + (y + top) * place.stride + (x + left) * place.width
    return (
        slice(top, top + count),
        slice(left * place.width, left * place.width + size),
        start,
        count,
        size,
    )


def as_reals(words: Array, kind: str) -> Array:
    """Factors from their bits."""
    if kind == "bf16":
        return from_bf16(words)
    if kind == "f16":
        return words.view(np.float16).astype(np.float32)
    return from_byte(words, kind)


# --- a warp ---------------------------------------------------------------------------------------------------


def halves(register: Array) -> tuple[Array, Array]:
    """Both halves of words."""
    return (register & np.uint32(0xFFFF)).astype(np.uint16), (register >> np.uint32(16)).astype(np.uint16)


def left_factor(registers: Sequence[Array], kind: str, rows: int = 16) -> Array:
    """Matrices of 16 rows and 16 of the sum, or 64 rows of the four warps of a warpgroup."""
    warps = len(registers[0]) // 32
    found = np.zeros((warps, 16, 16), np.float32)
    for place, register in enumerate(registers):
        for half, words in enumerate(halves(register)):
            row, column = GROUP + 8 * (place & 1), 2 * TURN + half + 8 * (place >> 1)
            found[:, row, column] = as_reals(words, kind).reshape(warps, 32)
    return found.reshape(-1, rows, 16)


def right_factor(registers: Sequence[Array], kind: str) -> Array:
    """Matrices of 16 of the sum and 8 columns."""
    warps = len(registers[0]) // 32
    found = np.zeros((warps, 16, 8), np.float32)
    for place, register in enumerate(registers):
        for half, words in enumerate(halves(register)):
            found[:, 2 * TURN + half + 8 * place, GROUP] = as_reals(words, kind).reshape(warps, 32)
    return found


def multiply(sums: Sequence[Array], left: Array, right: Array) -> list[Array]:
    """The sums of warps after a product: those of 8 columns in four registers each."""
    warps = len(sums[0]) // 32
    width = right.shape[-1]
    before = np.zeros((warps, 16, width), np.float32)
    places = [
        (GROUP + 8 * (place >> 1 & 1), 8 * (place >> 2) + 2 * TURN + (place & 1))
        for place in range(len(sums))
    ]
    for register, (row, column) in zip(sums, places, strict=True):
        before[:, row, column] = register.reshape(warps, 32)
    whole = before.reshape(len(left), -1, width) + np.matmul(left, right)
    after = whole.reshape(warps, 16, width)
    return [after[:, row, column].reshape(-1) for row, column in places]


# --- a warpgroup ----------------------------------------------------------------------------------------------

WARPGROUP = re.compile(r"m64n(\d+)k(\d+)\.f32\.(\w+)\.(\w+)")


@dataclass(slots=True)
class Product:
    """A `wgmma` product in flight, which is done when somebody waits for it."""

    name: str
    operands: Sequence[Any]
    mask: Array
    group: Array
    """What was committed before, of each lane."""
    adds: Array
    """Whether the sums count."""

    @property
    def columns(self) -> int:
        """Columns of the product."""
        return int(WARPGROUP.search(self.name)[1])  # type: ignore[index]

    def factors(self, local: Array, block: int) -> tuple[Array, Array]:
        """Both factors of one warpgroup, whose block has such local memory."""
        found = WARPGROUP.search(self.name)
        assert found is not None
        depth = int(found[2])
        _, left, right, _, *flags = self.operands
        lanes = slice(128 * block, 128 * block + 128)
        turned = [bool(int(item)) for item in flags[2:]]
        if isinstance(left, tuple):
            one = left_factor([item[lanes] for item in left], found[3], 64)[0]
        else:
            is_turned = bool(turned) and turned[0]
            one = _matrix(local, int(left[128 * block]), 64, depth, found[3], is_turned)
        other = _matrix(
            local, int(right[128 * block]), self.columns, depth, found[4], bool(turned) and turned[-1]
        )
        return one, other.T


def _matrix(local: Array, descriptor: int, rows: int, depth: int, kind: str, is_turned: bool) -> Array:
    """Rows of an operand in shared memory, whose lines of 128 bytes are swizzled."""
    if descriptor >> 62 != 1:
        raise DeviceFault(
            f"a warpgroup is told of a matrix by {descriptor:#x}, whose lines are not turned by 128 bytes"
        )
    start, leading, stride = ((descriptor >> place & 0x3FFF) << 4 for place in (0, 16, 32))
    width = 1 if kind in ("e4m3", "e5m2") else 2
    row, step = np.mgrid[0:rows, 0:depth]
    if is_turned:
        per = LINE // width
        offsets = row // per * leading + step // 8 * stride + step % 8 * LINE + row % per * width
    else:
        offsets = row // 8 * stride + row % 8 * LINE + step * width
    places = swizzle(start + offsets)
    if places.max() + width > len(local):
        raise DeviceFault(
            f"a warpgroup reads local memory up to {places.max() + width}, and there are {len(local)} bytes"
        )
    words = local.view(f"u{width}")[places // width]
    return as_reals(words, kind)
