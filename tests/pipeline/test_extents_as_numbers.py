"""Open extents that a graph computes with: constants that hold them have numbers wherever the extents have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.graph.model import Model
from lamella.pipeline.convert import convert
from lamella.pipeline.diff.reproducer import make_reproducer
from lamella.pipeline.options import Options
from tests.support.bridge.onnx_models import FLOAT, model_of, port

onnx = pytest.importorskip("onnx")
helper = pytest.importorskip("onnx.helper")

CHOICE = """
import math, layout;
graph Choice {
    @input { x: real[n|9, 2]; }
    @output { y: real[~, 2]; }
    @constant { many: bool[1] = n > 4; sizes: int[2] = [n, 2 * n + 1]; }
    @compose {
        a = layout.cast<real>(many);
        b = layout.cast<real>(sizes);
        c = math.add(x, b);
        y = math.mul(c, a);
    }
}
"""


@pytest.fixture
def scaled(tmp_path: Path) -> Path:
    """A model that multiplies rows by how many there are."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Cast", ["s"], ["f"], to=FLOAT),
        helper.make_node("Mul", ["x", "f"], ["y"]),
    ]
    model = model_of(nodes, [port("x", ["n", 2])], [port("y", ["n", 2])])
    path = tmp_path / "scaled.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_an_extent_that_is_given_is_a_number(scaled: Path, backend: str) -> None:
    given = np.ones((3, 2), np.float32)
    cases: tuple[dict[str, Any], ...] = ({"shape": {"n": 3}}, {})
    for options in cases:
        found = lamella.compile(scaled, backend=backend, **options)(x=given)
        np.testing.assert_array_equal(found["y"], given * 3)


@pytest.mark.parametrize("rows", [4, 5])
def test_conditions_of_extents_are_settled_too(rows: int, tmp_path: Path) -> None:
    path = tmp_path / "choice.sknd"
    path.write_text(CHOICE)
    model = lamella.load(path, shape={"n": rows})
    assert isinstance(model, Model)
    assert {item.value for item in model.graph.constants} == {rows > 4, (rows, 2 * rows + 1)}
    given = np.ones((rows, 2), np.float32)
    found = lamella.compile(model, backend="reference")(x=given)
    np.testing.assert_array_equal(found["y"], (given + np.array([rows, 2 * rows + 1])) * (rows > 4))


def test_a_file_of_numbers_holds_the_extent_once_it_is_given(scaled: Path, tmp_path: Path) -> None:
    target = tmp_path / "scaled.nac"
    convert(scaled, target, Options(shape={"n": 3}))
    given = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(next(iter(lamella.compile(target)(x=given).values())), given * 3)
    with pytest.raises(LamellaError, match="constant 'c' needs 'n', which is an element of it"):
        convert(scaled, tmp_path / "open.nac", Options())


def test_models_that_compute_with_extents_are_compared(scaled: Path) -> None:
    same = lamella.diff(scaled, scaled)
    assert same.compared
    assert same.agrees(0.0)
    backends = lamella.diff(scaled, backends=("reference", "cpu"))
    assert backends.agrees(0.0)


def test_what_differs_is_written_with_the_numbers_of_the_run(tmp_path: Path) -> None:
    texts = CHOICE.replace("n > 4", "n > 0"), CHOICE.replace("n > 4", "n > 0").replace("2 * n + 1", "3 * n")
    paths = [tmp_path / "left.sknd", tmp_path / "right.sknd"]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    found = lamella.diff(*paths)
    assert found.diverging is not None
    made = make_reproducer(found, found.diverging, 1e-6)
    values = [[item.value for item in side.model.graph.constants] for side in (made.left, made.right)]
    rows = len(found.values[0]["x"])
    assert values == [[(rows, 2 * rows + 1)], [(rows, 3 * rows)]]
