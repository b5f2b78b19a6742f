"""Each instruction by itself, restated in Python and NumPy."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from tests.support.backend.mep.fakes import WORDS, RecordingHost, assembled, codes, give, run

FINITE = st.floats(-50, 50, width=32)
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Small arrays of reals or integers, in which equal elements are common."""
    shape = draw(SHAPES)
    size = int(np.prod(shape))
    if draw(st.booleans()):
        return np.array(draw(st.lists(FINITE, min_size=size, max_size=size)), np.float32).reshape(shape)
    return np.array(draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size)), np.int64).reshape(shape)


def on(plan: str, pool: str = "", **files: Array) -> Any:
    """The value of slot 9 after a plan that begins with arrays in slots 0, 1, …, and constants behind them."""
    loads = [f"RES_LOAD_DATAFILE({slot}, 2, {slot})" for slot in range(len(files))]
    names = [f'{slot} = "{name}"' for slot, name in enumerate(files)]
    text = "\n".join([*loads, plan, "EXEC_RETURN([9])", *names, pool])
    return give(text, RecordingHost(dict(files)))


@given(arrays())
def test_softmax(array: Array) -> None:
    found = on("MATH_UNARY(0, 9, 0)", a=array)
    powers = np.exp(array.astype(np.float64))
    # Numbers below the smallest normal one have fewer digits.
    np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True), rtol=2e-5, atol=1e-38)
    assert found.dtype == (np.float32 if array.dtype == np.float32 else np.float64)


@pytest.mark.parametrize(
    ("number", "judge"),
    [(1, np.sqrt), (2, np.abs), (3, np.negative), (4, np.exp), (5, lambda array: 1.0 / array)],
)
@given(array=arrays())
def test_unary(number: int, judge: Callable[[Array], Array], array: Array) -> None:
    with np.errstate(all="ignore"):
        wanted = judge(array)
    np.testing.assert_allclose(on(f"MATH_UNARY({number}, 9, 0)", a=array), wanted, rtol=1e-6)


@pytest.mark.parametrize("number", range(7))
@given(a=arrays(), data=st.data())
def test_binary(number: int, a: Array, data: st.DataObject) -> None:
    b = data.draw(st.sampled_from([a, a + 1, a.reshape(-1)[:1], np.abs(a[..., :1])]))
    judge = [np.add, np.subtract, np.multiply, np.divide, np.power, np.fmax, np.fmin][number]
    with np.errstate(all="ignore"):
        try:
            wanted = judge(a, b)
        except ValueError:
            with pytest.raises(LamellaError, match="NAC246"):
                on(f"MATH_BINARY({number}, 9, 0, 1)", a=a, b=b)
            return
    found = on(f"MATH_BINARY({number}, 9, 0, 1)", a=a, b=b)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize(
    ("first", "second", "number", "wanted"),
    [
        ("3", "4", 0, 7), ("3", "4", 1, -1), ("3", "4", 2, 12), ("3", "4", 3, 0.75), ("3", "4", 4, 81),
        ("3", "4", 5, 4), ("3", "4", 6, 3), ("2", "-1", 4, 0.5), ("2.0", "0.5", 4, 2**0.5), ("true", "1", 0, 2),
        ("-9223372036854775807", "1", 1, -(2**63)), ("-2", "63", 4, -(2**63)),
    ],
)  # fmt: skip
def test_numbers(first: str, second: str, number: int, wanted: float) -> None:
    plan = f"SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\nMATH_BINARY({number}, 2, 0, 1)\nEXEC_RETURN([2])"
    found = give(f"{plan}\n0 = {first}\n1 = {second}")
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("first", "second", "number"),
    [
        ("1", "0", 3), ("9223372036854775807", "1", 0), ("2", "63", 4), ("3", "100000", 4), ("-1", "0.5", 4),
        ("1e308", "10.0", 4), ("0", "-1", 4), ('"a"', '"b"', 0), ("null", "1", 0), ("1", '"b"', 6),
        ("[1, 2]", "[1, 2, 3]", 0), ("[1, 2]", "[-1, 2]", 4),
    ],
)  # fmt: skip
def test_arithmetic_that_has_no_result(first: str, second: str, number: int) -> None:
    plan = f"SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\nMATH_BINARY({number}, 2, 0, 1)\nEXEC_RETURN([2])"
    assert codes(assembled(f"{plan}\n0 = {first}\n1 = {second}")) == ["NAC246"]


