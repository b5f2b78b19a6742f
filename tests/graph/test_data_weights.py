"""Variables and their data: names, types, quantised codes, stores judged by the library of that format."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import dtype
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.paths import Mapped
from lamella.graph.data import (
    DatItem,
    Stored,
    read_safetensors,
    read_weights,
    write_dat,
    write_safetensors,
    write_weights,
)
from lamella.graph.data.safetensors import decode_safetensors, decode_store, encode_safetensors
from lamella.graph.nodes import Graph, Quantization, Tensor
from tests.support.graph.data_files import findings, store_header

TYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")


def graph(*variables: Tensor) -> Graph:
    return Graph("G", (), (), (), variables)


def codes(path: Path, of: Graph) -> list[str]:
    return [item.code for item in read_weights(path, of).findings]


# --- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["blk.w.dat", "main.G.blk.w.dat"])
def test_a_variable_is_found_by_its_scoped_name(file: str, tmp_path: Path) -> None:
    write_dat(tmp_path / file, np.arange(6, dtype=np.float32).reshape(2, 3))
    found = read_weights(tmp_path, graph(Tensor("blk.w", dtype.F32, (2, 3))))
    assert not found.findings
    assert found.arrays["blk.w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_items_of_packs_have_files_of_their_own(tmp_path: Path) -> None:
    variables = [Tensor(f"w:{number}", dtype.F32, (2,)) for number in (1, 2)]
    for number in (1, 2):
        write_dat(tmp_path / f"w:{number}.dat", np.full(2, number, np.float32))
    found = read_weights(tmp_path, graph(*variables))
    assert not found.findings
    assert [found.arrays[item.name][0] for item in variables] == [1, 2]


def test_data_of_another_graph_are_not_in_the_way(tmp_path: Path) -> None:
    write_dat(tmp_path / "main.H.w.dat", np.zeros(2, np.float32))
    assert codes(tmp_path, graph()) == []
    write_dat(tmp_path / "main.G.v.dat", np.zeros(2, np.float32))
    assert codes(tmp_path, graph()) == ["SKR361"]


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    write_dat(tmp_path / "a.dat", np.zeros(2, np.float32))
    (tmp_path / "b.dat").write_bytes(b"")
    names = [Tensor(name, dtype.F32, (3,)) for name in "abc"]
    assert codes(tmp_path, graph(*names)) == ["SKR362", "SKR340", "SKR360"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert codes(tmp_path / "none", graph()) == ["LAM001"]
    assert codes(tmp_path / "none.safetensors", graph()) == ["LAM001"]


# --- types --------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(TYPES),
    st.sampled_from((dtype.F32, dtype.F64, dtype.F16, dtype.I32, dtype.I8, dtype.BOOL)),
)
def test_data_are_taken_where_no_value_changes(stored: str, element: dtype.ElementType) -> None:
    """Widening keeps all values; other floats are rounded with a warning; integers must fit; kinds never mix."""
    values = np.array([0, 1, 1], stored)
    data = encode_safetensors({"w": values}, "w")
    found = _read(data, element)
    kinds = {"f": dtype.Kind.FLOAT, "i": dtype.Kind.SIGNED, "u": dtype.Kind.SIGNED, "b": dtype.Kind.BOOL}
    if kinds[values.dtype.kind] is not element.kind:
        assert found[1] == ["SKR363"]
    else:
        assert found[0].tolist() == values.tolist()
        narrower = values.dtype.kind == "f" and values.dtype.itemsize * 8 > element.bits
        assert found[1] == (["SKR364"] if narrower else [])


def _read(data: bytes, element: dtype.ElementType) -> tuple[Array, list[str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lamella.graph.data.weights.map_bytes", lambda path, _: Mapped(path, data))
        found = read_weights(Path("w.safetensors"), graph(Tensor("w", element, (3,))))
    return found.arrays.get("w", np.zeros(0)), [item.code for item in found.findings]


@pytest.mark.parametrize("value", [-129, 128])
def test_integers_that_do_not_fit(value: int, tmp_path: Path) -> None:
    write_dat(tmp_path / "w.dat", np.array([0, value], np.int64))
    (finding,) = read_weights(tmp_path, graph(Tensor("w", dtype.I8, (2,)))).findings
    assert finding.code == "SKR365"
    assert str(value) in finding.message


# --- codes --------------------------------------------------------------------------------------------------


def test_codes_are_what_the_quantizer_says(tmp_path: Path) -> None:
    """`(code - zero_point) * scale` along the channel axis, reckoned here in plain Python."""
    raw = np.array([[-8, 7, 0], [1, 2, 3]], np.int8)
    scale, zero = (0.5, 0.25, 2.0), (1, 0, -1)
    attributes = (("zero_point", zero), ("scale", scale), ("bits", 4), ("signed", True), ("symmetric", False))
    quantizer = Quantization("quant.zero_point_linear_quantize", (*attributes, ("channel_axis", 1)))
    write_dat(tmp_path / "w.dat", Stored(raw, DatItem.QUANTIZED_SIGNED, 4))
    found = read_weights(tmp_path, graph(Tensor("w", dtype.F32, (2, 3), quantizer)))
    assert not found.findings
    wanted = [[(code - zero[k]) * scale[k] for k, code in enumerate(row)] for row in raw.tolist()]
    assert found.arrays["w"].tolist() == wanted


@pytest.mark.parametrize(("signed", "symmetric", "low", "high"), [(False, False, 0, 15), (True, True, -7, 7)])
def test_the_ends_of_a_range_are_its_first_and_last_code(
    signed: bool, symmetric: bool, low: int, high: int, tmp_path: Path
) -> None:
    item = DatItem.QUANTIZED_SIGNED if signed else DatItem.QUANTIZED_UNSIGNED
    attributes = (
        ("min", (-1.0,)),
        ("max", (3.0,)),
        ("bits", 4),
        ("signed", signed),
        ("symmetric", symmetric),
    )
    quantizer = Quantization("quant.min_max_linear_quantize", (*attributes, ("channel_axis", 0)))
    write_dat(tmp_path / "w.dat", Stored(np.array([low, high]), item, 4))
    found = read_weights(tmp_path, graph(Tensor("w", dtype.F32, (2,), quantizer)))
    assert found.arrays["w"].tolist() == [-1.0, 3.0]


# --- stores -------------------------------------------------------------------------------------------------


@st.composite
def stores(draw: st.DrawFn) -> dict[str, Array]:
    """A few arrays of any type and shape, empty ones too."""
    names = draw(st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=4))
    return {name: _array(draw) for name in names if name != "__metadata__"}


def _array(draw: st.DrawFn) -> Array:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    kinds = (*(np.dtype(item) for item in TYPES), *(np.dtype(item) for item in (ml_dtypes.bfloat16, "c8")))
    values: Array = np.asarray(draw(st.integers(0, 100)) + np.zeros(shape)).astype(
        draw(st.sampled_from(kinds))
    )
    return values


@given(stores())
def test_stores_come_back_and_are_written_alike(arrays: dict[str, Array]) -> None:
    data = encode_safetensors(arrays, "x")
    found = decode_safetensors(data, "x")
    assert set(found) == set(arrays)
    for name, values in arrays.items():
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes()
    assert encode_safetensors(dict(reversed(found.items())), "x") == data


def test_the_library_of_the_format_agrees(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    arrays = {name: np.arange(6).reshape(2, 3).astype(name) for name in TYPES}
    write_safetensors(tmp_path / "ours.safetensors", arrays)
    theirs = library.load_file(tmp_path / "ours.safetensors")
    library.save_file(arrays, tmp_path / "theirs.safetensors")
    ours = read_safetensors(tmp_path / "theirs.safetensors")
    for name, values in arrays.items():
        for found in (theirs[name], ours[name]):
            assert found.dtype == values.dtype
            assert np.array_equal(found, values)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HOSTILE = {
    "too short": (b"\0" * 7, "SKR354"),
    "length of 2^63": ((1 << 63).to_bytes(8, "little") + b"{}", "SKR354"),
    "no object": ((2).to_bytes(8, "little") + b"[]", "SKR354"),
    "no JSON": ((2).to_bytes(8, "little") + b"{]", "SKR354"),
    "no text": ((3).to_bytes(8, "little") + b"{\xff}", "SKR354"),
    "deep": ((100_000).to_bytes(8, "little") + b'{"a":' * 20_000, "SKR354"),
    "trailing bytes": (store_header(a=ENTRY) + bytes(9), "SKR354"),
    "overlap": (store_header(a=ENTRY, b=ENTRY) + bytes(8), "SKR356"),
    "hole": (store_header(a=ENTRY, b={**ENTRY, "data_offsets": [9, 17]}) + bytes(17), "SKR356"),
    "end before begin": (store_header(a={**ENTRY, "data_offsets": [8, 0]}) + bytes(8), "SKR356"),
    "negative": (store_header(a={**ENTRY, "shape": [-2]}) + bytes(8), "SKR355"),
    "a real": (store_header(a={**ENTRY, "shape": [2.0]}) + bytes(8), "SKR355"),
    "a truth": (store_header(a={**ENTRY, "shape": [True, 2]}) + bytes(8), "SKR355"),
    "unknown type": (store_header(a={**ENTRY, "dtype": "X1"}) + bytes(8), "SKR355"),
    "wrapped product": (
        store_header(a={**ENTRY, "shape": [1 << 32, 1 << 32], "data_offsets": [0, 0]}),
        "SKR356",
    ),
    "empty but huge": (store_header(a={**ENTRY, "shape": [0, 1 << 62], "data_offsets": [0, 0]}), "SKR355"),
    "many axes": (store_header(a={**ENTRY, "shape": [1] * 100}) + bytes(8), "SKR355"),
    "one more key": (store_header(a={**ENTRY, "more": 1}) + bytes(8), "SKR355"),
    "too many": (store_header(**{str(k): 0 for k in range(200_001)}), "SKR354"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_stores_are_refused(name: str) -> None:
    data, code = HOSTILE[name]
    assert [item.code for item in findings(lambda: decode_safetensors(data, "x"))] == [code]


@given(st.binary(min_size=1, max_size=4), st.integers(0, 200))
def test_changed_stores_are_read_or_refused(change: bytes, place: int) -> None:
    """Whatever the bytes say, the answer is arrays or findings."""
    image = bytearray(encode_safetensors({"a": np.arange(3.0), "b": np.ones((2, 2), np.int8)}, "x"))
    image[place : place + len(change)] = change
    wrong = findings(lambda: decode_safetensors(bytes(image), "x"))
    assert all(item.code in ("SKR354", "SKR355", "SKR356", "SKR357") for item in wrong)
    if not wrong:
        found = decode_safetensors(bytes(image), "x")
        assert sum(values.nbytes for values in found.values()) <= len(image)


# --- writing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["weights.safetensors", "folder"])
def test_written_weights_are_read_back(target: str, tmp_path: Path) -> None:
    of = graph(Tensor("a.w", dtype.F32, (2,)), Tensor("b", dtype.I32, (1,)), Tensor("unset", dtype.F32, ()))
    arrays = {"a.w": np.array([1.5, 2.5]), "b": np.array([7]), "other": np.zeros(1)}
    written = write_weights(tmp_path / target, of, arrays)
    assert all(path.exists() for path in written)
    found = read_weights(tmp_path / target, of)
    assert [item.code for item in found.findings] == ["SKR360"]
    assert found.arrays["a.w"].tolist() == [1.5, 2.5]
    assert found.arrays["b"].dtype == np.int32


def test_nothing_is_written_where_something_is_wrong(tmp_path: Path) -> None:
    of = graph(Tensor("a", dtype.F32, (2,)), Tensor("b", dtype.F32, (2,)))
    with pytest.raises(LamellaError, match="SKR362"):
        write_weights(tmp_path / "new", of, {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["../outside", "a/b", ".hidden", "nul\0"])
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    of = graph(Tensor(name, dtype.F32, (1,)))
    (finding,) = findings(lambda: write_weights(tmp_path / "w", of, {name: np.zeros(1, np.float32)}))
    assert finding.code == "SKR353"
    assert not (tmp_path / "w").exists()
    assert not (tmp_path / "outside.dat").exists()


def test_texts_travel_beside_the_arrays(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    texts = {"b": "ü", "a": '{"x": 1}', "": ""}
    write_safetensors(tmp_path / "w.safetensors", {"w": np.arange(3)}, texts)
    with library.safe_open(tmp_path / "w.safetensors", "numpy") as theirs:
        assert theirs.metadata() == texts
    data = (tmp_path / "w.safetensors").read_bytes()
    assert decode_store(memoryview(data), "w").metadata == texts
    assert decode_safetensors(data, "w")["w"].tolist() == [0, 1, 2]
    assert encode_safetensors({"w": np.arange(3)}, "w", dict(reversed(texts.items()))) == data
    assert decode_store(encode_safetensors({"w": np.arange(3)}, "w"), "w").metadata == {}


def test_no_array_is_called_like_the_texts() -> None:
    assert [
        item.code for item in findings(lambda: encode_safetensors({"__metadata__": np.ones(1)}, "w"))
    ] == ["SKR355"]
