"""What PTX computes and NumPy has no function for, on arrays of lanes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from lamella.base.arrays import Array

SPLITTER = np.float64(134217729.0)


def fma(a: Array, b: Array, c: Array) -> Array:
    """The sum of a · b and c, rounded once."""
    kind = np.result_type(a, b, c)
    if kind != np.float64:
        wide = np.asarray(a, np.float64) * b
        return (wide + c).astype(kind)
    return _fma_double(np.asarray(a, np.float64), np.asarray(b, np.float64), np.asarray(c, np.float64))


def _fma_double(a: Array, b: Array, c: Array) -> Array:
    """The product of the mantissas is two numbers, whose sum is exact; all three are added."""
    (one, first), (other, second) = np.frexp(a), np.frexp(b)
    power = first + second
    product = one * other
    high_a, high_b = (item * SPLITTER - (item * SPLITTER - item) for item in (one, other))
    low_a, low_b = one - high_a, other - high_b
    rest = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    added = np.ldexp(c, -power)
    total = product + added
    back = total - product
    left = (product - (total - back)) + (added - back)
    exact = np.ldexp(total + (left + rest), power)
    return np.asarray(np.where(np.isfinite(exact), exact, a * b + c))


def mul_high(a: Array, b: Array) -> Array:
    """The upper half of the product of unsigned or signed words."""
    a, b = np.asarray(a), np.asarray(b)
    kind = a.dtype if a.ndim else b.dtype
    bits = kind.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{kind.kind}{kind.itemsize * 2}")
        return np.asarray(((a.astype(wide) * b.astype(wide)) >> wide.type(bits)).astype(kind))
    one, other = np.broadcast_arrays(a.astype(np.uint64), b.astype(np.uint64))
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    parts = [(item & low, item >> half) for item in (one, other)]
    (al, ah), (bl, bh) = parts
    middle = ah * bl + ((al * bl) >> half)
    carry = (middle & low) + al * bh
    found: Array = ah * bh + (middle >> half) + (carry >> half)
    if kind.kind == "i":
        found = found - np.where(a < 0, other, np.uint64(0)) - np.where(b < 0, one, np.uint64(0))
    return found.astype(kind)


def divide(a: Array, b: Array) -> Array:
    """The quotient of integers, towards zero."""
    a, b = np.broadcast_arrays(a, b)
    quotient = a // np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "i":
        quotient = quotient + ((a % np.where(b == 0, 1, b) != 0) & ((a < 0) != (b < 0))).astype(a.dtype)
    return np.where(b == 0, ~np.zeros_like(a), quotient)


def remainder(a: Array, b: Array) -> Array:
    """What the quotient leaves."""
    a, b = np.broadcast_arrays(a, b)
    return np.asarray(a - divide(a, b) * b)


def shift_left(a: Array, b: Array) -> Array:
    """Bits that leave are gone, all of them behind the width."""
    a, bits = np.asarray(a), a.dtype.itemsize * 8
    amount = np.minimum(b, bits - 1).astype(a.dtype)
    return np.asarray(np.where(np.asarray(b) >= bits, a.dtype.type(0), a << amount))


def shift_right(a: Array, b: Array) -> Array:
    """The same to the right; signed words keep their sign."""
    a, bits = np.asarray(a), a.dtype.itemsize * 8
    found = a >> np.minimum(b, bits - 1).astype(a.dtype)
    return np.asarray(
        found if a.dtype.kind == "i" else np.where(np.asarray(b) >= bits, a.dtype.type(0), found)
    )


def extract_bits(a: Array, start: Array, count: Array) -> Array:
    """Some bits of words, in front of which are zeros or, of signed words, copies of the first."""
    a, kind = np.asarray(a), a.dtype
    bits = kind.itemsize * 8
    start, count = np.asarray(start).astype(np.int64) & 255, np.asarray(count).astype(np.int64) & 255
    wide = a.astype(np.uint64 if kind.kind == "u" else np.int64)
    moved = shift_right(wide, start)
    kept = np.minimum(count, bits)
    mask = np.where(
        kept >= 64, np.uint64(2**64 - 1), (np.uint64(1) << (kept & 63).astype(np.uint64)) - np.uint64(1)
    )
    found = moved.astype(np.uint64) & mask
    if kind.kind == "i":
        top = (found >> (np.maximum(kept, 1) - 1).astype(np.uint64)) & np.uint64(1)
        found = np.where((top == 1) & (kept > 0), found | ~mask, found)
    return found.astype(kind)


def insert_bits(a: Array, b: Array, start: Array, count: Array) -> Array:
    """Words whose bits from some on are those of others."""
    b = np.asarray(b)
    start, count = (np.asarray(item).astype(np.int64) & 255 for item in (start, count))
    bits = b.dtype.itemsize * 8
    places = np.minimum(start + count, bits) - np.minimum(start, bits)
    mask = ((np.uint64(1) << np.minimum(places, 63).astype(np.uint64)) - np.uint64(1)) << np.minimum(
        start, 63
    ).astype(np.uint64)
    wide = (np.asarray(a).astype(np.uint64) << np.minimum(start, 63).astype(np.uint64)) & mask
    return np.asarray(((b.astype(np.uint64) & ~mask) | wide).astype(b.dtype))


def funnel_left(a: Array, b: Array, count: Array) -> Array:
    """The upper half of two words, b above a, that are shifted to the left."""
    both = (np.asarray(b).astype(np.uint64) << np.uint64(32)) | np.asarray(a).astype(np.uint64)
    amount = (np.asarray(count) & np.uint32(31)).astype(np.uint64)
    return ((both << amount) >> np.uint64(32)).astype(np.uint32)


def funnel_right(a: Array, b: Array, count: Array) -> Array:
    """The lower half of two words, b above a, that are shifted to the right."""
    both = (np.asarray(b).astype(np.uint64) << np.uint64(32)) | np.asarray(a).astype(np.uint64)
    amount = (np.asarray(count) & np.uint32(31)).astype(np.uint64)
    return (both >> amount).astype(np.uint32)


def leading_zeros(a: Array) -> Array:
    """How many zeros stand before the first bit."""
    bits = a.dtype.itemsize * 8
    found, rest = np.full(a.shape, bits, np.uint32), a.copy()
    while rest.any():
        found -= (rest != 0).astype(np.uint32)
        rest >>= rest.dtype.type(1)
    return found


def count_bits(a: Array) -> Array:
    """How many bits are set."""
    return np.bitwise_count(a).astype(np.uint32)


def reverse_bits(a: Array) -> Array:
    """Bits from the last to the first."""
    found, bits = np.zeros_like(a), a.dtype.itemsize * 8
    one = a.dtype.type(1)
    for place in range(bits):
        found |= ((a >> a.dtype.type(place)) & one) << a.dtype.type(bits - 1 - place)
    return found


def permute_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Four of eight bytes, b above a."""
    both = (np.asarray(b).astype(np.uint64) << np.uint64(32)) | np.asarray(a).astype(np.uint64)
    selector = np.asarray(selector).astype(np.uint64)
    found = np.zeros(np.broadcast(both, selector).shape, np.uint64)
    for place in range(4):
        nibble = (selector >> np.uint64(4 * place)) & np.uint64(15)
        byte = (both >> ((nibble & np.uint64(7)) * np.uint64(8))) & np.uint64(255)
        sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        found |= np.where(nibble & np.uint64(8), sign, byte) << np.uint64(8 * place)
    return found.astype(np.uint32)


