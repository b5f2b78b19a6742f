"""The operators of `math` that reduce tensors, judged by NumPy and onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import FLOATS, Array, arrays, axes_of, axis_of, shapes
from tests.support.judges.harness import near, one, pack, run, same
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Function = Callable[..., Array]
NUMBERS = (*FLOATS, "int64", "int32", "uint8")

SEVERAL: MappingProxyType[str, Function] = MappingProxyType(
    {
        "math.sum_n": np.sum,
        "math.prod_n": np.prod,
        "math.min_n": np.min,
        "math.max_n": np.max,
        "math.argmin_n": np.argmin,
        "math.argmax_n": np.argmax,
    }
)


@judged("numpy", *SEVERAL)
@pytest.mark.parametrize("operator", SEVERAL)
@given(shapes(), st.integers(1, 4), st.data())
def test_several_tensors(operator: str, shape: tuple[int, ...], count: int, data: Data) -> None:
    dtype = data.draw(st.sampled_from(NUMBERS))
    items = tuple(data.draw(arrays(shape, (dtype,), -3, 3)) for _ in range(count))
    found = one(operator, items)
    exact = np.float64 if dtype.startswith("float") else np.int64
    expected = SEVERAL[operator](np.stack(items).astype(exact), axis=0)
    near(found, np.asarray(expected).astype(np.int64 if "arg" in operator else dtype))


@judged("numpy", "math.any_n", "math.all_n")
@given(shapes(), st.integers(1, 4), st.data())
def test_several_truths(shape: tuple[int, ...], count: int, data: Data) -> None:
    items = tuple(data.draw(arrays(shape, ("bool",))) for _ in range(count))
    same(one("math.any_n", items), np.asarray(np.any(np.stack(items), axis=0)))
    same(one("math.all_n", items), np.asarray(np.all(np.stack(items), axis=0)))


def _extreme(dtype: str, largest: bool) -> float | int:
    if dtype.startswith("float"):
        return np.inf if largest else -np.inf
    bounds = np.iinfo(dtype)
    return int(bounds.max if largest else bounds.min)


REDUCTIONS: MappingProxyType[str, Function] = MappingProxyType(
    {
        "math.min_reduce": np.min,
        "math.max_reduce": np.max,
        "math.sum_reduce": np.sum,
        "math.prod_reduce": np.prod,
    }
)


@judged("numpy", *REDUCTIONS)
@pytest.mark.parametrize("operator", REDUCTIONS)
@given(shapes(largest=3), st.booleans(), st.data())
def test_reductions(operator: str, shape: tuple[int, ...], squeeze: bool, data: Data) -> None:
    array = data.draw(arrays(shape, ("float32", "float64", "int64", "int32"), -2, 2))
    axes = data.draw(axes_of(len(shape)))
    wide = array.astype(np.float64) if array.dtype.kind == "f" else array
    if operator in ("math.min_reduce", "math.max_reduce"):
        start = {"initial": _extreme(array.dtype.name, operator == "math.min_reduce")}
    else:
        start = {}
    expected = REDUCTIONS[operator](wide, axis=axes, keepdims=not squeeze, **start)
    near(one(operator, array, axes=axes, squeeze=squeeze), np.asarray(expected).astype(array.dtype))


@judged("numpy", *REDUCTIONS)
def test_all_dimensions_are_reduced_unless_said_otherwise() -> None:
    array = np.asarray([[1, 2, 3], [4, 5, -6]], np.float32)
    for operator, expected in zip(REDUCTIONS, (-6, 5, 9, -720), strict=True):
        same(one(operator, array), np.full((1, 1), expected, np.float32))
        same(one(operator, array, squeeze=True), np.asarray(expected, np.float32))


@judged("numpy", "math.any_reduce", "math.all_reduce")
@given(shapes(), st.booleans(), st.data())
def test_truth_reductions(shape: tuple[int, ...], squeeze: bool, data: Data) -> None:
    array = data.draw(arrays(shape, ("bool",)))
    axes = data.draw(axes_of(len(shape)))
    for operator, function in (("math.any_reduce", np.any), ("math.all_reduce", np.all)):
        expected = np.asarray(function(array, axis=axes, keepdims=not squeeze))
        same(one(operator, array, axes=axes, squeeze=squeeze), expected)


@judged("numpy", "math.mean_reduce", "math.moments")
@given(shapes(), st.booleans(), st.sampled_from(["f32", "f64"]), st.data())
def test_moments(shape: tuple[int, ...], squeeze: bool, compute: str, data: Data) -> None:
    array = data.draw(arrays(shape, ("float32",)))
    axes = data.draw(axes_of(len(shape)))
    wide = array.astype(np.float64)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.asarray(np.mean(wide, axis=axes, keepdims=not squeeze))
        variance = np.asarray(np.var(wide, axis=axes, keepdims=not squeeze))
    attributes: dict[str, Given] = {"axes": axes, "squeeze": squeeze}
    (found,) = run("math.mean_reduce", (array,), attributes, compute=compute)
    first, second = run("math.moments", (array,), attributes, compute=compute)
    dtype = np.float64 if compute == "f64" else np.float32
    for actual, expected in ((found, mean), (first, mean), (second, variance)):
        assert isinstance(actual, np.ndarray)
        near(actual, expected.astype(dtype))


@judged("numpy", "math.lp_reduce")
@given(shapes(), st.booleans(), st.sampled_from([0.5, 1.0, 2.0, 3.0]), st.data())
def test_lp_reduce(shape: tuple[int, ...], squeeze: bool, p: float, data: Data) -> None:
    array = data.draw(arrays(shape, ("float32", "float64")))
    axes = data.draw(axes_of(len(shape)))
    powers = np.abs(array.astype(np.float64)) ** p
    expected = np.asarray(np.sum(powers, axis=axes, keepdims=not squeeze)) ** (1 / p)
    near(one("math.lp_reduce", array, axes=axes, squeeze=squeeze, p=p), np.asarray(expected, array.dtype))


@judged("onnxruntime", "math.argmin", "math.argmax")
@given(shapes(least=1, smallest=1), st.booleans(), st.data())
def test_argmin_and_argmax(shape: tuple[int, ...], squeeze: bool, data: Data) -> None:
    array = data.draw(arrays(shape, ("float32", "float64"), -1, 1))
    axis = data.draw(axis_of(len(shape)))
    for operator, node in (("math.argmin", "ArgMin"), ("math.argmax", "ArgMax")):
        (expected,) = run_node(node, [array], axis=axis, keepdims=int(not squeeze))
        same(one(operator, array, axis=axis, squeeze=squeeze), expected)


@judged("numpy", "math.argmin", "math.argmax")
def test_rows_that_do_not_exist_have_no_extremes() -> None:
    found = one("math.argmax", np.zeros((0, 3), np.float32), axis=1)
    same(found, np.zeros((0, 1), np.int64))


@judged("numpy", "math.argmin", "math.argmax")
def test_the_extremes_of_many_rows() -> None:
    """Beyond the 8192 elements that NumPy buffers."""
    array = np.random.default_rng(0).uniform(-1, 1, (10_000, 3)).astype(np.float32)
    same(one("math.argmax", array, axis=1), array.argmax(1, keepdims=True))
    same(one("math.argmin", array, axis=1), array.argmin(1, keepdims=True))


def _positions(function: Function, array: Array, axes: tuple[int, ...]) -> list[Array]:
    """For each of the axes where the first extreme element in row-major order stands; kept dimensions are 1."""
    inner = sorted(axis % array.ndim for axis in axes)
    moved = np.moveaxis(array, inner, range(-len(inner), 0))
    flat = moved.reshape(*moved.shape[: array.ndim - len(inner)], -1)
    places = np.unravel_index(function(flat, axis=-1), [array.shape[axis] for axis in inner])
    return [np.expand_dims(places[inner.index(axis % array.ndim)], inner) for axis in axes]


@judged("numpy", "math.argmin_nd", "math.argmax_nd", "newer/math.argmin_nd", "newer/math.argmax_nd")
@pytest.mark.parametrize(("name", "function"), [("argmin_nd", np.argmin), ("argmax_nd", np.argmax)])
@given(shapes(least=1, most=4, smallest=1, largest=3), st.booleans(), st.data())
def test_positions_of_extremes(
    name: str, function: Function, shape: tuple[int, ...], squeeze: bool, data: Data
) -> None:
    array = data.draw(arrays(shape, ("float32",), -1, 1))
    axes = data.draw(axes_of(len(shape), 1))
    expected = [np.asarray(item, np.int64) for item in _positions(function, array, axes)]
    if squeeze:
        expected = [np.squeeze(item, axes) for item in expected]
    for actual, item in zip(pack(f"math.{name}", array, axes=axes, squeeze=squeeze), expected, strict=True):
        same(actual, item)
    same(one(f"newer/math.{name}", array, axes=axes, squeeze=squeeze), np.stack(expected, -1))


@judged("onnxruntime", "math.cumsum")
@given(shapes(least=1, smallest=1), st.booleans(), st.booleans(), st.data())
def test_cumsum(shape: tuple[int, ...], exclusive: bool, reverse: bool, data: Data) -> None:
    array = data.draw(arrays(shape, ("float32", "float64")))
    axis = data.draw(axis_of(len(shape)))
    (expected,) = run_node(
        "CumSum", [array, np.asarray(axis)], exclusive=int(exclusive), reverse=int(reverse)
    )
    near(one("math.cumsum", array, axis=axis, exclusive=exclusive, reverse=reverse), expected)


@judged("numpy", "math.cumsum")
def test_cumsum_keeps_what_is_not_finite_in_its_place() -> None:
    array = np.asarray([1, 2, np.inf, 3], np.float32)
    same(one("math.cumsum", array, axis=0), np.cumsum(array))
    same(one("math.cumsum", np.zeros((2, 0), np.float32), axis=1), np.zeros((2, 0), np.float32))
