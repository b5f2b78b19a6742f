"""The operators of `aten` that normalise or measure distances, judged by torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, tensor_of, torch
from tests.support.judges.draws import ANY, arrays, shapes
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Shape = tuple[int, ...]


@judged("torch", "aten.native_dropout")
@given(shapes(0, 4), st.data())
def test_native_dropout(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ANY))
    expected = tensor_of(x), torch.ones(shape, dtype=torch.bool)
    agree("native_dropout", [x], {}, expected)


@judged("torch", "aten.native_group_norm")
@given(st.integers(1, 3), st.integers(1, 2), shapes(1, 3, 1, 3), st.booleans(), st.data())
def test_native_group_norm(groups: int, each: int, rest: Shape, affine: bool, data: Data) -> None:
    batch, *image = rest
    channels = groups * each
    dtype = (data.draw(st.sampled_from(("float32", "float64"))),)
    x = data.draw(arrays((batch, channels, *image), dtype))
    weight, bias = (data.draw(arrays((channels,), dtype)) if affine else None for _ in range(2))
    expected = torch.ops.aten.native_group_norm(
        *map(tensor_of, (x, weight, bias)), batch, channels, math.prod(image), groups, 1e-3
    )
    agree("native_group_norm", [x, weight, bias], {"group": groups, "eps": 1e-3}, expected, tolerance=1e-4)


@judged("torch", "aten.native_batch_norm_legit_no_stats")
@given(shapes(2, 4, 2, 3), st.booleans(), st.data())
def test_batch_norm_by_its_own_moments(shape: Shape, affine: bool, data: Data) -> None:
    dtype = (data.draw(st.sampled_from(("float32", "float64"))),)
    x = data.draw(arrays(shape, dtype))
    weight, bias = (data.draw(arrays((shape[1],), dtype)) if affine else None for _ in range(2))
    expected = torch.ops.aten._native_batch_norm_legit.no_stats(
        *map(tensor_of, (x, weight, bias)), True, 0.1, 1e-3
    )
    agree("native_batch_norm_legit_no_stats", [x, weight, bias], {"eps": 1e-3}, expected, tolerance=1e-4)


@judged("torch", "aten.fused_rms_norm")
@given(shapes(1, 4, 1), st.none() | st.just(0.5), st.data())
def test_fused_rms_norm(shape: Shape, eps: float | None, data: Data) -> None:
    dtype = (data.draw(st.sampled_from(("float32",))),)
    count = data.draw(st.integers(1, len(shape)))
    x, size = data.draw(arrays(shape, dtype, 1)), shape[-count:]
    weight = data.draw(st.none() | arrays(size, dtype))
    expected = torch.ops.aten._fused_rms_norm(tensor_of(x), size, tensor_of(weight), eps)
    given_: dict[str, Given] = {"normalized_shape": size}
    if eps is not None:
        given_["eps"] = eps
    agree("fused_rms_norm", [x, weight], given_, expected)


@judged("torch", "aten.cdist_forward", "aten.pdist_forward")
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
@given(shapes(3, 3, 1, 4), st.integers(1, 3), st.booleans(), st.data())
def test_distances(p: float, shape: Shape, other: int, batched: bool, data: Data) -> None:
    batch, rows, columns = shape
    dtype = (data.draw(st.sampled_from(("float32", "float64"))),)
    x = data.draw(arrays((batch, rows, columns), dtype))
    y = data.draw(arrays((other, columns) if batched else (1, other, columns), dtype))
    agree("cdist_forward", [x, y], {"p": p}, torch.cdist(tensor_of(x), tensor_of(y), p), tolerance=1e-4)
    agree("pdist_forward", [x[0]], {"p": p}, torch.pdist(tensor_of(x[0]), p))


@judged("torch", "aten.weight_norm")
@given(shapes(2, 4, 1), st.data())
def test_weight_norm(shape: Shape, data: Data) -> None:
    dim = data.draw(st.sampled_from((0, len(shape) - 1)))
    v = data.draw(arrays(shape, ("float32",), 1))
    g = data.draw(arrays(tuple(size if axis == dim else 1 for axis, size in enumerate(shape)), ("float32",)))
    agree("weight_norm", [v, g], {"dim": dim}, torch._weight_norm(tensor_of(v), tensor_of(g), dim))


@judged("torch", "aten.grouped_mm")
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 3), st.data())
def test_grouped_mm(counts: list[int], inner: int, columns: int, data: Data) -> None:
    x = data.draw(arrays((sum(counts), inner), ("float32",)))
    matrices = data.draw(arrays((len(counts), inner, columns), ("float32",)))
    parts = zip(tensor_of(x).split(counts), tensor_of(matrices), strict=True)
    expected = torch.cat([rows @ matrix for rows, matrix in parts])
    agree("grouped_mm", [x, matrices, np.cumsum(counts)], {}, expected)
