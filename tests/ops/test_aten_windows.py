"""The operators of `aten` with windows, borders and grids, judged by torch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import ANY, arrays, shapes
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Shape = tuple[int, ...]
ONE_OR_TWO = st.integers(1, 2)


def several(count: int, low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    """A number for each axis of a window."""
    return st.tuples(*(st.integers(low, high) for _ in range(count)))


@judged("torch", "aten.max_pool3d", "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
@pytest.mark.parametrize("axes", [2, 3])
@given(st.booleans(), st.booleans(), st.data())
def test_max_pool(axes: int, batched: bool, ceil_mode: bool, data: Data) -> None:
    size = data.draw(several(axes, 1, 3))
    stride, dilation = data.draw(several(axes, 1, 3)), data.draw(several(axes, 1, 2))
    padding = tuple(data.draw(st.integers(0, extent // 2)) for extent in size)
    shape = tuple(data.draw(st.integers(5, 7)) for _ in range(axes))
    x = data.draw(arrays((*((2,) if batched else ()), 2, *shape), low=-2, high=2))
    given_: dict[str, Given] = {"kernel_size": size, "stride": stride, "padding": padding}
    given_ |= {"dilation": dilation, "ceil_mode": ceil_mode}
    judge(f"max_pool{axes}d_with_indices", x, **given_)
    if axes == 3:
        judge("max_pool3d", x, **given_)


@judged("torch", "aten.avg_pool3d", "aten.adaptive_avg_pool3d")
@given(several(3, 1, 3), several(3, 1, 2), st.booleans(), st.booleans(), st.none() | st.just(3), st.data())
def test_avg_pool(
    size: Shape, stride: Shape, ceil_mode: bool, whole: bool, divisor: int | None, data: Data
) -> None:
    padding = tuple(data.draw(st.integers(0, extent // 2)) for extent in size)
    x = data.draw(arrays((1, 2, *data.draw(several(3, 3, 5)))))
    given_: dict[str, Given] = {"kernel_size": size, "stride": stride, "padding": padding}
    given_ |= {"ceil_mode": ceil_mode, "count_include_pad": whole}
    judge("avg_pool3d", x, **given_, **({} if divisor is None else {"divisor_override": divisor}))
    expected = torch.nn.functional.adaptive_avg_pool3d(tensor_of(x), size)
    agree("adaptive_avg_pool3d", [x], {"output_size": size}, expected)


@judged("torch", "aten.conv_transpose3d")
@given(ONE_OR_TWO, st.integers(1, 2), st.integers(0, 1), st.booleans(), st.data())
def test_conv_transpose3d(groups: int, stride: int, padding: int, biased: bool, data: Data) -> None:
    dtype = ("float32",)
    x = data.draw(arrays((1, 2 * groups, *data.draw(several(3, 2, 3))), dtype, -2, 2))
    weight = data.draw(arrays((2 * groups, 2, *data.draw(several(3, 2, 3))), dtype, -2, 2))
    bias = data.draw(arrays((2 * groups,), dtype)) if biased else None
    given_ = {"stride": stride, "padding": padding, "groups": groups, "output_padding": stride - 1}
    expected = torch.conv_transpose3d(*map(tensor_of, (x, weight, bias)), **given_)
    agree("conv_transpose3d", [x, weight, bias], given_, expected)


@judged("torch", *(f"aten.{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (1, 2, 3)))
@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("axes", [1, 2, 3])
@given(st.booleans(), st.data())
def test_borders(kind: str, axes: int, batched: bool, data: Data) -> None:
    image = tuple(data.draw(st.integers(2, 4)) for _ in range(axes))
    x = data.draw(arrays((*((2,) if batched else ()), 2, *image), ("float32",)))
    judge(f"{kind}_pad{axes}d", x, padding=data.draw(several(2 * axes, 0, 1)))


@judged("torch", "aten.im2col", "aten.col2im")
@given(several(2, 1, 3), several(2, 1, 2), several(2, 0, 2), several(2, 1, 3), st.booleans(), st.data())
def test_columns(
    size: Shape, dilation: Shape, padding: Shape, stride: Shape, batched: bool, data: Data
) -> None:
    image = data.draw(several(2, 5, 7))
    x = data.draw(arrays((*((2,) if batched else ()), 2, *image)))
    given_: dict[str, Given] = {
        "kernel_size": size,
        "dilation": dilation,
        "padding": padding,
        "stride": stride,
    }
    judge("im2col", x, **given_)
    columns = torch.ops.aten.im2col(tensor_of(x), size, dilation, padding, stride).numpy()
    judge("col2im", columns, output_size=image, **given_)


@judged("torch", "aten.adaptive_max_pool")
@pytest.mark.parametrize("axes", [1, 2, 3])
@given(st.data())
def test_adaptive_max_pool(axes: int, data: Data) -> None:
    size = data.draw(several(axes, 1, 4))
    x = data.draw(arrays((2, 2, *data.draw(several(axes, 2, 6))), ("float32",)))
    pooling = getattr(torch.nn.functional, f"adaptive_max_pool{axes}d")
    agree("adaptive_max_pool", [x], {"output_size": size}, pooling(tensor_of(x), size, return_indices=True))


@judged("torch", "aten.grid_sampler_3d")
@pytest.mark.parametrize(("mode", "padding"), [(0, 0), (0, 1), (0, 2), (1, 0)])
@settings(max_examples=8)
@given(st.booleans(), shapes(3, 3, 2, 3), shapes(3, 3, 1, 2), st.data())
def test_volumes(mode: int, padding: int, aligned: bool, volume: Shape, grid: Shape, data: Data) -> None:
    x = data.draw(arrays((1, 2, *volume), ("float32",)))
    points = data.draw(arrays((1, *grid, 3), ("float32",), -9, 9)) / 8 + 0.03125
    expected = torch.ops.aten.grid_sampler_3d(tensor_of(x), tensor_of(points), mode, padding, aligned)
    given_: dict[str, Given] = {"interpolation_mode": mode, "padding_mode": padding, "align_corners": aligned}
    agree("grid_sampler_3d", [x, points], given_, expected, tolerance=2e-4)


@judged("torch", "aten.grid_sampler_2d")
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@given(st.booleans(), shapes(2, 2, 2, 4), shapes(2, 2, 1, 3), st.data())
def test_grid_sampler(mode: int, padding: int, aligned: bool, image: Shape, grid: Shape, data: Data) -> None:
    x = data.draw(arrays((2, 2, *image), ("float32",)))
    points = data.draw(arrays((2, *grid, 2), ("float32",), -9, 9)) / 8 + 0.03125
    expected = torch.ops.aten.grid_sampler_2d(tensor_of(x), tensor_of(points), mode, padding, aligned)
    given_: dict[str, Given] = {"interpolation_mode": mode, "padding_mode": padding, "align_corners": aligned}
    agree("grid_sampler_2d", [x, points], given_, expected, tolerance=2e-4)


@judged("torch", "aten.pixel_unshuffle")
@given(st.integers(1, 3), shapes(4, 4, 1, 3), st.data())
def test_pixel_unshuffle(factor: int, shape: Shape, data: Data) -> None:
    batch, channels, *image = shape
    x = data.draw(arrays((batch, channels, *(extent * factor for extent in image)), ANY))
    judge("pixel_unshuffle", x, downscale_factor=factor)
