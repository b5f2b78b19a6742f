"""Tensors of NAC files as arrays: every element type, every quantisation, bytes at any address, wrong tensors."""

from __future__ import annotations

import struct
from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.bridge.nac_to_graph.weights import original_shape, read_stored, read_weight, store_weight
from lamella.lang.nac import nodes as n
from tests.support.bridge.nac_numbers import TYPES, same_bits, single, tensor_of
from tests.support.strategies import nac

SCALES = st.floats(2.0**-140, 2.0**118, width=32)
CODES = arrays(np.int8, array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))


@given(st.sampled_from(TYPES), st.data(), st.integers(0, 9))
def test_elements_are_read_as_they_are_at_any_address(dtype: str, data: st.DataObject, offset: int) -> None:
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, dtype))
    shape = data.draw(array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    size = int(np.prod(shape)) * numpy_type.itemsize
    image = data.draw(st.binary(min_size=size, max_size=size))
    if dtype == "bool":
        image = bytes(byte & 1 for byte in image)
    buffer = np.zeros(size + 64, np.uint8)
    start = -buffer.ctypes.data % 16 + offset
    buffer[start : start + size] = np.frombuffer(image, np.uint8) if size else 0
    view = buffer[start : start + size].data.toreadonly() if size else b""
    found = read_weight(n.Tensor(1, TYPES.index(dtype), shape, n.Unscaled(), view))
    assert (found.dtype, found.shape) == (numpy_type, shape)
    assert found.tobytes() == image
    assert found.flags.aligned
    assert found.flags.c_contiguous
    if size:
        aligned = offset % numpy_type.alignment == 0
        assert np.shares_memory(found, buffer) == aligned
        assert found.flags.writeable != aligned


def test_bytes_that_are_no_truth_values_are_true() -> None:
    found = read_weight(n.Tensor(1, 9, (4,), n.Unscaled(), b"\0\1\2\xff"))
    assert found.dtype == np.bool_
    assert found.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_halves_are_singles_where_the_file_made_them_halves() -> None:
    halves = np.arange(-40, 40, dtype=np.float16) / 8
    for tensor, method in (
        (tensor_of(halves), n.Method.FP16),
        (tensor_of(halves, n.Unscaled(n.Method.FP16)), n.Method.NONE),
    ):
        assert same_bits(read_weight(tensor, method), [float(item) for item in halves])
    assert read_weight(tensor_of(halves)).dtype == np.float16
    singles = halves.astype(np.float32)
    assert np.array_equal(read_weight(tensor_of(singles), n.Method.FP16), singles)


@given(CODES, SCALES)
def test_codes_times_a_scale(codes: Array, scale: float) -> None:
    found = read_weight(tensor_of(codes, n.Int8Tensor(scale)))
    assert found.shape == codes.shape
    assert same_bits(found, [single(int(code) * scale) for code in codes.reshape(-1)])


@given(arrays(np.int8, array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)), st.data())
def test_codes_times_a_scale_for_each_index_of_any_axis(codes: Array, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, codes.ndim - 1))
    count = codes.shape[axis]
    scales = data.draw(st.lists(SCALES, min_size=count, max_size=count))
    image = struct.pack(f"<{count}f", *scales)
    found = read_weight(tensor_of(codes, n.Int8Channel(axis, image)))
    wanted = [single(int(codes[index]) * scales[index[axis]]) for index in np.ndindex(codes.shape)]
    assert found.shape == codes.shape
    assert same_bits(found, wanted)


