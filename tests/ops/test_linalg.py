"""The operators of `linalg`, judged by NumPy and torch."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import FLOATS, Array, arrays, shapes
from tests.support.judges.harness import near, one, refuse, run
from tests.support.judges.registry import Refusal, judged

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

Data = st.DataObject
EXTENTS = st.integers(0, 4)

REFUSALS = (
    Refusal("linalg.matmul", "the summed extent is 3 by A and 4 by B", ((2, 3), (4, 5))),
    Refusal("linalg.matmul", "the summed extent is 2 by A and 3 by B", ((2, 3), (3, 5)), {"transA": True}),
    Refusal("linalg.matmul", "cannot be broadcast to each other", ((2, 4, 3), (3, 3, 5))),
    Refusal("linalg.matmul", "C has 1 batch dimensions; the product has only 0", ((4, 3), (3, 5), (1, 4, 5))),
    Refusal("linalg.matmul", "of the product", ((2, 4, 3), (2, 3, 5), (3, 4, 5))),
)


@judged("numpy", "linalg.dot")
@given(EXTENTS, st.booleans(), st.data())
def test_dot(extent: int, biased: bool, data: Data) -> None:
    dtype = (data.draw(st.sampled_from(FLOATS)),)
    x, y, b = (data.draw(arrays(shape, dtype)) for shape in ((extent,), (extent,), ()))
    found = one("linalg.dot", x, y, b) if biased else one("linalg.dot", x, y)
    near(found, (_wide(x) @ _wide(y) + _wide(b) * biased).astype(dtype[0]))


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


@judged("numpy", "linalg.matvec")
@given(EXTENTS, EXTENTS, st.booleans(), st.booleans(), st.data())
def test_matvec(rows: int, columns: int, transposed: bool, biased: bool, data: Data) -> None:
    dtype = (data.draw(st.sampled_from(FLOATS)),)
    matrix = data.draw(arrays((columns, rows) if transposed else (rows, columns), dtype))
    x, b = data.draw(arrays((columns,), dtype)), data.draw(arrays((rows,), dtype))
    found = one("linalg.matvec", matrix, x, *((b,) if biased else ()), transA=transposed)
    turned = _wide(matrix.T if transposed else matrix)
    near(found, (turned @ _wide(x) + _wide(b) * biased).astype(dtype[0]))


@st.composite
def _batches(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Batch shapes of two factors and a summand that broadcast to one another."""
    whole = draw(shapes(0, 2, 0, 3))
    first = tuple(draw(st.sampled_from((extent, 1))) for extent in whole)
    second = tuple(
        full if one_ == 1 else draw(st.sampled_from((full, 1)))
        for full, one_ in zip(whole, first, strict=True)
    )
    third = tuple(draw(st.sampled_from((extent, 1))) for extent in whole)
    cut = draw(st.integers(0, len(whole)))
    return [first, second[cut:] if set(second[:cut]) <= {1} else second, third[draw(st.integers(0, cut)) :]]


@judged("torch", "linalg.matmul")
@given(_batches(), st.tuples(EXTENTS, EXTENTS, EXTENTS), st.tuples(st.booleans(), st.booleans()), st.data())
def test_matmul(
    batches: list[tuple[int, ...]], sizes: tuple[int, int, int], turned: tuple[bool, bool], data: Data
) -> None:
    dtype = (data.draw(st.sampled_from(FLOATS)),)
    m, n, k = sizes
    a = data.draw(arrays((*batches[0], *((k, m) if turned[0] else (m, k))), dtype))
    b = data.draw(arrays((*batches[1], *((n, k) if turned[1] else (k, n))), dtype))
    c = data.draw(st.one_of(st.none(), arrays((*batches[2], m, n), dtype)))
    left, right = (
        torch.tensor(_wide(item)).mT if turn else torch.tensor(_wide(item))
        for item, turn in zip((a, b), turned, strict=True)
    )
    product = left @ right
    expected = product if c is None else product + torch.tensor(_wide(c))
    given_ = (a, b) if c is None else (a, b, c)
    near(one("linalg.matmul", *given_, transA=turned[0], transB=turned[1]), expected.numpy().astype(dtype[0]))


@judged("numpy", "linalg.outer")
@given(shapes(0, 3), shapes(0, 2), st.data())
def test_outer(left: tuple[int, ...], right: tuple[int, ...], data: Data) -> None:
    dtype = (data.draw(st.sampled_from(FLOATS)),)
    x, y = data.draw(arrays(left, dtype)), data.draw(arrays(right, dtype))
    near(one("linalg.outer", x, y), np.asarray(np.multiply.outer(x, y)))


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)


