"""Resampling of `image`, judged by onnxruntime, torch and NumPy."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import FLOATS, Array, arrays, axes_of, filled, shapes
from tests.support.judges.harness import near, one, refuse, same
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import Given, Refusal, judged

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F

Data = st.DataObject
Numbers = tuple[int, ...]
Wrong = tuple[str, dict[str, Given]]

OFF_AXES: tuple[Wrong, ...] = (
    ("'axes' must lie in", {"axes": (2,)}),
    ("'axes' must lie in", {"axes": (-3,)}),
    ("'axes' must name each axis once", {"axes": (1, -1)}),
)
SAMPLERS = tuple(
    f"image.{name}"
    for name in ("nearest_downsample", "nearest_upsample", "area_downsample", "linear_upsample")
)
RESIZERS = tuple(f"image.{name}" for name in ("nearest_resize", "linear_resize", "cubic_resize", "resize"))
NO_FACTOR: Wrong = ("'factor' must be at least 1", {"factor": 0})
NO_SIZE: Wrong = ("'size' must be at least 1", {"size": 0})
WRONG_TRANSFORM: Wrong = ("'coordinate_transform' must be one of", {"coordinate_transform": "HALF"})
WRONG_ROUNDING: Wrong = ("'rounding_method' must be one of", {"rounding_method": "UP"})
REFUSALS = (
    *(
        Refusal(name, fragment, ((2, 4),), {"factor": 2, **attributes})
        for name in SAMPLERS
        for fragment, attributes in (*OFF_AXES, NO_FACTOR)
    ),
    *(
        Refusal(name, "must be multiples of 'factor'", ((2, 3),), {"factor": 2})
        for name in ("image.nearest_downsample", "image.area_downsample")
    ),
    Refusal("image.linear_upsample", "an empty axis cannot be resized", ((2, 0),), {"factor": 2}),
    *(
        Refusal(name, fragment, ((2, 4),), {"size": 2, **attributes})
        for name in RESIZERS
        for fragment, attributes in (*OFF_AXES, WRONG_TRANSFORM, NO_SIZE)
    ),
    *(
        Refusal(name, *WRONG_ROUNDING[:1], ((2, 4),), {"size": 2, **WRONG_ROUNDING[1]})
        for name in ("image.nearest_resize", "image.resize")
    ),
    *(Refusal(name, "an empty axis cannot be resized", ((2, 0),), {"size": 2}) for name in RESIZERS),
    Refusal("image.resize", "'mode' must be one of", ((2, 4),), {"size": 2, "mode": "AREA"}),
    *(
        Refusal("image.rescale", fragment, ((2, 4),), {"factor": 2.0, **attributes})
        for fragment, attributes in (*OFF_AXES, WRONG_TRANSFORM, WRONG_ROUNDING)
    ),
    Refusal("image.rescale", "'mode' must be one of", ((2, 4),), {"factor": 2.0, "mode": "AREA"}),
    Refusal("image.rescale", "'factor' must be positive", ((2, 4),), {"factor": 0.0}),
    Refusal("image.rescale", "'factor' leaves nothing of the input", ((2, 4),), {"factor": 0.01}),
    Refusal("image.rescale", "an empty axis cannot be resized", ((2, 0),), {"factor": 2.0}),
)

TRANSFORMS = MappingProxyType(
    {"SYMMETRIC": "half_pixel", "ASYMMETRIC": "asymmetric", "ALIGNED": "align_corners"}
)
ROUNDINGS = ("FLOOR", "CEIL", "ROUND_PREFER_FLOOR", "ROUND_PREFER_CEIL")
TRANSFORM, ROUNDING = st.sampled_from(tuple(TRANSFORMS)), st.sampled_from(ROUNDINGS)


def _blocks(array: Array, axes: Numbers, factors: Numbers) -> tuple[Array, Numbers]:
    """An array with each axis cut into blocks, and where the positions in a block lie."""
    whole = dict(zip((axis % array.ndim for axis in axes), factors, strict=True))
    shape = [
        part
        for axis, extent in enumerate(array.shape)
        for part in (extent // whole.get(axis, 1), whole.get(axis, 1))
    ]
    return array.reshape(shape), tuple(range(1, 2 * array.ndim, 2))


@judged("numpy", "image.nearest_downsample", "image.nearest_upsample", "image.area_downsample")
@given(shapes(0, 4, 1, 3), st.data())
def test_sampling(shape: Numbers, data: Data) -> None:
    axes = data.draw(axes_of(len(shape)))
    factors = tuple(data.draw(st.integers(1, 3)) for _ in axes)
    small = data.draw(arrays(shape, FLOATS))
    large = small
    for axis, factor in zip(axes, factors, strict=True):
        large = np.repeat(large, factor, axis=axis)
    same(one("image.nearest_upsample", small, axes=axes, factor=factors), large)
    same(one("image.nearest_downsample", large, axes=axes, factor=factors), small)
    noisy = data.draw(arrays(large.shape, FLOATS))
    blocks, inner = _blocks(noisy.astype(np.float64), axes, factors)
    near(
        one("image.area_downsample", noisy, axes=axes, factor=factors), blocks.mean(inner).astype(noisy.dtype)
    )


@judged("torch", "image.linear_upsample")
@given(st.tuples(*(st.integers(1, 5),) * 2), st.tuples(*(st.integers(1, 4),) * 2), st.sampled_from(FLOATS))
def test_linear_upsample_symmetric(extents: Numbers, factors: Numbers, dtype: str) -> None:
    array = filled((1, 2, *extents), dtype, 0)
    expected = F.interpolate(torch.tensor(array.astype(np.float64)), scale_factor=factors, mode="bilinear")
    found = one("image.linear_upsample", array, axes=(2, 3), factor=factors)
    near(found, expected.numpy().astype(dtype))


def _hat(extent: int, factor: int, symmetric: bool) -> Array:
    """How much each item counts for each position of a linearly upsampled axis, 0 beyond the border."""
    place = np.arange(extent * factor)[:, None] / factor
    place = place + 0.5 / factor - 0.5 if symmetric else place
    return np.asarray(np.maximum(0, 1 - np.abs(place - np.arange(extent))))


@judged("numpy", "image.linear_upsample")
@given(shapes(1, 3, 1, 4), st.booleans(), st.booleans(), st.data())
def test_linear_upsample(shape: Numbers, symmetric: bool, replicate: bool, data: Data) -> None:
    axes = data.draw(axes_of(len(shape)))
    factors = tuple(data.draw(st.integers(1, 4)) for _ in axes)
    array = data.draw(arrays(shape, ("float64",)))
    expected = array
    for axis, factor in zip(axes, factors, strict=True):
        weights = _hat(shape[axis], factor, symmetric)
        weights = weights / weights.sum(1, keepdims=True) if replicate else weights
        expected = np.moveaxis(np.tensordot(weights, expected, (1, axis)), 0, axis)
    flags: dict[str, Given] = {"symmetric": symmetric, "replicate_border": replicate}
    near(one("image.linear_upsample", array, axes=axes, factor=factors, **flags), expected)


def _resized(array: Array, axes: Numbers, size: Numbers, **attributes: Any) -> Array:
    """What onnxruntime resizes an array to."""
    shape = list(array.shape)
    for axis, extent in zip(axes, size, strict=True):
        shape[axis] = extent
    return run_node("Resize", (array, None, None, np.array(shape)), **attributes)[0]


SIDES = st.tuples(st.integers(1, 7), st.integers(1, 7))


@judged("onnxruntime", "image.nearest_resize", "image.resize")
@given(SIDES, SIDES, TRANSFORM, ROUNDING)
def test_nearest_resize(extents: Numbers, size: Numbers, transform: str, rounding: str) -> None:
    array = filled((2, 3, *extents), "float32", 0)
    expected = _resized(
        array,
        (2, 3),
        size,
        mode="nearest",
        coordinate_transformation_mode=TRANSFORMS[transform],
        nearest_mode=rounding.lower(),
    )
    flags: dict[str, Given] = {
        "axes": (2, -1),
        "size": size,
        "coordinate_transform": transform,
        "rounding_method": rounding,
    }
    found = one("image.nearest_resize", array, **flags)
    kept = [_off_jumps(*sides, transform, rounding) for sides in zip(extents, size, strict=True)]
    same(found[:, :, kept[0]][..., kept[1]], expected[:, :, kept[0]][..., kept[1]])
    same(one("image.resize", array, **flags), found)


def _off_jumps(extent: int, size: int, transform: str, rounding: str) -> list[int]:
    """Positions whose source is not exactly where rounding jumps: there the judge's floats may fall to either side."""
    half = Fraction(0) if rounding in ("FLOOR", "CEIL") else Fraction(1, 2)
    places = [_place(index, extent, size, transform) for index in range(size)]
    return [index for index, place in enumerate(places) if (place - half).denominator != 1]


