"""Products, biases and tables of `llm`, judged by torch and its automatic gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from tests.support.judges.draws import Array, arrays, shapes
from tests.support.judges.harness import near, refuse, run
from tests.support.judges.llm import agree, differentiate, draw, torch
from tests.support.judges.registry import Refusal, judged

Data = st.DataObject
Shape = tuple[int, ...]
WAYS = ("NN", "NT", "TN", "TT")
ways = pytest.mark.parametrize("way", WAYS)
extents = st.integers(1, 3)


def multiply(way: str, a: Any, b: Any) -> Any:
    """The product of two matrices, each transposed on request."""
    return (a.mT if way[0] == "T" else a) @ (b.mT if way[1] == "T" else b)


def flat(way: str, a: Any, b: Any) -> Any:
    """The product of tensors of which a transposed one is flattened to a matrix first."""
    if way[0] == "N":
        return multiply(way, a, b)
    return multiply(way, *(item.reshape(math.prod(item.shape[:-1]), item.shape[-1]) for item in (a, b)))


@judged("torch", "llm.matmul", "llm.matmul_backward")
@ways
@given(shapes(1, 3, 0, 3), st.lists(extents, min_size=3, max_size=3), st.data())
def test_matmul(way: str, lead: Shape, sizes: list[int], data: Data) -> None:
    m, k, n = sizes
    if way[0] == "N":
        a, b = draw(data, *lead, k), draw(data, *((k, n) if way[1] == "N" else (n, k)))
    else:
        rows = int(np.prod(lead))
        a, b = draw(data, *lead, m), draw(data, *((*lead, n) if way[1] == "N" else (n, rows)))
    back = draw(data, *flat(way, torch.tensor(a), torch.tensor(b)).shape)
    (out,), grads = differentiate(lambda x, y: 0.5 * flat(way, x, y), [a, b], [back], [0, 1])
    agree("matmul", [a, b], out, transpose=way, alpha=0.5)
    agree("matmul_backward", [back, a, b], grads, transpose=way, alpha=0.5)


@judged("torch", "llm.matmul")
@pytest.mark.parametrize(
    ("accumulate", "beta", "share"),
    [(True, 0.0, 1.0), (True, 0.5, 0.5), (False, 0.25, 0.25), (False, 0.0, 0.0)],
)
@given(st.data())
def test_matmul_adds_to_what_was_there(accumulate: bool, beta: float, share: float, data: Data) -> None:
    a, b, c = draw(data, 2, 3), draw(data, 3, 4), draw(data, 2, 4)
    agree("matmul", [a, b, c], 2.0 * (a @ b) + share * c, accumulate=accumulate, alpha=2.0, beta=beta)


@judged("torch", "llm.matmul", "llm.matmul_backward")
@given(st.data())
def test_a_vector_is_one_row(data: Data) -> None:
    a, b, back = draw(data, 3), draw(data, 3, 4), draw(data, 4)
    (out,), grads = differentiate(lambda x, y: x @ y, [a, b], [back], [0, 1])
    agree("matmul", [a, b], out)
    agree("matmul_backward", [back, a, b], grads)


@judged("torch", "llm.batched_matmul", "llm.batched_matmul_backward")
@ways
@given(shapes(0, 2, 1, 3), st.booleans(), st.booleans(), st.lists(extents, min_size=3, max_size=3), st.data())
def test_batched_matmul(way: str, lead: Shape, one: bool, fewer: bool, sizes: list[int], data: Data) -> None:
    m, k, n = sizes
    first = tuple(1 for _ in lead) if one else lead
    second = lead[1:] if fewer else lead
    a = draw(data, *first, *((m, k) if way[0] == "N" else (k, m)))
    b = draw(data, *second, *((k, n) if way[1] == "N" else (n, k)))
    back = draw(data, *multiply(way, torch.tensor(a), torch.tensor(b)).shape)
    (out,), grads = differentiate(lambda x, y: multiply(way, x, y), [a, b], [back], [0, 1])
    agree("batched_matmul", [a, b], out, transpose=way)
    agree("batched_matmul", [a, b, back], out + back, transpose=way, accumulate=True)
    agree("batched_matmul_backward", [back, a, b], grads, transpose=way)


@judged("torch", "llm.weight_grad", "llm.linear_backward", "llm.bias_backward")
@judged("torch", "llm.bias_add", "llm.bias_add_backward")
@given(shapes(1, 3, 0, 3), st.data())
def test_projections(lead: Shape, data: Data) -> None:
    x, weight, bias, back = draw(data, *lead, 3), draw(data, 2, 3), draw(data, 2), draw(data, *lead, 2)
    _, grads = differentiate(torch.nn.functional.linear, [x, weight, bias], [back], [0, 1, 2])
    agree("linear_backward", [back, x, weight], grads)
    agree("weight_grad", [back, x], grads[1])
    agree("weight_grad", [back, x, weight], grads[1] + weight, accumulate=True)
    agree("bias_backward", [back], grads[2])
    (out,), grads = differentiate(torch.add, [back, bias], [back], [0, 1])
    agree("bias_add", [back, bias], out)
    agree("bias_add_backward", [back], grads)


@judged("torch", "llm.embedding", "llm.embedding_backward")
@given(shapes(0, 3), st.integers(1, 4), st.sampled_from(["int32", "int64"]), st.data())
def test_embedding(shape: Shape, rows: int, dtype: str, data: Data) -> None:
    indices = data.draw(arrays(shape, (dtype,), 0, rows - 1))
    weight, back = draw(data, rows, 3), draw(data, *shape, 3)
    (out,), grads = differentiate(lambda w: w[indices], [weight], [back], [0])
    agree("embedding", [indices, weight], out)
    agree("embedding_backward", [back, indices, weight], grads)


def test_an_index_outside_the_table_ends_the_run() -> None:
    for index in (-1, 4):
        with pytest.raises(LamellaError):
            run("llm.embedding", [np.asarray([index]), np.ones((4, 2))])


@judged("torch", "llm.embedding_with_position", "llm.embedding_with_position_backward")
@pytest.mark.parametrize("rank", [None, 1, 2])
@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_embedding_with_position(rank: int | None, batch: int, count: int, data: Data) -> None:
    indices = data.draw(arrays((batch, count), ("int64",), 0, 3))
    weight, places, back = draw(data, 4, 2), draw(data, 5, 2), draw(data, batch, count, 2)
    given_: Array | None = None
    if rank is not None:
        given_ = data.draw(arrays((batch, count)[2 - rank :], ("int64",), 0, 4))
    at = np.arange(count) if given_ is None else given_
    (out,), grads = differentiate(lambda w, p: w[indices] + p[at], [weight, places], [back], [0, 1])
    agree("embedding_with_position", [indices, weight, places, given_], out)
    agree("embedding_with_position_backward", [back, indices, weight, places, given_], grads)


@judged("numpy", "llm.matmul")
def test_products_of_32_bits() -> None:
    a, b = np.ones((2, 3), np.float32), np.full((4, 3), 2, np.float32)
    (found,) = run("llm.matmul", [a, b], {"transpose": "NT"})
    assert isinstance(found, np.ndarray)
    near(found, np.full((2, 4), 6, np.float32))


WAY = "'transpose' must be one of"
REFUSALS = (
    Refusal("llm.matmul", WAY, ((2, 3), (3, 4)), {"transpose": "XY"}),
    Refusal("llm.matmul", "'B' must be a matrix", ((2, 3), (2, 3, 4))),
    Refusal("llm.matmul", "the summed extent is 3 by A and 4 by B", ((2, 3), (4, 3))),
    Refusal("llm.matmul", "what is added must have the shape of the product", ((2, 3), (3, 4), (2, 3))),
    Refusal("llm.matmul_backward", WAY, ((2, 4), (2, 3), (3, 4)), {"transpose": "XY"}),
    Refusal("llm.batched_matmul", WAY, ((2, 3), (3, 4)), {"transpose": "XY"}),
    Refusal("llm.batched_matmul", "what is added must have the shape", ((2, 3), (3, 4), (2, 3))),
    Refusal("llm.batched_matmul", "the summed extent is 3 by A and 4 by B", ((2, 3), (4, 3))),
    Refusal("llm.batched_matmul", "cannot be stretched to each other", ((2, 2, 3), (3, 3, 4))),
    Refusal("llm.batched_matmul_backward", WAY, ((2, 4), (2, 3), (3, 4)), {"transpose": "XY"}),
    Refusal(
        "llm.embedding_with_position",
        "there are 3 positions, but rows for only 2",
        ((2, 3), (4, 2), (2, 2)),
        {},
        "i32 f32 f32",
    ),
    Refusal(
        "llm.embedding_with_position",
        "the positions must have the last extents",
        ((2, 3), (4, 2), (5, 2), (2,)),
        {},
        "i32 f32 f32 i32",
    ),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refused(refusal: Refusal) -> None:
    refuse(refusal)
