"""Weights quantised by NumPy as the format says are right; a changed field is found."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.lang.nac.check import check
from lamella.lang.nac.nodes import (
    INPUT,
    OUTPUT,
    BlockFp8,
    File,
    Header,
    Instruction,
    Int8Channel,
    Int8Tensor,
    Method,
    Parameter,
    Tensor,
    Unscaled,
)

DTYPES = ("f4", "f8", "f2", "V2", "i4", "i8", "i2", "i1", "u1", "?")
"""NumPy's types in the order of the format's codes; bfloat16 is two bytes."""
INT8, FLOAT16 = 7, 2
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def file_with(tensor: Tensor, method: Method = Method.NONE) -> File:
    """A file that holds one tensor."""
    return File(
        header=Header(method=method, internal=True, inputs=1, outputs=1),
        instructions=(Instruction(INPUT), Instruction(OUTPUT, 0, (), (-1,))),
        parameters=(Parameter(1, "weight"),),
        tensors=(tensor,),
    )


def codes(tensor: Tensor, method: Method = Method.NONE) -> list[str]:
    """The findings of a file that holds one tensor."""
    return [item.code for item in check(file_with(tensor, method))]


def per_channel(weights: np.ndarray, axis: int) -> Tensor:
    """INT8_CHANNEL along an axis."""
    others = tuple(place for place in range(weights.ndim) if place != axis)
    largest = np.abs(weights).max(axis=others, initial=0.0, keepdims=True)
    scales = np.where(largest == 0, 1e-9, largest / 127).astype("<f4")
    kept = np.clip(np.rint(weights / scales), -127, 127).astype("i1")
    return Tensor(1, INT8, weights.shape, Int8Channel(axis, scales.tobytes()), kept.tobytes())


def by_blocks(weights: np.ndarray, block: int) -> Tensor:
    """BLOCK_FP8: blocks of the flattened tensor."""
    flat = np.zeros(-(-weights.size // block) * block, "f4")
    flat[: weights.size] = weights.reshape(-1)
    blocks = flat.reshape(-1, block)
    largest = np.abs(blocks).max(axis=1, initial=0.0)
    scales = np.where(largest == 0, 1.0, largest / 127).astype("<f4")
    kept = np.clip(np.rint(blocks / scales[:, None]), -128, 127).astype("i1")
    return Tensor(1, INT8, flat.shape, BlockFp8(block, weights.shape, scales.tobytes()), kept.tobytes())


@given(st.integers(0, 9), SHAPES)
def test_bytes_are_the_product_of_the_shape(code: int, shape: tuple[int, ...]) -> None:
    data = np.zeros(shape, DTYPES[code]).tobytes()
    tensor = Tensor(1, code, shape, Unscaled(), data)
    assert codes(tensor) == []
    assert codes(replace(tensor, data=data + b"\0")) == ["NAC141"]


@given(SHAPES.filter(len), st.data())
def test_channels_have_a_scale_each(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    weights = np.random.default_rng(0).standard_normal(shape)
    tensor = per_channel(weights, axis)
    assert codes(tensor, Method.INT8_CHANNEL) == []
    changed = data.draw(st.integers(0, 255))
    assert isinstance(tensor.quantization, Int8Channel)
    quantization = replace(tensor.quantization, axis=changed)
    fits = changed < len(shape) and shape[changed] == shape[axis]
    found = codes(replace(tensor, quantization=quantization), Method.INT8_CHANNEL)
    assert found == ([] if fits else ["NAC145" if changed >= len(shape) else "NAC146"])


@given(SHAPES, st.integers(1, 70), st.integers(0, 70))
def test_blocks_are_whole(shape: tuple[int, ...], block: int, changed: int) -> None:
    tensor = by_blocks(np.random.default_rng(1).standard_normal(shape), block)
    assert codes(tensor, Method.BLOCK_FP8) == []
    assert isinstance(tensor.quantization, BlockFp8)
    quantization = replace(tensor.quantization, block_size=changed)
    found = codes(replace(tensor, quantization=quantization), Method.BLOCK_FP8)
    count = math.prod(shape)
    if changed == 0:
        assert found == ["NAC147"]
    elif -(-count // changed) * changed != len(tensor.data):
        assert found == ["NAC148"]
    else:
        assert found == ([] if -(-count // changed) == len(tensor.data) // block else ["NAC146"])


@pytest.mark.parametrize("scale", [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf])
def test_scales_are_positive_and_finite(scale: float) -> None:
    assert codes(Tensor(1, INT8, (1,), Int8Tensor(scale), b"\0"), Method.INT8_TENSOR) == ["NAC144"]
    scales = struct.pack("<3f", 1.0, scale, scale)
    assert codes(Tensor(1, INT8, (3,), Int8Channel(0, scales), b"123"), Method.INT8_CHANNEL) == ["NAC144"]


def test_the_smallest_scale_is_one() -> None:
    assert codes(Tensor(1, INT8, (1,), Int8Tensor(2.0**-149), b"\0"), Method.INT8_TENSOR) == []


@pytest.mark.parametrize("dtype", [10, 254, 255])
def test_unknown_element_types_are_refused(dtype: int) -> None:
    assert codes(Tensor(1, dtype, (1,), Unscaled(), b"\0")) == ["NAC140"]


@pytest.mark.parametrize(
    "shape", [(0xFFFFFFFF,) * 3, (0, *(0xFFFFFFFF,) * 3), (1,) * 25, (0xFFFFFFFF,) * 200]
)
def test_shapes_beyond_counting_are_refused(shape: tuple[int, ...]) -> None:
    assert codes(Tensor(1, INT8, shape, Unscaled(), b"\0")) == ["NAC142"]
    tensor = Tensor(1, INT8, (64,), BlockFp8(64, shape, bytes(4)), bytes(64))
    assert "NAC142" in codes(tensor, Method.BLOCK_FP8)


def test_blocks_of_the_largest_tensor_are_counted() -> None:
    shape = (0xFFFFFFFF, 0x7FFFFFFF)
    tensor = Tensor(1, INT8, (64,), BlockFp8(65535, shape, struct.pack("<f", 1.0)), bytes(64))
    assert codes(tensor, Method.BLOCK_FP8) == ["NAC148"]


@pytest.mark.parametrize("method", list(Method))
def test_small_tensors_of_a_quantised_file_are_left_as_they_are(method: Method) -> None:
    assert codes(Tensor(1, 5, (1,), Unscaled(), bytes(8)), method) == []


def test_half_precision_is_stored_without_a_code() -> None:
    assert codes(Tensor(1, FLOAT16, (2,), Unscaled(), bytes(4)), Method.FP16) == []
    assert codes(Tensor(1, FLOAT16, (2,), Unscaled(Method.FP16), bytes(4)), Method.FP16) == []
