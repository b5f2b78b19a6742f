"""The operators of `algo`, judged by onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import FLOATS, arrays, axis_of, filled, shapes
from tests.support.judges.harness import refuse, run, same
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import Given, Refusal, judged

Data = st.DataObject

REFUSALS = (
    Refusal("algo.top_k", "'axis' must lie in [-2, 2)", ((2, 3),), {"k": 1, "axis": 2}),
    Refusal("algo.top_k", "'axis' must lie in", ((2, 3),), {"k": 1, "axis": -3}),
    Refusal("algo.top_k", "'k' must select at least one item", ((2, 3),), {"k": 0}),
    Refusal(
        "algo.nonmax_suppress", "'box_format' must be one of", ((1, 2, 4), (1, 1, 2)), {"box_format": "YXYX"}
    ),
    Refusal("algo.nonmax_suppress", "must lie in [0, 1]", ((1, 2, 4), (1, 1, 2)), {"iou_threshold": 1.5}),
    Refusal(
        "algo.nonmax_suppress",
        "'max_outputs_per_class' must not be negative",
        ((1, 2, 4), (1, 1, 2)),
        {"max_outputs_per_class": -1},
    ),
)


@judged("onnxruntime", "algo.top_k")
@given(shapes(1, 4, 1, 5), st.integers(1, 6), st.booleans(), st.data())
def test_top_k(shape: tuple[int, ...], k: int, largest: bool, data: Data) -> None:
    array = data.draw(arrays(shape, FLOATS[:2], -1, 1))
    axis = data.draw(axis_of(len(shape)))
    found = run("algo.top_k", (array,), {"k": k, "axis": axis, "largest": largest})
    count = np.array([min(k, shape[axis])])
    expected = run_node("TopK", (array, count), 2, axis=axis, largest=int(largest))
    for actual, wanted in zip(found, expected, strict=True):
        assert isinstance(actual, np.ndarray)
        same(actual, wanted)


@judged("numpy", "algo.top_k")
@given(shapes(1, 3, 1, 5), st.integers(1, 6), st.data())
def test_top_k_of_narrow_floats_in_any_order(shape: tuple[int, ...], k: int, data: Data) -> None:
    array = data.draw(arrays(shape, ("float16",)))
    values, indices = run("algo.top_k", (array,), {"k": k, "sorted": False})
    assert isinstance(values, np.ndarray)
    assert isinstance(indices, np.ndarray)
    same(values, np.take_along_axis(array, indices, 0))
    same(np.sort(values, axis=0), np.sort(array, axis=0)[-min(k, shape[0]) :])


@judged("onnxruntime", "algo.nonmax_suppress")
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 12)),
    st.sampled_from(("CORNERS", "CENTER")),
    st.integers(0, 99),
    st.data(),
)
def test_nonmax_suppress(sizes: tuple[int, int, int], box_format: str, seed: int, data: Data) -> None:
    batch, classes, count = sizes
    boxes = filled((batch, count, 4), "float32", seed, 0, 4)
    scores = np.random.default_rng(seed).permutation(batch * classes * count).reshape(batch, classes, count)
    most, overlap = data.draw(st.integers(0, count)), data.draw(st.sampled_from((0.0, 0.125, 0.3, 0.6, 1.0)))
    least = data.draw(st.one_of(st.none(), st.integers(0, 20).map(float)))
    attributes: dict[str, Given] = {
        "box_format": box_format,
        "max_outputs_per_class": most,
        "iou_threshold": overlap,
    }
    ranks = scores.astype(np.float32)
    if least is not None:
        attributes["score_threshold"] = least
    (found,) = run("algo.nonmax_suppress", (boxes, ranks), attributes)
    optional = () if least is None else (np.array([least], np.float32),)
    given_ = (boxes, ranks, np.array([most]), np.array([overlap], np.float32), *optional)
    (expected,) = run_node("NonMaxSuppression", given_, center_point_box=int(box_format == "CENTER"))
    assert isinstance(found, np.ndarray)
    same(found, expected)


def test_nonmax_suppress_keeps_all_by_default() -> None:
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 1, 1]]], np.float32)
    (found,) = run("algo.nonmax_suppress", (boxes, np.array([[[0.5, 0.25, 0.75]]], np.float32)))
    assert isinstance(found, np.ndarray)
    same(found, np.array([[0, 0, 2], [0, 0, 1]]))


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)


# --- different elements and counts --------------------------------------------------------------------------


def _see(found: tuple[object, ...], wanted: tuple[object, ...]) -> None:
    for actual, expected in zip(found, wanted, strict=True):
        assert isinstance(actual, np.ndarray)
        same(actual, np.asarray(expected, actual.dtype))


@judged("numpy", "algo.unique", "algo.unique_runs")
@given(shapes(1, 3, 0, 4), st.data())
def test_unique(shape: tuple[int, ...], data: Data) -> None:
    array = np.round(data.draw(arrays(shape, FLOATS[:2], -2, 2)))
    array += 0.0  # one zero
    values, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    _see(tuple(run("algo.unique", (array,), {})), (values, inverse.reshape(shape), counts))
    flat = array.ravel()
    begins = np.flatnonzero(np.r_[True, flat[1:] != flat[:-1]][: flat.size])
    lengths = np.diff(np.r_[begins, flat.size])
    numbers = np.repeat(np.arange(begins.size), lengths).reshape(shape)
    _see(tuple(run("algo.unique_runs", (array,), {})), (flat[begins], numbers, lengths))


@judged("numpy", "algo.unique_rows", "algo.sort_rows")
@given(st.integers(0, 6), st.integers(1, 3), st.data())
def test_unique_rows(rows: int, columns: int, data: Data) -> None:
    array = np.round(data.draw(arrays((rows, columns), FLOATS[:2], -1, 1))) + np.float32(0)
    found = np.unique(array, axis=0, return_inverse=True, return_counts=True)
    _see(tuple(run("algo.unique_rows", (array,), {})), (found[0], found[1].reshape(-1), found[2]))
    order = sorted(range(rows), key=lambda row: tuple(array[row]))
    _see(tuple(run("algo.sort_rows", (array,), {})), (order,))


@judged("numpy", "algo.bincount")
@given(st.lists(st.integers(0, 5), max_size=9), st.integers(6, 8), st.data())
def test_bincount(numbers: list[int], room: int, data: Data) -> None:
    places = np.array(numbers, np.int64)
    weights = data.draw(arrays((places.size,), ("float32", "int64"), -9, 9))
    found = run("algo.bincount", (places, weights, np.arange(room)), {})
    wanted = np.zeros(room, weights.dtype)
    np.add.at(wanted, places, weights)
    _see(tuple(found), (wanted,))
