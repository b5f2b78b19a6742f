"""AlexNet and ResNet-18 of the examples, judged by torch on the same weights."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import pytest

import lamella
from lamella.backend.executor import GraphExecutable
from tests.support.repository import ROOT

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F

Weights = Mapping[str, torch.Tensor]


def alexnet(x: torch.Tensor, w: Weights) -> torch.Tensor:
    """Eight layers, three of them followed by a pool."""
    for number, stride, padding, pooled in ((1, 4, 0, 1), (2, 1, 2, 1), (3, 1, 1, 0), (4, 1, 1, 0)):
        x = F.relu(F.conv2d(x, w[f"kernel{number}"], w[f"bias{number}"], stride, padding))
        x = F.max_pool2d(x, 3, 2) if pooled else x
    x = F.max_pool2d(F.relu(F.conv2d(x, w["kernel5"], w["bias5"], 1, 1)), 3, 2)
    x = F.relu(F.conv2d(x, w["kernel6"], w["bias6"])).flatten(1)
    x = F.relu(F.linear(x, w["kernel7"], w["bias7"]))
    return F.softmax(F.linear(x, w["kernel8"], w["bias8"]), 1)


def normalised(x: torch.Tensor, w: Weights, conv: str, norm: str, stride: int, padding: int) -> torch.Tensor:
    """A convolution without bias and its batch normalisation."""
    x = F.conv2d(x, w[f"{conv}.filter"], None, stride, padding)
    names = ("running_mean", "running_variance", "scale", "bias")
    mean, variance, scale, bias = (w[f"{norm}.{name}"] for name in names)
    return F.batch_norm(x, mean, variance, scale, bias)


def resnet18(x: torch.Tensor, w: Weights) -> torch.Tensor:
    """A stem, four pairs of blocks, the mean of what is left and a linear layer."""
    x = F.max_pool2d(F.relu(normalised(x, w, "conv1", "norm1", 2, 3)), 3, 2, 1)
    for number in range(1, 9):
        stride, block = 2 if number in (3, 5, 7) else 1, f"block{number}"
        y = F.relu(normalised(x, w, f"{block}.conv1", f"{block}.norm1", stride, 1))
        y = normalised(y, w, f"{block}.conv2", f"{block}.norm2", 1, 1)
        side = normalised(x, w, f"{block}.side.conv", f"{block}.side.norm", stride, 0) if stride > 1 else x
        x = F.relu(y + side)
    return F.linear(x.mean((2, 3)), w["logits.filter"], w["logits.bias"])


def prepare(example: str, **config: int) -> tuple[GraphExecutable, dict[str, torch.Tensor]]:
    """An example ready to run, and its random weights as torch takes them."""
    run = lamella.compile(ROOT / "examples" / example, seed=1, config=config)
    assert isinstance(run, GraphExecutable)
    return run, {name: torch.from_numpy(array) for name, array in run.state.items()}


def image(batch: int, size: int) -> torch.Tensor:
    """A random picture."""
    random = np.random.default_rng([batch, size])
    return torch.from_numpy(random.normal(size=(batch, 3, size, size)).astype(np.float32))


def test_alexnet() -> None:
    run, weights = prepare("alexnet", batch=2, classes=10)
    x = image(2, 224)
    found = run(input=x.numpy())["output"]
    np.testing.assert_allclose(found, alexnet(x, weights).numpy(), rtol=0, atol=1e-5)
    assert np.ptp(found) > 1e-2


@pytest.mark.parametrize(("batch", "size"), [(1, 64), (2, 33)])
def test_resnet18(batch: int, size: int) -> None:
    run, weights = prepare("resnet18", batch=batch, size=size, classes=10)
    x = image(batch, size)
    expected = resnet18(x, weights).numpy()
    found = run(image=x.numpy())["logits"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
