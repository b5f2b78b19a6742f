"""Linear algebra on three backends, judged by PyTorch; what has a free sign is compared without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import linalg

import lamella
from tests.support.bridge.torch_models.backends import Functions, OnBackends
from tests.support.bridge.torch_models.judge import results_of


def product_of_svd(matrix: torch.Tensor, full: bool) -> Any:
    """The singular values, the magnitudes of the vectors, and the matrix again: the signs are free in pairs."""
    left, values, right = linalg.svd(matrix, full_matrices=full)
    count = values.shape[-1]
    left, right = left[..., :count], right[..., :count, :]
    return values, left.abs(), right.abs(), (left * values.unsqueeze(-2)) @ right


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inv": lambda a, s, b, m: (linalg.inv(a), linalg.inv_ex(a), linalg.tensorinv(a[0].reshape(2, 2, 4))),
    "det": lambda a, s, b, m: (linalg.det(a), linalg.slogdet(a), torch.logdet(s), torch.logdet(a)),
    "solve": lambda a, s, b, m: (linalg.solve(a, b), linalg.solve(a, b[0]), linalg.solve(a[0], b[0, :, 0])),
    "solve_left": lambda a, s, b, m: linalg.solve(a, b.mT, left=False),
    "cholesky": lambda a, s, b, m: (
        linalg.cholesky(s),
        linalg.cholesky(s, upper=True),
        linalg.cholesky_ex(s),
    ),
    "by_cholesky": lambda a, s, b, m: (
        torch.cholesky_solve(b, linalg.cholesky(s)),
        torch.cholesky_inverse(linalg.cholesky(s)),
    ),
    "triangular": lambda a, s, b, m: (
        linalg.solve_triangular(s, b, upper=False),
        linalg.solve_triangular(s, b, upper=True, unitriangular=True),
        linalg.solve_triangular(s, b.mT, upper=True, left=False),
    ),
    "qr": lambda a, s, b, m: (
        linalg.qr(m),
        linalg.qr(m.mT),
        linalg.qr(m, "complete")[1],
        linalg.qr(m, "r")[1],
    ),
    "svd": lambda a, s, b, m: (
        product_of_svd(m, full=False),
        product_of_svd(m.mT, full=True),
        linalg.svdvals(a),
    ),
    "eigh": lambda a, s, b, m: (linalg.eigh(s)[0], linalg.eigh(s)[1].abs(), linalg.eigvalsh(s)),
    "eig": lambda a, s, b, m: (
        torch.view_as_real(linalg.eig(a)[0]),
        linalg.eig(a)[1].abs(),
        (linalg.eig(a)[1] * linalg.eigvals(a).unsqueeze(-2)).abs(),
    ),
    "pinv": lambda a, s, b, m: (linalg.pinv(m), linalg.pinv(m.mT), linalg.pinv(m, rtol=0.5)),
    "lu": lambda a, s, b, m: (linalg.lu(a), linalg.lu(m), linalg.lu(m.mT)),
    "powers": lambda a, s, b, m: (torch.matrix_exp(a), linalg.matrix_power(a, 3), linalg.matrix_power(a, -2)),
    "norms": lambda a, s, b, m: (linalg.matrix_norm(a, 2), linalg.matrix_norm(a, "nuc"), linalg.cond(a)),
    "rank": lambda a, s, b, m: linalg.matrix_rank(m),
}


def matrices(seed: int) -> tuple[torch.Tensor, ...]:
    """Square ones, symmetric ones with a definite sign, right sides, and a tall one."""
    draw = torch.Generator().manual_seed(seed)
    square, right = torch.randn(2, 4, 4, generator=draw), torch.randn(2, 4, 3, generator=draw)
    return square, square @ square.mT + torch.eye(4), right, torch.randn(5, 3, generator=draw)


def test_factorisations_are_those_of_torch(tmp_path: Path) -> None:
    module = Functions(FUNCTIONS)
    run = OnBackends(module, matrices(0), tmp_path)
    for seed in range(1, 4):
        inputs = matrices(seed)
        expected = results_of(module(*inputs))
        for backend, found in run(*inputs).items():
            for name, wanted in expected.items():
                scale = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)))
                message = f"{backend} {name} {seed}"
                np.testing.assert_allclose(found[name], wanted, 2e-3, 2e-4 * scale, err_msg=message)


def test_a_matrix_without_inverse_is_told(tmp_path: Path) -> None:
    run = OnBackends(Functions({"inverse": linalg.inv}), (torch.eye(2),), tmp_path)
    with pytest.raises(lamella.LamellaError, match=r"'linalg.inverse' cannot run: a matrix .* Singular"):
        run(torch.zeros(2, 2))


def test_a_backend_without_the_reference_refuses() -> None:
    model = lamella.from_torch(Functions({"inverse": linalg.inv}), (torch.eye(2),))
    with pytest.raises(lamella.LamellaError, match=r"SKR386.*linalg.inverse.* has no formula"):
        lamella.compile(model, backend="cpu", strict_backend=True)(given_0=np.eye(2, dtype=np.float32))
