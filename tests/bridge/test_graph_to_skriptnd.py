"""Graphs as flat text: what is written is read back equal, names and origins included."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import lamella
from lamella.base.diagnostic import errors
from lamella.bridge.graph_to_skriptnd import graph_to_skriptnd, origins_of, restore_names, with_identifiers
from lamella.graph.compose import compose
from lamella.graph.data import read_weights, write_weights
from lamella.graph.model import Model
from lamella.graph.rewrite import defined
from lamella.graph.verify import verify
from lamella.lang.skriptnd import check as run_check
from lamella.lang.skriptnd import write
from lamella.ops.library import Library
from tests.support.graph.texts import IMPORTS, body_of, graph_text, model_of, small, written
from tests.support.strategies.graph import models


def read_back(model: Model) -> Model:
    """What is read from the text of a model, with its names and origins from what stands beside it."""
    origins = json.loads(json.dumps(origins_of(model)))
    flat = model_of(written(model))
    return Model(restore_names(flat.graph, origins), flat.library)


def check(model: Model) -> None:
    """A model is written, read and the same; what is read is written alike."""
    assert not verify(model.graph, model.library)
    found = read_back(model)
    assert found.graph == model.graph
    assert written(found) == written(model)


@given(models())
def test_generated_graphs_come_back(model: Model) -> None:
    check(model)


BLOCK = """
operator block {
    @input { x: real[b, c]; }
    @output { y: real[b, c]; }
    @variable { w: real[c, c]..(2); }
    @compose { z = linalg.matmul(x, w[0]); t = linalg.matmul(z, w[1]); y = nn.relu(t); }
}
"""
TEXTS = {
    "labels": IMPORTS + BLOCK + "graph G { @input { x: real[2, 3]; } @output { y: real[2, 3]; }"
    " @compose { a = block(x); y = last: block(a); } }",
    "unrolled": IMPORTS + BLOCK + "graph G { @input { x: real[2, 3]; } @output { y: real[2, 3]; }"
    " @compose { y = with t = x unroll..(i -> 3) { s = inner: block(t); yield s; }; } }",
    "input packs": graph_text(
        "xs: real[3]..(2);", "a = math.add(xs[0], xs[1]); y = layout.stack{axis=0}(xs);"
    ),
    "input packs of different shapes": graph_text(
        "xs: real[2, ..[1, 4]]..(2);", "y = layout.concat{axis=1}(xs);"
    ),
    "output packs": graph_text(
        "x: real[4];", "y..(2) = layout.split{axis=0, count=2}(x);", "y: real[2]..(2)"
    ),
    "output packs of many": graph_text("x: real[4];", "a = math.exp(x); y = [a, x];", "y: real[4]..(2)"),
    "dynamic extents": graph_text(
        "x: real[n|9, ~|5]; z: real[n, 2];",
        "a = layout.pad{padding=[1, 0, 0, 0]}(x, 0.0); y = layout.flatten(a);"
        " b = layout.uniform{shape=[n * 2 + 1, x.shape[1] / 2]}(1.0);",
    ),
    "scan of a pack of unknown length": graph_text(
        "x: real[5, 3]; k: int[];",
        "xs..(5) = layout.unstack{axis=0}(x);"
        " last, all = with s = xs[0] for i : xs do..(k) { t = math.add(s, i); yield t, t; };"
        " y = layout.stack{axis=0}(all);",
    ),
    "loops with an index": graph_text(
        "x: real[3];",
        "y = with s = x do..(i -> 4) { f = layout.cast<real>(i); t = math.add(s, f); yield t; };",
    ),
    "loops that test last": graph_text(
        "x: real[3];",
        "y = with s = x do { t = math.mul(s, 0.5); yield t; } while {"
        " m = math.max_reduce{squeeze=true}(s); c = math.gt(m, 1.0); yield c; };",
    ),
    "loops with an index in the condition": graph_text(
        "x: real[3];",
        "y = with s = x while { c = math.lt(i, 3); yield c; } do..(i -> 9) { t = math.add(s, x); yield t; };",
    ),
    "branches in branches": graph_text(
        "x: real[3]; c: bool[]; d: bool[];",
        "y = if c then { a = if d then math.exp(x) else math.sin(x); yield a; } elif d then x else math.neg(x);",
    ),
    "branches of different extents": graph_text(
        "x: real[3]; z: real[5]; c: bool[];", "a = if c then x else z; y = math.exp(a);"
    ),
    "sized types": graph_text(
        "x: f16[3]; z: i8[2]; w: bf16[1];",
        "y = math.mul(x, 2.0); b = math.neg(z); c = layout.cast<f64>(w); d = layout.cast<u8>(z);",
        "y: f16[3]",
        "@constant { k: f64[2] = [1.0, -inf]; } @variable { v: i32[2]; }",
    ),
    "values": graph_text(
        "x: real[2];",
        "y = math.add(x, k); b = nn.relu{max=6.0}(x); c = layout.constant<real>{shape=[2], value=[-0.0, 1e-30]}();",
        blocks="@constant { k: real[2] = [-0.0, 123456789.125]; m: int[] = -9223372036854775807;"
        " t: bool[2] = [true, false]; }",
    ),
    "updates": graph_text(
        "x: real[2];",
        "y = math.add(x, w);",
        blocks="@variable { w: real[2]; } @update { s = math.mul(y, 0.5); w = s; }",
    ),
    "running statistics": graph_text("x: real[2, 3, 4];", "y = layer.batch_norm{momentum=0.1}(x);"),
    "quantization": graph_text(
        "x: real[2, 3];",
        "y = nn.relu(x);",
        blocks="@quantize { x: quant.min_max_linear_quantize{min=-1.0, max=1.0, bits=4};"
        " y: quant.zero_point_linear_quantize{zero_point=[0, 1, 2], scale=0.5, bits=8}; }",
    ),
    "names of the language": graph_text(
        "f16: real[2]; exp: real[2];", "math = math.exp(exp); u8 = math.neg(math); y = math.add(u8, f16);"
    ),
    "sequences": graph_text(
        "X: real[s|5, 2, 3]; W: real[16, 3]; R: real[16, 4]; B: real[16];", "y, ~, ~ = nn.lstm(X, W, R, B);"
    ),
    "left out": graph_text(
        "x: real[1, 2, 4, 4]; w: real[2, 2, 1, 1];", "~, b = math.moments{axes=[0]}(x); y = nn.conv(x, w);"
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_come_back(name: str) -> None:
    check(model_of(TEXTS[name]))


def test_defaults_are_not_written() -> None:
    model = small(
        "x: real[1, 2, 4, 4]; w: real[2, 2, 3, 3];", "y = nn.conv{stride=1, padding=1, groups=1}(x, w);"
    )
    assert body_of(model) == ["y = nn.conv{padding=[1, 1, 1, 1]}(x, w);"]


def test_types_that_inputs_tell_are_not_written() -> None:
    model = small("x: i32[2];", "a = layout.cast<f16>(x); y = layout.cast<bool>(a);", "y: bool[2]")
    assert body_of(model) == ["a = layout.cast<f16>(x);", "y = layout.cast<bool>(a);"]


def test_names_of_labels_become_identifiers_and_come_back() -> None:
    model = model_of(TEXTS["labels"])
    names = {item.name for item in model.graph.variables}
    assert names == {"a.w:1", "a.w:2", "last.w:1", "last.w:2"}
    flat = with_identifiers(model)
    assert {item.name for item in flat.graph.variables} == {"a_w_1", "a_w_2", "last_w_1", "last_w_2"}
    assert with_identifiers(flat).graph == flat.graph


def test_data_are_stored_under_the_names_of_the_text(tmp_path: Path) -> None:
    model = model_of(TEXTS["labels"])
    data = {
        item.name: np.full((3, 3), number, np.float32) for number, item in enumerate(model.graph.variables)
    }
    flat = with_identifiers(Model(model.graph, model.library, data))
    assert flat.data is not None
    write_weights(tmp_path, flat.graph, flat.data)
    again = model_of(written(model))
    found = read_weights(tmp_path, again.graph)
    assert not found.findings
    assert [found.arrays[item.name][0, 0] for item in again.graph.variables] == [0, 1, 2, 3]


def test_origins_come_back() -> None:
    model = model_of(TEXTS["labels"])
    found = read_back(model)
    for old, new in zip(model.graph.operations(), found.graph.operations(), strict=True):
        assert old.origin is not None
        assert new.origin is not None
        assert new.origin.words() == old.origin.words()
    words = {item.name: item.origin.words() for item in defined(model.graph) if item.origin is not None}
    assert words == {
        item.name: item.origin.words() for item in defined(found.graph) if item.origin is not None
    }


def test_what_was_written_anew_keeps_its_name() -> None:
    model = small("x: real[2];", "a = math.exp(x); y = math.neg(a);")
    edited = written(model).replace("y = math.neg(a);", "added = math.sin(a); y = math.neg(added);")
    found = restore_names(model_of(edited).graph, origins_of(model))
    assert [item.operator for item in found.operations()] == ["math.exp", "math.sin", "math.neg"]
    assert "added" in {item.name for item in defined(found)}


def test_a_name_that_the_text_gives_away_anew_is_not_taken_back() -> None:
    model = model_of(TEXTS["labels"])
    edited = written(model).replace("last_z = ", "a_t_2 = nn.silu(x); last_z = ")
    origins = origins_of(model)
    origins["tensors"]["last_z"]["name"] = "a_t_2"
    found = restore_names(model_of(edited).graph, origins)
    assert not verify(found, model.library)
    assert {"a_t_2", "last_z"} <= {item.name for item in defined(found)}


MODULES = {
    "main.sknd": "import own, math; operator local { @input { x: real[s..]; } @output { y: real[s..]; }"
    " @lower { y[i..] = x[i..] * 2.0, i < s; } }"
    " operator unused { @input { x: real[s..]; } @output { y: real[s..]; } @lower { y[i..] = x[i..], i < s; } }"
    " graph G { @input { x: real[3]; } @output { y: real[3]; }"
    " @compose { a = local(x); b = own.deep(a); y = math.exp(b); } }",
    "own.sknd": "import parts.more; operator deep { @input { x: real[s..]; } @output { y: real[s..]; }"
    " @compose { z = parts.more.shift(x); y = shrink(z); } }"
    " operator shrink { @input { x: real[s..]; } @output { y: real[s..]; } @lower { y[i..] = x[i..] / 2.0, i < s; } }",
    "parts/more.sknd": "operator shift { @input { x: real[s..]; } @output { y: real[s..]; }"
    " @lower { y[i..] = x[i..] + 1.0, i < s; } }",
}


def folder(path: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return path


def load(path: Path, keep: bool = False) -> Model:
    library = Library()
    module = library.load(path)
    composed = compose(module, keep=(lambda _: True) if keep else None)
    assert not errors([*module.findings, *composed.findings]), [*module.findings, *composed.findings]
    assert composed.graph is not None
    return Model(composed.graph, library)


@pytest.mark.parametrize("keep", [False, True])
def test_the_operators_of_the_user_travel_with_the_graph(keep: bool, tmp_path: Path) -> None:
    model = load(folder(tmp_path / "old", MODULES), keep)
    documents = graph_to_skriptnd(model)
    assert set(documents) == {"main", "own", "parts.more"}
    texts = {f"{name.replace('.', '/')}.sknd": write(document) for name, document in documents.items()}
    assert "unused" not in texts["main.sknd"]
    again = load(folder(tmp_path / "new", texts), keep)
    assert restore_names(again.graph, origins_of(model)) == model.graph


def test_private_formulas_are_copied_under_public_names(tmp_path: Path) -> None:
    """The graph cannot name what is private to another module; what is written computes the same."""
    private = {name: text.replace("shift", "_shift") for name, text in MODULES.items()}
    private["parts/more.sknd"] += (
        " operator shift { @input { x: real[s..]; } @output { y: real[s..]; } @compose { y = _shift(x); } }"
    )
    private["own.sknd"] = private["own.sknd"].replace("_shift", "shift")
    model = load(folder(tmp_path / "old", private))
    assert "parts.more._shift" in {item.operator for item in model.graph.operations()}
    texts = {f"{name.replace('.', '/')}.sknd": write(item) for name, item in graph_to_skriptnd(model).items()}
    again = load(folder(tmp_path / "new", texts))
    assert [item.operator.replace("shift_1", "_shift") for item in again.graph.operations()] == [
        item.operator for item in model.graph.operations()
    ]
    main = again.library.documents["main"]
    assert not errors(run_check(main, "main", again.library.find_operator))


NEWER = """
import layout, math;
operator reversed {
    @input { x: real[n]; }
    @output { y: real[n]; }
    @compose { y = layout.slice{axes=[0], begin=[n - 1], end=[-1], stride=[-1]}(x); }
}
graph G {
    @input { x: real[4]; z: real[1, 4, 2]; }
    @output { y: real; b: real; a: int; w: real; }
    @compose {
        y = layout.slice{axes=[0], begin=[3], end=[-1], stride=[-2]}(x);
        b = layout.broadcast{axes=[0, 1], shape=[3, 1]}(z);
        a = math.argmax_nd{axes=[1, 2]}(z);
        w = reversed(x);
    }
}
"""


def test_what_only_the_newer_dialect_means_is_written_with_its_definition(tmp_path: Path) -> None:
    path = tmp_path / "g.sknd"
    path.write_text(NEWER)
    model = lamella.load(path, dialect="newer")
    x, z = np.arange(4, dtype=np.float32), np.arange(8, dtype=np.float32).reshape(1, 4, 2)
    for ending in (".sknd", ".onnx"):
        file = tmp_path / f"written{ending}"
        lamella.save(model, file)
        found = lamella.compile(file, backend="reference")(x=x, z=z)
        np.testing.assert_array_equal(found["y"], [3, 1])
        assert found["b"].shape == (3, 4, 2)
        np.testing.assert_array_equal(found["a"], [[[[3, 1]]]])
        np.testing.assert_array_equal(found["w"], [3, 2, 1, 0])


def test_generic_types_stand_in_the_order_of_their_declarations() -> None:
    model = model_of(
        "operator o { @dtype { R: type = real; T: num; } @input { x: T[n]; } @output { y: R[n]; z: T[n]; } }"
        " graph G { @input { x: int[4]; } @output { a: real[4]; b: int[4]; } @compose { a, b = o(x); } }"
    )
    (call,) = model.graph.operations()
    assert [name for name, _ in call.types] == ["R", "T"]
    check(model)
