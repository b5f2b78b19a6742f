"""The memory image against loops over single bits."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.npu.memory import MemoryImage, byte_places, dense_bytes, read_tensor, write_tensor
from lamella.base import dtype
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import Limits
from lamella.lang.nem.resolved import TensorType
from tests.support.backend.npu.drawing import Draw
from tests.support.backend.npu.exact import Place, places
from tests.support.plan.build import buffer

ELEMENTS = dtype.LANGUAGES["nem"]
SIZE = 4096


def _strided(draw: Draw, elem: str) -> TensorType:
    """A type whose elements do not overlap: strides over a dense order of shuffled axes, with gaps."""
    shape = draw.shape()
    strides = [0] * len(shape)
    distance = draw.integer(1, 3)
    for axis in draw.random.permutation(len(shape)):
        strides[axis] = distance
        distance = distance * shape[axis] + draw.integer(0, 2)
    return TensorType(elem, shape, None, tuple(strides))


def _bit_of(type: TensorType, offset: int, place: Place) -> int:
    """The number of the first bit of an element, bits counted from the low end of byte 0."""
    element = sum(index * stride for index, stride in zip(place, type.strides, strict=True))
    return offset * 8 + element * ELEMENTS[type.elem].bits


def _bits(image: bytes, first: int, count: int) -> int:
    return sum(
        (image[bit // 8] >> bit % 8 & 1) << number for number, bit in enumerate(range(first, first + count))
    )


def _decode(raw: int, elem: str) -> float:
    """The number that the bits of an element stand for."""
    if elem == "f16":
        return float(struct.unpack("<e", raw.to_bytes(2, "little"))[0])
    if elem in ("bf16", "f32"):
        bits = raw << 16 if elem == "bf16" else raw
        return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])
    size = int(elem[1:])
    return raw - (1 << size) if elem[0] == "i" and raw >> (size - 1) else raw


@pytest.mark.parametrize("elem", ELEMENTS)
@given(data=st.data())
def test_reading_is_decoding_bits(elem: str, data: st.DataObject) -> None:
    draw = Draw(data)
    type, offset = _strided(draw, elem), draw.integer(0, 9)
    image = draw.random.integers(0, 256, SIZE, np.uint8)
    found = read_tensor(image, offset, type)
    bits = ELEMENTS[elem].bits
    wanted = {
        at: _decode(_bits(image.tobytes(), _bit_of(type, offset, at), bits), elem)
        for at in places(type.shape)
    }
    np.testing.assert_array_equal([float(found[at]) for at in wanted], list(wanted.values()))


@pytest.mark.parametrize("elem", ELEMENTS)
@given(data=st.data())
def test_writing_changes_the_bits_of_the_elements_alone(elem: str, data: st.DataObject) -> None:
    draw = Draw(data)
    type, offset = _strided(draw, elem), draw.integer(0, 9)
    values = draw.operand(type).array
    before = draw.random.integers(0, 256, SIZE, np.uint8)
    image = before.copy()
    write_tensor(image, offset, type, values)
    np.testing.assert_array_equal(read_tensor(image, offset, type), values)
    bits = ELEMENTS[elem].bits
    own = {_bit_of(type, offset, at) + bit for at in places(type.shape) for bit in range(bits)}
    if bits == 4 and dense_bytes(type) is not None:
        own = {bit // 8 * 8 + other for bit in own for other in range(8)}
    changed = np.flatnonzero(np.unpackbits(before ^ image, bitorder="little"))
    assert set(changed.tolist()) <= own
    touched = np.arange(SIZE)[byte_places(offset, type)]
    assert set(touched.tolist()) == {bit // 8 for bit in own}


def test_the_last_high_nibble_of_an_odd_count_is_zero() -> None:
    image = np.full(4, 0xFF, np.uint8)
    type = TensorType("i4", (3,), "C", (1,))
    write_tensor(image, 1, type, np.array([1, -1, 2], read_tensor(image, 0, type).dtype))
    assert image.tolist() == [0xFF, 0xF1, 0x02, 0xFF]


def test_unwritten_bytes_are_told_as_a_range() -> None:
    memory = MemoryImage([buffer("A", 16)])
    dense, sparse = TensorType("i8", (8,), "C", (1,)), TensorType("i8", (4,), None, (2,))
    assert memory.unwritten("A", 4, dense) == (4, 12)
    memory.write("A", 4, dense, np.zeros(8, np.int8))
    assert memory.unwritten("A", 4, dense) is None
    assert memory.unwritten("A", 0, dense) == (0, 4)
    assert memory.unwritten("A", 9, sparse) == (13, 14)
    assert memory.unwritten("A", 4, sparse) is None


def test_more_memory_than_the_limit_is_refused() -> None:
    with pytest.raises(LamellaError) as caught:
        MemoryImage([buffer("A", 600), buffer("B", 500)], Limits(max_total_bytes=1000))
    assert [item.code for item in caught.value.findings] == ["NEM175"]
    assert "1100 bytes; the limit is 1000" in caught.value.findings[0].message
    with pytest.raises(LamellaError) as caught:
        MemoryImage([buffer("A", 1 << 62)], Limits(max_total_bytes=1 << 62))
    assert "the memory of this machine" in caught.value.findings[0].message
