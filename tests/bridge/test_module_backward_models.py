"""Gradients of whole models of the library, against those of transformers for the same checkpoint.

The gradients of transformers are written as a checkpoint and mapped like one: every mapping of these models is
linear, so that what is mapped are the gradients of our parameters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.dtype import F64
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.bridge.module_to_graph.constant_tables import compute_table
from lamella.graph.nodes import Tensor
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.weight_plan import plan_weights
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import VOCABULARY, build

IDS = np.random.default_rng(1).integers(1, VOCABULARY, size=(2, 6))
ALMOST = 1e-5
"""Transformers computes norms and angles in 32 bits whatever the model is in."""
NAMES = ("qwen3", "mixtral", "bert", "mamba", "nemotron")


def judge(name: str, folder: Path) -> tuple[list[Array], Path, Path]:
    """The gradients of the outputs, a checkpoint, and a checkpoint that holds its gradients."""
    model: Any = build(name).double()
    if any(item in name for item in ("mix", "moe", "nemotron")):
        model.set_experts_implementation("eager")
    model.save_pretrained(folder / "weights")
    found = model(torch.tensor(IDS))
    outputs = list(found[:2]) if name == "bert" else [found.logits]
    random = torch.Generator().manual_seed(4)
    seeds = [torch.randn(item.shape, dtype=torch.float64, generator=random) for item in outputs]
    torch.autograd.backward(outputs, seeds)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    model.save_pretrained(folder / "gradients")
    return [item.numpy() for item in seeds], folder / "weights", folder / "gradients"


def numbers(folder: Path) -> tuple[Any, Any]:
    """The model that a checkpoint holds, and its weights by path."""
    source = read_source(folder, Options())
    assert source.folder is not None
    return source.instance, plan_weights(source.instance, source.folder).data("f64")


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    seeds, weights, expected = judge(name, tmp_path)
    instance, data = numbers(weights)
    found = differentiate(instance, CompilationSettings(element=F64))
    assert found.findings == (), "\n".join(map(str, found.findings))
    assert found.model is not None
    executable = compile_model(found.model, dtype="f64")
    for weight in found.compiled.weights:
        executable.state[weight.tensor.name] = np.asarray(data[weight.path], np.float64)
    for constant, made in found.compiled.constants.items():
        executable.state[constant] = compute_table(made)
    given = dict(zip(found.seeds.values(), seeds, strict=True))
    ids = next(item.name for item in found.model.graph.inputs if isinstance(item, Tensor))
    results = executable(**{ids: IDS, **given})
    _, wanted = numbers(expected)
    assert found.gradients
    for path, output in found.gradients.items():
        exact = np.asarray(wanted[path], np.float64)
        largest = max(float(np.abs(exact).max()), 1e-3)
        np.testing.assert_allclose(results[output], exact, rtol=0, atol=ALMOST * largest, err_msg=path)
