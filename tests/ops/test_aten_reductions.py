"""The operators of `aten` that reduce, order and accumulate, judged by torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import FLOATS, arrays, axes_of, axis_of, shapes
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Shape = tuple[int, ...]
REALS = FLOATS[:2]
NUMBERS = (*REALS, "int64")
MANY = shapes(1, 4, 1, 4)


@judged("torch", "aten.sum", "aten.amax", "aten.amin")
@pytest.mark.parametrize("name", ["sum", "amax", "amin"])
@given(MANY, st.booleans(), st.data())
def test_numbers(name: str, shape: Shape, keepdim: bool, data: Data) -> None:
    dim = data.draw(axes_of(len(shape), least=1))
    x = data.draw(arrays(shape, NUMBERS))
    expected = getattr(torch, name)(tensor_of(x), dim=dim, keepdim=keepdim)
    agree(name, [x], {"dim": dim, "keepdim": keepdim}, expected)
    agree(name, [x], {}, getattr(torch, name)(tensor_of(x)))


@judged("torch", "aten.mean", "aten.var", "aten.std", "aten.var_mean")
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@given(MANY, st.booleans(), st.sampled_from((0.0, 1.0, 2.5)), st.data())
def test_moments(shape: Shape, keepdim: bool, correction: float, data: Data) -> None:
    dim = data.draw(axes_of(len(shape), least=1))
    x = data.draw(arrays(shape))
    tensor = tensor_of(x)
    given_: dict[str, Given] = {"dim": dim, "keepdim": keepdim}
    agree("mean", [x], given_, torch.mean(tensor, dim=dim, keepdim=keepdim))
    for name in ("var", "std", "var_mean"):
        expected = getattr(torch, name)(tensor, dim=dim, correction=correction, keepdim=keepdim)
        agree(name, [x], {**given_, "correction": correction}, expected)


@judged("torch", "aten.prod")
@given(MANY, st.booleans(), st.data())
def test_prod(shape: Shape, keepdim: bool, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    x = data.draw(arrays(shape, NUMBERS, -2, 2))
    agree("prod", [x], {"dim": (dim,), "keepdim": keepdim}, torch.prod(tensor_of(x), dim, keepdim=keepdim))


@judged("torch", "aten.any", "aten.all")
@pytest.mark.parametrize("name", ["any", "all"])
@given(shapes(1, 4), st.booleans(), st.data())
def test_truths(name: str, shape: Shape, keepdim: bool, data: Data) -> None:
    dim = data.draw(axes_of(len(shape), least=1))
    x = data.draw(arrays(shape, (*NUMBERS, "bool"), 0, 1))
    expected = getattr(torch, name)(tensor_of(x), dim=dim, keepdim=keepdim)
    agree(name, [x], {"dim": dim, "keepdim": keepdim}, expected)


@judged("torch", "aten.linalg_vector_norm", "aten.logsumexp")
@given(MANY, st.booleans(), st.sampled_from((1.0, 2.0, 3.0)), st.data())
def test_norms(shape: Shape, keepdim: bool, order: float, data: Data) -> None:
    dim = data.draw(axes_of(len(shape), least=1))
    x = data.draw(arrays(shape))
    expected = torch.linalg.vector_norm(tensor_of(x), order, dim=dim, keepdim=keepdim)
    agree("linalg_vector_norm", [x], {"ord": order, "dim": dim, "keepdim": keepdim}, expected)
    expected = torch.logsumexp(tensor_of(x), dim, keepdim=keepdim)
    agree("logsumexp", [x], {"dim": dim, "keepdim": keepdim}, expected)


def test_logsumexp_of_infinities() -> None:
    x = np.asarray([[-math.inf, -math.inf], [math.inf, 1.0], [-math.inf, 2.0]], np.float32)
    agree("logsumexp", [x], {"dim": (1,)}, torch.logsumexp(tensor_of(x), 1))


@judged("torch", "aten.argmax", "aten.argmin", "aten.max_dim", "aten.min_dim")
@pytest.mark.parametrize("name", ["max", "min"])
@given(MANY, st.booleans(), st.data())
def test_places(name: str, shape: Shape, keepdim: bool, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    x = data.draw(arrays(shape, NUMBERS, -2, 2))
    tensor, given_ = tensor_of(x), {"dim": dim, "keepdim": keepdim}
    place = getattr(torch, f"arg{name}")
    agree(f"arg{name}", [x], given_, place(tensor, dim=dim, keepdim=keepdim))
    agree(f"arg{name}", [x], {"keepdim": keepdim}, place(tensor, keepdim=keepdim))
    agree(f"{name}_dim", [x], given_, tuple(getattr(torch, name)(tensor, dim=dim, keepdim=keepdim)))


@judged("torch", "aten.cumsum", "aten.cumprod")
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@given(shapes(1, 4), st.data())
def test_running(name: str, shape: Shape, data: Data) -> None:
    judge(name, data.draw(arrays(shape, NUMBERS, -2, 2)), dim=data.draw(axis_of(len(shape))))


@judged("torch", "aten.topk", "aten.sort")
@given(MANY, st.booleans(), st.data())
def test_order(shape: Shape, falling: bool, data: Data) -> None:
    dim = data.draw(axis_of(len(shape)))
    places = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(math.prod(shape))
    x = places.reshape(shape).astype(data.draw(st.sampled_from(REALS)))
    k = data.draw(st.integers(1, shape[dim]))
    expected = torch.topk(tensor_of(x), k, dim=dim, largest=falling)
    agree("topk", [x], {"k": k, "dim": dim, "largest": falling}, tuple(expected))
    equal = np.floor(x / 3).astype(x.dtype)
    expected = torch.sort(tensor_of(equal), dim=dim, descending=falling, stable=True)
    agree("sort", [equal], {"dim": dim, "descending": falling}, tuple(expected))
