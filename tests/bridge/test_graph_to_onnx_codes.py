"""Integer graphs as QDQ ONNX: the checker accepts them, onnxruntime gives codes at most one step apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.dtype import I8
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import results_of
from tests.graph.test_quantize import network
from tests.support.bridge.onnx_files import exported, run_onnx
from tests.support.graph.quantised import Quantised, quantise


@pytest.fixture(scope="module")
def quantised() -> Quantised:
    """The integer graph of a network of images, all of its codes as outputs too."""
    found = quantise(network())
    model = found.found.model
    made = [item for node in model.graph.nodes for item in results_of(node) if isinstance(item, Tensor)]
    codes = tuple(item for item in made if item.element == I8)
    watched = replace(model, graph=replace(model.graph, outputs=(*model.graph.outputs, *codes)))
    return replace(found, found=replace(found.found, model=watched))


def test_codes_are_at_most_one_step_apart(quantised: Quantised) -> None:
    model = quantised.found.model
    wanted, found = compile_model(model)(**quantised.fed), run_onnx(exported(model), quantised.fed)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        if values.dtype.kind == "i":
            assert np.abs(found[name].astype(np.int64) - values).max() <= 1, name
            assert (found[name] != values).mean() < 0.02, name
        else:
            np.testing.assert_allclose(found[name], values, 1e-2, 1e-3)


def test_weights_are_initialisers_of_codes(quantised: Quantised) -> None:
    model = exported(quantised.found.model)
    kinds = {item.name: item.data_type for item in model.graph.initializer}
    assert {name: kinds[name] for name in ("w1", "w2", "w3", "w4")} == dict.fromkeys(
        ("w1", "w2", "w3", "w4"), 3
    )
    assert 11 not in kinds.values()  # no doubles: scales are singles
    readers = {item.input[0]: item.op_type for item in model.graph.node if item.input}
    assert readers["w1"] == "DequantizeLinear"
    assert readers["b1.codes"] == "DequantizeLinear"