@given(arrays())
def test_argmax(array: Array) -> None:
    found = on("MATH_AGGREGATE(0, 9, 0)", a=array)
    rows = array.reshape(-1, array.shape[-1]).tolist()
    wanted = [row.index(max(row)) for row in rows]
    assert np.ravel(found).tolist() == wanted
    assert np.shape(found) == array.shape[:-1]


@pytest.mark.parametrize("number", range(4))
@given(a=arrays(), b=st.integers(-2, 2))
def test_compare(number: int, a: Array, b: int) -> None:
    found = on(f"LOGIC_COMPARE({number}, 9, 0, 1)", a=a, b=np.array([b]))
    rows = [(x == b, x != b, x > b, x < b) for x in np.ravel(a).tolist()]
    assert np.ravel(found).tolist() == [row[number] for row in rows]


@pytest.mark.parametrize(("number", "second", "wanted"), [(0, "a", True), (1, "a", False), (0, "b", False)])
def test_texts_are_compared(number: int, second: str, wanted: bool) -> None:
    plan = f"SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\nLOGIC_COMPARE({number}, 2, 0, 1)\nEXEC_RETURN([2])"
    assert give(f'{plan}\n0 = "a"\n1 = "{second}"') is wanted


@given(arrays(), st.data())
def test_top_k(array: Array, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, array.size))
    plan = "RES_LOAD_DATAFILE(0, 2, 0)\nSRC_CONSTANT(1, 1)\nANALYSIS_TOP_K(0, 1, 2, 3)\nEXEC_RETURN([2, 3])"
    indices, values = run(f'{plan}\n0 = "a"\n1 = {count}', RecordingHost({"a": array})).values
    flat = array.reshape(-1).tolist()
    wanted = sorted(range(len(flat)), key=lambda index: (-flat[index], index))[:count]
    assert isinstance(indices, np.ndarray)
    assert isinstance(values, np.ndarray)
    assert indices.tolist() == wanted
    assert values.tolist() == [flat[index] for index in wanted]


@given(arrays(), st.integers(0, 3), st.sampled_from([0.0, -1.0, 0.5]))
def test_pad(array: Array, width: int, filler: float) -> None:
    if array.dtype == np.int64:
        filler = int(filler)
    pool = f"1 = {width}\n2 = {filler!r}"
    found = on("SRC_CONSTANT(1, 1)\nSRC_CONSTANT(2, 2)\nTENSOR_MANIPULATE(1, 9, 0, 1, 2)", pool, a=array)
    rows = [[filler] * width + row for row in array.reshape(-1, array.shape[-1]).tolist()]
    assert found.reshape(-1, array.shape[-1] + width).tolist() == rows


@given(arrays(), st.integers(-5, 4))
def test_axes_come_and_go(array: Array, axis: int) -> None:
    plan = "SRC_CONSTANT(1, 1)\nTENSOR_MANIPULATE(2, 2, 0, 1)\nTENSOR_MANIPULATE(3, 9, 2, 1)"
    if -array.ndim - 1 <= axis <= array.ndim:
        np.testing.assert_array_equal(on(plan, f"1 = {axis}", a=array), array)
        shape = on(f"{plan}\nTENSOR_INFO(0, 9, 2)", f"1 = {axis}", a=array)
        assert list(shape) == list(np.expand_dims(array, axis).shape)
    else:
        with pytest.raises(LamellaError, match="NAC246"):
            on(plan, f"1 = {axis}", a=array)


@given(arrays(), st.integers(-4, 3), st.integers(1, 3))
def test_concat(array: Array, axis: int, count: int) -> None:
    plan = f"SRC_CONSTANT(1, 1)\nTENSOR_COMBINE(0, 9, {[0] * count}, 1)"
    if -array.ndim <= axis < array.ndim:
        rows = np.tile(array, [count if index == axis % array.ndim else 1 for index in range(array.ndim)])
        np.testing.assert_array_equal(on(plan, f"1 = {axis}", a=array), rows)
    else:
        with pytest.raises(LamellaError, match="NAC246"):
            on(plan, f"1 = {axis}", a=array)


