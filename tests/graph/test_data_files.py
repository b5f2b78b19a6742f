"""Tensor files: every item type against bytes written by hand, and what must not be believed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate import expected, repaired
from lamella.graph.data import DatItem, Stored, decode_dat, encode_dat, read_dat, write_dat
from tests.support.graph.data_files import findings, header_of, judge, little_endian, pack_bits

BAD = Path(__file__).parents[1] / "lang" / "skriptnd" / "bad"
DESCRIBED = sorted(path for path in BAD.glob("skr3[4-6]*.txt") if not re.search("skr3(58|59|69)", path.name))
INTEGERS = (DatItem.UNSIGNED, DatItem.SIGNED, DatItem.QUANTIZED_UNSIGNED, DatItem.QUANTIZED_SIGNED)


@pytest.mark.parametrize("path", DESCRIBED, ids=lambda path: path.stem)
def test_wrong_files_are_found_and_right_ones_are_not(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [item.code for item in judge(text, tmp_path / "wrong")] == expected(text)
    assert not judge(repaired(text), tmp_path / "right")


@st.composite
def integer_files(draw: st.DrawFn) -> tuple[DatItem, int, list[int], tuple[int, ...]]:
    """An item type, a width, values that fit and a shape."""
    item, bits = draw(st.sampled_from(INTEGERS)), draw(st.integers(1, 64))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if item.is_signed else (0, (1 << bits) - 1)
    rows = draw(st.integers(1, 3))
    columns = draw(st.integers(1, 7))
    values = draw(st.lists(st.integers(low, high), min_size=rows * columns, max_size=rows * columns))
    return item, bits, values, (rows, columns)


@given(integer_files())
def test_integers_of_every_width(case: tuple[DatItem, int, list[int], tuple[int, ...]]) -> None:
    item, bits, values, shape = case
    packed = pack_bits(values, bits) if bits % 8 else little_endian(values, bits // 8)
    image = header_of(shape, bits, int(item)) + packed
    stored = decode_dat(image, "x.dat")
    assert stored.values.shape == shape
    assert [int(value) for value in stored.values.reshape(-1)] == values
    assert (stored.item, stored.bits) == (item, bits)
    assert encode_dat(stored, "x.dat") == image


@pytest.mark.parametrize("count", [1, (1 << 16) - 1, (1 << 16) + 3])
def test_long_files_are_unpacked_in_parts(count: int) -> None:
    values = np.random.default_rng(1).integers(-(1 << 4), 1 << 4, count).astype(np.int8)
    image = encode_dat(Stored(values, DatItem.SIGNED, 5), "x.dat")
    assert image[128:] == pack_bits(values.tolist(), 5)
    assert np.array_equal(decode_dat(image, "x.dat").values, values)


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.sampled_from((1, 8)))
def test_bools_of_one_bit_and_of_eight(values: list[bool], bits: int) -> None:
    numbers = [int(value) for value in values]
    packed = pack_bits(numbers, 1) if bits == 1 else bytes(numbers)
    stored = decode_dat(header_of((len(values),), bits, 5) + packed, "x.dat")
    assert stored.values.dtype == np.bool_
    assert stored.values.tolist() == values


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 4), (1,) * 8])
def test_arrays_come_back_as_they_were(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    values = np.asarray(np.random.default_rng(2).normal(size=shape) * 50, dtype)
    write_dat(tmp_path / "x.dat", values)
    stored = read_dat(tmp_path / "x.dat")
    assert stored.values.dtype == values.dtype
    assert np.array_equal(stored.values, values)
    assert (tmp_path / "x.dat").stat().st_size == 128 + -(-values.size * stored.bits // 8)


def test_floats_keep_their_bits() -> None:
    values = np.array([np.nan, -0.0, np.inf, 5e-324], np.float64)
    image = encode_dat(values, "x.dat")
    assert image[128:] == values.astype("<f8").tobytes()
    assert decode_dat(image, "x.dat").values.tobytes() == values.tobytes()


def test_signed_integers_of_old_files() -> None:
    image = header_of((2,), 16, 1, reserved=1) + little_endian([-2, 5], 2)
    stored = decode_dat(image, "x.dat")
    assert stored.item is DatItem.SIGNED
    assert stored.values.tolist() == [-2, 5]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (np.zeros((1,) * 9), "9 axes"),
        (np.zeros((2, 0)), "extent"),
        (np.zeros(2, np.complex64), "c32"),
        (Stored(np.array([8]), DatItem.SIGNED, 4), "8 .. 8 leave -8 .. 7"),
    ],
)
def test_what_the_format_cannot_say_is_refused(values: Stored, word: str) -> None:
    (finding,) = findings(lambda: encode_dat(values, "x.dat"))
    assert finding.code == "SKR353"
    assert word in finding.message


def test_extents_whose_product_overflows_are_refused_before_memory_is_taken() -> None:
    image = header_of((1,), 32, 0) + bytes(4)
    image = image[:8] + (8).to_bytes(4, "little") + b"\xff" * 32 + image[44:]
    (finding,) = findings(lambda: decode_dat(image, "x.dat"))
    assert finding.code == "SKR350"
    assert "4294967295" in finding.message


@pytest.mark.parametrize("length", [0, 1, 127])
def test_cut_headers(length: int) -> None:
    (finding,) = findings(lambda: decode_dat(bytes(length), "x.dat"))
    assert finding.code == "SKR340"


@given(st.binary(max_size=8), st.integers(0, 135))
def test_changed_bytes_are_read_alike_or_refused(change: bytes, place: int) -> None:
    """A changed file is refused, or what it says now is written back to the same bytes."""
    image = bytearray(header_of((2, 3), 8, 4) + bytes(range(6)))
    image[place : place + len(change)] = change
    wrong = findings(lambda: decode_dat(bytes(image), "x.dat"))
    assert all(re.fullmatch(r"SKR3[45]\d", item.code) for item in wrong)
    old_flag = image[48:49] == b"\1" and any(image[52:56])
    if not wrong and not old_flag:
        assert encode_dat(decode_dat(bytes(image), "x.dat"), "x.dat") == bytes(image)
