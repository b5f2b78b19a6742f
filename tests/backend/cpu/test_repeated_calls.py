"""Calls like the one before take a short way, and give what the long one gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend.executor import GraphExecutable
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.graph.data.safetensors import write_safetensors

TEXT = """\
import math, nn;
graph Layer {
    @input { x: real[3, 4]; k: int[3]; }
    @variable { w: real[5, 4]; b: real[5]; }
    @output { y: real[3, 5]; z: int[3]; }
    @compose { h = nn.linear(x, w, b); y = nn.relu(h); z = math.add(k, k); }
}
"""
RANDOM = np.random.default_rng(5)
X, K = RANDOM.standard_normal((3, 4)).astype("f4"), np.array([1, -2, 3])
W, B = RANDOM.standard_normal((5, 4)).astype("f4"), RANDOM.standard_normal(5).astype("f4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer with its weights."""
    found = tmp_path_factory.mktemp("layer")
    (found / "layer.sknd").write_text(TEXT)
    write_safetensors(found / "layer.safetensors", {"w": W, "b": B})
    return found


@pytest.fixture
def run(folder: Path) -> GraphExecutable:
    """The layer after one call, so that the next is like it."""
    found = lamella.compile(folder / "layer.sknd", backend="cpu")
    assert isinstance(found, GraphExecutable)
    found(x=X, k=K)
    assert found._last is not None
    return found


def expected(x: Array) -> Array:
    """What the layer computes."""
    return np.asarray(np.maximum(x @ W.T + B, 0))


def test_a_call_like_the_last_one_gives_new_arrays_of_the_numbers_of_now(run: GraphExecutable) -> None:
    x = X.copy()
    first = run(x=x, k=K)
    x[:] = -x
    second = run(x=x, k=K)
    np.testing.assert_allclose(first["y"], expected(X), 1e-5, 1e-6)
    np.testing.assert_allclose(second["y"], expected(-X), 1e-5, 1e-6)
    np.testing.assert_array_equal(second["z"], 2 * K)
    assert not np.shares_memory(first["y"], second["y"])
    assert x.flags.writeable


def test_other_arrays_go_the_long_way(run: GraphExecutable) -> None:
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    for given in (wide, X.astype("f8"), X.tolist(), X.astype(">f4")):
        np.testing.assert_allclose(run(x=given, k=K)["y"], expected(X), 1e-5, 1e-6)
    with pytest.raises(LamellaError):
        run(x=X[:2], k=K)
    with pytest.raises(LamellaError):
        run(x=X, k=K, other=K)
    np.testing.assert_allclose(run(x=X, k=K)["y"], expected(X), 1e-5, 1e-6)


def test_another_weight_is_heard_of(run: GraphExecutable) -> None:
    run.state["b"] = np.full(5, 100, "f4")
    np.testing.assert_allclose(run(x=X, k=K)["y"], X @ W.T + 100, 1e-5, 1e-4)
    np.testing.assert_allclose(run(x=X, k=K)["y"], X @ W.T + 100, 1e-5, 1e-4)
    del run.state["b"]
    with pytest.raises(LamellaError, match="'b'"):
        run(x=X, k=K)


def test_what_a_call_said_is_not_said_again(run: GraphExecutable) -> None:
    run.draws = True
    run(x=X)  # k is drawn
    assert run.drawn.inputs
    run(x=X, k=K)
    run(x=X, k=K)
    assert not run.drawn.inputs
    assert not run.findings


def test_results_go_into_arrays_of_the_caller(run: GraphExecutable) -> None:
    out = np.zeros((3, 5), "f4")
    assert run.run({"x": X, "k": K}, {"y": out})["y"] is out
    np.testing.assert_allclose(out, expected(X), 1e-5, 1e-6)
