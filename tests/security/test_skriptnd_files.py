"""Files that a hostile SkriptND model brings along: modules, links, names and origins, data; and what is written of it.

The path resolver and the atomic writer have tests of their own in tests/base; here is what a user sees.
"""

from __future__ import annotations

import json
import os
import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lamella.base.diagnostic import LamellaError
from lamella.cli import lamella
from lamella.graph.data import write_dat
from lamella.pipeline.api import compile
from tests.fuzz.nem_road import RAW
from tests.security.skriptnd_attacks import graph, operator
from tests.security.test_nem_files import lamella as lamella_process
from tests.security.test_nem_files import small_disk

MODEL = """import math, linalg;
graph G {
    @input { x: real[n|4,3]; z: real[m|5,3]; }
    @output { y: real[~,3]; u: real[~,3]; }
    @variable { w: real[3,3]; v: real[3]; }
    @compose { y = linalg.matmul(x, w); u = math.mul{rhs_align=1}(z, v); }
}
"""
MODULE = operator("@lower { y[i,] = x[i,], i < n; }")
EVIL_NAMES = (
    *(
        "../../evil",
        "/evil",
        "a/b",
        "a\\b",
        ".",
        "..",
        "",
        "\x1b[2J\u202e",
        "a" * 300,
        "a" * 5000,
        "CON",
        "w:1",
    ),
    *("v.shape[0]", "%2e%2e", "y.npy", "\n", "<script>", "\u0430"),
)


