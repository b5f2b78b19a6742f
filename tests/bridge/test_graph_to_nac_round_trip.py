"""Graphs go to NAC and come back equal: generated ones, those of all ATen overloads, those of the examples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.dim import add, mul, symbol
from lamella.base.dtype import F32
from lamella.base.errors import Found
from lamella.bridge.aten.table import OverloadRow, rows
from lamella.bridge.graph_to_nac import Writing, canonical, graph_to_nac
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members
from lamella.lang.nac import File, check
from lamella.pipeline.api import load
from tests.support.bridge.aten.cases import CASES, PLAIN
from tests.support.bridge.aten.elements import single
from tests.support.bridge.aten.judge import Judged, flat, library, overload
from tests.support.bridge.nac_trips import check_file, check_trip, comparable, read_back
from tests.support.bridge.torch_models.small_models import NETWORKS
from tests.support.bridge.torch_models.transformer_models import MODELS
from tests.support.graph.texts import graph_text, model_of
from tests.support.strategies.graph import models
from tests.support.strategies.graph_aten import aten_models
from tests.support.strategies.graph_moves import MOVES

ROOT = Path(__file__).parents[2]
SAYABLE = tuple(name for name in MOVES if name not in ("branch", "fold", "repeat", "quantized"))
REFUSED = {"NAC210", "NAC213"}
"""What generated graphs may have that NAC cannot say: packs of unknown length, sizes that nothing tells."""


def refusals(model: Model) -> set[str]:
    """The codes of what a model has that cannot be said."""
    try:
        canonical(model)
    except LamellaError as problem:
        return {item.code for item in problem.findings}
    return set()


def check_or_refuse(model: Model) -> None:
    """A model makes the trip, unless it has what cannot be said."""
    found = refusals(model)
    assert found <= REFUSED
    if not found:
        check_trip(model)


@given(models(SAYABLE))
def test_generated_graphs_come_back(model: Model) -> None:
    check_or_refuse(model)


@given(models(SAYABLE, open_extents=False))
def test_graphs_of_known_shapes_are_never_refused(model: Model) -> None:
    check_trip(model, numbers=False)


@given(aten_models())
def test_generated_aten_graphs_come_back(model: Model) -> None:
    check_or_refuse(model)


BUILT = [row for row in rows().values() if row.how not in ("drop", "size", "refuse")]


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row.schema.name)
def test_every_overload_comes_back(row: OverloadRow) -> None:
    random, draw = Random(row.schema.name), CASES.get(row.how) or PLAIN.get(row.schema.operator) or single
    for _ in range(3):
        try:
            case = draw(random, row.schema)
            overload(row.schema.name)(**case)
            judged = Judged(row.schema.name, case)
        except (RuntimeError, IndexError, TypeError, NotImplementedError, ValueError, Found):
            continue
        results = [item for item in flat(judged.result) if isinstance(item, Tensor)]
        model = Model(judged.builder.finish(*results), library())
        assert comparable(read_back(graph_to_nac(model).file)) == comparable(canonical(model))
        return


@pytest.mark.parametrize("name", ["alexnet", "resnet18"])
def test_examples_come_back(name: str) -> None:
    model = load(ROOT / "examples" / name / "main.sknd")
    assert isinstance(model, Model)
    zeros = {
        item.name: np.zeros([int(str(size)) for size in item.shape], np.float32)
        for item in model.graph.variables
    }
    file = graph_to_nac(replace(model, data=zeros)).file
    assert not check(file)
    assert read_back(file) == canonical(model)
    assert [item.name for item in file.parameters] == [item.name for item in model.graph.variables]
    check_file(graph_to_nac(model, Writing(external=True)))


TORCH = {**NETWORKS, **{name: MODELS[name] for name in ("BERT", "Llama", "T5 encoder")}}


@pytest.mark.parametrize("name", TORCH)
def test_models_of_torch_come_back(name: str) -> None:
    sample = TORCH[name]()
    model = lamella.from_torch(sample.module, (), sample.inputs)
    file = check_trip(model, numbers=False)
    assert [item.name for item in file.inputs] == [item.name for item in members(model.graph.inputs)]


@pytest.mark.parametrize("name", NETWORKS)
def test_models_of_torch_with_open_extents_come_back(name: str) -> None:
    sample = NETWORKS[name]()
    check_trip(lamella.from_torch(sample.module, (), sample.inputs, dynamic=sample.dynamic), numbers=False)


TEXTS = {
    "input packs": graph_text("xs: real[3]..(2);", "y = layout.stack{axis=0}(xs);"),
    "output packs": graph_text(
        "x: real[4];", "y..(2) = layout.split{axis=0, count=2}(x);", "y: real[2]..(2)"
    ),
    "inputs that are outputs": graph_text("x: real[4];", "a = math.exp(x); y = [a, x];", "y: real[4]..(2)"),
    "open extents": graph_text(
        "x: real[n|9, ~|5]; z: real[n, 2];",
        "a = layout.pad{padding=[1, 0, 0, 0]}(x, 0.0); y = layout.flatten(a);"
        " b = layout.uniform{shape=[n * 2 + 1, x.shape[1] / 2]}(1.0);",
    ),
    "quotients, remainders, minima": graph_text(
        "x: real[n|9, m|7];",
        "a = layout.uniform{shape=[n % 3 + 1, n << m, n >> m, n - m + 9]}(1.0); y = math.exp(a);",
    ),
    "quotients rounded up": graph_text(
        "x: real[n|9];", "a = layout.uniform{shape=[n \\ 2, (n + 1) / 2]}(1.0); y = math.exp(a);"
    ),
    "sized types": graph_text(
        "x: f16[3]; z: i8[2]; w: bf16[1];",
        "y = math.mul(x, 2.0); b = math.neg(z); c = layout.cast<f64>(w); d = layout.cast<u8>(z);",
        "y: f16[3]",
        "@constant { k: f64[2] = [1.0, -inf]; } @variable { v: i32[2]; }",
    ),
    "values": graph_text(
        "x: real[2];",
        "y = math.add(x, k); b = nn.relu{max=6.0}(x);"
        " c = layout.constant<real>{shape=[2], value=[-0.0, 1e-30]}();",
        blocks="@constant { k: real[2] = [-0.0, 123456789.125]; t: bool[2] = [true, false]; }",
    ),
    "drawn numbers": graph_text("x: real[2];", "a = rand.normal{shape=[2]}(); y = math.add(x, a);"),
    "layers that keep their statistics": graph_text("x: real[2, 3, 4];", "y = layer.batch_norm(x);"),
    "an output twice": graph_text("x: real[2];", "a = math.exp(x); y = [a, a];", "y: real[2]..(2)"),
    "a constant that is an output": graph_text(
        "x: real[2];", "y = math.iden(k);", "y: real[2]", "@constant { k: real[2] = [1.0, 2.0]; }"
    ),
    "copies inside": graph_text("x: real[2];", "a = math.iden(x); b = math.iden(a); y = math.exp(b);"),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_texts_come_back(text: str) -> None:
    check_trip(model_of(text))


def test_an_extent_is_found_in_a_multiple_of_it() -> None:
    builder, n = Builder(library(), "G"), symbol("n", 9)
    builder.input("x", F32, (add(mul(2, n), 1),))
    model = Model(builder.finish(builder.call("layout.uniform", 1.0, shape=(n,))), library())
    file = check_trip(model)
    names = {item.id: item.name for item in file.operations}
    assert [names[item.operation] for item in file.instructions[1:-1]] == [
        *("aten.sym_size.int", "sub", "floordiv", "layout.uniform")
    ]


@given(st.lists(st.floats(width=64), min_size=1, max_size=4), st.sampled_from(("f64", "real", "f16")))
def test_constants_keep_their_bits(values: list[float], element: str) -> None:
    """Numbers of a constant are rounded to its type and nothing else happens to them."""
    spelled = ", ".join("inf - inf" if item != item else repr(item) for item in values)
    text = graph_text(
        f"x: {element}[{len(values)}];",
        "y = math.add(x, k);",
        f"y: {element}[{len(values)}]",
        f"@constant {{ k: {element}[{len(values)}] = [{spelled}]; }}",
    )
    try:
        model = model_of(text)
    except AssertionError:  # beyond the type
        return
    check_trip(model)


def notes(file: File) -> dict[str, object]:
    """The content of the resource."""
    (resource,) = file.resources
    assert resource.name == "lamella.json"
    content = json.loads(bytes(resource.data))
    assert isinstance(content, dict)
    return content


def test_notes_hold_what_the_format_has_no_field_for() -> None:
    model = model_of(
        graph_text(
            "x: real[n|9, 2];",
            "y = math.add(x, k);",
            "y: real[n, 2]",
            "@constant { k: real[1, 2] = [1.0, 2.0]; }",
        )
    )
    found = notes(graph_to_nac(model).file)
    assert found.pop("origins")
    assert found == {
        "format": 1,
        "graph": "G",
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["n", 2]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["n", 2]}],
        "extents": {"n": [0, 9]},
        "constants": {"constant.1": [1]},
    }
