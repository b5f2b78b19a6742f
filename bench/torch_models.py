"""AlexNet and ResNet-18 as torch spells them, with the shapes of the models in examples/."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
from torch import nn

Network = Callable[[torch.Tensor], torch.Tensor]


def alexnet() -> Network:
    """The network of examples/alexnet."""
    layers: list[nn.Module] = []
    for inner, outer, size, stride, padding, pooled in (
        (3, 64, 11, 4, 0, True),
        (64, 192, 5, 1, 2, True),
        (192, 384, 3, 1, 1, False),
        (384, 384, 3, 1, 1, False),
        (384, 256, 3, 1, 1, True),
        (256, 4096, 5, 1, 0, False),
    ):
        layers += [nn.Conv2d(inner, outer, size, stride, padding), nn.ReLU()]
        layers += [nn.MaxPool2d(3, 2)] if pooled else []
    linear = [nn.Flatten(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000), nn.Softmax(1)]
    network: Network = nn.Sequential(*layers, *linear).eval()
    return network


def _convolution(inner: int, outer: int, size: int, stride: int) -> list[nn.Module]:
    padding = size // 2
    return [nn.Conv2d(inner, outer, size, stride, padding, bias=False), nn.BatchNorm2d(outer)]


def _block(inner: int, outer: int, stride: int) -> Network:
    """Two convolutions beside a shortcut: their sum, where it is positive."""
    first, second = _convolution(inner, outer, 3, stride), _convolution(outer, outer, 3, 1)
    road = nn.Sequential(*first, nn.ReLU(), *second).eval()
    changes = stride != 1 or inner != outer
    side = nn.Sequential(*(_convolution(inner, outer, 1, stride) if changes else ())).eval()
    return lambda x: torch.relu(road(x) + side(x))


def resnet18() -> Network:
    """The network of examples/resnet18."""
    steps: list[Network] = [
        nn.Sequential(*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)).eval()
    ]
    for inner, outer, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        steps += [_block(inner, outer, stride), _block(outer, outer, 1)]
    steps.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)).eval())
    return lambda x: reduce(lambda value, step: step(value), steps, x)
