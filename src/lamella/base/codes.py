"""Weights that are stored as codes: number = code * scale + offset, where neighbours along the last axis share both.

Codes of 4 bits may stand for the numbers of a table instead of themselves: number = table[code + 8] * scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm
from typing import TYPE_CHECKING

import numpy as np

from lamella.base.arrays import element_type_of, numpy_dtype
from lamella.base.dtype import BF16, I4, I8, ElementType
from lamella.base.records import dataclass

if TYPE_CHECKING:
    from lamella.base.arrays import Array


LOWEST_CODE = -8
"""The lowest code of 4 bits, for which the first number of a table is."""
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the numbers of the type f4e2m1 by their codes: so they are integers."""


@dataclass(frozen=True, slots=True)
class CodeForm:
    """What is known of a weight's codes before any is read."""

    element: ElementType
    """i4, i8, a real of 8 bits, or bf16, which holds all of them: what kernels read."""
    group: int
    """How many neighbours share a scale."""
    has_offsets: bool = False
    numbers: tuple[float, ...] = ()
    """What codes of 4 bits stand for, from the lowest on, where that is not themselves."""


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """Codes `[…, n]` with the scales, and where there are some the offsets, `[…, n / group]` of their groups."""

    codes: Array
    scales: Array
    offsets: Array | None = None
    numbers: tuple[float, ...] = ()
    """What codes of 4 bits stand for, from the lowest on, where that is not themselves."""

    def decode(self) -> Array:
        """The numbers that they stand for, in f32."""
        *lead, count = self.codes.shape
        groups = self.scales.shape[-1]
        numbers = self._numbers().reshape(*lead, groups, count // groups if groups else 0)
        with np.errstate(all="ignore"):
            numbers *= self.scales[..., None]
            if self.offsets is not None:
                numbers += self.offsets[..., None]
        found: Array = numbers.reshape(self.codes.shape)
        return found

    def _numbers(self) -> Array:
        """What the codes stand for before any scale."""
        if not self.numbers:
            return self.codes.astype(np.float32)
        return np.array(self.numbers, np.float32)[self.codes.astype(np.int8) - LOWEST_CODE]

    def decode_by(self, index: Array) -> Array:
        """The numbers where an index says of each place along the last axis which scale it has."""
        numbers: Array = self._numbers() * self.scales[..., index]
        return numbers if self.offsets is None else numbers + self.offsets[..., index]

    def offset_rows(self) -> Array:
        """The offsets; zeros where there are none."""
        return np.zeros_like(self.scales) if self.offsets is None else self.offsets

    def rows(self, order: Array) -> Codes:
        """The same with its rows, along the axis before the last, in another order."""
        offsets = None if self.offsets is None else self.offsets[..., order, :]
        return Codes(self.codes[..., order, :], self.scales[..., order, :], offsets, self.numbers)


def join_forms(forms: Sequence[CodeForm]) -> CodeForm | None:
    """The form of codes one behind the other: it holds each of them; None where their tables are not the same."""
    numbers = {item.numbers for item in forms}
    if len(numbers) > 1:
        return None
    element = _widest([item.element for item in forms])
    has_offsets = any(item.has_offsets for item in forms)
    return CodeForm(element, gcd(*(item.group for item in forms)), has_offsets, *numbers)


def join_rows(parts: Sequence[Codes]) -> Codes:
    """Codes one behind the other along their rows, in the form that holds each of them."""
    groups = lcm(*(item.scales.shape[-1] for item in parts))
    found = (element_type_of(item.codes.dtype) for item in parts)
    widest = numpy_dtype(_widest([item for item in found if item is not None]))
    offsets = None
    if any(item.offsets is not None for item in parts):
        offsets = np.concatenate([_finer(item.offset_rows(), groups) for item in parts])
    codes = np.concatenate([item.codes.astype(widest) for item in parts])
    scales = np.concatenate([_finer(item.scales, groups) for item in parts])
    return Codes(codes, scales, offsets, parts[0].numbers)


def _widest(elements: Sequence[ElementType]) -> ElementType:
    """The type that holds codes of all of some types: bf16 where they are integers and reals, or several reals."""
    if len(set(elements)) > 1 and any(item.is_float for item in elements):
        return BF16
    return max(elements, key=lambda item: item.bits)


def _finer(scales: Array, groups: int) -> Array:
    """Scales of larger groups as those of smaller ones."""
    return np.repeat(scales, groups // scales.shape[-1], axis=-1)


def signed_codes(codes: Array, bits: int, scales: Array, offsets: Array | None) -> Codes:
    """Codes that count from 0 as signed ones of 4 or 8 bits: what is taken from each is in its offset."""
    middle = 1 << bits - 1
    element = I4 if bits <= 4 else I8
    moved = (codes.astype(np.int16) - middle).astype(numpy_dtype(element))
    shift = scales * np.float32(middle)
    return Codes(moved, scales, shift if offsets is None else offsets + shift)


def centred_codes(codes: Array, bits: int, scales: Array) -> Codes:
    """Codes that count from 0 and whose middle one stands for 0."""
    element = I4 if bits <= 4 else I8
    moved = (codes.astype(np.int16) - (1 << bits - 1)).astype(numpy_dtype(element))
    return Codes(moved, scales)


def unpack_words(words: Array, bits: int, count: int) -> Array:
    """The first codes of `bits` bits in rows of 32-bit words, the lowest bits first; a code may lie in two words."""
    lead = words.shape[:-1]
    image = np.ascontiguousarray(words).view(np.uint8).reshape(*lead, -1)
    if bits == 8:
        return image[..., :count]
    if bits == 4:
        pairs = np.stack([image & 15, image >> 4], axis=-1)
        return pairs.reshape(*lead, -1)[..., :count]
    single = np.unpackbits(image, axis=-1, bitorder="little")[..., : count * bits]
    parts = single.reshape(*lead, count, bits)
    found: Array = (parts << np.arange(bits, dtype=np.uint8)).sum(-1, dtype=np.uint8)
    return found
