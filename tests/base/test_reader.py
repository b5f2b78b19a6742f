"""The binary reader against struct, and on bytes that are too few."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.errors import InputError
from lamella.base.reader import Reader

FIELDS: dict[str, Callable[[Reader], int | float]] = {
    "B": Reader.u8,
    "H": Reader.u16,
    "I": Reader.u32,
    "Q": Reader.u64,
    "b": Reader.i8,
    "h": Reader.i16,
    "i": Reader.i32,
    "q": Reader.i64,
    "f": Reader.f32,
    "d": Reader.f64,
}


@given(st.text(alphabet="BHIQbhiqfd", max_size=8), st.binary(min_size=64, max_size=80))
def test_fields_are_those_of_struct(layout: str, data: bytes) -> None:
    reader = Reader(memoryview(data))
    found = [FIELDS[code](reader) for code in layout]
    expected = struct.unpack_from("<" + layout, data)
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, expected, strict=True))
    assert reader.position == struct.calcsize("<" + layout)
    assert reader.remaining == len(data) - reader.position
    assert reader.size == len(data)


@given(st.binary(max_size=7), st.sampled_from("HIQhiqfd"))
def test_a_field_that_is_cut_off_tells_where(data: bytes, code: str) -> None:
    reader = Reader(data)
    if len(data) >= struct.calcsize("<" + code):
        FIELDS[code](reader)
        return
    with pytest.raises(InputError) as caught:
        FIELDS[code](reader)
    assert caught.value.offset == 0
    assert f"{len(data)} are left" in caught.value.findings[0].message


def test_blocks_and_strings() -> None:
    reader = Reader("ab€".encode() + b"\x01\x02")
    assert reader.string(5) == "ab€"
    assert reader.take(2) == b"\x01\x02"
    reader.finish("the file")


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (b"ab\xffd", 2, "not UTF-8"),
        (b"a\0bc", 1, "NUL"),
        (b"abc\xe2", 3, "not UTF-8"),
        (b"abc", 0, "3 are left"),
    ],
)
def test_bad_strings_tell_the_byte(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        Reader(data).string(4)
    assert caught.value.offset == offset


@given(st.integers(-5, 1 << 70), st.integers(0, 1 << 40), st.integers(0, 20))
def test_counts_are_compared_with_what_is_left(number: int, each: int, size: int) -> None:
    reader = Reader(bytes(size))
    in_range = number < 1 << 63
    if number >= 0 and in_range and number * each <= size:
        assert reader.count(number, each) == number
    else:
        with pytest.raises(InputError, match="items"):
            reader.count(number, each)


@pytest.mark.parametrize("size", [-1, 5, 1 << 62])
def test_impossible_blocks_are_refused_and_nothing_moves(size: int) -> None:
    reader = Reader(b"abcd")
    with pytest.raises(InputError):
        reader.take(size)
    assert reader.position == 0


def test_magic_and_trailing_bytes() -> None:
    reader = Reader(b"STCBx")
    reader.expect(b"STCB", "a task-control stream")
    with pytest.raises(InputError, match="1 bytes follow the end of the file") as caught:
        reader.finish("the file")
    assert caught.value.offset == 4
    with pytest.raises(InputError, match="not a task-control stream"):
        Reader(b"NOPE").expect(b"STCB", "a task-control stream")


def test_an_error_can_be_told_of_a_file() -> None:
    with pytest.raises(InputError) as caught:
        Reader(b"").u32()
    told = caught.value.within("x.stcb")
    assert told.offset == 0
    assert str(told).startswith("x.stcb:1:1: error[LAM001]: u32 needs 4 bytes, 0 are left (at byte 0)")


@given(st.binary(max_size=40), st.integers(0, 12), st.sampled_from("bBhHiIqQ"))
def test_rows_of_integers_are_those_of_struct(data: bytes, count: int, code: str) -> None:
    reader, size = Reader(data), struct.calcsize(f"<{code}")
    if count * size <= len(data):
        assert reader.integers(code, count) == struct.unpack_from(f"<{count}{code}", data)
        assert reader.position == count * size
    else:
        with pytest.raises(InputError, match=f"needs {count * size} bytes"):
            reader.integers(code, count)
        assert reader.position == 0


def test_rows_of_numbers() -> None:
    data = struct.pack("<3f", 0.5, -1.5, math.inf)
    assert Reader(data).f32s(3) == (0.5, -1.5, math.inf)
    with pytest.raises(InputError, match="needs 16 bytes, 12 are left"):
        Reader(data).f32s(4)


def test_a_view_is_no_copy_and_cannot_be_written() -> None:
    data = bytearray(b"abcdef")
    view = Reader(memoryview(data), 1).view(3)
    data[1] = ord("x")
    assert bytes(view) == b"xcd"
    assert view.readonly


def test_a_part_ends_where_it_ends_and_tells_offsets_of_the_whole() -> None:
    reader = Reader(b"abcdefgh", 2, 7)
    part = reader.part(3, "a record")
    assert (part.take(3), part.remaining, part.end) == (b"cde", 0, 5)
    with pytest.raises(InputError) as caught:
        part.u8()
    assert caught.value.offset == 5
    assert reader.take(2) == b"fg"
    with pytest.raises(InputError, match="0 are left"):
        reader.u8()
    with pytest.raises(InputError, match="a record needs 3 bytes"):
        reader.part(3, "a record")