@given(arrays(), st.integers(-4, 4))
def test_info_and_extract(array: Array, index: int) -> None:
    assert list(on("TENSOR_INFO(0, 9, 0)", a=array)) == list(array.shape)
    first = array if array.ndim == 1 else array[0]
    if -first.shape[0] <= index < first.shape[0]:
        found = on("SRC_CONSTANT(1, 1)\nTENSOR_EXTRACT(9, 0, 1)", f"1 = {index}", a=array)
        assert np.asarray(found).tolist() == first[index].tolist()
        assert isinstance(found, np.ndarray) == (array.ndim == 3)
    else:
        with pytest.raises(LamellaError, match="NAC246"):
            on("SRC_CONSTANT(1, 1)\nTENSOR_EXTRACT(9, 0, 1)", f"1 = {index}", a=array)


@pytest.mark.parametrize(
    ("create", "constant", "wanted"),
    [
        ("0, 0", "[1, 2]", np.array([[1, 2]], np.float32)),
        ("5, 0", "[1.5, -2.5]", np.array([[1, -2]], np.int64)),
        ("5, 0", "7", np.array([[7]], np.int64)),
        ("5, 1", "3", np.array([[0, 1, 2]], np.int64)),
        ("0, 1", "0", np.zeros((1, 0), np.float32)),
        ("0, 2", "[2, 3]", np.ones((2, 3), np.float32)),
        ("5, 3", "[4]", np.zeros(4, np.int64)),
        ("0, 2", "2", np.ones(2, np.float32)),
    ],
)
def test_create(create: str, constant: str, wanted: Array) -> None:
    plan = f"SRC_CONSTANT(0, 0)\nTENSOR_CREATE(1, {create}, 0)\nEXEC_RETURN([1])\n0 = {constant}"
    found = give(plan)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize(
    ("create", "constant"), [("0, 2", "[-1]"), ("0, 2", "[0.5]"), ("5, 0", '"a"'), ("5, 1", "0.5")]
)
def test_what_cannot_be_created(create: str, constant: str) -> None:
    plan = f"SRC_CONSTANT(0, 0)\nTENSOR_CREATE(1, {create}, 0)\nEXEC_RETURN([1])\n0 = {constant}"
    assert codes(assembled(plan)) == ["NAC246"]


def test_tokens() -> None:
    plan = """RES_LOAD_MODEL(0, 0)
        RES_LOAD_EXTERN(0, 0, 1)
        SRC_CONSTANT(1, 2)
        PREPROC_ENCODE(0, 1, 2)
        PREPROC_DECODE(0, 2, 3)
        PREPROC_GET_ID(0, 3, 4)
        RES_LOAD_EXTERN(5, 1, 1)
        SRC_EXEC_MODE(6)
        EXEC_RETURN([2, 3, 4, 5, 6])
        0 = "own.nac"
        1 = 0
        2 = "two and three"
        3 = "four" """
    values = run(plan, grants=frozenset()).values
    assert values == ((2, 3), "two three", WORDS.index("four"), 0, "infer")
    assert codes(assembled(plan.replace('"four"', '"fourteen"'))) == ["NAC246"]


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    st.integers(-9, 9),
)
def test_formats_are_plain(text: str, number: int) -> None:
    wanted = text.replace("{", "{{").replace("}", "}}") + "{}"
    plan = "SRC_CONSTANT(0, 0)\nSTRING_FORMAT(1, 1, [0])\nEXEC_RETURN([1])"
    found = (
        give(f"{plan}\n0 = {number}\n1 = {json.dumps(wanted, ensure_ascii=False)}")
        if text.isprintable()
        else None
    )
    assert found in (None, wanted.format(number))


