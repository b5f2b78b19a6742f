"""Tensors: their bytes are what type and shape ask for, their quantisation fits them."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import LANGUAGES
from lamella.base.limits import OutOfRange, ceil_divide, mul
from lamella.base.shape import MOST_AXES, element_count
from lamella.lang.nac.nodes import Array, BlockFp8, Data, Int8Channel, Int8Tensor, Method, Tensor, Unscaled
from lamella.lang.nac.rules import data as rules

DTYPES = tuple(LANGUAGES["nac"].items())
"""The names of element types and what they are, in the order of their codes."""
INT8, FLOAT16 = 7, 2

FITTING: Mapping[Method, frozenset[Method]] = MappingProxyType(
    {
        Method.NONE: frozenset({Method.NONE}),
        Method.FP16: frozenset({Method.NONE, Method.FP16}),
        Method.INT8_TENSOR: frozenset({Method.NONE, Method.INT8_TENSOR}),
        Method.INT8_CHANNEL: frozenset({Method.NONE, Method.INT8_TENSOR, Method.INT8_CHANNEL}),
        Method.BLOCK_FP8: frozenset({Method.NONE, Method.BLOCK_FP8}),
    }
)
"""The quantisations of tensors in a file of each method: what is no floating tensor, or too small, is left as it is."""


def check_tensor(item: Tensor, what: str, method: Method) -> Iterator[Diagnostic]:
    """The bytes of a tensor and its quantisation."""
    yield from check_array(item, what)
    quantization = item.quantization
    if quantization.method not in FITTING[method]:
        yield rules.METHOD_MISMATCH.at(
            item.span, what=what, method=quantization.method.name, header=method.name
        )
    needed = {Method.NONE: item.dtype, Method.FP16: FLOAT16}.get(quantization.method, INT8)
    if item.dtype != needed and item.dtype < len(DTYPES):
        name = DTYPES[item.dtype][0]
        yield rules.QUANT_DTYPE.at(item.span, what=what, method=quantization.method.name, dtype=name)
    if isinstance(quantization, Int8Channel):
        yield from _check_channels(item, quantization, what)
    elif isinstance(quantization, BlockFp8):
        yield from _check_blocks(item, quantization, what)
    if not isinstance(quantization, Unscaled):
        yield from _check_scales(item, quantization, what)


def check_array(item: Tensor | Array, what: str) -> Iterator[Diagnostic]:
    """The element type exists, and type and shape make up the length of the data."""
    if item.dtype >= len(DTYPES):
        yield rules.DTYPE_UNKNOWN.at(item.span, what=what, dtype=item.dtype)
        return
    name, element = DTYPES[item.dtype]
    wanted = _byte_count(item.shape, element.bits // 8)
    if wanted is None:
        yield rules.SHAPE_TOO_LARGE.at(item.span, what=what, shape=show_shape(item.shape), limit=MOST_AXES)
    elif wanted != len(item.data):
        yield rules.DATA_LENGTH.at(
            item.span,
            what=what,
            length=len(item.data),
            dtype=name,
            shape=show_shape(item.shape),
            wanted=wanted,
        )


def _byte_count(shape: Sequence[int], itemsize: int) -> int | None:
    """Bytes of a shape, or None where they cannot be counted."""
    try:
        return None if len(shape) > MOST_AXES else mul(element_count(shape), itemsize)
    except OutOfRange:
        return None


def show_shape(shape: Sequence[int], most: int = 8) -> str:
    """A shape as a message shows it."""
    shown = ", ".join(str(size) for size in shape[:most])
    return f"[{shown}, …]" if len(shape) > most else f"[{shown}]"


def _check_channels(item: Tensor, quantization: Int8Channel, what: str) -> Iterator[Diagnostic]:
    """The axis exists and has one scale for each of its indices."""
    count = len(quantization.scales) // 4
    if quantization.axis >= len(item.shape):
        yield rules.AXIS_RANGE.at(item.span, what=what, axis=quantization.axis, rank=len(item.shape))
    elif count != item.shape[quantization.axis]:
        yield rules.SCALE_COUNT.at(item.span, what=what, count=count, wanted=item.shape[quantization.axis])


def _check_blocks(item: Tensor, quantization: BlockFp8, what: str) -> Iterator[Diagnostic]:
    """The flattened tensor is filled up to whole blocks, each of which has a scale."""
    block, original = quantization.block_size, quantization.shape
    elements = _byte_count(original, 1)
    if elements is None:
        yield rules.SHAPE_TOO_LARGE.at(item.span, what=what, shape=show_shape(original), limit=MOST_AXES)
        return
    if block == 0:
        yield rules.BLOCK_SIZE.at(item.span, what=what)
        return
    blocks = ceil_divide(elements, block)
    if item.shape != (blocks * block,):
        yield rules.BLOCK_SHAPE.at(
            item.span,
            what=what,
            shape=show_shape(item.shape),
            original=show_shape(original),
            block=block,
            wanted=blocks * block,
        )
    elif len(quantization.scales) // 4 != blocks:
        yield rules.SCALE_COUNT.at(item.span, what=what, count=len(quantization.scales) // 4, wanted=blocks)


def _check_scales(
    item: Tensor, quantization: Int8Tensor | Int8Channel | BlockFp8, what: str
) -> Iterator[Diagnostic]:
    """The first scale that is not a positive finite number."""
    scales = (
        [quantization.scale] if isinstance(quantization, Int8Tensor) else read_scales(quantization.scales)
    )
    for number, scale in enumerate(scales):
        if not 0.0 < scale < math.inf:
            yield rules.SCALE_VALUE.at(item.span, what=what, number=number, scale=scale)
            return


def read_scales(data: Data) -> Iterator[float]:
    """Scales from their bytes; a rest that is no number is left."""
    whole = memoryview(data)[: len(data) // 4 * 4]
    return (scale for (scale,) in struct.iter_unpack("<f", whole))
