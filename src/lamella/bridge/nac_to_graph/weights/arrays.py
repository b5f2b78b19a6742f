"""Tensors of a file as arrays, without a copy where their bytes can be used as they lie, and arrays as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, cast, element_type_of, numpy_dtype, to_memory
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.dtype import ElementType
from lamella.base.shape import MOST_AXES, element_count
from lamella.lang.nac.check.data import DTYPES, check_tensor, show_shape
from lamella.lang.nac.nodes import BlockFp8, Data, Int8Channel, Int8Tensor, Method, Tensor, Unscaled
from lamella.lang.nac.rules import data as rules

_CODES: Mapping[ElementType, int] = MappingProxyType(
    {element: code for code, (_, element) in enumerate(DTYPES)}
)


def read_weight(tensor: Tensor, method: Method = Method.NONE) -> Array:
    """The array of a tensor, dequantised to float32; LamellaError holds what is wrong with the tensor.

    `method` is that of the file: where it is FP16, halves are halves only because of it, and become float32. An array
    that is not computed is a read-only view of the bytes unless they are not aligned.
    """
    codes = read_stored(tensor)
    match tensor.quantization:
        case Int8Tensor(scale):
            return _scale(codes, cast(np.array(scale), types.F32), tensor.shape)
        case Int8Channel(axis, scales):
            along = [-1 if index == axis else 1 for index in range(codes.ndim)]
            return _scale(codes, _scales(scales).reshape(along), tensor.shape)
        case BlockFp8(block_size, shape, scales):
            return _join_blocks(tensor, codes.reshape(-1, block_size), _scales(scales), shape)
        case Unscaled(own):
            halved = Method.FP16 in (own, method) and codes.dtype == np.float16
            return codes.astype(np.float32) if halved else codes


def read_stored(tensor: Tensor) -> Array:
    """The array of a tensor as it is stored: codes where it is quantised. LamellaError as `read_weight`."""
    what = f"the tensor of parameter {tensor.parameter}"
    wrong = errors(check_tensor(tensor, what, tensor.quantization.method))
    if wrong:
        raise LamellaError(wrong)
    element = DTYPES[tensor.dtype][1]
    image = np.frombuffer(tensor.data, np.uint8) if len(tensor.data) else np.empty(0, np.uint8)
    if element == types.BOOL and image.max(initial=0) > 1:
        return _reshape(tensor, image != 0, tensor.shape)
    flat = image.view(numpy_dtype(element))
    return _reshape(tensor, flat if flat.flags.aligned else flat.copy(), tensor.shape)


def _reshape(tensor: Tensor, values: Array, shape: Sequence[int]) -> Array:
    """An array of a shape; without elements its other extents may be more than NumPy counts."""
    try:
        return values.reshape(shape)
    except ValueError:
        what = f"the tensor of parameter {tensor.parameter}"
        finding = rules.SHAPE_TOO_LARGE.at(tensor.span, what=what, shape=show_shape(shape), limit=MOST_AXES)
        raise LamellaError([finding]) from None


def _scales(scales: Data) -> Array:
    """Scales from their bytes; a rest that is no number is left."""
    whole = scales[: len(scales) // 4 * 4]
    return np.frombuffer(whole, np.float32) if len(whole) else np.empty(0, np.float32)


def _scale(codes: Array, scales: Array, shape: Sequence[int]) -> Array:
    """Codes times scales, each product rounded once to float32."""
    values = codes.astype(np.float32).reshape(shape)
    with np.errstate(over="ignore"):
        values *= scales
    return values


def _join_blocks(tensor: Tensor, blocks: Array, scales: Array, shape: Sequence[int]) -> Array:
    """Blocks, each with its scale, without what fills the last of them."""
    values = _scale(blocks, scales.reshape(-1, 1), blocks.shape)
    return _reshape(tensor, values.reshape(-1)[: element_count(shape)], shape)


def store_weight(values: Array, parameter: int = 0) -> Tensor | None:
    """A tensor that holds an array as it is; None where NAC has no code for its elements."""
    element = element_type_of(values.dtype)
    code = None if element is None else _CODES.get(element)
    if code is None:
        return None
    return Tensor(parameter, code, values.shape, Unscaled(), image_of(values))


def image_of(values: Array) -> Data:
    """The bytes of an array, row-major and little endian; not copied where they lie so."""
    return to_memory(values).data.toreadonly() if values.size else b""


def original_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor when it is read."""
    found = tensor.quantization
    return found.shape if isinstance(found, BlockFp8) else tensor.shape
