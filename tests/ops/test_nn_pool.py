"""Pooling of `nn`, judged by NumPy, torch and onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.judges.draws import Array, axes_of, filled, shapes
from tests.support.judges.harness import near, one, refuse
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import Given, Refusal, judged

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F

Numbers = tuple[int, ...]
NAMES = ("max", "sum", "avg", "rms", "lp")
POOLS = tuple(f"nn.{name}_pool" for name in NAMES)
WRONG: tuple[tuple[str, dict[str, Given]], ...] = (
    ("'axes' must lie in", {"axes": (4,)}),
    ("'axes' must lie in", {"axes": (-5,)}),
    ("'axes' must name each axis once", {"axes": (1, -3)}),
    ("'size' must be at least 1", {"size": 0}),
    ("'stride' must be at least 1", {"stride": (1, 0)}),
    ("'dilation' must be at least 1", {"dilation": 0}),
    ("'padding_align' must be one of", {"padding_align": "BOTH"}),
    ("does not fit into the padded input", {"padding": 0, "dilation": 4}),
)


def _own(operator: str) -> dict[str, Given]:
    return {"p": 2.0} if operator == "nn.lp_pool" else {}


REFUSALS = (
    *(
        Refusal(operator, fragment, ((1, 2, 5, 5),), {"size": 3, **_own(operator), **attributes})
        for operator in POOLS
        for fragment, attributes in WRONG
    ),
    Refusal("nn.lp_pool", "'p' must be positive", ((1, 2, 5),), {"size": 3, "p": 0.0}),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A drawn pooling: what it is called with, and how many positions lie before and in each axis' output."""

    input: Array
    axes: Numbers
    offset: Numbers
    output: Numbers
    attributes: Mapping[str, Given]
    size: Numbers
    stride: Numbers
    dilation: Numbers