def _place(place: int, extent: int, size: int, transform: str) -> Fraction:
    """Where a position of a resized axis lies in the original."""
    if transform == "SYMMETRIC":
        return Fraction((2 * place + 1) * extent - size, 2 * size)
    return (
        Fraction(place * extent, size)
        if transform == "ASYMMETRIC"
        else Fraction(place * (extent - 1), max(size - 1, 1))
    )


def _nearest(place: Fraction, rounding: str) -> int:
    half = Fraction(1, 2)
    if rounding in ("FLOOR", "CEIL"):
        return math.floor(place) if rounding == "FLOOR" else math.ceil(place)
    return math.ceil(place - half) if rounding == "ROUND_PREFER_FLOOR" else math.floor(place + half)


@judged("numpy", "image.nearest_resize")
@given(st.integers(1, 40), st.integers(1, 40), TRANSFORM, ROUNDING)
def test_nearest_resize_exactly(extent: int, size: int, transform: str, rounding: str) -> None:
    array = np.arange(extent, dtype=np.float64)
    places = [_nearest(_place(index, extent, size, transform), rounding) for index in range(size)]
    expected = array[np.clip(places, 0, extent - 1)]
    flags = {"coordinate_transform": transform, "rounding_method": rounding}
    same(one("image.nearest_resize", array, size=size, **flags), expected)