@pytest.mark.parametrize(
    "text", ["{0}", "{0.real}", "{:5}", "{!r}", "{a}", "{", "}", "{{}", "{}}", "{} {}", "{[0]}"]
)
def test_other_formats_are_refused(text: str) -> None:
    plan = f'SRC_CONSTANT(0, 0)\nSTRING_FORMAT(1, 1, [0])\nEXEC_RETURN([1])\n0 = 3\n1 = "{text}"'
    assert codes(assembled(plan)) == ["NAC240"]


@given(arrays())
def test_serialised(array: Array) -> None:
    assert json.loads(on("SERIALIZE_OBJECT(9, 0, 1)", a=array)) == array.tolist()
    assert on("SERIALIZE_OBJECT(9, 0, 0)", a=array) == str(array.tolist())


def unpacked(data: bytes) -> Array:
    """The pixels of a PNG file without filters, read by hand."""
    width, height = (int.from_bytes(data[place : place + 4], "big") for place in (16, 20))
    colours = {0: 1, 2: 3}[data[25]]
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    start = data.index(b"IDAT") + 4
    length = int.from_bytes(data[start - 8 : start - 4], "big")
    assert zlib.crc32(data[start - 4 : start + length]) == int.from_bytes(data[start + length :][:4], "big")
    rows = np.frombuffer(zlib.decompress(data[start : start + length]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, colours)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 3), (3, 2, 5), (1, 3, 4, 5), (1, 1, 2, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_pictures(shape: tuple[int, ...], dtype: type) -> None:
    array: Array = (np.arange(np.prod(shape)).reshape(shape) * (0.01 if dtype is np.float32 else 3)).astype(
        dtype
    )
    pixels = unpacked(on("SERIALIZE_OBJECT(9, 0, 2)", a=array))
    levels = np.rint(array.astype(np.float64) * 255.0) if dtype is np.float32 else array
    placed = np.squeeze(levels, 0) if levels.ndim == 4 else levels
    placed = placed[..., None] if placed.ndim == 2 else placed
    placed = placed if placed.shape[2] in (1, 3) else np.moveaxis(placed, 0, 2)
    np.testing.assert_array_equal(pixels, np.clip(placed, 0, 255))


@given(arrays().filter(lambda array: array.ndim == 1), st.integers(0, 5), st.integers(0, 99))
def test_samples_follow_the_seed(array: Array, most: int, seed: int) -> None:
    plan = "RES_LOAD_DATAFILE(0, 2, 0)\nSRC_CONSTANT(1, 1)\nSRC_CONSTANT(2, 2)\nANALYSIS_SAMPLE(0, 1, 2, 9)"
    text = f'{plan}\nEXEC_RETURN([9])\n0 = "a"\n1 = 0.7\n2 = {most}'
    found = give(text, RecordingHost({"a": array}), seed=seed)
    flat = array.astype(np.float64).tolist()
    order = sorted(range(len(flat)), key=lambda index: (-flat[index], index))[: most or None]
    shares = np.exp([(flat[index] - flat[order[0]]) / 0.7 for index in order])
    point, total = np.random.default_rng(seed).random() * shares.sum(), 0.0
    wanted = []
    for index, share in zip(order, shares, strict=True):
        if total - 1e-9 <= point <= total + share + 1e-9:
            wanted.append(index)
        total += share
    assert found in wanted
    cold = text.replace("0.7", "0.0")
    assert give(cold, RecordingHost({"a": array}), seed=seed) == order[0]


@pytest.mark.parametrize("logits", ["0.5", "[1.0, 2.0]", "[0.5]"])
def test_samples_are_drawn_from_one_row(logits: str) -> None:
    """A number has no row, and two rows are no single position."""
    plan = "SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\nANALYSIS_SAMPLE(0, 1, 1, 2)\nEXEC_RETURN([2])"
    file = assembled(f"{plan}\n0 = {logits}\n1 = 1")
    assert codes(file) == (["NAC246"] if logits == "0.5" else [])
    rows = "TENSOR_CREATE(3, 0, 2, 0)\nANALYSIS_SAMPLE(3, 1, 1, 2)\nEXEC_RETURN([2])\n0 = [2, 2]\n1 = 1"
    assert codes(assembled(f"SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\n{rows}")) == ["NAC246"]
