"""Regions and grids of `image`, judged by onnxruntime, torch and NumPy."""

from __future__ import annotations

import os
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from tests.support.judges.draws import Array, filled
from tests.support.judges.harness import near, one, refuse
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import Given, Refusal, judged

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F

Data = st.DataObject
Numbers = tuple[int, ...]
MODES = MappingProxyType({"NEAREST": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic"})
PADDINGS = MappingProxyType({"ZEROS": "zeros", "REPLICATE": "border", "REFLECT": "reflection"})
ROI = ("image.max_roi_pool", "image.avg_roi_pool")

REFUSALS = (
    *(
        Refusal(
            name,
            "'output_size' must be at least 1",
            ((1, 2, 4, 4), (3, 4), (3,)),
            {"output_size": (2, 0)},
            "f32 f32 i64",
        )
        for name in ROI
    ),
    *(
        Refusal(
            name, "regions of an empty input", ((1, 2, 0, 4), (3, 4), (3,)), {"output_size": 2}, "f32 f32 i64"
        )
        for name in ROI
    ),
    Refusal("image.grid_sample", "'mode' must be one of", ((1, 1, 4), (1, 3, 1)), {"mode": "AREA"}),
    Refusal("image.grid_sample", "'padding' must be one of", ((1, 1, 4), (1, 3, 1)), {"padding": "WRAP"}),
    Refusal("image.grid_sample", "an empty input cannot be sampled", ((1, 1, 0), (1, 3, 1))),
)


@st.composite
def regions(draw: st.DrawFn) -> tuple[Array, Array, Array, Numbers]:
    """A batch of images, regions that may reach beyond them, the image of each, and the cells of each."""
    batch, channels, count = (draw(st.integers(1, 3)) for _ in range(3))
    extents = tuple(draw(st.integers(1, 9)) for _ in range(2))
    size = tuple(draw(st.integers(1, 4)) for _ in range(2))
    corner = st.integers(-4, 4 * 11).map(lambda quarters: quarters / 4)
    rows = [[draw(corner) for _ in range(4)] for _ in range(count)]
    index = np.array([draw(st.integers(0, batch - 1)) for _ in range(count)])
    return filled((batch, channels, *extents), "float32", count), np.array(rows, np.float32), index, size


@judged("onnxruntime", "image.max_roi_pool")
@given(regions())
def test_max_roi_pool(drawn: tuple[Array, Array, Array, Numbers]) -> None:
    array, rois, index, size = drawn
    rows = np.concatenate([index[:, None], rois], axis=1).astype(np.float32)
    (expected,) = run_node("MaxRoiPool", (array, rows), pooled_shape=list(size))
    near(one("image.max_roi_pool", array, rois, index, output_size=size), expected)


def _cell(start: float, end: float, place: int, count: int, extent: int) -> slice:
    first, last = (int(np.floor(abs(item) + 0.5) * np.sign(item)) for item in (start, end))
    length = max(last - first + 1, 1)
    low, high = first + place * length // count, first - (-(place + 1) * length // count)
    return slice(min(max(low, 0), extent), min(max(high, 0), extent))


@judged("numpy", "image.avg_roi_pool")
@given(regions())
def test_avg_roi_pool(drawn: tuple[Array, Array, Array, Numbers]) -> None:
    array, rois, index, size = drawn
    expected = np.zeros((len(rois), array.shape[1], *size), np.float32)
    for (item, row, column), (left, top, right, bottom) in (
        (place, rois[place[0]]) for place in np.ndindex(len(rois), *size)
    ):
        rows = _cell(top, bottom, row, size[0], array.shape[2])
        columns = _cell(left, right, column, size[1], array.shape[3])
        cell = array[index[item], :, rows, columns].astype(np.float64)
        if cell.size:
            expected[item, :, row, column] = cell.mean((1, 2))
    near(one("image.avg_roi_pool", array, rois, index, output_size=size), expected)


def test_regions_of_other_ranks() -> None:
    line = np.array([[[1, 5, 2, 4]]], np.float32)
    found = one("image.max_roi_pool", line, np.array([[1, 2]], np.float32), np.array([0]), output_size=2)
    near(found, np.array([[[5, 2]]], np.float32))


@pytest.mark.parametrize("operator", ROI)
def test_regions_of_no_image(operator: str) -> None:
    array, rois = filled((2, 1, 3, 3), "float32", 0), np.zeros((1, 4), np.float32)
    with pytest.raises(LamellaError, match="index 2 of 'input', whose extent in dimension 0 is 2"):
        one(operator, array, rois, np.array([2]), output_size=1)


@pytest.mark.parametrize("operator", ROI)
def test_regions_that_are_no_numbers(operator: str) -> None:
    rois = np.array([[np.nan, -np.inf, np.inf, 1e30]], np.float32)
    found = one(operator, np.ones((1, 1, 3, 3), np.float32), rois, np.array([0]), output_size=2)
    assert set(found.ravel()) <= {0, 1}


def _grid(seed: int, batch: int, points: Numbers) -> Array:
    """Points in and around the image, never halfway between two items of one of up to 6."""
    drawn = np.random.default_rng(seed).uniform(-2, 2, (batch, *points, len(points)))
    return np.asarray(drawn, np.float64)


GRIDS = (
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3)), min_size=2, max_size=3),
    st.integers(0, 99),
    st.sampled_from(tuple(PADDINGS)),
    st.booleans(),
)


@judged(
    "torch",
    "image.grid_sample",
    "image._nearest_grid_sample",
    "image._linear_grid_sample",
    "image._cubic_grid_sample",
)
@pytest.mark.parametrize("mode", MODES)
@given(*GRIDS)
def test_grid_sample(
    mode: str, sizes: Numbers, sides: list[Numbers], seed: int, padding: str, aligned: bool
) -> None:
    sides = sides[:2] if mode == "CUBIC" else sides
    array = filled((*sizes, *(side[0] for side in sides)), "float64", seed)
    grid = _grid(seed, sizes[0], tuple(side[1] for side in sides))
    expected = F.grid_sample(
        torch.tensor(array), torch.tensor(grid), MODES[mode], PADDINGS[padding], align_corners=aligned
    )
    flags: dict[str, Given] = {"mode": mode, "padding": padding, "aligned": aligned}
    near(one("image.grid_sample", array, grid, **flags), expected.numpy(), 1e-9)


@judged("onnxruntime", "image.grid_sample")
@given(*GRIDS, st.sampled_from(tuple(MODES)))
def test_grid_sample_of_onnx(
    sizes: Numbers, sides: list[Numbers], seed: int, padding: str, aligned: bool, mode: str
) -> None:
    flat = sides[:2]
    array = filled((*sizes, *(side[0] for side in flat)), "float32", seed)
    grid = _grid(seed, sizes[0], tuple(side[1] for side in flat)).astype(np.float32)
    (expected,) = run_node(
        "GridSample",
        (array, grid),
        mode=MODES[mode],
        padding_mode=PADDINGS[padding],
        align_corners=int(aligned),
    )
    flags: dict[str, Given] = {"mode": mode, "padding": padding, "aligned": aligned}
    near(one("image.grid_sample", array, grid, **flags), expected, 1e-3)


def test_halves_go_to_the_even_item() -> None:
    array = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    places = np.array([0.5, 1.5, 2.5, 3.5, -0.5, 4.5])
    grid = (2 * places / 4 - 1).astype(np.float32).reshape(1, -1, 1)
    found = one("image.grid_sample", array, grid, mode="NEAREST", aligned=True)
    near(found.ravel(), np.rint(np.clip(places, 0, 4)).astype(np.float32))


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