# --- factorisations: what they give is put together again ---------------------------------------------------


def _matrices(draw: st.DrawFn | Data, rows: int, columns: int) -> Array:
    """Matrices whose diagonals are so large that nothing is singular."""
    drawer = draw.draw if isinstance(draw, Data) else draw
    batch = drawer(st.sampled_from(((), (2,), (1, 2))))
    dtype = (drawer(st.sampled_from(("float32", "float64"))),)
    drawn = drawer(arrays((*batch, rows, columns), dtype, -2, 2))
    found: Array = drawn + (4 * np.eye(rows, columns)).astype(drawn.dtype)
    return found


SIDES = st.integers(1, 4)


@judged("numpy", "linalg.inverse", "linalg.solve", "linalg.determinant", "linalg.log_determinant")
@judged("torch", "linalg.solve_triangular", "linalg.matrix_exp")
@given(SIDES, SIDES, st.booleans(), st.booleans(), st.data())
def test_systems(side: int, columns: int, upper: bool, unit: bool, data: Data) -> None:
    matrix = _matrices(data, side, side)
    right = data.draw(arrays((*matrix.shape[:-1], columns), (str(matrix.dtype),), -2, 2))
    near(
        one("linalg.inverse", matrix) @ matrix,
        np.broadcast_to(np.eye(side, dtype=matrix.dtype), matrix.shape),
    )
    near(matrix @ one("linalg.solve", matrix, right), right)
    near(one("linalg.determinant", matrix), np.asarray(np.linalg.det(matrix), matrix.dtype))
    found = run("linalg.log_determinant", (matrix,), {})
    for ours, wanted in zip(found, np.linalg.slogdet(matrix), strict=True):
        assert isinstance(ours, np.ndarray)
        near(ours, np.asarray(wanted, matrix.dtype))
    wanted = torch.linalg.solve_triangular(
        *map(torch.tensor, (matrix, right)), upper=upper, unitriangular=unit
    )
    near(one("linalg.solve_triangular", matrix, right, upper=upper, unit=unit), wanted.numpy())
    small = (matrix / 8).astype(matrix.dtype)
    near(one("linalg.matrix_exp", small), torch.linalg.matrix_exp(torch.tensor(small)).numpy())


@judged("numpy", "linalg.cholesky", "linalg.qr", "linalg.svd", "linalg.eig", "linalg.eigh", "linalg.lu")
@given(SIDES, SIDES, st.booleans(), st.data())
def test_factors_make_the_matrix_again(rows: int, columns: int, whole: bool, data: Data) -> None:
    matrix = _matrices(data, rows, columns)
    orthogonal, upper = _all("linalg.qr", matrix, complete=whole)
    near(orthogonal @ upper, matrix)
    near(upper, np.triu(upper))
    _see_orthonormal(orthogonal)
    left, values, right = _all("linalg.svd", matrix, full=whole)
    count = values.shape[-1]
    near((left[..., :count] * values[..., None, :]) @ right[..., :count, :], matrix)
    _see_orthonormal(left)
    _see_orthonormal(np.swapaxes(right, -1, -2))
    assert (np.diff(values) <= 0).all()
    order, lower, top = _all("linalg.lu", matrix)
    near(order @ lower @ top, matrix)
    assert (np.abs(lower) <= 1).all()
    square = (matrix @ np.swapaxes(matrix, -1, -2) + np.eye(rows)).astype(matrix.dtype)
    root = one("linalg.cholesky", square)
    near(root @ np.swapaxes(root, -1, -2), square)
    found, vectors = _all("linalg.eigh", np.triu(square) if whole else np.tril(square), upper=whole)
    near(square @ vectors, vectors * found[..., None, :])
    _see_orthonormal(vectors)
    assert (np.diff(found) >= 0).all()
    whole_square = square + np.triu(square, 1)
    real, imag, left_part, right_part = _all("linalg.eig", whole_square)
    turned, found = left_part + 1j * right_part, real + 1j * imag
    near(np.abs(whole_square @ turned - turned * found[..., None, :]), np.zeros_like(whole_square))
    near((np.abs(turned) ** 2).sum(-2), np.ones_like(real))


def _all(operator: str, *inputs: Array, **attributes: bool) -> list[Array]:
    return [item for item in run(operator, inputs, attributes) if isinstance(item, np.ndarray)]


def _see_orthonormal(columns: Array) -> None:
    wanted = np.eye(columns.shape[-1], dtype=columns.dtype)
    near(
        np.swapaxes(columns, -1, -2) @ columns, np.broadcast_to(wanted, (*columns.shape[:-2], *wanted.shape))
    )
