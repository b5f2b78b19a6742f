"""The operators of `aten` that run along a dimension, join bits, or count, judged by torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array
from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import ANY, INTEGERS, arrays, axis_of, shapes
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Shape = tuple[int, ...]
WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBERS = ("float32", "float64", "int64", "int32")


@judged("torch", "aten.cummax", "aten.cummin", "aten.logcumsumexp")
@given(shapes(1, 3, 1, 5), st.data())
def test_so_far(shape: Shape, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    x = data.draw(arrays(shape, NUMBERS, -3, 3))
    for name in ("cummax", "cummin"):
        judge(name, x, dim=dim)
    if x.dtype.kind == "f":
        judge("logcumsumexp", x, dim=dim)


def test_edges_so_far() -> None:
    x = np.asarray([-np.inf, -np.inf, 1.0, 3.0, np.inf, 2.0, np.nan, 5.0], np.float32)
    for name in ("cummax", "cummin", "logcumsumexp"):
        judge(name, x[:6], dim=0)
        judge(name, x, dim=0)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@given(st.lists(WHOLE, min_size=1, max_size=4), WHOLE, st.sampled_from(INTEGERS))
def test_bits(name: str, numbers: list[int], other: int, dtype: str) -> None:
    x, y = (np.asarray(item, np.int64).astype(dtype) for item in (numbers, [[other], [-1], [0]]))
    judge(name, x, y)
    judge("bitwise_not", x)


@given(shapes(1, 3), st.data())
def test_bounds_that_are_tensors(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, NUMBERS))
    low, high = (
        data.draw(arrays(shape[data.draw(st.integers(0, len(shape))) :], (x.dtype.name,))) for _ in "xy"
    )
    agree("clamp", [x, low, high], {}, torch.clamp(*map(tensor_of, (x, low, high))))
    agree("clamp_min", [x, low], {}, torch.clamp_min(*map(tensor_of, (x, low))))
    agree("clamp_max", [x, high], {}, torch.clamp_max(*map(tensor_of, (x, high))))


@judged("torch", "aten.index_add", "aten.index_copy", "aten.index_fill")
@given(shapes(1, 3, 1, 5), st.data())
def test_slices_at_places(shape: Shape, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    x = data.draw(arrays(shape, NUMBERS))
    places = np.asarray(data.draw(st.permutations(range(shape[dim])))[: data.draw(st.integers(1, 3))])
    size = list(shape)
    size[dim] = len(places)
    source = data.draw(arrays(tuple(size), (x.dtype.name,)))
    given_ = tensor_of(x), dim, tensor_of(places)
    agree("index_copy", [x, places, source], {"dim": dim}, torch.index_copy(*given_, tensor_of(source)))
    agree("index_fill", [x, places, np.asarray(2, x.dtype)], {"dim": dim}, torch.index_fill(*given_, 2))
    again = np.zeros_like(places)
    expected = torch.index_add(tensor_of(x), dim, tensor_of(again), tensor_of(source), alpha=2)
    alpha: Given = 2.0 if x.dtype.kind == "f" else 2
    agree("index_add", [x, again, source], {"dim": dim, "alpha": alpha}, expected)


@judged("torch", "aten.unfold")
@given(shapes(1, 3, 1, 5), st.integers(1, 3), st.data())
def test_unfold(shape: Shape, step: int, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    size = data.draw(st.integers(0, shape[dim]))
    judge("unfold", data.draw(arrays(shape, ANY)), dimension=dim, size=size, step=step)


@judged("torch", "aten.bucketize", "aten.searchsorted")
@given(shapes(1, 3, 1, 4), st.integers(0, 5), st.booleans(), st.data())
def test_buckets(shape: Shape, count: int, right: bool, data: Data) -> None:
    x = data.draw(arrays(shape, NUMBERS, -3, 3))
    bounds = np.sort(data.draw(arrays((*shape[:-1], count), (x.dtype.name,), -3, 3)), -1)
    row = bounds.reshape(-1)[:count]
    given_: dict[str, Given] = {"right": right}
    agree("bucketize", [x, row], given_, torch.bucketize(tensor_of(x), tensor_of(row), right=right))
    for sequence in (row, bounds):
        expected = torch.searchsorted(tensor_of(sequence), tensor_of(x), right=right)
        agree("searchsorted", [sequence, x], given_, expected)


@judged("torch", "aten.diff", "aten.histc")
@given(shapes(1, 3, 1, 5), st.integers(1, 5), st.data())
def test_differences_and_counts(shape: Shape, bins: int, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    x = data.draw(arrays(shape, NUMBERS))
    agree("diff", [x], {"dim": dim}, torch.diff(tensor_of(x), dim=dim))
    if x.dtype.kind == "f":
        judge("histc", x, bins=bins, min=-2.0, max=6.0)


@judged("torch", "aten.median_dim")
@given(shapes(1, 3, 1, 6), st.booleans(), st.booleans(), st.data())
def test_the_middle(shape: Shape, keepdim: bool, broken: bool, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    numbers = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(int(np.prod(shape)))
    x = numbers.reshape(shape).astype(data.draw(st.sampled_from(("float32", "float64"))))
    if broken:
        x[x > 0.8 * x.max()] = np.nan
    expected = torch.median(tensor_of(x), dim=dim, keepdim=keepdim)
    agree("median_dim", [x], {"dim": dim, "keepdim": keepdim}, tuple(expected))


@judged("torch", "aten.embedding_bag")
@given(st.integers(0, 99), st.sampled_from((0, 1, 2)), st.booleans(), st.sampled_from((-1, 2)))
def test_bags(seed: int, mode: int, last: bool, padding: int) -> None:
    random = np.random.default_rng(seed)
    weight = random.normal(size=(5, 3)).astype(np.float32)
    indices = random.integers(0, 5, 12)
    offsets = np.sort(np.concatenate([[0], random.integers(0, 13, 4)]))
    if last:
        offsets[-1] = len(indices)
    scales = random.normal(size=12).astype(np.float32) if mode == 0 and seed % 2 else None
    given_: list[Array] = [weight, indices, offsets, *([] if scales is None else [scales])]
    tensors = [tensor_of(item) for item in given_]
    found = torch.ops.aten._embedding_bag(
        *tensors[:3], False, mode, False, None if scales is None else tensors[3], last, padding
    )[0]
    words: dict[str, Given] = {"mode": mode, "include_last_offset": last, "padding_idx": padding}
    agree("embedding_bag", given_, words, found[: len(offsets) - last])
