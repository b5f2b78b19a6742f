"""There and back: ONNX to graph to ONNX gives the same numbers in onnxruntime, and graphs come back through ONNX.

A tenth of ONNX's own tests of operators and a tenth of the library's operators in `make test`, all in `make fuzz`.
"""

from __future__ import annotations

import os
import warnings
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest

import lamella
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.bridge.graph_to_onnx import graph_to_onnx
from lamella.bridge.onnx.read import decode_model
from lamella.bridge.onnx_to_graph import ContentsNeeded, onnx_to_graph
from lamella.graph.model import Model
from tests.bridge.test_graph_to_kernels_operators import calls
from tests.bridge.test_graph_to_onnx_operators import LACKING, RANDOM, drawn
from tests.support.bridge.onnx_files import NARROW, exported, largest_difference, run_onnx
from tests.support.bridge.operators.calls import build
from tests.support.bridge.torch_models.judge import stretched
from tests.support.bridge.torch_models.small_models import NETWORKS
from tests.support.bridge.torch_models.transformer_models import MODELS

loader: Any = pytest.importorskip("onnx.backend.test.loader")
SHARE = 1.0 if "LAMELLA_FUZZ" in os.environ else 0.1
CLOSE = 1e-5
CHOSEN = ("residual", "convolutions", "U-Net", "decoder", "BERT", "T5 encoder")
"""Models that stand for the others; tests/bridge/test_torch_to_graph_models.py has all."""


def close(found: dict[str, Array], wanted: dict[str, Array]) -> bool:
    """Whether two runs agree: within 1e-5 of the size of the numbers, within their last bits for narrow ones."""
    if found.keys() != wanted.keys():
        return False
    for name, judge in wanted.items():
        allowed = CLOSE if judge.dtype.itemsize >= 4 else 2e-2
        left, right = (np.asarray(item).astype(np.complex128) for item in (found[name], judge))
        if left.shape != right.shape or not np.allclose(left, right, allowed, allowed, equal_nan=True):
            return False
    return True


def graph_of(model: onnx.ModelProto, arrays: dict[str, Array]) -> Model | None:
    """The graph of a model, inputs that say shapes being constants; None where it has none."""
    given: dict[str, Array] = {}
    decoded = decode_model(model.SerializeToString())
    while True:
        try:
            return onnx_to_graph(decoded, given=given)
        except ContentsNeeded as problem:
            more = {name: arrays[name] for name in problem.inputs if name in arrays and name not in given}
            if not more:
                return None
            given |= more
        except LamellaError:
            return None


def test_operators_of_onnx_come_back() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes what it expects of overflow and of nothing
        cases = loader.load_model_tests(kind="node")
    taken = [item for item in cases if Random(item.name).random() < SHARE and "bernoulli" not in item.name]
    assert len(taken) > 100
    wrong, compared = [], 0
    for case in taken:
        arrays = _arrays(case)
        model = None if arrays is None else graph_of(case.model, arrays)
        if model is None or arrays is None or _is_odd(case.model):
            continue
        inputs = {
            item.name for item in model.graph.inputs if not isinstance(item, tuple) and item is not None
        }
        wanted = compile_model(model)(**{name: item for name, item in arrays.items() if name in inputs})
        compared += 1
        if not close(run_onnx(exported(model), arrays), wanted):
            wrong.append(case.name)
    assert not wrong
    assert compared > 0.75 * len(taken)


def _arrays(case: Any) -> dict[str, Array] | None:
    """The inputs of a test by name; None where some are no tensors."""
    names, found = [item.name for item in case.model.graph.input], case.data_sets[0][0]
    arrays = [
        onnx.numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item for item in found
    ]
    if any(not isinstance(item, np.ndarray | np.generic) for item in arrays):
        return None
    return dict(zip(names, map(np.asarray, arrays), strict=False))


def _is_odd(model: onnx.ModelProto) -> bool:
    """Whether onnxruntime cannot take or give the types of a model: those of less than a byte, and complex ones."""
    ports = [item.type.tensor_type.elem_type for item in (*model.graph.input, *model.graph.output)]
    return any(item > max(NARROW) or item in (0, 8, 14, 15) for item in ports)


def test_operators_of_the_library_come_back() -> None:
    wrong = []
    for operator in calls():
        if operator in (*RANDOM, *LACKING) or Random(operator).random() >= SHARE:
            continue
        model, fed = build(drawn(operator))
        again = onnx_to_graph(graph_to_onnx(model))
        if not close(run_onnx(exported(again), fed), compile_model(model)(**fed)):
            wrong.append(operator)
    assert not wrong


@pytest.mark.parametrize("name", CHOSEN if SHARE < 1 else [*NETWORKS, *MODELS])
def test_models_come_back(name: str) -> None:
    sample = (NETWORKS[name] if name in NETWORKS else MODELS[name])()
    model = lamella.from_torch(sample.module, (), sample.inputs, dynamic=sample.dynamic)
    first = exported(model)
    second = exported(onnx_to_graph(decode_model(first.SerializeToString())))
    for inputs in (sample.inputs, stretched(sample)):
        given = {key: value.numpy() for key, value in inputs.items()}
        wanted = compile_model(model)(**given)
        assert largest_difference(run_onnx(first, given), wanted) < CLOSE
        assert largest_difference(run_onnx(second, given), wanted) < CLOSE
