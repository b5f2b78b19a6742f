"""The operators of `aten` that say where elements stand, judged by torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import ANY, arrays, axes_of, axis_of, shapes
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Shape = tuple[int, ...]


@judged("torch", "aten.as_strided")
@given(shapes(0, 3, 0, 3), st.lists(st.integers(0, 3), min_size=3, max_size=3), st.integers(0, 4), st.data())
def test_as_strided(size: Shape, strides: list[int], offset: int, data: Data) -> None:
    stride = tuple(strides[: len(size)])
    last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True) if extent)
    x = data.draw(arrays((last + 1, 2), ANY))
    judge("as_strided", x, size=size, stride=stride, storage_offset=offset)


@judged("torch", "aten.nonzero", "aten.masked_select")
@given(shapes(0, 3, 0, 4), st.data())
def test_selections(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ANY, -1, 1))
    judge("nonzero", x)
    judge("masked_select", x, data.draw(arrays(shape, ("bool",))))


@judged("torch", "aten.diagonal")
@given(shapes(2, 4), st.integers(-4, 4), st.data())
def test_diagonal(shape: Shape, offset: int, data: Data) -> None:
    first, second = data.draw(axes_of(len(shape), least=2))[:2]
    x = data.draw(arrays(shape, ANY))
    expected = torch.diagonal(tensor_of(x), offset, first, second)
    agree("diagonal", [x], {"offset": offset, "dim1": first, "dim2": second}, expected)


@judged(
    "torch",
    "aten.empty",
    "aten.empty_permuted",
    "aten.empty_strided",
    "aten.new_empty",
    "aten.new_full",
    "aten.eye",
)
@given(shapes(0, 3), st.integers(0, 4), st.integers(0, 4), st.data())
def test_made(shape: Shape, rows: int, columns: int, data: Data) -> None:
    agree("empty", [], {"size": shape}, torch.zeros(shape), ("f32",))
    agree("empty_strided", [], {"size": shape, "stride": shape}, torch.zeros(shape), ("f32",))
    order = tuple(range(len(shape)))
    agree("empty_permuted", [], {"size": shape, "physical_layout": order}, torch.zeros(shape), ("f32",))
    x = data.draw(arrays(shape, ANY))
    agree("new_empty", [x], {"size": (rows, columns)}, torch.zeros(rows, columns, dtype=tensor_of(x).dtype))
    value = np.asarray(1, x.dtype)
    expected = tensor_of(x).new_full((rows, columns), 1)
    agree("new_full", [x, value], {"size": (rows, columns)}, expected)
    agree("eye", [], {"n": rows, "m": columns}, torch.eye(rows, columns), ("f32",))
    agree("eye", [], {"n": rows}, torch.eye(rows, dtype=torch.bool), ("bool",))


@judged("torch", "aten.linspace")
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 9))
def test_linspace(start: int, end: int, steps: int) -> None:
    expected = torch.linspace(start / 2, end / 2, steps)
    agree("linspace", [], {"start": start / 2, "end": end / 2, "steps": steps}, expected)


@judged("torch", "aten.index_put")
@given(shapes(1, 4, 1), shapes(0, 2, 1, 3), st.booleans(), st.data())
def test_index_put(shape: Shape, places: Shape, accumulate: bool, data: Data) -> None:
    dtype = data.draw(st.sampled_from(ANY[:2] if accumulate else ANY[:-1]))
    x = data.draw(arrays(shape, (dtype,)))
    dims = sorted(axis % len(shape) for axis in data.draw(axes_of(len(shape), least=1)))
    given_ = [data.draw(arrays(places, ("int64",), -shape[dim], shape[dim] - 1)) for dim in dims]
    found = dict(zip(dims, given_, strict=True))
    indices = [tensor_of(found[dim]) if dim in found else None for dim in range(len(shape))]
    picked = tuple(torch.ops.aten.index(tensor_of(x), indices).shape)
    one_value = not accumulate
    kept = tuple(1 if one_value or data.draw(st.booleans()) else extent for extent in picked)
    values = data.draw(arrays(kept[data.draw(st.integers(0, len(kept))) :], (dtype,)))
    expected = torch.ops.aten.index_put(tensor_of(x), indices, tensor_of(values), accumulate)
    agree("index_put", [x, tuple(given_), values], {"dims": tuple(dims), "accumulate": accumulate}, expected)


@given(shapes(2, 3, 3, 5), st.data())
def test_index_put_of_rows(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape))
    rows = np.asarray(data.draw(st.permutations(range(shape[0])))[:2])
    values = data.draw(arrays((2, *shape[1:]), (x.dtype.name,)))
    expected = torch.ops.aten.index_put(tensor_of(x), [tensor_of(rows)], tensor_of(values))
    agree("index_put", [x, (rows,), values], {"dims": (0,)}, expected)


@judged("torch", "aten.masked_scatter")
@given(shapes(0, 3), st.data())
def test_masked_scatter(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ANY))
    kept = data.draw(st.integers(0, len(shape)))
    mask = data.draw(arrays(shape[kept:], ("bool",)))
    source = data.draw(arrays((max(x.size, 1),), (x.dtype.name,)))
    judge("masked_scatter", x, mask, source)


@judged("torch", "aten.scatter_value", "aten.scatter_reduce")
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@given(shapes(1, 3, 1), st.booleans(), st.data())
def test_scatter(reduce: str, shape: Shape, include_self: bool, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    x = data.draw(arrays(shape, ("float32", "float64", "int64"), -3, 3))
    some = tuple(data.draw(st.integers(1, extent)) for extent in shape)
    index = data.draw(arrays(some, ("int64",), 0, shape[dim] - 1))
    source = data.draw(arrays(shape, (x.dtype.name,), -3, 3))
    expected = torch.scatter_reduce(
        tensor_of(x), dim, tensor_of(index), tensor_of(source), reduce, include_self=include_self
    )
    given_: dict[str, Given] = {"dim": dim, "reduce": reduce, "include_self": include_self}
    agree("scatter_reduce", [x, index, source], given_, expected)
    value = np.asarray(2, x.dtype)
    agree(
        "scatter_value",
        [x, index, value],
        {"dim": dim},
        torch.scatter(tensor_of(x), dim, tensor_of(index), 2),
    )
