"""Shapes, elements and reductions of `llm`, judged by torch and its automatic gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import arrays, axes_of, axis_of, shapes
from tests.support.judges.harness import refuse
from tests.support.judges.llm import agree, differentiate, draw, tensor_of, torch
from tests.support.judges.registry import Given, Refusal, judged

Data = st.DataObject
Shape = tuple[int, ...]


@judged("torch", "llm.split", "llm.concat", "llm.concat_backward")
@given(shapes(1, 4, 0, 3), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_parts(shape: Shape, sizes: list[int], data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    wide = list(shape)
    wide[dim] = sum(sizes)
    x = draw(data, *wide)
    parts = [item.numpy() for item in tensor_of(x).split(sizes, dim)]
    agree("split", [x], parts, sizes=tuple(sizes), dim=dim)
    agree("concat", [tuple(parts)], x, dim=dim)
    agree("concat_backward", [x, tuple(parts)], parts, dim=dim)


@judged("torch", "llm.view_backward", "llm.reshape", "llm.reshape_backward")
@given(shapes(0, 4, 1, 3), st.booleans(), st.data())
def test_new_shapes(shape: Shape, found: bool, data: Data) -> None:
    x, count = draw(data, *shape), math.prod(shape)
    rows = data.draw(st.sampled_from([item for item in range(1, count + 1) if count % item == 0]))
    target = (rows, -1) if found else (rows, count // rows)
    back = draw(data, rows, count // rows)
    (out,), grads = differentiate(lambda x: x.reshape(target), [x], [back], [0])
    agree("reshape", [x], out, shape=target)
    agree("reshape_backward", [back, x], grads, shape=target)
    agree("view_backward", [back, x], grads)


@judged("torch", "llm.reshape", "llm.reshape_backward")
@given(shapes(4, 4, 1, 3), st.data())
def test_heads_side_by_side(shape: Shape, data: Data) -> None:
    x, back = draw(data, *shape), draw(data, shape[0], shape[2], shape[1] * shape[3])
    (out,), grads = differentiate(lambda x: x.transpose(1, 2).flatten(2), [x], [back], [0])
    agree("reshape", [x], out)
    agree("reshape_backward", [back, x], grads)


@judged("torch", "llm.permute_backward")
@given(shapes(1, 4, 0, 3), st.data())
def test_permuted(shape: Shape, data: Data) -> None:
    x, dims = draw(data, *shape), data.draw(axes_of(len(shape), len(shape)))
    back = draw(data, *np.transpose(x, dims).shape)
    _, grads = differentiate(lambda x: x.permute(dims), [x], [back], [0])
    agree("permute_backward", [back], grads, dims=dims)


@judged("numpy", "llm.fork")
@given(shapes(0, 3), st.integers(1, 4), st.data())
def test_fork(shape: Shape, count: int, data: Data) -> None:
    x = draw(data, *shape)
    agree("fork", [x], [x] * count, n=count)


@st.composite
def broadcast(draw_: st.DrawFn, count: int) -> tuple[Shape, ...]:
    """Shapes that broadcast to each other."""
    whole = draw_(shapes(0, 3, 1, 3))
    found = []
    for _ in range(count):
        ones = draw_(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        cut = draw_(st.integers(0, len(whole)))
        found.append(tuple(1 if one else size for one, size in zip(ones, whole, strict=True))[cut:])
    return tuple(found)


BINARY = ["add", "sub", "mul", "div"]


@judged("torch", *(f"llm.{name}_backward" for name in BINARY))
@pytest.mark.parametrize("name", BINARY)
@given(broadcast(2), st.data())
def test_gradients_of_elements(name: str, pair: tuple[Shape, ...], data: Data) -> None:
    a, b = draw(data, *pair[0]), draw(data, *pair[1], low=1)
    back = draw(data, *np.broadcast_shapes(*pair))
    _, grads = differentiate(getattr(torch, name), [a, b], [back], [0, 1])
    agree(f"{name}_backward", [back, a, b], grads)


@judged("torch", "llm.add3", "llm.add3_backward")
@given(broadcast(3), st.data())
def test_add3(three: tuple[Shape, ...], data: Data) -> None:
    items = [draw(data, *shape) for shape in three]
    back = draw(data, *np.broadcast_shapes(*three))
    (out,), grads = differentiate(lambda a, b, c: a + b + c, items, [back], [0, 1, 2])
    agree("add3", items, out)
    agree("add3_backward", [back, *items], grads)


@judged("torch", "llm.scale", "llm.vector_add_sr", "llm.vector_add_sr_backward")
@given(shapes(0, 4), st.data())
def test_scaled(shape: Shape, data: Data) -> None:
    a, b, back = (draw(data, *shape) for _ in range(3))
    agree("scale", [a], a * 2.5, factor=2.5)
    (out,), grads = differentiate(lambda a, b: 2.5 * (a + b), [a, b], [back], [0, 1])
    agree("vector_add_sr", [a, b], out, scale=2.5, seed=7)
    agree("vector_add_sr_backward", [back], grads, scale=2.5)


@judged("torch", "llm.apply_mask")
@given(shapes(1, 4, 1, 3), st.sampled_from(["bool", "float64", "int32"]), st.data())
def test_apply_mask(shape: Shape, dtype: str, data: Data) -> None:
    rank = data.draw(st.integers(0, len(shape)))
    x, mask = draw(data, *shape), data.draw(arrays(shape[:rank], (dtype,), 0, 1))
    wide = mask.reshape(*mask.shape, *[1] * (len(shape) - rank))
    agree("apply_mask", [x, mask], x * wide)


@judged("torch", "llm.reduce_sum", "llm.reduce_sum_backward", "llm.reduce_mean", "llm.reduce_mean_backward")
@pytest.mark.parametrize("name", ["sum", "mean"])
@given(shapes(0, 4, 1, 3), st.booleans(), st.data())
def test_reductions(name: str, shape: Shape, keepdim: bool, data: Data) -> None:
    rank, given_ = len(shape), dict[str, Given](keepdim=keepdim)
    dims: tuple[int, ...] = tuple(range(rank))
    way = data.draw(st.sampled_from(["all", "dims", "dim"] if rank else ["all"]))
    if way == "dims":
        given_["dims"] = dims = data.draw(axes_of(rank, 1))
    elif way == "dim":
        dims = (data.draw(axis_of(rank)),)
        given_["dim"] = dims[0]
    x = draw(data, *shape)
    function: Callable[..., Any] = getattr(torch, name)

    def reduce(x: Any) -> Any:
        return function(x, dims, keepdim) if dims else x

    back = draw(data, *reduce(tensor_of(x)).shape)
    (out,), grads = differentiate(reduce, [x], [back], [0])
    agree(f"reduce_{name}", [x], out, **given_)
    agree(f"reduce_{name}_backward", [back, x], grads, **given_)


@judged("torch", "llm.reduce_max", "llm.reduce_max_backward")
@given(shapes(1, 4, 1, 3), st.booleans(), st.data())
def test_maxima(shape: Shape, keepdim: bool, data: Data) -> None:
    order, dim = draw(data, *shape).ravel().argsort(kind="stable"), data.draw(axis_of(len(shape)))
    x = order.argsort(kind="stable").reshape(shape) * 0.5
    values, indices = torch.max(torch.tensor(x), dim, keepdim)
    back = draw(data, *values.shape)
    _, grads = differentiate(lambda x: torch.max(x, dim, keepdim)[0], [x], [back], [0])
    agree("reduce_max", [x], [values, indices], dim=dim, keepdim=keepdim)
    agree("reduce_max_backward", [back, x, indices.numpy()], grads, dim=dim, keepdim=keepdim)


@judged("numpy", "llm.reduce_max", "llm.reduce_max_backward")
def test_the_first_of_equal_maxima_gets_what_comes_back() -> None:
    x = np.asarray([[1.0, 3.0, 3.0]])
    agree("reduce_max", [x], [np.asarray([3.0]), np.asarray([1])])
    agree("reduce_max_backward", [np.asarray([2.0]), x, np.asarray([1])], np.asarray([[0.0, 2.0, 0.0]]))


DIM = "'dim' must be at least -2 and below 2"
REFUSALS = (
    Refusal("llm.reshape", "heads are put side by side in tensors of 4 dimensions", ((2, 3),)),
    Refusal("llm.reshape", "'shape' can leave only one extent", ((4, 4),), {"shape": (-1, -1)}),
    Refusal("llm.reshape", "the volume of 'shape' must be that of the input, 6", ((2, 3),), {"shape": (5,)}),
    Refusal("llm.split", DIM, ((2, 3),), {"sizes": (3,), "dim": 2}),
    Refusal("llm.split", "'sizes' must not be negative", ((2, 3),), {"sizes": (4, -1)}),
    Refusal("llm.split", "'sizes' must add up to 3", ((2, 3),), {"sizes": (1, 1)}),
    Refusal("llm.concat", "there must be at least one tensor", ([],), {"dim": 0}, types=("f32",)),
    Refusal("llm.concat", DIM, ([(2, 3), (2, 3)],), {"dim": 2}),
    Refusal("llm.reduce_max", DIM, ((2, 3),), {"dim": 2}),
    Refusal("llm.reduce_max", "the tensor must not be empty", ((2, 0),)),
    *(
        refusal
        for name in ("llm.reduce_sum", "llm.reduce_mean")
        for refusal in (
            Refusal(name, "the dimensions must be at least -2 and below 2", ((2, 3),), {"dims": (2,)}),
            Refusal(name, "each dimension must be named once", ((2, 3),), {"dims": (1, -1)}),
        )
    ),
    Refusal("llm.add3", "the shapes do not broadcast", ((2,), (2,), (3,))),
    Refusal("llm.fork", "'n' must be positive", ((2, 3),), {"n": 0}),
    Refusal("llm.apply_mask", "the mask cannot be stretched", ((2, 3), (3,))),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refused(refusal: Refusal) -> None:
    refuse(refusal)
