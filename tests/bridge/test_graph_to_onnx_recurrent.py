"""Recurrent networks leave as the nodes that they came in as; steps of other kinds leave as loops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import lamella
from lamella.bridge.onnx.read import decode_model
from lamella.bridge.onnx_to_graph import onnx_to_graph
from lamella.graph.model import Model
from tests.support.bridge.onnx_files import exported, run_onnx
from tests.support.bridge.onnx_models import model_of, port

helper = pytest.importorskip("onnx.helper")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, WIDTH, SIZE = 5, 2, 3, 4
PLAIN = [
    ("RNN", {}, "forward"),
    ("RNN", {"activations": ["Relu"]}, "reverse"),
    ("GRU", {}, "forward"),
    ("GRU", {"linear_before_reset": 1}, "bidirectional"),
    ("LSTM", {}, "forward"),
    ("LSTM", {}, "bidirectional"),
]
OTHER = [
    ("LSTM", {"clip": 0.5}, "forward"),
    ("LSTM", {"input_forget": 1}, "forward"),
    ("GRU", {"activations": ["HardSigmoid", "Tanh"]}, "forward"),
]


def _network(kind: str, attributes: dict[str, Any], way: str, is_open: bool, has_bias: bool) -> Any:
    ways, gates = 1 + (way == "bidirectional"), GATES[kind]
    random = np.random.default_rng(0)
    shapes = {
        "w": (ways, gates * SIZE, WIDTH),
        "r": (ways, gates * SIZE, SIZE),
        "b": (ways, 2 * gates * SIZE),
    }
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    names = ["x", "w", "r", "b"] if has_bias else ["x", "w", "r"]
    made = helper.make_node(kind, names, ["y", "last"], hidden_size=SIZE, direction=way, **attributes)
    shape = ["time", "batch", WIDTH] if is_open else [STEPS, BATCH, WIDTH]
    kept = {name: weights[name] for name in names[1:]}
    return model_of([made], [port("x", shape)], [port("y", None), port("last", None)], kept)


def _round_trip(
    kind: str, attributes: dict[str, Any], way: str, is_open: bool, has_bias: bool
) -> Counter[str]:
    """The operators of what a network leaves as, after both have given the same in onnxruntime."""
    model = _network(kind, attributes, way, is_open, has_bias)
    again = exported(onnx_to_graph(decode_model(model.SerializeToString())))
    x = np.random.default_rng(1).standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32)
    wanted, found = (run_onnx(item, {"x": x}) for item in (model, again))
    for name in ("y", "last"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)
    return Counter(item.op_type for item in again.graph.node)


@pytest.mark.parametrize(("kind", "attributes", "way"), PLAIN, ids=str)
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "known"])
def test_a_network_leaves_as_its_node(kind: str, attributes: dict[str, Any], way: str, is_open: bool) -> None:
    found = _round_trip(kind, attributes, way, is_open, has_bias=way != "reverse")
    assert found[kind] == 1 + (way == "bidirectional")
    assert not found["Loop"] + found["MatMul"] + found["Gemm"]


@pytest.mark.parametrize(("kind", "attributes", "way"), OTHER, ids=str)
def test_another_step_leaves_as_a_loop(kind: str, attributes: dict[str, Any], way: str) -> None:
    found = _round_trip(kind, attributes, way, is_open=True, has_bias=True)
    assert found["Loop"] == 1
    assert not found[kind]


def test_the_lstm_of_the_library_leaves_as_one_node(tmp_path: Path) -> None:
    (tmp_path / "m.sknd").write_text(
        """import nn;
graph M {
    @input { x: real[5, 2, 3]; }
    @variable { w: real[16, 3]; r: real[16, 4]; b: real[16]; }
    @output { y: real[5, 2, 4]; h: real[2, 4]; c: real[2, 4]; }
    @compose { y, h, c = nn.lstm(x, w, r, b); }
}
""",
        encoding="utf-8",
    )
    model = cast("Model", lamella.load(tmp_path / "m.sknd"))
    executable = lamella.compile(model, backend="reference", seed=0)
    data = {item.name: np.asarray(executable.state[item.name]) for item in model.graph.variables}  # type: ignore[attr-defined]
    whole = Model(model.graph, model.library, data)
    found = exported(whole)
    assert "LSTM" in {item.op_type for item in found.graph.node}
    assert "Loop" not in {item.op_type for item in found.graph.node}
    x = np.random.default_rng(1).standard_normal((5, 2, 3)).astype(np.float32)
    results = run_onnx(found, {"x": x})
    for name, wanted in lamella.compile(whole, backend="reference")(x=x).items():
        np.testing.assert_allclose(results[name], wanted, rtol=1e-5, atol=1e-6)
