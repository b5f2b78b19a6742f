"""The operators of `aten` that make, move, join, cut and pick elements, judged by torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import ANY, arrays, axes_of, axis_of, shapes
from tests.support.judges.registry import judged

Data = st.DataObject
Shape = tuple[int, ...]
SOME = shapes(1, 4)
PLACES = st.integers(-6, 6)


@judged("torch", "aten.zeros", "aten.ones", "aten.full", "aten.scalar_tensor", "aten.arange")
@given(shapes(0, 4), st.sampled_from((("f32", "float32"), ("i64", "int64"), ("bool", "bool"))))
def test_made(shape: Shape, kind: tuple[str, str]) -> None:
    dtype = getattr(torch, kind[1])
    agree("zeros", [], {"size": shape}, torch.zeros(shape, dtype=dtype), kind[:1])
    agree("ones", [], {"size": shape}, torch.ones(shape, dtype=dtype), kind[:1])
    value = np.asarray(1, kind[1])
    agree("full", [value], {"size": shape}, torch.full(shape, 1, dtype=dtype))
    agree("scalar_tensor", [], {"s": value.item()}, torch.scalar_tensor(value.item(), dtype=dtype), kind[:1])


@judged("torch", "aten.zeros_like", "aten.ones_like", "aten.new_zeros", "aten.new_ones", "aten.full_like")
@judged("torch", "aten.fill", "aten.empty_like", "aten.copy")
@given(shapes(0, 4), shapes(0, 3), st.data())
def test_made_like(shape: Shape, other: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ANY))
    for name in ("zeros_like", "ones_like"):
        judge(name, x)
    for name in ("new_zeros", "new_ones"):
        judge(name, x, size=other)
    value = np.asarray(1, x.dtype)
    for name in ("full_like", "fill"):
        agree(name, [x, value], {}, torch.full_like(tensor_of(x), 1))
    agree("empty_like", [x], {}, torch.zeros_like(tensor_of(x)))
    judge("copy", x, value)


@given(st.integers(-5, 5), st.integers(0, 9), st.sampled_from((1, 2, 3)), st.booleans())
def test_arange(start: int, length: int, step: int, whole: bool) -> None:
    numbers = (start, start + length, step) if whole else (start / 2, start / 2 + length / 4, step / 4)
    given_ = dict(zip(("start", "end", "step"), numbers, strict=True))
    kind, dtype = ("i64", torch.int64) if whole else ("f32", torch.float32)
    agree("arange", [], given_, torch.arange(*numbers, dtype=dtype), (kind,))


@judged("torch", "aten.view", "aten.reshape", "aten.flatten", "aten.unflatten")
@given(shapes(1, 4, 1), st.data())
def test_shapes(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ANY))
    size = list(data.draw(st.permutations(shape)))
    if data.draw(st.booleans()):
        size[data.draw(axis_of(len(size)))] = -1
    judge("view", x, size=tuple(size))
    judge("reshape", x, shape=tuple(size))
    first = data.draw(st.integers(0, len(shape) - 1))
    last = data.draw(st.integers(first, len(shape) - 1))
    backwards = data.draw(st.booleans())
    start, end = (first - len(shape), last - len(shape)) if backwards else (first, last)
    expected = torch.flatten(tensor_of(x), start, end)
    agree("flatten", [x], {"start_dim": start, "end_dim": end}, expected)
    merged = np.asarray(expected)
    sizes = shape[first : last + 1]
    agree("unflatten", [merged], {"dim": first, "sizes": sizes}, tensor_of(x))


def test_a_number_becomes_a_vector() -> None:
    judge("flatten", np.asarray(3.0))


@judged("torch", "aten.squeeze", "aten.unsqueeze")
@given(shapes(1, 5, 1, 2), st.data())
def test_single_extents(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ANY))
    dim = data.draw(axes_of(len(shape), least=1))
    agree("squeeze", [x], {"dim": dim}, torch.squeeze(tensor_of(x), dim))
    agree("squeeze", [x], {}, torch.squeeze(tensor_of(x)))
    judge("unsqueeze", x, dim=data.draw(axis_of(len(shape) + 1)))


@judged("torch", "aten.transpose", "aten.permute", "aten.t", "aten.flip", "aten.roll")
@given(SOME, st.data())
def test_moved(shape: Shape, data: Data) -> None:
    x, axis = data.draw(arrays(shape, ANY)), axis_of(len(shape))
    first, second = data.draw(axis), data.draw(axis)
    agree("transpose", [x], {"dim0": first, "dim1": second}, torch.transpose(tensor_of(x), first, second))
    perm = data.draw(axes_of(len(shape), least=len(shape)))
    judge("permute", x, dims=perm)
    dims = data.draw(axes_of(len(shape), least=1))
    judge("flip", x, dims=dims)
    judge("roll", x, shifts=tuple(data.draw(PLACES) for _ in dims), dims=dims)
    if len(shape) < 3:
        judge("t", x)


@judged("torch", "aten.expand", "aten.repeat")
@given(shapes(0, 3), shapes(0, 2, 1), st.data())
def test_stretched(shape: Shape, front: Shape, data: Data) -> None:
    cut = tuple(1 if data.draw(st.booleans()) else extent for extent in shape)
    x = data.draw(arrays(cut, ANY))
    size = tuple(
        -1 if one == full and data.draw(st.booleans()) else full for one, full in zip(cut, shape, strict=True)
    )
    judge("expand", x, size=(*front, *size))
    judge("repeat", x, repeats=(*front, *(data.draw(st.integers(1, 3)) for _ in cut)))


@judged("torch", "aten.repeat_interleave")
@given(SOME, st.integers(0, 3), st.data())
def test_repeat_interleave(shape: Shape, repeats: int, data: Data) -> None:
    x, dim = data.draw(arrays(shape, ANY)), data.draw(axis_of(len(shape)))
    expected = torch.repeat_interleave(tensor_of(x), repeats, dim=dim)
    agree("repeat_interleave", [x], {"repeats": repeats, "dim": dim}, expected)


@judged("torch", "aten.cat", "aten.stack")
@given(shapes(1, 4, 1), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_joined(shape: Shape, extents: list[int], data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    dtype = (data.draw(st.sampled_from(ANY)),)
    parts = []
    for extent in extents:
        part = list(shape)
        part[dim] = extent
        parts.append(data.draw(arrays(tuple(part), dtype)))
    judge("cat", tuple(parts), dim=dim)
    judge("stack", (parts[0],) * len(extents), dim=data.draw(axis_of(len(shape) + 1)))


@judged("torch", "aten.split", "aten.split_with_sizes", "aten.chunk", "aten.unbind")
@given(shapes(1, 3, 0, 6), st.integers(1, 4), st.data())
def test_cut(shape: Shape, size: int, data: Data) -> None:
    x, dim = data.draw(arrays(shape, ANY)), data.draw(axis_of(len(shape)))
    extent = shape[dim]
    agree("split", [x], {"split_size": size, "dim": dim}, torch.split(tensor_of(x), size, dim))
    agree("chunk", [x], {"chunks": size, "dim": dim}, torch.chunk(tensor_of(x), size, dim))
    first = data.draw(st.integers(0, extent))
    sizes = (first, extent - first)
    agree("split_with_sizes", [x], {"split_sizes": sizes, "dim": dim}, torch.split(tensor_of(x), sizes, dim))
    if extent:
        agree("unbind", [x], {"dim": dim}, torch.unbind(tensor_of(x), dim))


@judged("torch", "aten.slice", "aten.slice_scatter")
@given(shapes(1, 3, 0, 5), st.none() | PLACES, st.none() | PLACES, st.integers(1, 3), st.data())
def test_sliced(shape: Shape, start: int | None, end: int | None, step: int, data: Data) -> None:
    dtype, dim = (data.draw(st.sampled_from(ANY)),), data.draw(axis_of(len(shape)))
    x = data.draw(arrays(shape, dtype))
    given_ = {"dim": dim, "start": start, "end": end, "step": step}
    written = {name: value for name, value in given_.items() if value is not None}
    part = torch.ops.aten.slice(tensor_of(x), dim, start, end, step)
    agree("slice", [x], written, part)
    src = data.draw(arrays(tuple(part.shape), dtype))
    expected = torch.ops.aten.slice_scatter(tensor_of(x), tensor_of(src), dim, start, end, step)
    agree("slice_scatter", [x, src], written, expected)


def test_a_slice_to_the_end_of_everything() -> None:
    judge("slice", np.arange(6.0), dim=0, start=1, end=2**63 - 1)


@judged("torch", "aten.select", "aten.select_scatter", "aten.narrow", "aten.index_select")
@given(shapes(1, 4, 1), st.data())
def test_selected(shape: Shape, data: Data) -> None:
    dtype, dim = (data.draw(st.sampled_from(ANY)),), data.draw(axis_of(len(shape)))
    x, extent = data.draw(arrays(shape, dtype)), shape[dim]
    index = data.draw(axis_of(extent))
    judge("select", x, dim=dim, index=index)
    src = data.draw(arrays(tuple(np.take(x, 0, dim).shape), dtype))
    judge("select_scatter", x, src, dim=dim, index=index)
    start = data.draw(axis_of(extent))
    judge("narrow", x, dim=dim, start=start, length=data.draw(st.integers(0, extent - start % extent)))
    places = data.draw(arrays(data.draw(shapes(1, 1)), ("int64",), 0, extent - 1))
    agree("index_select", [x, places], {"dim": dim}, torch.index_select(tensor_of(x), dim, tensor_of(places)))


@judged("torch", "aten.triu", "aten.tril")
@pytest.mark.parametrize("name", ["triu", "tril"])
@given(shapes(2, 4), st.integers(-4, 4), st.data())
def test_triangles(name: str, shape: Shape, diagonal: int, data: Data) -> None:
    judge(name, data.draw(arrays(shape, ANY)), diagonal=diagonal)


@judged("torch", "aten.embedding")
@given(shapes(0, 3), st.integers(1, 5), st.integers(0, 3), st.data())
def test_embedding(shape: Shape, rows: int, columns: int, data: Data) -> None:
    judge("embedding", data.draw(arrays((rows, columns))), data.draw(arrays(shape, ("int64",), 0, rows - 1)))


@judged("torch", "aten.gather", "aten.scatter", "aten.scatter_add")
@given(shapes(1, 4, 1), st.data())
def test_gather(shape: Shape, data: Data) -> None:
    dtype, dim = (data.draw(st.sampled_from(ANY)),), data.draw(axis_of(len(shape)))
    x = data.draw(arrays(shape, dtype))
    some = tuple(data.draw(st.integers(1, extent)) for extent in shape)
    index = data.draw(arrays(some, ("int64",), 0, shape[dim] - 1))
    agree("gather", [x, index], {"dim": dim}, torch.gather(tensor_of(x), dim, tensor_of(index)))
    distinct = np.argsort(np.random.default_rng(0).random(shape), dim)[tuple(slice(item) for item in some)]
    src = data.draw(arrays(shape, dtype))
    expected = torch.scatter(tensor_of(x), dim, tensor_of(distinct), tensor_of(src))
    agree("scatter", [x, distinct, src], {"dim": dim}, expected)
    if x.dtype.kind in "fi":
        expected = torch.scatter_add(tensor_of(x), dim, tensor_of(index), tensor_of(src))
        agree("scatter_add", [x, index, src], {"dim": dim}, expected)


@judged("torch", "aten.index")
@given(shapes(1, 4, 1), shapes(0, 2), st.data())
def test_index(shape: Shape, places: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ANY))
    dims = sorted(axis % len(shape) for axis in data.draw(axes_of(len(shape), least=1)))
    given_ = [data.draw(arrays(places, ("int64",), -shape[dim], shape[dim] - 1)) for dim in dims]
    found = dict(zip(dims, given_, strict=True))
    expected = torch.ops.aten.index(
        tensor_of(x), [tensor_of(found[dim]) if dim in found else None for dim in range(len(shape))]
    )
    agree("index", [x, tuple(given_)], {"dims": tuple(dims)}, expected)


@judged("torch", "aten.pad", "aten.constant_pad_nd")
@given(SOME, st.sampled_from(("constant", "reflect", "replicate")), st.data())
def test_pad(shape: Shape, mode: str, data: Data) -> None:
    shape = shape if mode == "constant" else (2, *(extent + 2 for extent in shape[:3]))
    count = data.draw(st.integers(1, len(shape))) if mode == "constant" else len(shape) - 2
    x = data.draw(arrays(shape, ANY if mode == "constant" else ("float32",)))
    pad = tuple(data.draw(st.integers(0, 1)) for _ in range(2 * count))
    value = data.draw(st.none() | arrays((), (x.dtype.name,))) if mode == "constant" else None
    if pad:
        expected = torch.ops.aten.pad(tensor_of(x), pad, mode, None if value is None else value.item())
        agree("pad", [x, value], {"pad": pad, "mode": mode}, expected)
        if mode == "constant":
            agree("constant_pad_nd", [x, value], {"pad": pad}, expected)


@judged("torch", "aten.pixel_shuffle")
@given(st.integers(1, 3), shapes(4, 4, 0, 3), st.data())
def test_pixel_shuffle(factor: int, shape: Shape, data: Data) -> None:
    batch, channels, *image = shape
    x = data.draw(arrays((batch, channels * factor * factor, *image)))
    judge("pixel_shuffle", x, upscale_factor=factor)
