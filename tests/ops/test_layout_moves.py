"""The operators of `layout` that move elements by blocks or by positions, judged by NumPy and onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import ANY, Array, arrays, axis_of, filled, shapes
from tests.support.judges.harness import one, same
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import judged

Data = st.DataObject
ONNX_TYPES = ("float32", "float64", "int64")


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    extents = list(shape)
    extents[axis] = size
    return tuple(extents)


@judged("numpy", "layout.shuffle")
@given(shapes(least=1), st.integers(1, 4), st.data())
def test_shuffle(shape: tuple[int, ...], groups: int, data: Data) -> None:
    axis = data.draw(axis_of(len(shape)))
    shape = _with(shape, axis, groups * shape[axis])
    array = data.draw(arrays(shape, ANY))
    start = axis % len(shape)
    grouped = array.reshape(*shape[:start], groups, shape[start] // groups, *shape[start + 1 :])
    same(
        one("layout.shuffle", array, axis=axis, groups=groups),
        np.swapaxes(grouped, start, start + 1).reshape(shape),
    )


@judged("numpy", "layout.dynamic_range")
@given(st.integers(0, 9))
def test_dynamic_range(count: int) -> None:
    same(one("layout.dynamic_range", np.asarray(count), limit=9), np.arange(count))


@judged("numpy", "layout.nonzero", "newer/layout.nonzero")
@given(shapes(least=1), st.booleans(), st.data())
def test_nonzero(shape: tuple[int, ...], newer: bool, data: Data) -> None:
    array = data.draw(arrays(shape, ("float32", "int64", "bool"), -1, 1))
    expected = np.stack(np.nonzero(array)).astype(np.int64)
    same(one("newer/layout.nonzero" if newer else "layout.nonzero", array), expected)


@st.composite
def blocked(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """Spatial extents counted in blocks, the sizes of the blocks, batch and channels."""
    blocks = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    space = draw(st.lists(st.integers(0, 3), min_size=len(blocks), max_size=len(blocks)))
    return tuple(space), tuple(blocks), draw(st.integers(0, 2)), draw(st.integers(1, 3))


def _interleave(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(item for pair in zip(first, second, strict=True) for item in pair)


def _times(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a * b for a, b in zip(left, right, strict=True))


@judged("numpy", "layout.space_to_batch", "layout.batch_to_space")
@given(blocked(), st.data())
def test_space_to_batch_cuts_runs(
    case: tuple[tuple[int, ...], tuple[int, ...], int, int], data: Data
) -> None:
    space, blocks, batch, channels = case
    rank, volume = len(blocks), int(np.prod(blocks))
    array = data.draw(arrays((batch, channels, *_times(space, blocks)), ANY))
    parts = array.reshape(batch, channels, *_interleave(blocks, space))
    order = (*range(2, 2 * rank + 2, 2), 0, 1, *range(3, 2 * rank + 2, 2))
    moved = parts.transpose(order).reshape(volume * batch, channels, *space)
    same(one("layout.space_to_batch", array, block_size=blocks), moved)
    same(one("layout.batch_to_space", moved, block_size=blocks), array)


@judged("numpy", "newer/layout.space_to_batch", "newer/layout.batch_to_space")
@given(blocked(), st.booleans(), st.booleans(), st.data())
def test_newer_space_to_batch_deals_elements_out(
    case: tuple[tuple[int, ...], tuple[int, ...], int, int], first: bool, last: bool, data: Data
) -> None:
    space, blocks, batch, channels = case
    rank, volume = len(blocks), int(np.prod(blocks))
    array = data.draw(arrays((batch, channels, *_times(space, blocks)), ANY))
    parts = array.reshape(batch, channels, *_interleave(space, blocks))
    inner = tuple(range(3, 2 * rank + 3, 2))
    order = (*((*inner, 0) if first else (0, *inner)), 1, *range(2, 2 * rank + 2, 2))
    moved = parts.transpose(order).reshape(batch * volume, channels, *space)
    if last:
        array, moved = np.moveaxis(array, 1, -1), np.moveaxis(moved, 1, -1)
    how = {"blocks_first": first, "data_format": "NXC" if last else "NCX"}
    same(one("newer/layout.space_to_batch", array, block_size=blocks, **how), moved)
    same(one("newer/layout.batch_to_space", moved, block_size=blocks, **how), array)


@judged("onnxruntime", "layout.space_to_depth", "layout.depth_to_space")
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.booleans(), st.booleans(), st.data())
def test_depth_and_space(block: int, channels: int, size: int, first: bool, last: bool, data: Data) -> None:
    deep = data.draw(arrays((2, channels * block * block, size, size + 1), ("float32",)))
    mode = "DCR" if first else "CRD"
    (wide,) = run_node("DepthToSpace", [deep], blocksize=block, mode=mode)
    if last:
        deep, wide = np.moveaxis(deep, 1, -1), np.moveaxis(wide, 1, -1)
    how = {"blocks_first": first, "data_format": "NXC" if last else "NCX"}
    same(one("layout.depth_to_space", deep, block_size=(block, block), **how), wide)
    same(one("layout.space_to_depth", wide, block_size=(block, block), **how), deep)


@judged("numpy", "layout.space_to_depth", "layout.depth_to_space")
@given(blocked(), st.booleans(), st.data())
def test_depth_and_space_of_any_rank(
    case: tuple[tuple[int, ...], tuple[int, ...], int, int], first: bool, data: Data
) -> None:
    space, blocks, batch, channels = case
    rank, volume = len(blocks), int(np.prod(blocks))
    array = data.draw(arrays((batch, channels, *_times(space, blocks)), ANY))
    parts = array.reshape(batch, channels, *_interleave(space, blocks))
    inner = tuple(range(3, 2 * rank + 3, 2))
    order = (0, *((*inner, 1) if first else (1, *inner)), *range(2, 2 * rank + 2, 2))
    deep = parts.transpose(order).reshape(batch, channels * volume, *space)
    same(one("layout.space_to_depth", array, block_size=blocks, blocks_first=first), deep)
    same(one("layout.depth_to_space", deep, block_size=blocks, blocks_first=first), array)


def _positions(seed: int, shape: tuple[int, ...], extent: int) -> Array:
    return np.random.default_rng(seed).integers(0, max(extent, 1), shape)


@judged("onnxruntime", "layout.gather")
@judged("numpy", "layout.gather")
@given(shapes(least=1, most=4, smallest=1), shapes(most=3), st.integers(0, 999), st.data())
def test_gather(shape: tuple[int, ...], places: tuple[int, ...], seed: int, data: Data) -> None:
    axis = data.draw(axis_of(len(shape)))
    array = data.draw(arrays(shape, ANY))
    index = _positions(seed, places, shape[axis])
    found = one("layout.gather", array, index, axis=axis)
    same(found, np.take(array, index, axis))
    if array.dtype.name in ONNX_TYPES:
        same(found, run_node("Gather", [array, index], axis=axis)[0])


@judged("onnxruntime", "layout.gather_nd", "layout.scatter_nd")
@given(st.integers(0, 999), st.data())
def test_gather_nd_and_scatter_nd(seed: int, data: Data) -> None:
    batch = data.draw(shapes(most=1, smallest=1, largest=3))
    picked = data.draw(shapes(least=1, most=2, smallest=1))
    rest, places = data.draw(shapes(most=2, smallest=1)), data.draw(shapes(least=1, most=2, smallest=1))
    array = data.draw(arrays((*batch, *picked, *rest), ONNX_TYPES))
    index = np.stack([_positions(seed + n, (*batch, *places), extent) for n, extent in enumerate(picked)], -1)
    found = one("layout.gather_nd", array, index, batch_dims=len(batch))
    same(found, run_node("GatherND", [array, index], batch_dims=len(batch))[0])
    if not batch:
        updates = data.draw(arrays(found.shape, (array.dtype.name,)))
        expected = run_node("ScatterND", [array, index, updates])[0]
        same(one("layout.scatter_nd", array, index, updates), expected)


@judged("numpy", "layout.scatter_nd")
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 5), st.integers(0, 999))
def test_scatter_nd_of_a_batch(batch: int, extent: int, count: int, seed: int) -> None:
    array, updates = (
        filled((batch, extent, 2), "float32", seed),
        filled((batch, count, 2), "float32", seed + 1),
    )
    index = _positions(seed, (batch, count, 1), extent)
    expected = array.copy()
    for item in range(batch):
        for place in range(count):
            expected[item, index[item, place, 0]] = updates[item, place]
    same(one("layout.scatter_nd", array, index, updates, batch_dims=1), expected)


@judged("onnxruntime", "layout.scatter")
@given(shapes(least=1, most=4, smallest=1), st.integers(1, 5), st.integers(0, 999), st.data())
def test_scatter(shape: tuple[int, ...], count: int, seed: int, data: Data) -> None:
    axis = data.draw(axis_of(len(shape)))
    array = data.draw(arrays(shape, ONNX_TYPES))
    updates = data.draw(arrays(_with(shape, axis, count), (array.dtype.name,)))
    index = _positions(seed, updates.shape, shape[axis])
    expected = run_node("ScatterElements", [array, index, updates], axis=axis)[0]
    same(one("layout.scatter", array, index, updates, axis=axis), expected)


@judged("numpy", "layout.gather")
@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_no_positions_gather_nothing(shape: tuple[int, ...]) -> None:
    found = one("layout.gather", filled((3, 2), "float32", 0), np.zeros(shape, np.int64), axis=0)
    same(found, np.zeros((*shape, 2), np.float32))
