"""Blocks of GGUF as codes: number = code * scale + offset, each kind with the size of its groups.

The layouts are those of the public description of the format: a block holds its scales in half precision, or in six
bits times one of half precision, beside codes of two to eight bits, of which high bits may lie apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.codes import E2M1, CodeForm, Codes, signed_codes

SPREAD = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
"""The sixteen numbers of IQ4, denser around 0."""


class BlockDecoded(NamedTuple):
    """What blocks hold: codes `[blocks, elements]`, scales and offsets `[blocks, groups]`."""

    codes: Array
    scales: Array
    offsets: Array | None = None


class BlockKind(NamedTuple):
    """A kind of blocks: how kernels see its codes, and how they lie in bytes `[blocks, bytes]`."""

    form: CodeForm
    decode: Callable[[Array], BlockDecoded]


def decode_blocks(kind: BlockKind, image: Array, shape: tuple[int, ...]) -> Codes:
    """The codes of a tensor from its bytes `[blocks, bytes]`."""
    found = kind.decode(image)
    lead = (*shape[:-1], shape[-1] // kind.form.group)
    codes = found.codes.astype(numpy_dtype(kind.form.element)).reshape(shape)
    offsets = None if found.offsets is None else found.offsets.reshape(lead)
    return Codes(codes, found.scales.reshape(lead), offsets)


def _half(image: Array, place: int) -> Array:
    """A number of half precision of each block, as a column."""
    part = np.ascontiguousarray(image[:, place : place + 2])
    return part.view(np.float16).astype(np.float32)


def _nibbles(image: Array) -> Array:
    """The low halves of bytes, then the high ones."""
    return np.concatenate([image & 15, image >> 4], axis=-1)


def _high_bits(image: Array) -> Array:
    """Bit i of four bytes as the fifth bit of code i."""
    return np.unpackbits(np.ascontiguousarray(image), axis=-1, bitorder="little") << 4


def _offset(codes: Array, bits: int, scales: Array, offsets: Array) -> BlockDecoded:
    found = signed_codes(codes, bits, scales, offsets)
    return BlockDecoded(found.codes, found.scales, found.offsets)


def _q4_0(image: Array) -> BlockDecoded:
    return BlockDecoded(_nibbles(image[:, 2:]).astype(np.int8) - 8, _half(image, 0))


def _q4_1(image: Array) -> BlockDecoded:
    return _offset(_nibbles(image[:, 4:]), 4, _half(image, 0), _half(image, 2))


def _q5_0(image: Array) -> BlockDecoded:
    codes = (_nibbles(image[:, 6:]) | _high_bits(image[:, 2:6])).astype(np.int8) - 16
    return BlockDecoded(codes, _half(image, 0))


def _q5_1(image: Array) -> BlockDecoded:
    codes = (_nibbles(image[:, 8:]) | _high_bits(image[:, 4:8])).astype(np.int8)
    return BlockDecoded(codes, _half(image, 0), _half(image, 2))


def _q8_0(image: Array) -> BlockDecoded:
    return BlockDecoded(np.ascontiguousarray(image[:, 2:]).view(np.int8), _half(image, 0))


def _iq4_nl(image: Array) -> BlockDecoded:
    return BlockDecoded(SPREAD[_nibbles(image[:, 2:])], _half(image, 0))


def _mxfp4(image: Array) -> BlockDecoded:
    powers = np.ldexp(np.float32(1), image[:, :1].astype(np.int32) - 128)
    return BlockDecoded(E2M1[_nibbles(image[:, 1:])], powers)


def _shifted(image: Array, bits: int) -> Array:
    """Parts of bytes: for each run of 32 bytes all lowest parts, then the next ones, as `[blocks, elements]`."""
    runs = image.reshape(len(image), -1, 1, 32)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return (runs >> shifts & (1 << bits) - 1).reshape(len(image), -1)


def _six_bits(image: Array) -> tuple[Array, Array]:
    """Eight scales and eight minima of six bits in twelve bytes."""
    low, middle, high = image[:, :4], image[:, 4:8], image[:, 8:12]
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=-1)
    minima = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], axis=-1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _q2_k(image: Array) -> BlockDecoded:
    scales, (whole, least) = image[:, :16], (_half(image, 80), _half(image, 82))
    codes = _shifted(image[:, 16:80], 2)
    return _offset(
        codes, 2, whole * (scales & 15).astype(np.float32), -least * (scales >> 4).astype(np.float32)
    )


def _q3_k(image: Array) -> BlockDecoded:
    packed = image[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=-1)
    high = np.concatenate([packed[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=-1)
    scales = (low | high << 4).astype(np.int8) - np.int8(32)
    # A bit that is not set takes 4 away.
    masks = _shifted(image[:, :32], 1)
    codes = _shifted(image[:, 32:96], 2).astype(np.int8) - ((1 - masks.astype(np.int8)) << 2)
    return BlockDecoded(codes, _half(image, 108) * scales.astype(np.float32))


def _q4_k(image: Array) -> BlockDecoded:
    scales, minima = _six_bits(image[:, 4:16])
    codes = _shifted(image[:, 16:], 4)
    return _offset(codes, 4, _half(image, 0) * scales, -_half(image, 2) * minima)


def _q5_k(image: Array) -> BlockDecoded:
    scales, minima = _six_bits(image[:, 4:16])
    codes = (_shifted(image[:, 48:], 4) | _shifted(image[:, 16:48], 1) << 4).astype(np.int8)
    return BlockDecoded(codes, _half(image, 0) * scales, -_half(image, 2) * minima)


def _q6_k(image: Array) -> BlockDecoded:
    # Of 64 bytes the low halves are two runs of 32 codes, the high halves the next two.
    low = image[:, :128].reshape(len(image), 2, 1, 64) >> np.array([[0], [4]], np.uint8) & 15
    high = _shifted(image[:, 128:192], 2)
    codes = (low.reshape(len(image), 256) | high << 4).astype(np.int8) - np.int8(32)
    scales = np.ascontiguousarray(image[:, 192:208]).view(np.int8).astype(np.float32)
    return BlockDecoded(codes, _half(image, 208) * scales)


def _iq4_xs(image: Array) -> BlockDecoded:
    high = np.ascontiguousarray(image[:, 2:4]).view("<u2")
    low = np.stack([image[:, 4:8] & 15, image[:, 4:8] >> 4], axis=-1).reshape(len(image), 8)
    top = (high >> np.arange(0, 16, 2, dtype=np.uint16) & 3).astype(np.uint8)
    scales = (low | top << 4).astype(np.int8) - np.int8(32)
    codes = SPREAD[_nibbles(image[:, 8:].reshape(len(image), 8, 16))]
    return BlockDecoded(codes.reshape(len(image), 256), _half(image, 0) * scales.astype(np.float32))


KINDS: Mapping[str, BlockKind] = MappingProxyType(
    {
        "Q4_0": BlockKind(CodeForm(types.I4, 32), _q4_0),
        "Q4_1": BlockKind(CodeForm(types.I4, 32, True), _q4_1),
        "Q5_0": BlockKind(CodeForm(types.I8, 32), _q5_0),
        "Q5_1": BlockKind(CodeForm(types.I8, 32, True), _q5_1),
        "Q8_0": BlockKind(CodeForm(types.I8, 32), _q8_0),
        "Q2_K": BlockKind(CodeForm(types.I4, 16, True), _q2_k),
        "Q3_K": BlockKind(CodeForm(types.I4, 16), _q3_k),
        "Q4_K": BlockKind(CodeForm(types.I4, 32, True), _q4_k),
        "Q5_K": BlockKind(CodeForm(types.I8, 32, True), _q5_k),
        "Q6_K": BlockKind(CodeForm(types.I8, 16), _q6_k),
        "IQ4_NL": BlockKind(CodeForm(types.I8, 32), _iq4_nl),
        "IQ4_XS": BlockKind(CodeForm(types.I8, 32), _iq4_xs),
        "MXFP4": BlockKind(CodeForm(types.I8, 32), _mxfp4),
    }
)
"""The kinds of blocks by the names of their types."""
