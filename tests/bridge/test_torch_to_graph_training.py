"""Whole steps of training: a loss and the gradients of all parameters, as torch traces them, are what torch gives."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.bridge.graph_to_nac import graph_to_nac
from lamella.bridge.nac_to_graph import nac_to_graph
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.graph.model import Model
from lamella.graph.nodes import tensors

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

Loss: TypeAlias = Callable[..., Any]
CLOSE = 1e-5


def _of_images(x: Any, target: Any, *parameters: Any) -> Any:
    weight, bias, scale, shift, last = parameters
    normal = functional.group_norm(functional.conv2d(x, weight, bias, padding=1), 2, scale, shift)
    pooled = functional.max_pool2d(functional.silu(normal), 2)
    even = functional.adaptive_avg_pool2d(functional.avg_pool2d(pooled, 2, 1, 1), (2, 2))
    return functional.cross_entropy(functional.gelu(even.flatten(1)) @ last, target)


def _of_words(words: Any, target: Any, *parameters: Any) -> Any:
    table, scale, shift, last = parameters
    normal = functional.layer_norm(functional.embedding(words, table), (8,), scale, shift)
    mixed = functional.softmax(normal @ normal.transpose(-1, -2), -1) @ normal
    found = torch.tanh(functional.relu(mixed)) @ last
    return functional.mse_loss(torch.sigmoid(found), target)


def _images() -> tuple[Loss, tuple[Any, ...]]:
    parameters = [torch.randn(shape) for shape in ((4, 3, 3, 3), (4,), (4,), (4,), (16, 5))]
    return _of_images, (torch.randn(2, 3, 6, 6), torch.tensor([1, 4]), *parameters)


def _words() -> tuple[Loss, tuple[Any, ...]]:
    parameters = [torch.randn(shape) for shape in ((7, 8), (8,), (8,), (8, 3))]
    return _of_words, (torch.randint(0, 7, (2, 4)), torch.rand(2, 4, 3), *parameters)


def _step(loss: Loss) -> Callable[..., tuple[Any, ...]]:
    """A loss and its gradients by all parameters, which follow the first two operands."""

    def step(x: Any, target: Any, *parameters: Any) -> tuple[Any, ...]:
        leaves = [item.detach().requires_grad_() for item in parameters]
        found = loss(x, target, *leaves)
        return (found, *torch.autograd.grad(found, leaves))

    return step


def _agree(model: Model, given: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    names = [item.name for argument in model.graph.inputs for item in tensors(argument)]
    fed = {name: item.numpy() for name, item in zip(names, given, strict=True)}
    found: Mapping[str, Array] = compile_model(model)(**fed)
    for array, other in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(array, other.detach().numpy(), rtol=CLOSE, atol=CLOSE)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize("draw", [_images, _words])
def test_a_step_of_training(draw: Callable[[], tuple[Loss, tuple[Any, ...]]]) -> None:
    torch.manual_seed(0)
    loss, given = draw()
    step = _step(loss)
    model = torch_to_graph(torch.export.export(make_fx(step)(*given), given))
    assert sum("backward" in item.operator for item in model.graph.operations()) >= 5
    _agree(model, given, step(*given))
    _agree(nac_to_graph(graph_to_nac(model).file).model, given, step(*given))
