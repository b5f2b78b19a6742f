"""What names mean that nothing declares, what outputs are called, and numbers that depend on open dimensions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT
from tests.support.bridge.module_texts import codes, findings, run, written

X = np.random.default_rng(5).normal(size=(3, 4))
HEAD = """
module M(d: int = 4):
  forward:
    in: x: [B, d]
    out: {name}: [B, d]
    graph:
"""


def text(*statements: str, name: str = "y") -> str:
    """A module of one input and one output."""
    return HEAD.format(name=name) + "".join(f"      {line}\n" for line in statements)


REALS = {
    "x -> scale(1.0 / (B * d)) -> y": X / 12,
    "x -> scale(B) -> y": X * 3,
    "x -> scale(-max(0.5 * B, log2(B), 1)) -> y": -1.5849625007211562 * X,
    "x -> mul(1.0 / sqrt(B)) -> y": X / np.sqrt(3),
    "x -> add(B) -> y": X + 3,
    "x -> div(B ** 0.5) -> y": X / np.sqrt(3),
    "(x, 2.0 * B - 1) -> mul() -> y": X * 5,
    "x -> scale(abs(1 - 2.0 * B) / min(B, 2.5)) -> y": X * 2,
}


@pytest.mark.parametrize("statement", REALS)
def test_numbers_may_depend_on_open_dimensions(statement: str, tmp_path: Path) -> None:
    found = run(tmp_path, text(statement), {"x": X})
    np.testing.assert_allclose(found["y"], REALS[statement], rtol=1e-12)


WRONG = {
    "x -> softmax(dim=B) -> scale(1.0 / (B % 2.5)) -> y": "E016",
    "x -> rmsnorm(x[0], eps=1.0 / B) -> y": "E016",
    "x -> scale(sqrt(1.0 / B, 2)) -> y": "E016",
    "x -> view([1.0 * B, d]) -> y": "E016",
    "x -> scale(1.0 / (B - B)) -> y": "E003",
    'x -> scale(1.0 / B + "a") -> y': "E003",
    "x -> scale(1.0 / Q) -> y": "E002",
}


@pytest.mark.parametrize("statement", WRONG)
def test_what_is_no_such_number_is_found(statement: str, tmp_path: Path) -> None:
    assert WRONG[statement] in codes(tmp_path, text(statement))


OUTPUTS: dict[str, tuple[list[str], npt.NDArray[np.float64]]] = {
    "y": (["x -> scale(1.0 / B) -> y"], X / 3),
    "c": (["x -> add(1.5) -> mul(2) -> c"], (X + 1.5) * 2),
    "view": (["x[0] -> a", "(x, a) -> add() -> view"], X + X[0]),
    "relu_y": (
        ["x -> relu() -> silu() -> relu_y @dtype(fp64)"],
        np.maximum(X, 0) / (1 + np.exp(-np.maximum(X, 0))),
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_have_their_names_whatever_was_made_before(name: str, tmp_path: Path) -> None:
    statements, expected = OUTPUTS[name]
    found = run(tmp_path, text(*statements, name=name), {"x": X})
    assert list(found) == [name]
    np.testing.assert_allclose(found[name], expected, rtol=1e-12)


CALLER = """
module Inner():
  forward:
    graph:
      a -> matmul(w, transpose=TN) -> b
      (b, shift) -> add() -> scale(factor=2.0) -> split([1, 2], dim=-1) -> (left, right)

module M():
  params:
    kernel: [3, 4]
    offset: [3]
    inner: Inner()
  forward:
    in: x: [B, 4]
    out: (p: [B, 1], q: [B, 2])
    graph:
      (x, kernel, offset) -> inner() -> (p, q)
"""


def test_what_is_not_declared_is_taken_as_it_is_read(tmp_path: Path) -> None:
    """Operands in the order of the text; words of attributes are no operands; the last destination is the output."""
    weights = {"kernel": X, "offset": X[:, 0]}
    found = run(tmp_path, CALLER, {"x": X}, weights, model="M")
    expected = 2 * (X @ X.T + X[:, 0])
    np.testing.assert_allclose(found["p"], expected[:, :1], rtol=1e-12)
    np.testing.assert_allclose(found["q"], expected[:, 1:], rtol=1e-12)


FOLDED = """
module Step(d: int):
  params:
    w: [d]
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, w) -> mul() -> relu() -> y

module M(d: int = 4):
  params:
    steps: [50] x Step(d)
  forward:
    in: x: [B, d]
    out: y: [B, {last}]
    graph:
      x -> steps() -> y
"""


def test_a_graph_may_have_so_many_operations(tmp_path: Path) -> None:
    limits = replace(DEFAULT, max_operations=110)
    path = written(tmp_path, FOLDED.format(last="d"))
    assert not lamella.check(path, limits=limits)
    lamella.load(path, limits=limits)


def test_a_graph_of_too_many_operations_is_refused_alike(tmp_path: Path) -> None:
    """Checking builds equal elements once, and counts them as often as they stand there."""
    path = written(
        tmp_path, FOLDED.replace("-> relu() -> y", "-> relu() -> relu() -> relu() -> y").format(last="d")
    )
    limits = replace(DEFAULT, max_operations=150)
    assert [item.code for item in lamella.check(path, limits=limits)] == ["E101"]
    with pytest.raises(LamellaError) as refused:
        lamella.load(path, limits=limits)
    assert [item.code for item in refused.value.findings] == ["E101"]


def test_what_equal_elements_give_is_checked(tmp_path: Path) -> None:
    assert [item.code for item in findings(tmp_path, FOLDED.format(last="d + 1"))] == ["E004"]
