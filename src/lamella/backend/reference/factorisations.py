"""Factorisations of matrices, which have no formula: LAPACK by way of NumPy, for batches of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import Array, DType
from lamella.lang.skriptnd.rules.graphs import NO_MEANING
from lamella.ops.fault import Fault
from lamella.ops.instance import Value

Attributes = Mapping[str, Value]
Factorisation = Callable[[list[Array], Attributes], tuple[Array, ...]]


def factorise(
    work: Factorisation, inputs: list[Array], attributes: Attributes, dtypes: tuple[DType, ...]
) -> tuple[Array, ...]:
    """What a factorisation gives in the types of its results; a Fault where a matrix has none."""
    try:
        found = work(inputs, attributes)
    except np.linalg.LinAlgError as problem:
        raise Fault(
            NO_MEANING, reason=f"a matrix of {inputs[0].shape} has no such result: {problem}"
        ) from None
    return tuple(item.astype(dtype, copy=False) for item, dtype in zip(found, dtypes, strict=True))


def _inverse(inputs: list[Array], _: Attributes) -> tuple[Array, ...]:
    return (np.linalg.inv(inputs[0]),)


def _determinant(inputs: list[Array], _: Attributes) -> tuple[Array, ...]:
    return (np.asarray(np.linalg.det(inputs[0])),)


def _log_determinant(inputs: list[Array], _: Attributes) -> tuple[Array, ...]:
    sign, logarithm = np.linalg.slogdet(inputs[0])
    return np.asarray(sign), np.asarray(logarithm)


def _solve(inputs: list[Array], _: Attributes) -> tuple[Array, ...]:
    return (np.linalg.solve(inputs[0], inputs[1]),)


def _solve_triangular(inputs: list[Array], attributes: Attributes) -> tuple[Array, ...]:
    """Forward or backward substitution, row by row."""
    matrix, right = inputs
    count, upper, unit = matrix.shape[-1], bool(attributes["upper"]), bool(attributes["unit"])
    found = np.zeros_like(right)
    for row in range(count - 1, -1, -1) if upper else range(count):
        done = slice(row + 1, count) if upper else slice(0, row)
        known = np.einsum("...j,...jk->...k", matrix[..., row, done], found[..., done, :])
        rest = right[..., row, :] - known
        found[..., row, :] = rest if unit else rest / matrix[..., row, row, None]
    return (found,)


def _cholesky(inputs: list[Array], _: Attributes) -> tuple[Array, ...]:
    return (np.linalg.cholesky(inputs[0]),)


def _qr(inputs: list[Array], attributes: Attributes) -> tuple[Array, ...]:
    return tuple(np.linalg.qr(inputs[0], "complete" if attributes["complete"] else "reduced"))


def _svd(inputs: list[Array], attributes: Attributes) -> tuple[Array, ...]:
    return tuple(np.linalg.svd(inputs[0], bool(attributes["full"])))


def _eigh(inputs: list[Array], attributes: Attributes) -> tuple[Array, ...]:
    return tuple(np.linalg.eigh(inputs[0], "U" if attributes["upper"] else "L"))


def _eig(inputs: list[Array], _: Attributes) -> tuple[Array, ...]:
    real = inputs[0].dtype
    parts = (part for found in np.linalg.eig(inputs[0]) for part in (found.real, found.imag))
    return tuple(np.ascontiguousarray(part, real) for part in parts)


def _lu(inputs: list[Array], _: Attributes) -> tuple[Array, ...]:
    """Elimination column by column, each with the largest element of its column as pivot."""
    matrix = inputs[0]
    *batch, rows, columns = matrix.shape
    least = min(rows, columns)
    work = matrix.reshape(-1, rows, columns).copy()
    orders = np.empty((len(work), rows), np.int64)
    for item, order in zip(work, orders, strict=True):
        order[:] = np.arange(rows)
        for step in range(least):
            pivot = step + int(np.argmax(np.abs(item[step:, step])))
            item[[step, pivot]], order[[step, pivot]] = item[[pivot, step]], order[[pivot, step]]
            if item[step, step] != 0:
                item[step + 1 :, step] /= item[step, step]
                item[step + 1 :, step + 1 :] -= np.outer(item[step + 1 :, step], item[step, step + 1 :])
    moved = np.eye(rows, dtype=matrix.dtype)[orders].swapaxes(-1, -2)
    lower = np.tril(work[..., :least], -1) + np.eye(rows, least, dtype=matrix.dtype)
    upper = np.triu(work[:, :least])
    return tuple(part.reshape(*batch, *part.shape[1:]) for part in (moved, lower, upper))


TERMS = 18
"""Terms of the series of a matrix whose norm is at most a half: the next is below 1e-20."""


def _matrix_exp(inputs: list[Array], _: Attributes) -> tuple[Array, ...]:
    """Scaling and squaring: the series of a small power of two of the matrix, multiplied with itself."""
    matrix = inputs[0].astype(np.float64)
    norms = np.abs(matrix).sum(-1).max(-1, initial=0.0)
    squarings = max(0, int(np.ceil(np.log2(max(float(np.max(norms, initial=0.0)), 1e-30)))) + 1)
    small = matrix / 2.0**squarings
    total = term = np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    for number in range(1, TERMS):
        term = term @ small / number
        total = total + term
    for _step in range(squarings):
        total = total @ total
    return (total,)


FACTORISATIONS: Mapping[str, Factorisation] = MappingProxyType(
    {
        "linalg.cholesky": _cholesky,
        "linalg.determinant": _determinant,
        "linalg.eig": _eig,
        "linalg.eigh": _eigh,
        "linalg.inverse": _inverse,
        "linalg.log_determinant": _log_determinant,
        "linalg.lu": _lu,
        "linalg.matrix_exp": _matrix_exp,
        "linalg.qr": _qr,
        "linalg.solve": _solve,
        "linalg.solve_triangular": _solve_triangular,
        "linalg.svd": _svd,
    }
)
"""What computes each operator of `linalg` that has no formula."""
