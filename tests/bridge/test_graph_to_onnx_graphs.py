"""Random graphs leave as ONNX and compute the same: packs, branches, loops, states, open extents."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.bridge.graph_to_onnx import NEXT
from lamella.graph.model import Model
from lamella.graph.rewrite import defined, members
from tests.support.bridge.onnx_files import exported, run_onnx
from tests.support.graph.running import random_arrays
from tests.support.strategies.graph import models
from tests.support.strategies.graph_flow import flow_models

NEAR = {"float16": 1e-2, "bfloat16": 2e-2, "float32": 1e-4, "float64": 1e-10}


def close(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    """Two runs agree within the precision of their types; integers and truth values exactly."""
    assert found.keys() == wanted.keys()
    for name, judge in wanted.items():
        assert found[name].shape == judge.shape, name
        allowed = NEAR.get(found[name].dtype.name, 0.0)
        left, right = (np.asarray(item).astype(np.float64) for item in (found[name], judge))
        np.testing.assert_allclose(left, right, allowed, allowed, err_msg=name)


def compare(model: Model, size: int, seed: int) -> None:
    """Two runs one after the other: what the first leaves in the states is what the second begins with."""
    # Of numbers halfway between two codes onnxruntime takes the even one; test_graph_to_onnx_files has quantised ones.
    assume(all(getattr(item, "quantization", None) is None for item in defined(model.graph)))
    data = random_arrays(model.graph.variables, {}, seed + 1)
    inputs = random_arrays(list(members(model.graph.inputs)), {"n": size}, seed)
    whole = Model(model.graph, model.library, data)
    run = compile_model(whole)
    proto = exported(whole)
    states = {item.variable.name: data[item.variable.name] for item in model.graph.updates}
    for _ in range(2):
        try:
            wanted = run(**inputs)
        except LamellaError:
            reject()
        found = run_onnx(proto, {**inputs, **states})
        states = {name: found.pop(f"{name}{NEXT}") for name in states}
        close(found, wanted)
        close(states, {name: np.asarray(run.state[name]) for name in states})


@given(models(), st.integers(1, 4), st.integers(0, 9))
def test_random_graphs_agree(model: Model, size: int, seed: int) -> None:
    compare(model, size, seed)


@settings(max_examples=max(settings().max_examples // 4, 1))
@given(flow_models(), st.integers(0, 9))
def test_branches_agree(model: Model, seed: int) -> None:
    compare(model, 1, seed)
