"""Transposed convolutions and resizing on the NMU: drawn shapes, strides, dilations, paddings and groups."""

from __future__ import annotations

import random

import pytest

from lamella.base.dtype import F32
from lamella.graph.model import Model
from lamella.pipeline.nem.lowering import simulated
from tests.support.plan.selection import Drawing, assert_close


def drawn_deconv(chance: random.Random) -> Model:
    """A transposed convolution whose padding may reach beyond its filter, and whose strides may leave gaps."""
    drawing = Drawing(chance.randrange(1000))
    axes, groups = chance.choice((1, 2)), chance.choice((1, 1, 2, 3))
    channels = groups * chance.randint(1, 3)
    extents = [chance.randint(3, 6) for _ in range(axes)]
    filters = [chance.randint(1, 4) for _ in range(axes)]
    stride, dilation = ([chance.randint(1, 3) for _ in range(axes)] for _ in range(2))
    reach = [(size - 1) * step + 1 for size, step in zip(filters, dilation, strict=True)]
    padding = [chance.randint(0, min(3, item)) for item in reach]
    beyond = [chance.randrange(step) for step in stride]
    size = [
        max(1, (extent - 1) * step + wide - 2 * pad + more)
        for extent, step, wide, pad, more in zip(extents, stride, reach, padding, beyond, strict=True)
    ]
    x = drawing.builder.input("x", F32, (chance.choice((1, 2)), channels, *extents))
    weight = drawing.real(channels, chance.randint(1, 3), *filters)
    bias = drawing.real(groups * weight.shape[1]) if chance.random() < 0.5 else None  # type: ignore[operator]
    words = {"stride": stride, "dilation": dilation, "padding": padding, "size": size, "groups": groups}
    return drawing.finish(drawing.call("onnx.conv_transpose", x, weight, bias, **words))


@pytest.mark.parametrize("seed", range(16))
def test_transposed_convolutions(seed: int) -> None:
    found = assert_close(drawn_deconv(random.Random(seed)), tiled=True)
    assert not found.selection.kernels


@pytest.mark.parametrize("transform", ["SYMMETRIC", "ASYMMETRIC", "ALIGNED"])
@pytest.mark.parametrize("sizes", [(12, 5), (1, 14), (3, 21)])
def test_images_of_other_sizes(transform: str, sizes: tuple[int, int]) -> None:
    """Larger along one axis and smaller along the other, by each way to place the pixels."""
    words = {"axes": [2, 3], "size": list(sizes), "coordinate_transform": transform}
    for method in ("FLOOR", "CEIL", "ROUND_PREFER_FLOOR", "ROUND_PREFER_CEIL", None):
        drawing = Drawing(3)
        x = drawing.builder.input("x", F32, (1, 3, 6, 7))
        operator = "image.linear_resize" if method is None else "image.nearest_resize"
        given = {**words, "antialias": False} if method is None else {**words, "rounding_method": method}
        found = assert_close(drawing.finish(drawing.call(operator, x, **given)))
        assert not found.selection.kernels


def test_a_transposed_convolution_takes_the_time_of_its_products() -> None:
    """The NMU multiplies, which 64 lanes of a VPU could not in this time, and no weight moves twice."""
    drawing = Drawing(0)
    x = drawing.builder.input("x", F32, (1, 32, 16, 16))
    words = {"stride": [2, 2], "dilation": [1, 1], "padding": [1, 1], "size": [32, 32]}
    made = drawing.call("onnx.conv_transpose", x, drawing.real(32, 16, 4, 4), None, **words)
    report = simulated(assert_close(drawing.finish(made), tiled=True))
    assert report is not None
    assert report.network is not None
    assert 3 * report.cycles < (16 * 16 * 32) * (16 * 4 * 4) // 64
    assert report.moved("DDR") <= 1.05 * report.network.compulsory
