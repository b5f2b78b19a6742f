"""What ONNX models take and give: extents that a file leaves open, and names."""

from __future__ import annotations

import numpy as np
import pytest

import lamella
from lamella.base.arrays import Array
from lamella.bridge.onnx.nodes import DataType, Graph, Node, OpsetImport, TensorType, ValueInfo
from lamella.bridge.onnx.nodes import Model as OnnxModel
from lamella.bridge.onnx_to_graph import onnx_to_graph
from lamella.graph.model import Model
from lamella.graph.rewrite import members


def _model(shape: tuple[int | str | None, ...], outputs: tuple[str, ...]) -> Model:
    """A model of one activation from `x` to `y`, with some of both as outputs."""
    port = TensorType(DataType.FLOAT, shape)
    graph = Graph(
        "g",
        (Node("Relu", ("x",), ("y",)),),
        (ValueInfo("x", port),),
        tuple(ValueInfo(name, port) for name in outputs),
    )
    return onnx_to_graph(OnnxModel(graph, 9, (OpsetImport("", 20),)))


def _run(model: Model, given: Array) -> dict[str, Array]:
    return dict(lamella.compile(model, backend="reference")(x=given))


def test_extents_below_zero_are_open() -> None:
    model = _model((-1, -2, 0, 3), ("y",))
    (read,) = members(model.graph.inputs)
    assert [str(item) for item in read.shape] == ["x_0", "x_1", "0", "3"]
    assert _run(model, np.ones((2, 5, 0, 3), np.float32))["y"].shape == (2, 5, 0, 3)


@pytest.mark.parametrize("outputs", [("x",), ("x", "y"), ("y", "x"), ("x", "x")])
def test_an_input_that_is_an_output_keeps_its_name(outputs: tuple[str, ...]) -> None:
    model = _model((3,), outputs)
    assert [item.name for item in members(model.graph.inputs)] == ["x"]
    given = np.array([-1, 0, 2], np.float32)
    found = _run(model, given)
    assert len(found) == len(outputs)
    for name, (found_name, array) in zip(outputs, found.items(), strict=True):
        assert found_name.startswith(name)
        np.testing.assert_array_equal(array, given if name == "x" else np.maximum(given, 0))
