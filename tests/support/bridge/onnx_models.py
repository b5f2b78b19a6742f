"""Small ONNX models for tests, made by the package `onnx`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamella.base.arrays import Array

onnx = pytest.importorskip("onnx")
helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")
FLOAT, INT64, BOOL = 1, 7, 9


def port(name: str, shape: Any, element: int = FLOAT) -> Any:
    """An input or an output."""
    return helper.make_tensor_value_info(name, element, shape)


def model_of(
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    weights: dict[str, Array] | None = None,
    opset: int = 20,
    functions: list[Any] | None = None,
) -> Any:
    """A model of some nodes."""
    stored = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in ("own", "com.microsoft")]
    return helper.make_model(graph, opset_imports=imports, functions=functions or [], ir_version=9)


def small_model() -> Any:
    """A linear layer with an activation."""
    weights = {"w": np.ones((3, 4), np.float32), "b": np.zeros(4, np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="first", alpha=0.5),
        helper.make_node("Relu", ["y"], ["z"], name="second"),
    ]
    return model_of(nodes, [port("x", ["n", 3])], [port("z", ["n", 4])], weights)


def branching_model() -> Any:
    """A condition that chooses one of two sums, which read the tensors around them."""
    then = helper.make_graph([helper.make_node("Add", ["x", "x"], ["a"])], "then", [], [port("a", [2])])
    other = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["b"])], "else", [], [port("b", [2])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    return model_of([node], [port("c", [], BOOL), port("x", [2])], [port("y", [2])])


def function_model() -> Any:
    """A function of the model's own, called with an attribute and without."""
    body = [
        helper.make_node("Constant", [], ["k"]),
        helper.make_node("Mul", ["a", "k"], ["r"]),
    ]
    attribute = body[0].attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "value_float", "factor", 1
    opsets = [helper.make_opsetid("", 20)]
    scale = helper.make_function(
        "own", "Scale", ["a"], ["r"], body, opsets, [], [helper.make_attribute("factor", 3.0)]
    )
    nodes = [
        helper.make_node("Scale", ["x"], ["y"], domain="own"),
        helper.make_node("Scale", ["y"], ["z"], domain="own", factor=0.5),
    ]
    return model_of(nodes, [port("x", [2])], [port("z", [2])], functions=[scale])
