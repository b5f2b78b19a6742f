"""Files of compiled units that someone changed: findings, or a graph that is whole; never anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.limits import Limits
from lamella.bridge.ir_to_graph import read_ir
from lamella.bridge.module_to_ir import read_unit, write_ir
from lamella.graph.verify import verify
from tests.support.bridge.module_ir import built_text

TEXT = """
    module M(d: int = 4):
      params:
        w: [d, d]
      constants:
        freqs: precompute_rope_freqs(8, d)
      forward:
        in: x: [B, 1, T, d]
        out: y: [B, 1, T, d]
        graph:
          x -> split([2, 2], dim=-1) -> (p, q)
          (q, p) -> concat(dim=-1) -> t
          (t, t, freqs) -> rope() -> (a, b)
          (a, b) -> add() -> s
          s -> view([B * T, d]) -> v
          (v, w) -> matmul(transpose=NT) -> m
          m -> add(2.0) -> n
          n -> view([B, 1, T, d]) -> y
"""
FILES = ("graph.json", "schedule.json", "weights.json", "config_schema.json", "metadata.json")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a unit."""
    folder = tmp_path_factory.mktemp("unit")
    write_ir(built_text(folder, TEXT).unit, folder / "ir")
    return folder / "ir"


def message(folder: Path, limits: Limits | None = None) -> str:
    """What is found wrong with a folder."""
    with pytest.raises(LamellaError) as caught:
        read_ir(folder, limits or Limits())
    return "\n".join(item.message for item in caught.value.findings)


def changed(home: Path, folder: Path, change: Callable[[Any], object], name: str = "graph.json") -> Path:
    """A copy of a unit in which one file is changed."""
    for file in FILES:
        (folder / file).write_bytes((home / file).read_bytes())
    value = json.loads((folder / name).read_text())
    change(value)
    (folder / name).write_text(json.dumps(value))
    return folder


def test_what_is_not_changed_is_read(home: Path, tmp_path: Path) -> None:
    folder = changed(home, tmp_path, lambda value: None)
    assert read_ir(folder) == read_ir(home)
    assert read_unit(folder) == read_unit(home)


CASES: dict[str, tuple[Callable[[Any], object], str]] = {
    "format": (lambda v: v.update(format="other"), "its format is 'other'"),
    "unknown field": (
        lambda v: v["nodes"][0].update(colour=1),
        r"nodes\[0\]' has the unknown field 'colour'",
    ),
    "missing field": (lambda v: v["nodes"][0].pop("op"), r"nodes\[0\]' lacks the field 'op'"),
    "wrong kind": (lambda v: v["nodes"][0].update(op=3), r"nodes\[0\].op' is not a text"),
    "unknown operator": (lambda v: v["nodes"][0].update(op="llm.ghost"), "llm.ghost"),
    "unknown tensor": (lambda v: v["nodes"][1].update(outputs=["ghost"]), "there is no tensor 'ghost'"),
    "another shape": (lambda v: v["intermediates"][0].update(shape=[-1, 1, -2, 3]), "gives|is made|reads"),
    "another type": (lambda v: v["inputs"][0].update(dtype="int64"), "is not|gives|type|float"),
    "no type": (lambda v: v["inputs"][0].update(dtype="quux"), "'quux' is no element type"),
    "twice": (lambda v: v["intermediates"].append(v["intermediates"][0]), "is declared twice"),
    "order": (lambda v: v["nodes"].reverse(), "is not made before"),
    "edges": (lambda v: v["edges"].pop(), "the edges are not those of the nodes"),
    "ids": (lambda v: v["nodes"][0].update(id="n7"), "the ids of the nodes do not count"),
    "casts": (lambda v: v["casts"].append({"node": "n0", "found": "fp32", "given": "fp16"}), "the casts"),
    "symbol": (lambda v: v["inputs"][0].update(shape=[-99]), "there is no symbol -99"),
    "symbol above itself": (
        lambda v: v["symbols"].append(
            {"id": -len(v["symbols"]) - 1, "kind": "%", "text": "", "operands": [-len(v["symbols"]) - 1, 2]}
        ),
        "there is no symbol",
    ),
    "zero": (
        lambda v: v["symbols"].append(
            {"id": -len(v["symbols"]) - 1, "kind": "/", "text": "", "operands": [-1, 0]}
        ),
        "divides by zero",
    ),
    "range": (lambda v: v["symbols"][0].update(low=5, high=2), "has no name or no range"),
    "large table": (lambda v: v["built"][0].update(positional=[10**15, 4]), "is not built by"),
    "unknown table": (lambda v: v["built"][0].update(function="system"), "is not built by 'system'"),
    "large number": (lambda v: v["inputs"][0].update(shape=[10**30]), "is not a 64-bit integer"),
    "attribute": (lambda v: v["nodes"][0]["attributes"].update(dim={"x": 1}), "an attribute is no value"),
    "attribute of another value": (lambda v: v["nodes"][0]["attributes"].update(dim=7), "dim"),
}