ROUND = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}


def to_integer(a: Array, kind: str, way: str) -> Array:
    """Reals as integers, the nearest that there is; what is no number is 0."""
    limits = np.iinfo(kind)
    wide = ROUND[way](np.asarray(a, np.float64))
    bounded = np.clip(wide, float(limits.min), np.nextafter(float(limits.max) + 1, 0))
    whole = np.where(np.isnan(wide), 0, bounded)
    found = whole.astype(np.int64 if limits.max < 2**63 else np.uint64)
    found = np.where(wide >= float(limits.max), limits.max, found)
    return found.astype(kind)


def to_integer_clipped(a: Array, kind: str) -> Array:
    """Integers, the nearest of another type."""
    limits = np.iinfo(kind)
    return np.clip(a, max(limits.min, np.iinfo(a.dtype).min), min(limits.max, np.iinfo(a.dtype).max)).astype(
        kind
    )


def to_bf16(a: Array) -> Array:
    """Reals rounded to bf16, as their bits."""
    found = np.asarray(a, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    return np.where(np.isnan(a), np.uint16(0x7FFF), found)


def from_bf16(a: Array) -> Array:
    """The reals of bits."""
    return (a.astype(np.uint32) << np.uint32(16)).view(np.float32)


BYTES: dict[str, Any] = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}

MOST = {"e4m3": 448.0, "e5m2": 57344.0}
"""The largest of their numbers."""


def to_byte(a: Array, kind: str) -> Array:
    """Reals rounded to 8 bits, the nearest that is finite, as their bits."""
    most = MOST[kind]
    return np.clip(np.asarray(a, np.float32), -most, most).astype(BYTES[kind]).view(np.uint8)


def from_byte(a: Array, kind: str) -> Array:
    """The reals of bits."""
    return np.asarray(a.astype(np.uint8).view(BYTES[kind]).astype(np.float32))
