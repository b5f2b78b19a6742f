"""The operators of `onnx`, which only imported models have: ONNX's own tests judge them, and NumPy those they miss."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.bridge.onnx_node_tests import VERSION, reaching
from tests.support.judges.harness import one, refuse, same
from tests.support.judges.registry import Refusal, judged, operators

DIRECT = ("onnx.nibbles",)
"""Only operators of `com.microsoft` have it in their graphs; onnxruntime judges those in test_onnx_microsoft."""
REACHED = tuple(name for name in operators() if name.startswith("onnx.") and name not in DIRECT)
EMPTY = "both shapes must be empty"
REFUSALS = (
    Refusal("onnx.reshape_empty", EMPTY, ((2, 3),), {"shape": (0, 3)}),
    Refusal("onnx.reshape_empty", EMPTY, ((0, 3),), {"shape": (2, 3)}),
)


@judged("onnx", *REACHED)
def test_a_passing_test_of_onnx_has_each_operator() -> None:
    """What the tests give is compared in tests/bridge/test_onnx_nodes.py."""
    onnx = pytest.importorskip("onnx")
    if not onnx.__version__.startswith(VERSION):
        pytest.skip("the page lists the tests of another version")
    assert [name for name in REACHED if name not in reaching()] == []
    assert [name for name in DIRECT if name in reaching()] == []


@judged("numpy", "onnx.nibbles")
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 0)])
@pytest.mark.parametrize("element", ["int32", "int64", "uint8"])
def test_nibbles(shape: tuple[int, int], element: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, shape).astype(element)
    expected = np.stack([x & 15, x >> 4], axis=2).reshape(shape[0], 2 * shape[1])
    same(one("onnx.nibbles", x), expected)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