@pytest.mark.parametrize("case", CASES)
def test_changes_are_told(case: str, home: Path, tmp_path: Path) -> None:
    change, expected = CASES[case]
    folder = changed(home, tmp_path, change)
    with pytest.raises(LamellaError) as caught:
        read_ir(folder)
    assert caught.match(expected)


SCHEDULES: dict[str, tuple[Callable[[Any], object], str]] = {
    "op": (lambda v: v["ops"].pop(), "the ops are not the nodes"),
    "order": (lambda v: v["ops"][1].update(order=5), "the ops do not count"),
    "buffer": (lambda v: v["ops"][0]["inputs"][0].update(buffer="ghost"), "there is no buffer 'ghost'"),
    "pool": (lambda v: v["buffers"][0].update(pool="ghost"), "has no pool or no time"),
    "time": (lambda v: v["buffers"][0].update(last=10**6), "has no pool or no time"),
    "twice": (lambda v: v["buffers"].append(v["buffers"][0]), "a buffer stands there twice"),
    "size": (lambda v: v["buffers"][0].update(bytes=-999), "there is no symbol -999"),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_changes_of_a_schedule_are_told(case: str, home: Path, tmp_path: Path) -> None:
    change, expected = SCHEDULES[case]
    folder = changed(home, tmp_path, change, "schedule.json")
    with pytest.raises(LamellaError, match=expected):
        read_unit(folder)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "this is no JSON"),
        ("[]", "it is no JSON object"),
        ('{"format": "lamella.graph 1", "format": 2}', "has the key 'format' twice"),
        ("[" * 100_000, "nests more than 200 levels"),
        ('{"format": "lamella.graph 1", "name": ' + "[" * 300 + "]" * 300 + "}", "levels deep"),
        ('{"format": "lamella.graph 1"}', "lacks the field"),
    ],
)
def test_other_texts_are_told(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(text)
    assert expected in message(tmp_path)


def test_numbers_that_are_no_numbers_are_told(home: Path, tmp_path: Path) -> None:
    folder = changed(home, tmp_path, lambda value: value["nodes"][0]["attributes"].update(dim=float("nan")))
    assert "is not a finite number" in message(folder)


def test_limits_are_kept(home: Path, tmp_path: Path) -> None:
    assert "8 nodes; the limit is 3" in message(home, Limits(max_operations=3))
    assert "needs 256 bytes; the limit is 100" in message(home, Limits(max_total_bytes=100))
    (tmp_path / "graph.json").symlink_to(home / "graph.json")
    assert "symbolic link" in message(tmp_path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert "graph.json" in message(tmp_path)


# --- any change -------------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-12, 12),
    st.sampled_from([2**63, -(2**70), 10**9]),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["x", "w", "y", "n0", "llm.matmul", "fp16", "int64", "symbol", "sum", "?", "&&", "!"]),
    st.just([]),
    st.just({}),
    st.lists(st.integers(-9, 9), max_size=4),
)


def mutate(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """A value with something in it replaced, taken away or doubled."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        return {name: mutate(item, draw) if name == key else item for name, item in value.items()}
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        number = draw(st.integers(0, len(value) - 1))
        change = draw(st.integers(0, 6))
        if change == 0:
            return value[:number] + value[number + 1 :]
        if change == 1:
            return [*value, value[number]]
        return [*value[:number], mutate(value[number], draw), *value[number + 1 :]]
    return draw(VALUES)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=70, deadline=None)
def test_any_change_gives_findings_or_a_whole_graph(home: Path, tmp_path: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILES[:3]))
    for file in FILES:
        (tmp_path / file).write_bytes((home / file).read_bytes())
    value = mutate(json.loads((home / name).read_text()), data.draw)
    (tmp_path / name).write_text(json.dumps(value))
    findings = found_in(tmp_path)
    assert all(len(item.message) < 5000 for item in findings)


def found_in(folder: Path) -> tuple[Diagnostic, ...]:
    """What is wrong with a folder; where nothing is, its graph is whole."""
    try:
        model = read_ir(folder)
        read_unit(folder)
    except LamellaError as problem:
        return problem.findings
    return tuple(verify(model.graph, model.library))
