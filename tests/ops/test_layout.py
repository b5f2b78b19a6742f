"""The operators of `layout`, judged by NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.judges.draws import ANY, Array, arrays, axes_of, axis_of, filled, shapes
from tests.support.judges.harness import one, pack, run, same
from tests.support.judges.registry import Given, judged

Data = st.DataObject


@judged("numpy", "layout.constant", "layout.tensor")
@given(shapes(), st.sampled_from(["layout.constant", "layout.tensor"]), st.data())
def test_constant_holds_its_values(shape: tuple[int, ...], operator: str, data: Data) -> None:
    array = data.draw(arrays(shape, ("float32", "int64", "bool")))
    types = ({"f": "real", "i": "int", "b": "bool"}[array.dtype.kind],)
    attributes: dict[str, Given] = {"shape": shape, "value": tuple(array.reshape(-1).tolist())}
    (found,) = run(operator, (), attributes, types)
    assert isinstance(found, np.ndarray)
    same(found, array)


@judged("numpy", "layout.constant", "layout.tensor")
@pytest.mark.parametrize("operator", ["layout.constant", "layout.tensor"])
def test_one_value_fills_a_constant(operator: str) -> None:
    same(one(operator, shape=(2, 3), value=1.5), np.full((2, 3), 1.5, np.float32))


@judged("numpy", "layout.tensor")
def test_a_tensor_is_of_rank_0_unless_said_otherwise() -> None:
    same(one("layout.tensor", value=7), np.asarray(7, np.int64))


@judged("numpy", "layout.uniform")
@given(shapes(), st.data())
def test_uniform(shape: tuple[int, ...], data: Data) -> None:
    value = data.draw(arrays((), ANY))
    same(one("layout.uniform", value, shape=shape), np.full(shape, value))


@judged("numpy", "layout.range")
@given(st.integers(-9, 9), st.integers(0, 9), st.integers(-4, 4), st.booleans())
def test_range(first: int, length: int, stride: int, real: bool) -> None:
    assume(stride != 0)
    last = first + length if stride > 0 else first - length
    if not real:
        same(one("layout.range", first=first, last=last, stride=stride), np.arange(first, last, stride))
        return
    found = one("layout.range", first=first / 4, last=last / 4, stride=stride / 4)
    same(found, np.arange(first / 4, last / 4, stride / 4).astype(np.float32))


@judged("numpy", "layout.shape")
@given(shapes(), st.data())
def test_shape(shape: tuple[int, ...], data: Data) -> None:
    same(one("layout.shape", data.draw(arrays(shape, ANY))), np.asarray(shape, np.int64))


CASTS = {"real": "float32", "int": "int64", "bool": "bool", "i8": "int8", "f16": "float16", "f64": "float64"}


@judged("numpy", "layout.cast")
@given(shapes(most=3), st.sampled_from(sorted(CASTS)), st.data())
def test_cast(shape: tuple[int, ...], target: str, data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    (found,) = run("layout.cast", (array,), types=(target,))
    assert isinstance(found, np.ndarray)
    same(found, array.astype(CASTS[target]))


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Array, int, int, tuple[int, ...], tuple[int, ...]]:
    """An array, the dimensions to reshape, what to write, and the shape that comes of it."""
    shape = draw(shapes())
    array = draw(arrays(shape, ANY))
    axis = draw(st.integers(-len(shape), len(shape)))
    start = axis + len(shape) if axis < 0 else axis
    rank = draw(st.integers(0, len(shape) - start))
    volume = int(np.prod(shape[start : start + rank], dtype=np.int64))
    extents = list(draw(factors(volume)))
    written = list(extents)
    if volume and extents and draw(st.booleans()):
        written[draw(st.integers(0, len(extents) - 1))] = -1
    return array, axis, rank, tuple(written), (*shape[:start], *extents, *shape[start + rank :])


@st.composite
def factors(draw: st.DrawFn, volume: int) -> tuple[int, ...]:
    """Extents of a given volume; none at all only where it is 1."""
    found: list[int] = []
    while volume > 1 and draw(st.booleans()):
        found.append(draw(st.sampled_from([n for n in range(1, volume + 1) if volume % n == 0])))
        volume //= found[-1]
    if volume != 1:
        found.append(volume)
    ones = draw(st.integers(0, 2))
    return tuple(draw(st.permutations(found + [1] * ones)))


@judged("numpy", "layout.reshape")
@given(reshapes())
def test_reshape(case: tuple[Array, int, int, tuple[int, ...], tuple[int, ...]]) -> None:
    array, axis, rank, written, expected = case
    same(one("layout.reshape", array, axis=axis, rank=rank, shape=written), array.reshape(expected))


@judged("numpy", "layout.reshape", "layout.flatten")
def test_all_dimensions_are_reshaped_unless_said_otherwise() -> None:
    array = filled((2, 3, 4), "float32", 0)
    same(one("layout.reshape", array, shape=(4, -1)), array.reshape(4, 6))
    same(one("layout.flatten", array, axis=1), array.reshape(2, 12))
    same(one("layout.flatten", array), array.reshape(24))


@judged("numpy", "layout.flatten", "layout.unflatten")
@given(shapes(), st.data())
def test_flatten_and_unflatten(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    axis = data.draw(st.integers(-len(shape), len(shape)))
    start = axis + len(shape) if axis < 0 else axis
    rank = data.draw(st.integers(0, len(shape) - start))
    middle = shape[start : start + rank]
    volume = int(np.prod(middle, dtype=np.int64))
    flat = array.reshape(*shape[:start], volume, *shape[start + rank :])
    same(one("layout.flatten", array, axis=axis, rank=rank), flat)
    same(one("layout.unflatten", flat, axis=start - flat.ndim, shape=middle), array)


@judged("numpy", "layout.squeeze", "layout.unsqueeze")
@given(shapes(most=3), st.integers(0, 2), st.data())
def test_squeeze_and_unsqueeze(shape: tuple[int, ...], count: int, data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    axes = data.draw(axes_of(len(shape) + count, count))[:count]
    assume(len(axes) == count)
    wide = np.expand_dims(array, axes) if count else array
    same(one("layout.unsqueeze", array, axes=axes), wide)
    same(one("layout.squeeze", wide, axes=axes), array)


@judged("numpy", "layout.concat")
@given(shapes(least=1), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.data())
def test_concat(shape: tuple[int, ...], sizes: list[int], data: Data) -> None:
    axis = data.draw(axis_of(len(shape)))
    dtype = data.draw(st.sampled_from(ANY))
    parts = tuple(data.draw(arrays(_with(shape, axis, size), (dtype,))) for size in sizes)
    same(one("layout.concat", parts, axis=axis), np.concatenate(parts, axis))


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    extents = list(shape)
    extents[axis] = size
    return tuple(extents)


@judged("numpy", "layout.split")
@given(shapes(least=1), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.booleans(), st.data())
def test_split(shape: tuple[int, ...], sizes: list[int], even: bool, data: Data) -> None:
    axis = data.draw(axis_of(len(shape)))
    if even:
        sizes = [sizes[0]] * len(sizes)
    array = data.draw(arrays(_with(shape, axis, sum(sizes)), ANY))
    expected = np.split(array, np.cumsum(sizes)[:-1], axis)
    written: dict[str, Given] = {"count": len(sizes)} if even else {"sizes": tuple(sizes)}
    found = pack("layout.split", array, axis=axis, **written)
    assert len(found) == len(expected)
    for actual, part in zip(found, expected, strict=True):
        same(actual, part)


@judged("numpy", "layout.stack", "layout.unstack")
@given(shapes(most=4), st.integers(1, 4), st.booleans(), st.data())
def test_stack_and_unstack(shape: tuple[int, ...], count: int, squeeze: bool, data: Data) -> None:
    dtype = data.draw(st.sampled_from(ANY))
    axis = data.draw(st.integers(0, len(shape)))
    items = tuple(data.draw(arrays(shape, (dtype,))) for _ in range(count))
    whole = np.stack(items, axis)
    if squeeze:
        items = tuple(np.expand_dims(item, axis) for item in items)
    same(one("layout.stack", items, axis=axis, squeeze=squeeze), whole)
    for actual, item in zip(
        pack("layout.unstack", whole, axis=axis, squeeze=not squeeze), items, strict=True
    ):
        same(actual, item)
    if squeeze:
        same(one("layout.stack", items, axis=axis - whole.ndim, squeeze=True), whole)


@judged("numpy", "layout.stack")
def test_a_negative_axis_of_stack_counts_the_dimensions_of_the_inputs() -> None:
    x = filled((2, 3), "float32", 1)
    same(one("layout.stack", (x, x), axis=-1), np.stack((x, x), 1))


@judged("numpy", "layout.unstack")
def test_an_empty_dimension_comes_apart_into_nothing() -> None:
    assert pack("layout.unstack", np.zeros((2, 0), np.float32), axis=1) == ()


@judged("numpy", "layout.tile")
@given(shapes(), st.data())
def test_tile(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    axes = data.draw(axes_of(len(shape)))
    repeats = tuple(data.draw(st.integers(1, 3)) for _ in axes)
    counts = [1] * len(shape)
    for axis, count in zip(axes, repeats, strict=True):
        counts[axis] = count
    same(one("layout.tile", array, axes=axes, repeats=repeats), np.tile(array, counts))


@judged("numpy", "layout.broadcast", "newer/layout.broadcast")
@given(shapes(smallest=1), st.booleans(), st.data())
def test_broadcast(shape: tuple[int, ...], newer: bool, data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    axes = data.draw(axes_of(len(shape)))
    target, whole = [], list(shape)
    for axis in axes:
        extent = data.draw(st.integers(1, 4)) if shape[axis] == 1 else shape[axis]
        whole[axis] = extent
        target.append(1 if newer and data.draw(st.booleans()) and shape[axis] == extent else extent)
    operator = "newer/layout.broadcast" if newer else "layout.broadcast"
    same(one(operator, array, axes=axes, shape=tuple(target)), np.broadcast_to(array, whole).copy())


@st.composite
def slices(draw: st.DrawFn, extent: int) -> tuple[int, int, int]:
    """First and last position and stride of a slice that is not refused, positions from 0 to the extent or -1."""
    stride = draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
    if stride > 0:
        begin = draw(st.integers(0, extent))
        return begin, draw(st.integers(begin, extent)), stride
    begin = draw(st.integers(-1, extent - 1))
    return begin, draw(st.integers(-1, begin)), stride


def _cut(begin: int, end: int, stride: int) -> slice:
    return slice(begin, None if end < 0 else end, stride) if begin >= 0 else slice(0, 0)


@judged("numpy", "layout.slice")
@given(shapes(), st.data())
def test_slice(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    axes = data.draw(axes_of(len(shape)))
    cuts = [data.draw(slices(shape[axis])) for axis in axes]
    index = [slice(None)] * len(shape)
    begin, end = [], []
    for axis, (first, last, stride) in zip(axes, cuts, strict=True):
        index[axis] = _cut(first, last, stride)
        # A place before the first element can only be written by counting from the end.
        begin.append(data.draw(_written(first, shape[axis])))
        end.append(data.draw(_written(last, shape[axis])))
    attributes: dict[str, Given] = {
        "begin": tuple(begin),
        "end": tuple(end),
        "stride": tuple(c[2] for c in cuts),
    }
    same(one("layout.slice", array, axes=axes, **attributes), array[tuple(index)])


def _written(position: int, extent: int) -> st.SearchStrategy[int]:
    """The ways to write a position from -1 (before the first) to the extent (behind the last)."""
    if position == extent:
        return st.integers(extent, extent + 3)
    if position < 0:
        return st.integers(-extent - 4, -extent - 1)
    return st.sampled_from([position, position - extent])


@judged("numpy", "newer/layout.slice")
@given(shapes(smallest=1), st.data())
def test_newer_slice(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    axes = data.draw(axes_of(len(shape)))
    index = [slice(None)] * len(shape)
    begins, ends, strides = [], [], []
    for axis in axes:
        begin = data.draw(st.integers(0, shape[axis] - 1))
        stride = data.draw(st.sampled_from([-2, -1, 1, 2]))
        end = data.draw(st.integers(begin, shape[axis] + 2) if stride > 0 else st.integers(-3, begin))
        index[axis] = _cut(begin, end, stride)
        begins.append(begin)
        ends.append(end)
        strides.append(stride)
    attributes: dict[str, Given] = {"begin": tuple(begins), "end": tuple(ends), "stride": tuple(strides)}
    same(one("newer/layout.slice", array, axes=axes, **attributes), array[tuple(index)])


PAD: Callable[..., Array] = np.pad
MODES = {"CONSTANT": "constant", "REFLECT": "reflect", "REPLICATE": "edge", "SYMMETRIC": "symmetric"}


@judged("numpy", "layout.pad")
@given(shapes(most=4), st.sampled_from(sorted(MODES)), st.booleans(), st.data())
def test_pad(shape: tuple[int, ...], method: str, valued: bool, data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    axes = data.draw(axes_of(len(shape)))
    margins = [(0, 0)] * len(shape)
    for axis in axes:
        room = {"REFLECT": max(shape[axis] - 1, 0), "SYMMETRIC": shape[axis]}.get(method, 3)
        room = 0 if method == "REPLICATE" and shape[axis] == 0 else room
        margins[axis] = data.draw(st.tuples(st.integers(0, room), st.integers(0, room)))
    padding = tuple(margins[axis][side] for side in (0, 1) for axis in axes)
    value = data.draw(arrays((), (array.dtype.name,))) if valued else None
    options = {"constant_values": 0 if value is None else value} if method == "CONSTANT" else {}
    expected = PAD(array, margins, MODES[method], **options) if shape else array
    same(one("layout.pad", array, value, axes=axes, padding=padding, method=method), expected)


@judged("numpy", "layout.transpose")
@given(shapes(), st.data())
def test_transpose(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    start = data.draw(st.integers(0, len(shape)))
    perm = data.draw(st.permutations(range(start, len(shape))))
    expected = np.transpose(array, (*range(start), *perm))
    written = tuple(axis - len(shape) if data.draw(st.booleans()) else axis for axis in perm)
    axis = start - len(shape) if start < len(shape) and data.draw(st.booleans()) else start
    same(one("layout.transpose", array, axis=axis, perm=written), expected)


@judged("numpy", "layout.transpose")
@given(shapes(), st.data())
def test_transpose_reverses_unless_said_otherwise(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    start = data.draw(st.integers(0, len(shape)))
    axis = start - len(shape) if start < len(shape) and data.draw(st.booleans()) else start
    expected = np.transpose(array, (*range(start), *range(len(shape) - 1, start - 1, -1)))
    same(one("layout.transpose", array, axis=axis), expected)
