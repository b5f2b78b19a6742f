"""States: what a graph keeps between runs goes to NAC and back, and the machine keeps what the reference keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamella
from lamella import LamellaError
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.bridge.graph_to_nac import canonical, graph_to_nac
from lamella.bridge.nac_to_graph import check_translation, nac_to_graph
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members
from lamella.lang.nac import File, assemble, disassemble
from lamella.lang.nac.nodes import Resource
from lamella.pipeline.nac.model import Model as FileModel
from lamella.pipeline.nac.running import Executable, compile_file
from lamella.pipeline.options import Options
from tests.support.bridge.nac_trips import check_trip, with_data
from tests.support.graph.running import random_arrays, same
from tests.support.graph.texts import graph_text, model_of
from tests.support.strategies.graph import models


def notes(file: File) -> dict[str, Any]:
    """The content of the resource."""
    (resource,) = file.resources
    content: dict[str, Any] = json.loads(bytes(resource.data))
    return content


def with_states(file: File, states: object) -> File:
    """The file with other notes on what it keeps."""
    content = json.dumps({**notes(file), "states": states}).encode()
    return replace(file, resources=(Resource("lamella.json", content),))


def executable(file: File) -> Executable:
    """A file on its machine."""
    return compile_file(FileModel(Path("model.nac"), file, ()), Options())


def run_both(model: Model, calls: int = 3) -> None:
    """The reference and the machine agree over several calls, in outputs and in what they keep."""
    filled = with_data(model)
    found, wanted = executable(graph_to_nac(filled).file), compile_model(filled)
    kept = {item.variable.name for item in canonical(filled).graph.updates}
    for number in range(calls):
        inputs = [item for item in members(model.graph.inputs) if isinstance(item, Tensor)]
        arrays = random_arrays(inputs, {"n": 2}, number)
        with np.errstate(all="ignore"):
            same(wanted(**arrays), found(**arrays), exact=False)
        same({name: wanted.state[name] for name in kept}, dict(found.state), exact=False)
    found.reset()
    wanted.reset()
    same({name: wanted.state[name] for name in kept}, dict(found.state))


# --- graphs -------------------------------------------------------------------------------------------------

MOVES = ("state", "unary", "binary", "concat", "sums", "cast")


@settings(max_examples=40)
@given(models(MOVES))
def test_generated_graphs_with_states_come_back(model: Model) -> None:
    file = check_trip(model)
    updates = {item.variable.name for item in canonical(model).graph.updates}
    assert {item["name"] for item in notes(file).get("states", [])} == updates


@given(models(MOVES, open_extents=False))
def test_the_machine_keeps_what_the_reference_keeps(model: Model) -> None:
    run_both(model)


def keeping(body: str, update: str, variables: str = "a: real[2]; b: real[2];", more: str = "") -> Model:
    """A graph that updates its variables."""
    blocks = f"@variable {{ {variables} }} @update {{ {update} }} {more}"
    return model_of(graph_text("x: real[2];", body, blocks=blocks))


GRAPHS = {
    "two that change places": keeping("y = math.sub(a, x);", "a = b; b = a;"),
    "one that nobody reads": keeping("y = math.add(x, b);", "a = x;"),
    "one that becomes an input": keeping("y = math.add(a, x);", "a = x;"),
    "one that becomes a weight": keeping("y = math.add(a, b);", "a = b;"),
    "one that becomes a constant": keeping(
        "y = math.add(a, x);", "a = k;", "a: real[2];", "@constant { k: real[2] = [1.5, 2.0]; }"
    ),
    "one that becomes an output": keeping("y = math.add(a, x);", "a = y;"),
    "two that become the same": keeping("y = math.add(a, b); z = math.exp(x);", "a = z; b = z;"),
    "one that becomes itself and one that does not": keeping("y = math.add(a, b);", "a = a; b = y;"),
    "one that is an output": keeping("y = math.iden(a);", "a = x;"),
    "one of a call of several results": keeping(
        "p..(2) = layout.split{axis=0, count=2}(a); y = math.add(x, a);",
        "a = layout.concat{axis=0}([p[1], p[0]]);",
    ),
    "integers, truth values, narrow reals": keeping(
        "y = math.sin(x); d = math.add(c, 1); z = math.neg(k); g = math.add(h, 0.5); u = math.lt(x, 0.0);",
        "c = d; h = g; k = z; t = u;",
        "c: int[]; h: f16[2]; k: bf16[3]; t: bool[2];",
    ),
}


@pytest.mark.parametrize("model", GRAPHS.values(), ids=GRAPHS)
def test_graphs_come_back_and_run_alike(model: Model) -> None:
    check_trip(model)
    run_both(model, calls=4)


def test_the_notes_say_what_is_kept() -> None:
    model = keeping("y = math.add(a, x);", "a = y; b = x;")
    file = graph_to_nac(
        replace(model, data={"a": np.array([1, 2], np.float32), "b": np.zeros(2, np.float32)})
    ).file
    assert notes(file)["states"] == [
        {"id": 0, "name": "a", "dtype": "f32", "shape": [2], "initial": 1, "update": 1},
        {"id": 1, "name": "b", "dtype": "f32", "shape": [2], "initial": None, "update": 2},
    ]
    assert [item["name"] for item in notes(file)["outputs"]] == ["y"]
    assert file.header.outputs == 3
    assert [item.name for item in file.parameters] == ["a"]
    assert "state(0)" in disassemble(file)
    assert "state(1)" not in disassemble(file)
    assert assemble(Source("a.nacs", disassemble(file))).file == file


def test_a_variable_that_becomes_itself_is_a_weight() -> None:
    file = graph_to_nac(with_data(keeping("y = math.add(a, b);", "a = a; b = b;"))).file
    assert "states" not in notes(file)
    assert [item.name for item in file.parameters] == ["a", "b"]


def test_shapes_of_calls_share_what_is_kept(tmp_path: Path) -> None:
    text = graph_text(
        "x: real[n|9];",
        "s = math.sum_reduce{axes=[0], squeeze=true}(x); t = math.add(total, s); y = math.add(x, t);",
        "y: real[n]",
        "@variable { total: real[]; } @update { total = t; }",
    )
    model = replace(model_of(text), data={"total": np.array(1, np.float32)})
    lamella.save(lamella.load(_saved(model, tmp_path / "sum.nac")), tmp_path / "sum.nacs")
    run: Any = lamella.compile(tmp_path / "sum.nacs")
    total = 1.0
    for size in (2, 5, 1, 2, 7, 9, 3):
        x = np.arange(size, dtype=np.float32)
        total += x.sum()
        np.testing.assert_allclose(run(x=x)["y"], x + total)
        np.testing.assert_allclose(run.state["total"], total)
    run.reset()
    np.testing.assert_allclose(run(x=np.array([1, 2], np.float32))["y"], [5, 6])


def _saved(model: Model, path: Path) -> Path:
    lamella.save(model, path)
    return path


def test_a_run_that_fails_changes_nothing() -> None:
    file = graph_to_nac(with_data(keeping("y = math.add(a, x);", "a = y;", "a: real[2];"))).file
    run = executable(file)
    run(x=np.ones(2, np.float32))
    before = run.state["a"].copy()
    with pytest.raises(LamellaError, match="dimension 0"):
        run(x=np.ones(3, np.float32))
    np.testing.assert_array_equal(run.state["a"], before)
    with pytest.raises(TypeError):
        cast("dict[str, Array]", run.state)["a"] = before


def test_what_is_kept_is_no_view_of_what_is_given() -> None:
    run = executable(graph_to_nac(with_data(keeping("y = math.add(a, x);", "a = x; b = y;"))).file)
    x = np.ones(2, np.float32)
    found = run(x=x)
    x[:] = 7
    found["y"][:] = 7
    assert set(run.state) == {"a", "b"}
    assert not any((values == 7).any() for values in run.state.values())


# --- hostile notes ------------------------------------------------------------------------------------------

FILE = graph_to_nac(
    replace(
        keeping("y = math.add(a, x);", "a = y; b = x;"),
        data={"a": np.array([1, 2], np.float32), "b": np.zeros(2, np.float32)},
    )
).file
STATE = {"id": 0, "name": "a", "dtype": "f32", "shape": [2], "initial": 1, "update": 1}
OTHER = {"id": 1, "name": "b", "dtype": "f32", "shape": [2], "initial": None, "update": 2}

WRONG = {
    "no list": ({}, "NAC223"),
    "no objects": ([1], "NAC223"),
    "a text for an id": ([{**STATE, "id": "0"}], "NAC223"),
    "an id below zero": ([{**STATE, "id": -1}], "NAC223"),
    "an id that no instruction can name": ([{**STATE, "id": 1 << 40}], "NAC223"),
    "a truth value for an output": ([{**STATE, "update": True}], "NAC223"),
    "no output": ([{key: value for key, value in STATE.items() if key != "update"}], "NAC223"),
    "a real parameter": ([{**STATE, "initial": 1.0}], "NAC223"),
    "an unknown type": ([{**STATE, "dtype": "f31"}], "NAC223"),
    "an open extent": ([{**STATE, "shape": ["n"]}], "NAC223"),
    "a negative extent": ([{**STATE, "shape": [-2]}], "NAC223"),
    "many dimensions": ([{**STATE, "shape": [1] * 100}], "NAC223"),
    "more bytes than there are": ([{**STATE, "initial": None, "shape": [1 << 40, 1 << 40]}], "NAC223"),
    "more bytes than the limit": ([{**STATE, "initial": None, "shape": [1 << 33]}], "NAC223"),
    "more than instructions can name": ([STATE] * (1 << 16), "NAC223"),
    "nothing described": ([], "NAC260"),
    "one that is not described": ([OTHER], "NAC260"),
    "one id twice": ([STATE, {**OTHER, "id": 0}], "NAC261"),
    "one name twice": ([STATE, {**OTHER, "name": "a"}], "NAC261"),
    "one output twice": ([STATE, {**OTHER, "update": 1}], "NAC261"),
    "a parameter that does not exist": ([{**STATE, "initial": 9}, OTHER], "NAC262"),
    "another shape": ([STATE, {**OTHER, "initial": 1, "shape": [3]}], "NAC262"),
    "other elements": ([STATE, {**OTHER, "initial": 1, "dtype": "i32"}], "NAC262"),
    "an output of the caller": ([STATE, {**OTHER, "update": 0}], "NAC263"),
    "an output that does not exist": ([STATE, {**OTHER, "update": 3}], "NAC263"),
    "more states than outputs": (
        [STATE, *({**OTHER, "id": item, "name": f"b{item}", "update": item} for item in range(1, 9))],
        "NAC263",
    ),
    "a value of another shape": ([STATE, {**OTHER, "shape": [3]}], "NAC264"),
    "a value of another type": ([STATE, {**OTHER, "dtype": "f16"}], "NAC264"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_notes_are_findings(name: str) -> None:
    states, code = WRONG[name]
    assert code in {item.code for item in check_translation(with_states(FILE, states))}


def test_right_notes_are_none() -> None:
    assert not check_translation(with_states(FILE, [STATE, OTHER]))
    assert not check_translation(with_states(FILE, [{**STATE, "initial": None}, {**OTHER, "initial": 1}]))
    swapped = [{**STATE, "update": 2}, {**OTHER, "update": 1}]
    assert not check_translation(with_states(FILE, swapped))


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 4)
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["f32", "f16", "i64", "a", "b", "n", ""])
    | st.lists(st.integers(-1, 3) | st.just("n"), max_size=3)
)
DESCRIBED = st.dictionaries(st.sampled_from(sorted(STATE)), VALUES).map(lambda changed: {**STATE, **changed})


@settings(max_examples=200)
@given(VALUES | st.lists(DESCRIBED | VALUES, max_size=4))
def test_any_notes_are_findings_or_a_model_that_runs(states: object) -> None:
    file = with_states(FILE, states)
    found = check_translation(file)
    if found:
        with pytest.raises(LamellaError):
            nac_to_graph(file)
    else:
        run = executable(file)
        run(x=np.ones(2, np.float32))
        assert len(run.state) == len(notes(file)["states"])