def call(*arguments: str | Path) -> Result:
    """Run a command here; nothing but an exit leaves it, and nothing raw is printed."""
    result = CliRunner().invoke(lamella, [str(item) for item in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert not RAW.search(result.output), repr(RAW.findall(result.output))
    return result


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder as `lower` writes it, with data."""
    (tmp_path / "m.sknd").write_text(MODEL, encoding="utf-8")
    weights = tmp_path / "weights"
    weights.mkdir()
    write_dat(weights / "w.dat", np.eye(3, dtype=np.float32))
    write_dat(weights / "v.dat", np.ones(3, np.float32))
    folder = tmp_path / "deep" / "er" / "model"
    result = call("lower", tmp_path / "m.sknd", "--weights", weights, "--to", "sknd", "-o", folder)
    assert result.exit_code == 0, result.output
    return folder


# --- modules ------------------------------------------------------------------------------------------------


def linked(path: Path, target: Path, kind: str) -> None:
    """A path that leads elsewhere, or is no file."""
    if kind == "symlink":
        path.symlink_to(target)
    elif kind == "hard link":
        path.hardlink_to(target)
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


KINDS = ("symlink", "hard link", "folder", "fifo", "device")


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_behind_a_link_is_refused(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "model"
    home.mkdir()
    (tmp_path / "secret.sknd").write_text(f"# root:secret\n{MODULE}", encoding="utf-8")
    linked(home / "a.sknd", tmp_path / "secret.sknd", kind)
    (home / "main.sknd").write_text("import a;\n" + graph("y = a.f(x);"), encoding="utf-8")
    for command in ("check", "show", "run"):
        result = call(command, home)
        assert result.exit_code == 1
        assert "SKR056" in result.output
        assert "secret" not in result.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_main_module_behind_a_link_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("root:secret\n", encoding="utf-8")
    home = tmp_path / "model"
    home.mkdir()
    linked(home / "main.sknd", tmp_path / "secret", kind)
    for command in ("check", "show", "run"):
        result = call(command, home)
        assert result.exit_code == 1
        assert "LAM001" in result.output
        assert "root:" not in result.output


@pytest.mark.parametrize(
    ("imports", "code"),
    [
        *[
            (text, "SKR001")
            for text in ("..", "../x", "/etc/passwd", "a/b", "a\\b", "a..b", "'a'", "~", ".a", "a.")
        ],
        *[("main", "SKR055"), ("A", "SKR056"), ("CON", "SKR056"), ("sub.b", "SKR056"), ("Math", "SKR056")],
        ("math.math", "SKR056"),
    ],
)
def test_imports_name_modules_of_the_folder(tmp_path: Path, imports: str, code: str) -> None:
    (tmp_path / "a.sknd").write_text(MODULE, encoding="utf-8")
    path = tmp_path / "main.sknd"
    path.write_text(f"import {imports};\n{graph()}", encoding="utf-8")
    result = call("check", path)
    assert result.exit_code == 1
    assert code in result.output
    assert "root:" not in result.output


def test_a_folder_of_ten_thousand_modules_ends_at_the_limit(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"m{number}.sknd").write_text(MODULE, encoding="utf-8")
    path = tmp_path / "main.sknd"
    path.write_text(f"import {', '.join(f'm{n}' for n in range(10_000))};\n{graph()}", encoding="utf-8")
    result = call("check", path)
    assert result.exit_code == 1
    assert "max_includes" in result.output


def test_circles_of_imports_are_told(tmp_path: Path) -> None:
    for one, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{one}.sknd").write_text(f"import {other};\n{MODULE}", encoding="utf-8")
    (tmp_path / "main.sknd").write_text("import a;\n" + graph("y = a.f(x);"), encoding="utf-8")
    result = call("check", tmp_path)
    assert result.exit_code == 1
    assert "a -> b -> c -> a" in result.output


def test_a_namesake_of_a_standard_module_is_told(tmp_path: Path) -> None:
    (tmp_path / "math.sknd").write_text(MODULE, encoding="utf-8")
    (tmp_path / "main.sknd").write_text(graph(), encoding="utf-8")
    assert call("check", tmp_path).exit_code == 1


# --- names and origins --------------------------------------------------------------------------------------


def edit(model: Path, change: Callable[[dict[str, dict[str, Any]]], None]) -> None:
    path = model / "origins.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def files_outside(top: Path, inside: Path) -> set[Path]:
    return {path for path in top.rglob("*") if inside not in (path, *path.parents)}


@pytest.mark.parametrize("name", EVIL_NAMES)
@pytest.mark.parametrize("tensor", ["y", "w"])
def test_names_of_a_model_lead_nowhere(model: Path, tmp_path: Path, tensor: str, name: str) -> None:
    edit(model, lambda content: content["tensors"][tensor].update(name=name))
    before = files_outside(tmp_path, tmp_path / "out")
    for command in ("check", "show"):
        assert call(command, model).exit_code == 0
    ran = call("run", model, "--output", tmp_path / "out" / "arrays")
    written = call("lower", model, "--to", "sknd", "-o", tmp_path / "out" / "again")
    assert ran.exit_code == 0 or "LAM002" in ran.output
    assert written.exit_code == 0, written.output
    assert files_outside(tmp_path, tmp_path / "out") == before
    assert all(
        path.parent.name in ("arrays", "again") for path in (tmp_path / "out").rglob("*") if path.is_file()
    )


def test_extents_are_not_made_equal(model: Path) -> None:
    edit(model, lambda content: content["extents"].update(n=content["graph"], m=content["graph"]))
    result = call("run", model)
    assert result.exit_code == 1
    assert "LAM001" in result.output


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[]",
            "null",
            "NaN",
            "{",
            "9" * 5000,
            "[" * 100_000,
            '{"a":' * 100_000,
            "\ufeff\ufeff{}",
            '"\\ud800"',
        ),
        '{"graph": "\\ud800", "tensors": {}, "extents": {}}',
        '{"graph": "G", "tensors": {"y": {"name": "\\udfff"}}, "extents": {}}',
        '{"graph": "G", "tensors": {"y": {"name": 3}}, "extents": {}}',
        '{"graph": "G", "tensors": {"y": {"name": "a"}, "w": {"name": "a"}}, "extents": {}}',
        '{"graph": "G", "tensors": {"y": {"name": "a", "origin": "abc"}}, "extents": {}}',
        '{"graph": "G", "tensors": [], "extents": {}}',
        '{"graph": "G", "tensors": {}, "extents": {"n": null}}',
    ],
)
def test_a_wrong_file_of_origins_is_told(model: Path, text: str) -> None:
    (model / "origins.json").write_text(text, encoding="utf-8")
    result = call("run", model)
    assert result.exit_code == 1
    assert "LAM001" in result.output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["origins.json", "w.dat", "more.safetensors"])
def test_files_of_a_model_behind_links_are_refused(model: Path, tmp_path: Path, kind: str, file: str) -> None:
    path, target = model / file, tmp_path / "elsewhere"
    if path.exists():
        path.rename(target)
    else:
        target.write_bytes(struct.pack("<Q", 2) + b"{}")
    linked(path, target, kind)
    result = call("run", model)
    assert result.exit_code == 1
    assert "LAM001" in result.output


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
    "many": (store({f"t{n}": entry([0], [0, 0]) for n in range(200_001)}), "SKR354"),
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
    *("k=-1", "k=10**18", "k={n}", "T=real", "T=", "T=\x1b", "k=[1,2]", "k=`exp`(1.0)"),
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


@pytest.mark.parametrize("weights", ["/dev/zero", "/dev/null", ".", "/nowhere", "x.sknd", "a\0b"])
def test_weights_from_strange_places(tmp_path: Path, weights: str) -> None:
    path = tmp_path / "m.sknd"
    path.write_text(MODEL, encoding="utf-8")
    home = tmp_path if weights == "." else weights
    assert call("run", path, "--weights", home).exit_code in (1, 2)


# --- write faults -------------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Path]:
    """A folder with old files, which stay as they are."""
    folder = tmp_path / "old"
    folder.mkdir()
    files = {
        name: f"old {name}".encode()
        for name in ("main.sknd", "origins.json", "w.dat", "v.dat", "y.npy", "u.npy")
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    yield folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def no_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))


@pytest.mark.parametrize("command", [("lower", "--to", "sknd", "-o"), ("run", "--output")])
def test_a_full_disk_leaves_the_old_files(model: Path, old: Path, command: tuple[str, ...]) -> None:
    done = lamella_process(command[0], model, *command[1:], old, prepare=no_disk)
    assert done.returncode == 1
    assert "LAM002" in done.stderr


def test_formatting_keeps_the_file_on_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "m.sknd"
    text = MODEL.replace(" ", "  ") + "#" + "x" * 2000
    path.write_text(text, encoding="utf-8")
    assert lamella_process("fmt", path, "--write", prepare=small_disk).returncode == 1
    assert path.read_text(encoding="utf-8") == text
    assert [item.name for item in tmp_path.iterdir()] == ["m.sknd"]


@pytest.mark.parametrize("command", [("lower", "--to", "sknd", "-o"), ("run", "--output")])
def test_a_target_that_is_no_folder_is_told(model: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    target = tmp_path / "file"
    target.write_text("old", encoding="utf-8")
    for path in (target, target / "in", Path("/proc/none"), Path("/dev/null/x")):
        result = call(command[0], model, *command[1:], path)
        assert result.exit_code == 1
        assert "LAM002" in result.output
    assert target.read_text(encoding="utf-8") == "old"
