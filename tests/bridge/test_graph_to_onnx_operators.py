"""Every operator of the library leaves as ONNX that the checker accepts and onnxruntime computes like the reference."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from lamella.base.errors import Found
from tests.bridge.test_graph_to_kernels_operators import FACTORISATIONS, LAYERS, calls
from tests.support.bridge.onnx_files import exported, run_onnx
from tests.support.bridge.operators.calls import TOLERANCE, Invocation, build, by_reference, call
from tests.support.judges.registry import operators

RANDOM = ("rand.uniform", "rand.normal", "rand.bernoulli", "llm.fill_normal")
"""Operators that draw: each runtime has its own numbers."""
LACKING = (
    *(f"linalg.{name}" for name in FACTORISATIONS if name != "determinant"),
    *("algo.sort_rows", "algo.unique_rows", "algo.unique_runs"),
)
"""Operators without formulas that ONNX has nothing like, and some whose extents nothing tells there."""
UNFED = ("quant.look_up",)
"""Operators whose input is of 4 bits, which onnxruntime is given by no array; models hold it as a weight."""
IMPORTED = "onnx."
"""Operators that only imported ONNX models have: the tests of the importer send them there and back."""
CODED = "quant."
"""Operators on codes."""
LEAST = 1e-5
COUNT = 4000


def drawn(operator: str) -> Sequence[Invocation]:
    """One call of an operator, the same every time; all of them where many cases are asked for."""
    found = calls()[operator]
    if "LAMELLA_FUZZ" in os.environ:
        return found
    return [random.Random(zlib.crc32(operator.encode())).choice(found)]


@pytest.mark.parametrize("operator", [name for name in calls() if name not in (*RANDOM, *LACKING, *UNFED)])
def test_onnxruntime_agrees_with_the_reference(operator: str) -> None:
    model, fed = build(drawn(operator))
    wanted, found = by_reference(model)(**fed), run_onnx(exported(model), fed)
    assert found.keys() == wanted.keys()
    for name, judge in wanted.items():
        assert found[name].shape == judge.shape, name
        allowed = max(LEAST, TOLERANCE.get(judge.dtype.name, 0.0))
        if operator.startswith(CODED) and judge.dtype.kind == "i":
            allowed = 1.0  # ONNX computes codes through singles: a tie may be none there
        left, right = found[name].astype(np.float64), judge.astype(np.float64)
        np.testing.assert_allclose(left, right, allowed, allowed, err_msg=name)


@pytest.mark.parametrize("operator", LACKING)
def test_what_onnx_lacks_is_told(operator: str) -> None:
    model, _ = build(drawn(operator))
    with pytest.raises(
        Found, match=r"cannot be written as ONNX: (?:ONNX has no such operation|no tensor tells)"
    ):
        exported(model)


def test_determinants_of_doubles_are_refused() -> None:
    model, _ = build([call("linalg.determinant", "f64 3 3 -2..2")])
    with pytest.raises(Found, match=r"determinants of f32 and f16 are possible, not of f64"):
        exported(model)


EXCHANGES = ("misc.all_", "misc.wait", "misc.reduce_scatter")
TRAINING = ("optim.", "misc.after", "misc.offload", "misc.call", "quant.pick", *EXCHANGES)
"""What steps of training call: tests/train runs it by kernels and beside torch."""


def test_no_operator_is_left_out() -> None:
    own = {name for name in operators() if not name.startswith((LAYERS, IMPORTED, *TRAINING))}
    assert own == calls().keys()


@pytest.mark.parametrize(
    ("drawing", "mean", "deviation"),
    [
        (call("rand.uniform<real>", shape=(COUNT,), min=-1.0, max=3.0), 1.0, 4 / 12**0.5),
        (call("rand.normal", shape=(COUNT,), mean=2.0, std=0.5), 2.0, 0.5),
        (call("rand.normal", shape=(COUNT,), mean=2.0, std=0.0), 2.0, 0.0),
        (call("rand.bernoulli", shape=(COUNT,), prob=0.25), 0.25, (0.25 * 0.75) ** 0.5),
    ],
    ids=["uniform", "normal", "constant", "bernoulli"],
)
def test_random_numbers_have_their_distribution(drawing: Invocation, mean: float, deviation: float) -> None:
    model, fed = build([drawing])
    (found,) = run_onnx(exported(model), fed).values()
    numbers = found.astype(np.float64)
    # Six standard errors: fails once in half a billion runs.
    assert abs(numbers.mean() - mean) <= 6 * deviation / COUNT**0.5
    assert abs(numbers.std() - deviation) <= 6 * deviation / COUNT**0.5


def test_integers_are_drawn_below_the_maximum() -> None:
    model, fed = build([call("rand.uniform<int>", shape=(COUNT,), min=-2, max=3)])
    (found,) = run_onnx(exported(model), fed).values()
    assert set(found.tolist()) == {-2, -1, 0, 1, 2}