@given(array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7), st.integers(1, 70), st.data())
def test_codes_in_blocks_lose_what_fills_them(
    shape: tuple[int, ...], block: int, data: st.DataObject
) -> None:
    count = int(np.prod(shape))
    blocks = -(-count // block)
    codes = data.draw(arrays(np.int8, (blocks * block,)))
    scales = data.draw(st.lists(SCALES, min_size=blocks, max_size=blocks))
    quantization = n.BlockFp8(block, shape, struct.pack(f"<{blocks}f", *scales))
    tensor = tensor_of(codes, quantization)
    found = read_weight(tensor)
    assert found.shape == shape == original_shape(tensor)
    assert same_bits(found, [single(int(codes[at]) * scales[at // block]) for at in range(count)])
    assert np.array_equal(read_stored(tensor), codes)


def test_scales_at_odd_addresses() -> None:
    image = memoryview(b"x" + struct.pack("<3f", 0.5, 3.0, 7.0))[1:]
    found = read_weight(n.Tensor(1, 7, (3,), n.Int8Channel(0, image), b"\1\2\xff"))
    assert found.tolist() == [0.5, 6.0, -7.0]


def test_products_beyond_singles_are_infinite() -> None:
    found = read_weight(n.Tensor(1, 7, (2,), n.Int8Tensor(3e38), b"\1\x7f"))
    assert found[1] == np.inf


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (n.Tensor(1, 10, (1,), n.Unscaled(), bytes(4)), "NAC140"),
        (n.Tensor(1, 0, (2,), n.Unscaled(), bytes(4)), "NAC141"),
        (n.Tensor(1, 0, (2**32 - 1,) * 3, n.Unscaled(), b""), "NAC142"),
        (n.Tensor(1, 0, (0, 2**32 - 1, 2**32 - 1), n.Unscaled(), b""), "NAC142"),
        (n.Tensor(1, 0, (1,) * 40, n.Unscaled(), bytes(4)), "NAC142"),
        (n.Tensor(1, 0, (1,), n.Int8Tensor(1.0), bytes(4)), "NAC143"),
        (n.Tensor(1, 7, (1,), n.Int8Tensor(float("nan")), b"\1"), "NAC144"),
        (n.Tensor(1, 7, (1,), n.Int8Tensor(-1.0), b"\1"), "NAC144"),
        (n.Tensor(1, 7, (1,), n.Int8Channel(0, struct.pack("<f", float("inf"))), b"\1"), "NAC144"),
        (n.Tensor(1, 7, (1,), n.Int8Channel(1, bytes(4)), b"\1"), "NAC145"),
        (n.Tensor(1, 7, (1,), n.Int8Channel(0, bytes(8)), b"\1"), "NAC146"),
        (n.Tensor(1, 7, (1,), n.BlockFp8(0, (1,), b""), b"\1"), "NAC147"),
        (n.Tensor(1, 7, (1,), n.BlockFp8(64, (1,), bytes(4)), b"\1"), "NAC148"),
        (n.Tensor(1, 7, (0,), n.BlockFp8(64, (0, 2**32 - 1, 2**32 - 1), b""), b""), "NAC142"),
    ],
)
def test_wrong_tensors_are_no_arrays(tensor: n.Tensor, code: str) -> None:
    with pytest.raises(LamellaError) as caught:
        read_weight(tensor)
    assert code in [item.code for item in caught.value.findings]


@given(nac.tensors())
def test_any_tensor_is_an_array_or_a_finding(tensor: n.Tensor) -> None:
    with suppress(LamellaError):
        assert read_weight(tensor).shape == original_shape(tensor)


@given(st.sampled_from(TYPES), array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
def test_arrays_are_stored_row_by_row(dtype: str, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    values = np.arange(count).reshape(shape).astype(getattr(ml_dtypes, dtype, dtype))
    for given_values in (values, np.array(values, order="F"), values.astype(values.dtype.newbyteorder(">"))):
        made = store_weight(given_values, 3)
        assert made is not None
        assert (made.parameter, TYPES[made.dtype], made.shape) == (3, dtype, shape)
        assert bytes(made.data) == values.tobytes()


def test_other_types_have_no_code() -> None:
    assert store_weight(np.zeros(2, np.complex64)) is None
    assert store_weight(np.zeros(2, np.uint16)) is None
    assert store_weight(np.array(["text"])) is None
