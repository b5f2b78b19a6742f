"""Hostile data of a SkriptND model, D1 to D7 and stores, and hostile values of options, through the commands."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from lamella.base.diagnostic import LamellaError
from lamella.pipeline.api import compile
from tests.support.security.skriptnd_attacks import graph
from tests.support.security.skriptnd_files import MODEL, call, write_lowered


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_lowered(tmp_path)


# --- data ---------------------------------------------------------------------------------------------------


def tensor_file(values: dict[int, int], data: bytes = bytes(36), size: int | None = None) -> bytes:
    """A tensor file of 3 × 3 reals, with some words of the header changed."""
    words = {0: 0x0001EF4E, 1: 36 if size is None else size, 2: 2, 3: 3, 4: 3, 11: 32, **values}
    return struct.pack("<32I", *(words.get(place, 0) for place in range(32))) + data


D_CASES: dict[str, tuple[bytes, str]] = {
    "D1 magic": (tensor_file({0: 0x0001EF4F}), "SKR341"),
    "D1 version": (tensor_file({0: 0x0102EF4E}), "SKR342"),
    "D1 empty": (b"", "SKR340"),
    "D2 short": (tensor_file({}, bytes(35)), "SKR343"),
    "D2 long": (tensor_file({}, bytes(37)), "SKR343"),
    "D2 huge": (tensor_file({}, size=2**32 - 1), "SKR343"),
    "D3 rank": (tensor_file({2: 9}), "SKR344"),
    "D3 huge rank": (tensor_file({2: 2**32 - 1}), "SKR344"),
    "D3 unused": (tensor_file({5: 7}), "SKR346"),
    "D3 zero": (tensor_file({3: 0}), "SKR345"),
    "D3 overflow": (tensor_file({2: 8} | {3 + n: 2**32 - 1 for n in range(8)}), "SKR350"),
    "D3 wrap": (tensor_file({2: 3, 3: 2**31, 4: 2**31, 5: 4}, b"", 0), "SKR350"),
    "D3 volume": (tensor_file({3: 4}), "SKR350"),
    "D4 no bits": (tensor_file({11: 0}), "SKR347"),
    "D4 bits": (tensor_file({11: 7}), "SKR347"),
    "D4 many bits": (tensor_file({11: 2**32 - 1}), "SKR347"),
    "D4 type": (tensor_file({12: 6}), "SKR348"),
    "D4 vendor": (tensor_file({12: 1 << 16}), "SKR348"),
    "D5 reserved": (tensor_file({20: 1}), "SKR349"),
    "D5 signed float": (tensor_file({13: 1}), "SKR349"),
    "D6 padding": (tensor_file({11: 1, 12: 5}, b"\0\1", 2), "SKR351"),
    "D6 bool": (tensor_file({11: 8, 12: 5}, b"\2" * 9, 9), "SKR352"),
    "D7 allocation": (tensor_file({3: 100_000, 4: 100_000}), "SKR350"),
}  # fmt: skip


@pytest.mark.parametrize("name", D_CASES)
def test_tensor_files(model: Path, name: str) -> None:
    data, code = D_CASES[name]
    path = model / "w.dat"
    path.write_bytes(data)
    for command in (("check", path), ("show", path), ("run", model), ("run", model.parents[2] / "m.sknd")):
        weights = ("--weights", model) if command[1] == model.parents[2] / "m.sknd" else ()
        result = call(*command, *weights)
        assert result.exit_code == 1
        assert code in result.output


def entry(shape: object, offsets: object, dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def store(header: object, data: bytes = b"", size: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


ONE = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
NONE = json.dumps(entry([0], [0, 0])).encode()
STORES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "SKR354"),
    "length": (store({}, size=2**63), "SKR354"),
    "longest": (store({}, size=2**64 - 1), "SKR354"),
    "trailing": (store({}, b"xx"), "SKR354"),
    "deep": (store(b'{"a":' + b"[" * 100_000), "SKR354"),
    "not utf-8": (store(b'{"\xff":1}'), "SKR354"),
    "duplicate": (store(b"{" + ONE + b"," + ONE + b"}", b"abcd"), "SKR357"),
    "overlap": (store({"a": entry([1], [0, 4]), "b": entry([1], [0, 4])}, b"abcd"), "SKR356"),
    "hole": (store({"a": entry([1], [4, 8])}, bytes(8)), "SKR356"),
    "backward": (store({"a": entry([1], [4, 0])}, b"abcd"), "SKR356"),
    "negative": (store({"a": entry([1], [-4, 0])}, b"abcd"), "SKR355"),
    "type": (store({"a": entry([1], [0, 4], "F64")}, b"abcd"), "SKR356"),
    "unknown type": (store({"a": entry([1], [0, 4], "F128")}, b"abcd"), "SKR355"),
    "wrap": (store({"a": entry([2**32, 2**32], [0, 0])}), "SKR356"),
    "zero": (store({"a": entry([0, 2**62], [0, 0])}), "SKR355"),
    "rank": (store({"a": entry([1] * 100, [0, 4])}, b"abcd"), "SKR355"),
    "real": (store({"a": entry([1.0], [0, 4])}, b"abcd"), "SKR355"),
    "truth": (store({"a": entry([True], [0, 4])}, b"abcd"), "SKR355"),
    "extra": (store({"a": {**entry([1], [0, 4]), "more": 1}}, b"abcd"), "SKR355"),
    "many": (store(b"{%s}" % b",".join(b'"t%d":%s' % (n, NONE) for n in range(200_001))), "SKR354"),
}


@pytest.mark.parametrize("name", STORES)
def test_stores(tmp_path: Path, name: str) -> None:
    data, code = STORES[name]
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    (tmp_path / "m.sknd").write_text(MODEL, encoding="utf-8")
    for command in (("check", path), ("show", path), ("run", tmp_path / "m.sknd", "--weights", path)):
        result = call(*command)
        assert result.exit_code == 1
        assert code in result.output


@pytest.mark.parametrize("name", ["\x1b[2J\u202e", "../../x", "", "\ud800", "a" * 100_000])
def test_names_in_stores_are_not_printed_raw(tmp_path: Path, name: str) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(store({name: entry([1], [0, 4])}, b"abcd"))
    (tmp_path / "m.sknd").write_text(MODEL, encoding="utf-8")
    assert call("show", path).exit_code == 0
    json.loads(call("show", path, "--json").stdout)
    assert call("run", tmp_path / "m.sknd", "--weights", path).exit_code == 1


@pytest.mark.parametrize("bits", ["0", "-1", "10 ** 12", "2 ** 63", "65", "1"])
def test_codes_of_strange_widths(tmp_path: Path, bits: str) -> None:
    """Quantised data are decoded by what the text says of them."""
    quantizer = f"quant.min_max_linear_quantize{{min=0.0, max=1.0, bits={bits}}}"
    text = graph("y = math.mul(x, w);").replace(
        "@compose", f"@variable {{ w: real[4]; }} @quantize {{ w: {quantizer}; }} @compose"
    )
    (tmp_path / "main.sknd").write_text(text, encoding="utf-8")
    (tmp_path / "w.dat").write_bytes(tensor_file({2: 1, 3: 4, 4: 0, 11: 8, 12: 2}, b"\0\1\2\3", 4))
    for command in (("check",), ("run",), ("run", "--quantized")):
        assert call(command[0], tmp_path, *command[1:]).exit_code in (0, 1)


# --- what a user types --------------------------------------------------------------------------------------

SETS = (
    *(
        "k",
        "=",
        "k=",
        "k=1;",
        "k=1; b: int = 2",
        "k=1 }} operator g {{",
        "k=9**9**9**9",
        "k=[0:10**12]",
        "k=1/0",
    ),
    *(
        "k=" + "(" * 10_000,
        "k=" + "9" * 10_000,
        "k=x",
        "k=null",
        "k='a'",
        "k=1.5",
        "k=true",
        "k=#",
        "k=\x1b[2J",
        "j=1",
    ),
    *("k=-1", "k={n}", "k=[1,2]", "k=`exp`(1.0)"),
)


@pytest.mark.parametrize("word", SETS)
def test_values_of_attributes(tmp_path: Path, word: str) -> None:
    path = tmp_path / "m.sknd"
    text = graph("y = layout.tile{axes=[0], repeats=[k]}(x);", outputs="y: real[~];")
    path.write_text(text.replace("graph G {", "graph G { @attrib { k: int; }"), encoding="utf-8")
    for command in ("check", "show", "run"):
        assert call(command, path, "--set", word).exit_code in (1, 2)


@pytest.mark.parametrize(
    "word",
    ["n", "n=", "n=-1", "n=99", "n=1e3", "n=" + "9" * 30, "q=1", "n=\x1b[2J", "n=1,n=2,m=9", "=1", "n=²"],
)
def test_values_of_extents(tmp_path: Path, word: str) -> None:
    path = tmp_path / "m.sknd"
    path.write_text(MODEL, encoding="utf-8")
    assert call("run", path, "--shape", word).exit_code in (1, 2)


VALUES: dict[str, object] = {
    **{
        "nan": float("nan"),
        "infinity": float("inf"),
        "wide": 10**5000,
        "negative": -1,
        "real": 1.5,
        "none": None,
    },
    **{
        "power": "9 ** (9 ** 9)",
        "empty": [],
        "nested": [[1]],
        "mapping": {},
        "object": object(),
        "bytes": b"x",
    },
    **{"truth": True, "text": "", "array": np.ones(3), "integer": np.int64(2), "huge": 10**18},
}


@pytest.mark.parametrize("name", VALUES)
def test_values_from_python(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.sknd"
    text = graph("y = layout.tile{axes=[0], repeats=[k]}(x);", outputs="y: real[~];")
    path.write_text(text.replace("graph G {", "graph G { @attrib { k: int; }"), encoding="utf-8")
    with pytest.raises(LamellaError):
        compile(path, config={"k": VALUES[name]})()


@pytest.mark.parametrize("weights", ["/dev/zero", "/dev/null", ".", "/nowhere", "x.sknd"])
def test_weights_from_strange_places(tmp_path: Path, weights: str) -> None:
    path = tmp_path / "m.sknd"
    path.write_text(MODEL, encoding="utf-8")
    home = tmp_path if weights == "." else weights
    assert call("run", path, "--weights", home).exit_code in (1, 2)
