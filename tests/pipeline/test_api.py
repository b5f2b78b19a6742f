"""SkriptND through the Python API: options, names, several findings at once, state, files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import lamella
from lamella import LamellaError
from lamella.graph.model import Model
from tests.support.cli.skriptnd_models import write_models

WRONG = """import math;

graph G {
    @input { x: real[2]; }
    @output { y: real[2]; }
    @compose { a = math.nope(x); b = math.neg(z); y = math.neg(x); }
}
"""
UNFIT = """import math;

graph G {
    @input { x: real[2]; z: real[3]; }
    @output { a: real[2]; b: real[2]; }
    @compose { a = math.add(x, z); b = math.mul(z, x); }
}
"""
Floats = NDArray[np.float32]
EXACT = st.integers(-64, 64).map(lambda number: number / 8)


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_models(tmp_path)
    (tmp_path / "wrong.sknd").write_text(WRONG, encoding="utf-8")
    (tmp_path / "unfit.sknd").write_text(UNFIT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def test_check_never_raises_and_tells_everything() -> None:
    assert not lamella.check("packs.sknd")
    assert {item.code for item in lamella.check("wrong.sknd")} == {"SKR031", "SKR051"}
    assert len(lamella.check("unfit.sknd")) == 2
    for found in (
        lamella.check("nowhere.sknd"),
        lamella.check("two.sknd", nonsense=1),  # type: ignore[call-arg]  # what is asked
        lamella.check("two.sknd", model="Third"),
        lamella.check("two.sknd", language="nonsense"),
        lamella.check("two.sknd", dialect="nonsense"),  # type: ignore[arg-type]
        lamella.check("two\0.sknd"),
        lamella.check("."),
    ):
        assert [item.severity for item in found] == ["error"]


@pytest.mark.parametrize("name", ["wrong", "unfit"])
def test_load_raises_all_findings_at_once(name: str) -> None:
    with pytest.raises(LamellaError) as caught:
        lamella.load(f"{name}.sknd")
    assert len(caught.value.findings) == 2
    assert {item.span.source.name for item in caught.value.findings} == {f"{name}.sknd"}


def test_options_reach_the_model() -> None:
    config = {"n": 3, "T": "f64", "flags": [True, True], "sizes": (), "scale": 1, "mode": "x", "maybe": None}
    executable = lamella.compile("two.sknd", model="First", config=config)
    assert (executable.inputs, executable.outputs) == (("x",), ("y",))
    found = executable(x=np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(found["y"], [2.0, 4.0, 8.0])
    assert found["y"].dtype == np.float64
    small = lamella.compile("two.sknd", model="Second", shape={"b": 2}, seed=5, dtype="f64")
    assert small()["y"].shape == (2, 3)
    assert small()["y"].dtype == np.float64
    whole = lamella.load("compound.sknd", keep="main.twice")
    assert isinstance(whole, Model)
    assert {item.operator for item in whole.graph.operations()} == {"nn.linear", "main.twice"}


@pytest.mark.parametrize(
    "options",
    [
        {"colour": "red"},
        {"seed": "1"},
        {"seed": True},
        {"seed": -1},
        {"shape": {"b": "2"}},
        {"shape": [2]},
        {"shape": {"b": -1}},
        {"config": 3},
        {"config": {"n": 1j}},
        {"config": {"n": [1j]}},
        {"dialect": "older"},
        {"dtype": "f8"},
        {"precision": "fp9"},
        {"keep": 3},
        {"decompose": ["nn.nope"]},
        {"limits": 100},
        {"quantized": "yes"},
        {"weights": 3},
        {"backend": "nonsense"},
        {"model": 3},
    ],
    ids=str,
)
def test_wrong_options_are_told_and_nothing_else_is_raised(options: dict[str, object]) -> None:
    model = "First" if "config" in options else "Second"
    with pytest.raises(LamellaError):
        cast("Callable[..., object]", lamella.compile)("two.sknd", **{"model": model, **options})


@pytest.mark.parametrize("thing", [None, 3, object()])
def test_what_is_no_model_is_told(thing: object) -> None:
    calls: tuple[Callable[[Any], object], ...] = (
        lamella.compile,
        partial(lamella.lower, to="sknd"),
        partial(lamella.save, path="x.sknd"),
    )
    for call in calls:
        with pytest.raises(lamella.LamellaError, match=f"not a {type(thing).__name__}"):
            call(thing)


@given(
    arrays(np.float32, (3, 2), elements=EXACT),
    arrays(np.float32, (2,), elements=EXACT),
)
def test_state_is_kept_from_call_to_call(steps: Floats, start: Floats) -> None:
    model = lamella.load("state.sknd")
    assert isinstance(model, Model)
    executable = lamella.compile(Model(model.graph, model.library, {"total": start}))
    total = start
    for step in steps:
        total = total + step
        np.testing.assert_array_equal(executable(x=step)["y"], total)
    assert not executable.findings


def test_lower_and_save_write_what_load_reads(tmp_path: Path) -> None:
    model = lamella.load("compound.sknd")
    lowered = lamella.lower(model, to="sknd", passes=["simplify", "remove_dead"])
    for place in ("folder", "file.sknd", "named.nnef2"):
        lamella.save(lowered, tmp_path / place)
        assert lamella.load(tmp_path / place) == lowered or place == "file.sknd"
    for place in ("model.nem", "model.json", "model.dat", "compound.sknd/below"):
        with pytest.raises(LamellaError):
            lamella.save(lowered, tmp_path / place)
    assert not list(tmp_path.glob("model.*"))
    with pytest.raises(LamellaError):
        lamella.lower(model, to="nonsense")


def test_data_alone_are_saved_and_read(tmp_path: Path) -> None:
    model = lamella.load("state.sknd")
    assert isinstance(model, Model)
    total = np.array([1.5, -2.0], dtype=np.float32)
    lamella.save(Model(model.graph, model.library, {"total": total}), tmp_path / "data.safetensors")
    executable = lamella.compile("state.sknd", weights=tmp_path / "data.safetensors")
    np.testing.assert_array_equal(executable(x=[0.0, 0.0])["y"], total)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        "[" * 100000,
        '{"graph": "G", "dialect": "specification", "tensors": {"y": {"name": 3}}, "extents": {}}',
    ],
    ids=["empty", "list", "object", "words", "deep", "types"],
)
def test_edited_origins_are_refused_cleanly(tmp_path: Path, text: str) -> None:
    lamella.save(lamella.load("state.sknd"), tmp_path / "low")
    (tmp_path / "low" / "origins.json").write_text(text, encoding="utf-8")
    with pytest.raises(LamellaError) as caught:
        lamella.load(tmp_path / "low")
    assert caught.value.findings[0].span.source.name.endswith("origins.json")
