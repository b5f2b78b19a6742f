"""Networks that were picked after the kernels and passes of `cpu` were written: nothing was tuned for them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bench.networks.language import RmsNorm
from bench.networks.vision import convolution

# --- DenseNet-121: every layer reads all before it ----------------------------------------------------------


class DenseLayer(nn.Module):
    """What was there, and 32 channels more."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.road = nn.Sequential(
            *(nn.BatchNorm2d(inner), nn.ReLU(), convolution(inner, 128, 1)),
            nn.Conv2d(128, 32, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """All channels so far."""
        return torch.cat([x, self.road(x)], 1)


def densenet121() -> nn.Module:
    """DenseNet-121."""
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for number, count in enumerate((6, 12, 24, 16)):
        if number:
            half = nn.Conv2d(width, width // 2, 1, bias=False)
            layers += [nn.BatchNorm2d(width), nn.ReLU(), half, nn.AvgPool2d(2)]
            width //= 2
        layers += [DenseLayer(width + 32 * place) for place in range(count)]
        width += 32 * count
    head = (nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))
    return nn.Sequential(*layers, *head)


# --- ConvNeXt-Tiny: wide depthwise kernels, norms and products on channels that lie last ---------------------


class LastNorm(nn.Module):
    """A layer norm over the channels of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """The image, normed."""
        found: Tensor = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return found


class ConvNextLayer(nn.Module):
    """A depthwise convolution of 7 × 7, then two products on every pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.road = nn.Sequential(
            *(nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU()),
            nn.Linear(4 * width, width),
        )
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        """The sum of an image and what is made of it."""
        y = self.road(self.depthwise(x).permute(0, 2, 3, 1)) * self.scale
        return x + y.permute(0, 3, 1, 2)


def convnext_tiny() -> nn.Module:
    """ConvNeXt-Tiny."""
    widths = (96, 192, 384, 768)
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), LastNorm(96)]
    for number, count in enumerate((3, 3, 9, 3)):
        if number:
            layers += [LastNorm(widths[number - 1]), nn.Conv2d(widths[number - 1], widths[number], 2, 2)]
        layers += [ConvNextLayer(widths[number]) for _ in range(count)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), LastNorm(768), nn.Flatten(), nn.Linear(768, 1000))


# --- T5-small's encoder: attention with a bias for each distance ----------------------------------------------


class T5Layer(nn.Module):
    """Attention whose scores are not scaled but biased, and a product of two layers."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        nn.init.normal_(self.q.weight, std=(width * width // heads) ** -0.5)
        self.wide, self.narrow = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.first, self.second = RmsNorm(width), RmsNorm(width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """The new values."""
        batch, length, width = x.shape
        y = self.first(x)
        q, k, v = (
            layer(y).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        found = (q @ k.transpose(-1, -2) + bias).softmax(-1) @ v
        x = x + self.o(found.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(torch.relu(self.wide(self.second(x))))


class T5Encoder(nn.Module):
    """The encoder of T5-small."""

    def __init__(self, width: int = 512, heads: int = 8, length: int = 128) -> None:
        super().__init__()
        self.words = nn.Embedding(32128, width)
        self.distances = nn.Embedding(32, heads)
        places = torch.arange(length)
        distance = places[None, :] - places[:, None]
        near = distance.abs().clamp(max=15)
        self.register_buffer("buckets", near + 16 * (distance > 0))
        self.layers = nn.ModuleList(T5Layer(width, heads, 2048) for _ in range(6))
        self.norm = RmsNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """A vector per token."""
        x, bias = self.words(tokens), self.distances(self.buckets).permute(2, 0, 1)
        for layer in self.layers:
            x = layer(x, bias)
        found: Tensor = self.norm(x)
        return found
