"""Small networks of PyTorch written out: perceptron, convolutions, U-Net, encoder, decoder, vision transformer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional

from tests.support.bridge.torch_models.random_weights import shake
from tests.support.bridge.torch_models.transformer_models import Sample

WIDTH, HEADS = 16, 4
Tensor: TypeAlias = Any


class Residual(nn.Module):
    """Convolution, batch norm and pooling with a way around."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.inner = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        found = functional.max_pool2d(functional.relu(self.norm(self.stem(image))), 3, 2, 1)
        found = found + self.inner(found)
        return self.head(functional.adaptive_avg_pool2d(found, 1).flatten(1))


class Convolutions(nn.Module):
    """Depthwise, grouped, dilated, transposed and one-dimensional convolutions, with several activations."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(4, 4, 3, padding="same", groups=4)
        self.grouped = nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2)
        self.transposed = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.norm = nn.GroupNorm(2, 4)
        self.last = nn.Conv1d(4, 3, 3, padding=1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        found = functional.hardswish(self.depthwise(image))
        found = functional.leaky_relu(self.grouped(found), 0.1)
        found = self.norm(self.transposed(functional.avg_pool2d(found, 2)))
        return {"map": functional.silu(found), "line": self.last(found.mean(2))}


class UNet(nn.Module):
    """Down, up again, and the finer maps beside the coarser ones."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._block(2, 4), self._block(4, 8)])
        self.middle = self._block(8, 8)
        self.up = nn.ModuleList([self._block(16, 4), self._block(8, 4)])
        self.last = nn.Conv2d(4, 1, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            image = block(image)
            kept.append(image)
            image = functional.max_pool2d(image, 2)
        image = self.middle(image)
        for block, beside in zip(self.up, reversed(kept), strict=True):
            image = functional.interpolate(image, scale_factor=2, mode="nearest")
            image = block(torch.cat([image, beside], 1))
        return torch.sigmoid(self.last(image))


class Encoder(nn.Module):
    """One layer of attention over words, some of which are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, WIDTH)
        self.places = nn.Embedding(16, WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, WIDTH))

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        count = ids.shape[1]
        found = self.words(ids) + self.places(torch.arange(count, device=ids.device))
        parts = self.attention(found).view(*ids.shape, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].transpose(-1, -2) / (WIDTH / HEADS) ** 0.5
        scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        mixed = (torch.softmax(scores, -1) @ parts[2]).transpose(1, 2).flatten(2)
        found = self.norms[0](found + self.out(mixed))
        found = self.norms[1](found + self.mlp(found))
        weight = mask[..., None].to(found.dtype)
        return found, (found * weight).sum(1) / weight.sum(1).clamp(min=1e-6)


def turned(items: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions: the two halves of each head as the two parts of a complex number."""
    left, right = items.chunk(2, -1)
    return items * angles.cos() + torch.cat([-right, left], -1) * angles.sin()


class Decoder(nn.Module):
    """A causal layer with rotary positions; two query heads share one head of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.keys = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.gate, self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)
        self.head = nn.Linear(WIDTH, 30, bias=False)
        self.head.weight = self.words.weight
        self.register_buffer("steps", 1 / 100 ** (torch.arange(2) / 2), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        found = self.words(ids)
        size, count = ids.shape
        inner = self.norm(found)
        query = self.query(inner).view(size, count, HEADS, -1).transpose(1, 2)
        keys, values = self.keys(inner).view(size, count, 2, HEADS // 2, -1).unbind(2)
        angles = torch.arange(count)[:, None] * self.steps
        angles = torch.cat([angles, angles], -1)
        query, key = turned(query, angles), turned(keys.transpose(1, 2), angles)
        mixed = functional.scaled_dot_product_attention(
            query, key, values.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        found = found + mixed.transpose(1, 2).reshape(size, count, WIDTH)
        return self.head(found + self.down(functional.silu(self.gate(found)) * self.up(found)))


class Vision(nn.Module):
    """Patches of an image as words, with one more that gathers them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.gathering = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(1, 5, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.head = nn.Linear(WIDTH, 6)

    def forward(self, image: Tensor) -> Tensor:
        words = self.patches(image).flatten(2).transpose(1, 2)
        words = torch.cat([self.gathering.expand(words.shape[0], -1, -1), words], 1) + self.places
        inner = self.norm(words)
        mixed, _ = self.attention(inner, inner, inner, need_weights=False)
        return torch.log_softmax(self.head((words + mixed)[:, 0]), -1)


def _perceptron() -> Any:
    return nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3), nn.Softmax(-1)
    )


def _sample(make: Callable[[], Any], inputs: Mapping[str, Any], open_axes: Mapping[int, str]) -> Sample:
    torch.manual_seed(0)
    return Sample(shake(make()).eval(), inputs, dict.fromkeys(inputs, open_axes))


def _image(make: Callable[[], Any], *shape: int, **axes: int) -> Callable[[], Sample]:
    """An image of a shape, with the axes that may change."""
    named = {axis: name for name, axis in axes.items()}
    return lambda: _sample(make, {"image": torch.randn(2, *shape)}, named)


def _words(make: Callable[[], Any], mask: bool) -> Callable[[], Sample]:
    inputs = {"ids": torch.randint(0, 30, (2, 6), generator=torch.Generator().manual_seed(1))}
    if mask:
        inputs["mask"] = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    return lambda: _sample(make, inputs, {1: "T"})


NETWORKS: Mapping[str, Callable[[], Sample]] = MappingProxyType(
    {
        "perceptron": lambda: _sample(_perceptron, {"input": torch.randn(3, 6)}, {0: "B"}),
        "residual": _image(Residual, 3, 16, 16, B=0),
        "convolutions": _image(Convolutions, 4, 8, 8, B=0),
        "U-Net": _image(UNet, 2, 8, 8, B=0),
        "encoder": _words(Encoder, mask=True),
        "decoder": _words(Decoder, mask=False),
        "vision": _image(Vision, 3, 8, 8, B=0),
    }
)
"""Every network by its name."""