@judged("onnxruntime", "image.linear_resize", "image.cubic_resize", "image.resize")
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@given(SIDES, SIDES, TRANSFORM, st.booleans(), st.sampled_from((-0.75, -0.5)))
def test_smooth_resize(
    mode: str, extents: Numbers, size: Numbers, transform: str, antialias: bool, coefficient: float
) -> None:
    array = filled((1, 2, *extents), "float32", 0)
    coordinates = TRANSFORMS[transform]
    theirs: dict[str, float] = {"cubic_coeff_a": coefficient} if mode == "cubic" else {}
    expected = _resized(
        array,
        (2, 3),
        size,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        antialias=int(antialias),
        **theirs,
    )
    flags: dict[str, Given] = {
        "axes": (2, 3),
        "size": size,
        "coordinate_transform": transform,
        "antialias": antialias,
    }
    ours: dict[str, Given] = {"coeff_a": coefficient} if mode == "cubic" else {}
    near(one(f"image.{mode}_resize", array, **flags, **ours), expected, 1e-4)
    whole = one("image.resize", array, **flags, mode=mode.upper(), cubic_coeff_a=coefficient)
    near(whole, expected, 1e-4)


@judged("torch", "image.linear_resize", "image.cubic_resize")
@given(st.tuples(*(st.integers(1, 6),) * 3), st.tuples(*(st.integers(1, 6),) * 3), st.booleans())
def test_smooth_resize_of_torch(extents: Numbers, size: Numbers, aligned: bool) -> None:
    array = filled((1, 2, *extents), "float64", 0)
    flags: dict[str, Given] = {
        "coordinate_transform": "ALIGNED" if aligned else "SYMMETRIC",
        "antialias": False,
    }
    volume = F.interpolate(torch.tensor(array), size, mode="trilinear", align_corners=aligned)
    near(one("image.linear_resize", array, axes=(2, 3, 4), size=size, **flags), volume.numpy())
    plane = F.interpolate(torch.tensor(array[:, 0]), size[1:], mode="bicubic", align_corners=aligned)
    near(one("image.cubic_resize", array[:, 0], axes=(2, 3), size=size[1:], **flags), plane.numpy())


@judged("numpy", "image.linear_resize", "image.cubic_resize", "image.nearest_resize")
@given(shapes(0, 4, 1, 5), st.booleans(), TRANSFORM)
def test_the_same_size_changes_nothing(shape: Numbers, antialias: bool, transform: str) -> None:
    array = filled(shape, "float16", 0)
    flags: dict[str, Given] = {"size": shape, "coordinate_transform": transform}
    same(one("image.nearest_resize", array, **flags), array)
    same(one("image.linear_resize", array, **flags, antialias=antialias), array)
    same(one("image.cubic_resize", array, **flags, antialias=antialias), array)


@judged("onnxruntime", "image.rescale")
@given(SIDES, st.sampled_from((0.5, 1.0, 1.5, 2.0)), st.sampled_from(("NEAREST", "LINEAR", "CUBIC")))
def test_rescale(extents: Numbers, factor: float, mode: str) -> None:
    size = tuple(int(np.floor(extent * factor + 0.5)) for extent in extents)
    array = filled((1, 1, *extents), "float32", 0)
    expected = _resized(
        array,
        (2, 3),
        size,
        mode=mode.lower(),
        nearest_mode="round_prefer_floor",
        antialias=int(mode != "NEAREST"),
    )
    near(one("image.rescale", array, axes=(2, 3), factor=factor, mode=mode), expected, 1e-4)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
