"""Networks that see images, in plain torch, with the shapes of their papers: convolutions and a transformer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

IMAGE = 224


def images(batch: int, size: int = IMAGE) -> tuple[Tensor]:
    """The inputs of every network here."""
    return (torch.randn(batch, 3, size, size),)


def convolution(
    inner: int,
    outer: int,
    size: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """A convolution with its batch norm, and an activation behind it."""
    layers = [
        nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outer),
    ]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


# --- ResNet -------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Convolutions beside a shortcut: their sum, where it is positive."""

    def __init__(self, inner: int, outer: int, stride: int, road: nn.Module) -> None:
        super().__init__()
        changes = stride != 1 or inner != outer
        self.road = road
        self.side = convolution(inner, outer, 1, stride, act=None) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        return torch.relu(self.road(x) + self.side(x))


def _basic(inner: int, width: int, stride: int) -> Residual:
    road = nn.Sequential(convolution(inner, width, 3, stride), convolution(width, width, 3, act=None))
    return Residual(inner, width, stride, road)


def _bottleneck(inner: int, width: int, stride: int) -> Residual:
    steps = [convolution(inner, width, 1), convolution(width, width, 3, stride)]
    return Residual(
        inner, 4 * width, stride, nn.Sequential(*steps, convolution(width, 4 * width, 1, act=None))
    )


def _resnet(counts: Sequence[int], wide: bool) -> nn.Module:
    block, factor = (_bottleneck, 4) if wide else (_basic, 1)
    layers: list[nn.Module] = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for level, count in enumerate(counts):
        for place in range(count):
            width = 64 << level
            layers.append(block(inner, width, 2 if level and not place else 1))
            inner = width * factor
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


def resnet18() -> nn.Module:
    """ResNet-18."""
    return _resnet((2, 2, 2, 2), wide=False)


def resnet50() -> nn.Module:
    """ResNet-50, the stride in the 3 x 3 convolution."""
    return _resnet((3, 4, 6, 3), wide=True)


# --- inverted residuals: MobileNetV2, EfficientNet ------------------------------------------------------------


class Squeeze(nn.Module):
    """Channels scaled by what the whole image says about them."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.road = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, width, 1),
            nn.SiLU(),
            nn.Conv2d(width, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The scaled channels."""
        scaled: Tensor = x * self.road(x)
        return scaled


class Inverted(nn.Module):
    """Wider, one filter per channel, narrow again; with a shortcut where the shape stays."""

    def __init__(self, sizes: tuple[int, int, int, int, int], act: type[nn.Module], squeezes: bool) -> None:
        super().__init__()
        inner, outer, expansion, size, stride = sizes
        middle = inner * expansion
        steps: list[nn.Module] = [convolution(inner, middle, 1, act=act)] if expansion > 1 else []
        steps.append(convolution(middle, middle, size, stride, middle, act))
        steps += [Squeeze(middle, max(1, inner // 4))] if squeezes else []
        self.road = nn.Sequential(*steps, convolution(middle, outer, 1, act=None))
        self.keeps = stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        """The narrow tensor."""
        found: Tensor = self.road(x)
        return x + found if self.keeps else found


def _inverted(
    rows: Sequence[tuple[int, int, int, int, int]], stem: int, head: int, act: type[nn.Module], squeezes: bool
) -> nn.Module:
    """Rows are expansion, channels, count, stride, size."""
    layers: list[nn.Module] = [convolution(3, stem, 3, 2, act=act)]
    inner = stem
    for expansion, outer, count, stride, size in rows:
        for place in range(count):
            sizes = (inner, outer, expansion, size, stride if not place else 1)
            layers.append(Inverted(sizes, act, squeezes))
            inner = outer
    tail = [
        convolution(inner, head, 1, act=act),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(head, 1000),
    ]
    return nn.Sequential(*layers, *tail)


def mobilenet_v2() -> nn.Module:
    """MobileNetV2."""
    rows = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3)]
    rows += [(6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3)]
    return _inverted(rows, 32, 1280, nn.ReLU6, squeezes=False)


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0."""
    rows = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)]
    rows += [(6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
    return _inverted(rows, 32, 1280, nn.SiLU, squeezes=True)


# --- U-Net --------------------------------------------------------------------------------------------------


class UNet(nn.Module):
    """Down four levels and up again, each level joined with what it was on the way down."""

    def __init__(self, width: int = 32, levels: int = 4) -> None:
        super().__init__()
        sizes = [width << level for level in range(levels + 1)]
        self.down = nn.ModuleList(self._pair(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        ups = list(zip(sizes[1:], sizes, strict=False))[::-1]
        self.rise = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in ups)
        self.up = nn.ModuleList(self._pair(2 * b, b) for _, b in ups)
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _pair(inner: int, outer: int) -> nn.Module:
        return nn.Sequential(convolution(inner, outer), convolution(outer, outer))

    def forward(self, x: Tensor) -> Tensor:
        """A value per pixel and class."""
        kept: list[Tensor] = []
        for place, step in enumerate(self.down):
            x = step(torch.max_pool2d(x, 2) if place else x)
            kept.append(x)
        for rise, step, side in zip(self.rise, self.up, kept[-2::-1], strict=True):
            x = step(torch.cat([rise(x), side], 1))
        found: Tensor = self.head(x)
        return found


def unet() -> nn.Module:
    """A U-Net of 32 to 512 channels."""
    return UNet()