@st.composite
def poolings(draw: st.DrawFn) -> Case:
    """A pooling along any axes, padded by itself or explicitly."""
    shape = draw(shapes(1, 4, 1, 6))
    axes = draw(axes_of(len(shape)))
    size, stride, dilation = (tuple(draw(st.integers(1, most)) for _ in axes) for most in (3, 4, 2))
    ceil, upper, explicit = (draw(st.booleans()) for _ in range(3))
    flags: dict[str, Given] = {"axes": axes, "size": size, "stride": stride, "dilation": dilation}
    flags |= ({"ceil_mode": True} if ceil else {}) | ({} if upper else {"padding_align": "LOWER"})
    before, after, counts = [], [], []
    for axis, window, step, gap in zip(axes, size, stride, dilation, strict=True):
        extent, spread = shape[axis], (window - 1) * gap + 1
        wanted = ((-(-extent // step) if ceil else extent // step) - 1) * step + spread - extent
        first = draw(st.integers(0, 2)) if explicit else (wanted // 2 if upper else -(-wanted // 2))
        last = draw(st.integers(0, 2)) if explicit else wanted - first
        room = extent + first + last - spread
        assume(room >= 0)
        before.append(first)
        after.append(last)
        counts.append((-(-room // step) if ceil else room // step) + 1)
    flags |= {"padding": (*before, *after)} if explicit else {}
    dtype, seed = draw(st.sampled_from(("float32", "float64", "float16"))), draw(st.integers(0, 2**32 - 1))
    return Case(filled(shape, dtype, seed), axes, tuple(before), tuple(counts), flags, size, stride, dilation)


def _windows(case: Case, array: Array, fill: float) -> Array:
    """All windows, their positions as further dimensions behind; what lies outside is `fill`."""
    values = array.astype(np.float64)
    columns = zip(case.axes, case.offset, case.output, case.size, case.stride, case.dilation, strict=True)
    for axis, before, count, size, stride, dilation in columns:
        place = axis % array.ndim
        index = stride * np.arange(count)[:, None] + dilation * np.arange(size) - before
        inside = (index >= 0) & (index < values.shape[place])
        taken = np.moveaxis(np.take(values, np.where(inside, index, 0), axis=place), place + 1, -1)
        mask = inside.reshape(*(1,) * place, count, *(1,) * (taken.ndim - place - 2), size)
        values = np.where(mask, taken, fill)
    return values


def _reduced(case: Case, array: Array, fill: float, reduce: Callable[..., Array]) -> Array:
    windows = _windows(case, array, fill)
    found: Array = np.asarray(reduce(windows, axis=tuple(range(array.ndim, windows.ndim))))
    return found


@judged("numpy", "nn.max_pool", "nn.sum_pool")
@given(poolings())
def test_max_and_sum(case: Case) -> None:
    dtype = case.input.dtype
    near(
        one("nn.max_pool", case.input, **case.attributes),
        _reduced(case, case.input, -np.inf, np.max).astype(dtype),
    )
    near(
        one("nn.sum_pool", case.input, **case.attributes), _reduced(case, case.input, 0, np.sum).astype(dtype)
    )


def _mean(case: Case, array: Array, ignore_border: bool) -> Array:
    """Means of windows; nan where a window holds nothing that counts."""
    with np.errstate(invalid="ignore"):
        count = _reduced(case, np.ones_like(array), 0, np.sum) if ignore_border else float(np.prod(case.size))
        return np.asarray(_reduced(case, array, 0, np.sum) / count)


@judged("numpy", "nn.avg_pool", "nn.rms_pool")
@given(poolings(), st.booleans())
def test_means(case: Case, ignore_border: bool) -> None:
    dtype = case.input.dtype
    flags = {**case.attributes, "ignore_border": ignore_border}
    near(one("nn.avg_pool", case.input, **flags), _mean(case, case.input, ignore_border).astype(dtype))
    squares = _mean(case, case.input.astype(np.float64) ** 2, ignore_border)
    near(one("nn.rms_pool", case.input, **flags), np.sqrt(squares).astype(dtype))


@judged("numpy", "nn.lp_pool")
@given(poolings(), st.sampled_from((0.5, 1.0, 2.0, 3.0)))
def test_lp(case: Case, p: float) -> None:
    assume(case.input.dtype != np.float16 or p < 3)
    powers = _reduced(case, np.abs(case.input.astype(np.float64)) ** p, 0, np.sum)
    found = one("nn.lp_pool", case.input, **case.attributes, p=p)
    near(
        found, (powers ** (1 / p)).astype(case.input.dtype), 5e-3 if case.input.dtype == np.float16 else None
    )


@st.composite
def images(draw: st.DrawFn) -> tuple[Array, dict[str, Given], list[list[int]]]:
    """A batch of images and a pooling that torch and onnxruntime know: padded alike on both sides, at most by half."""
    d = draw(st.integers(1, 3))
    size = [draw(st.integers(1, 3)) for _ in range(d)]
    stride = [draw(st.integers(1, 4)) for _ in range(d)]
    padding = [draw(st.integers(0, item // 2)) for item in size]
    extents = [draw(st.integers(item, 7)) for item in size]
    array = filled(
        (draw(st.integers(1, 2)), draw(st.integers(1, 2)), *extents), "float32", draw(st.integers(0, 99))
    )
    flags: dict[str, Given] = {"size": tuple(size), "stride": tuple(stride), "padding": (*padding, *padding)}
    return array, flags, [size, stride, padding]


@judged("torch", "nn.max_pool", "nn.avg_pool")
@given(images(), st.booleans())
def test_images(drawn: tuple[Array, dict[str, Given], list[list[int]]], ignore_border: bool) -> None:
    array, flags, (size, stride, padding) = drawn
    given_ = torch.tensor(array)
    largest = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(size) - 1]
    mean = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(size) - 1]
    near(one("nn.max_pool", array, **flags), largest(given_, size, stride, padding).numpy())
    expected = mean(given_, size, stride, padding, False, not ignore_border)
    near(one("nn.avg_pool", array, **flags, ignore_border=ignore_border), expected.numpy())


@judged("onnxruntime", "nn.max_pool", "nn.avg_pool", "nn.lp_pool")
@given(images(), st.sampled_from((1, 2, 3)))
def test_images_of_onnx(drawn: tuple[Array, dict[str, Given], list[list[int]]], p: int) -> None:
    array, flags, (size, stride, padding) = drawn
    window: dict[str, Any] = {"kernel_shape": size, "strides": stride, "pads": [*padding, *padding]}
    for name, node, own, theirs in (
        ("nn.max_pool", "MaxPool", {}, {}),
        ("nn.avg_pool", "AveragePool", {"ignore_border": False}, {"count_include_pad": 1}),
        ("nn.lp_pool", "LpPool", {"p": float(p)}, {"p": p}),
    ):
        near(one(name, array, **flags, **own), run_node(node, (array,), **window, **theirs)[0])


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
