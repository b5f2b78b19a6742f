"""Extents and numbers that only the run tells, on three backends, judged by PyTorch on data that is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lamella
from tests.support.bridge.torch_models.backends import Functions, OnBackends
from tests.support.bridge.torch_models.judge import results_of

ROWS, COLUMNS = 4, 3


def first_rows(x: torch.Tensor, count: torch.Tensor) -> Any:
    """As many rows as a tensor says, and numbers up to there."""
    number = count.item()
    torch._check(number >= 0)
    torch._check(number <= ROWS)
    return x[:number] * 2, torch.arange(number) + number, x * number


SELECTIONS: dict[str, Callable[..., Any]] = {
    "nonzero": lambda x, _: x.nonzero(),
    "where": lambda x, _: torch.where(x > 0),
    "masked_select": lambda x, _: torch.masked_select(x, x[:1] > 0) * 2,
    "mask": lambda x, _: x[x > 0].exp(),
    "rows": lambda x, _: x[x[:, 0] > 0] @ x.t(),
    "columns": lambda x, _: x[:, x[0] > 0],
    "put": lambda x, _: x.index_put((x > 0,), x[x > 0] * 10),
    "scattered": lambda x, _: x.masked_scatter(x > 0, x[x > 0] * 3),
    "sums": lambda x, _: torch.softmax(x[x[:, 0] >= 0], -1).sum(0),
    "static": lambda x, _: (torch.nonzero_static(x, size=5), torch.nonzero_static(x, size=20)),
}
COUNTS: dict[str, Callable[..., Any]] = {
    "unique": lambda x, _: torch.unique(x.long(), return_inverse=True, return_counts=True),
    "reals": lambda x, _: torch.unique(x),
    "runs": lambda x, _: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
    "different_rows": lambda x, _: torch.unique(x[:, :2], dim=0, return_inverse=True, return_counts=True),
    "different_columns": lambda x, _: torch.unique(x, dim=1),
    "bincount": lambda x, _: torch.bincount(x.abs().long().flatten()),
    "weighted": lambda x, _: torch.bincount(
        x.abs().long().flatten(), weights=x.flatten().double(), minlength=9
    ),
    "repeats": lambda x, _: x.repeat_interleave(x[:, 1].abs().long(), dim=0),
}
ITEMS: dict[str, Callable[..., Any]] = {
    "first": first_rows,
    "times": lambda x, _: x * x[0, 1].item() + 1,
    "parts": lambda x, count: torch.cat(torch.split(x, [count.item(), ROWS - count.item()])),
    "chosen": lambda x, _: torch.cond((x > 0).all().item(), lambda y: y + 1, lambda y: y - 1, (x,)),
    "truth": lambda x, _: torch.ops.aten._is_all_true(x > -2),
}
EXAMPLE = (torch.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS) - 5, torch.tensor(3))


@pytest.fixture(scope="module", params=[SELECTIONS, COUNTS, ITEMS], ids=["selections", "counts", "items"])
def compiled(request: Any, tmp_path_factory: Any) -> tuple[Functions, OnBackends]:
    module = Functions(request.param)
    return module, OnBackends(module, EXAMPLE, tmp_path_factory.mktemp("dynamic"))


@given(st.lists(st.integers(-3, 3), min_size=12, max_size=12), st.integers(1, ROWS - 1))
@settings(max_examples=8)
def test_results_of_all_extents_are_those_of_torch(
    compiled: tuple[Functions, OnBackends], values: list[int], count: int
) -> None:
    module, run = compiled
    inputs = torch.tensor(values, dtype=torch.float32).reshape(ROWS, COLUMNS), torch.tensor(count)
    expected = results_of(module(*inputs))
    for backend, found in run(*inputs).items():
        assert list(found) == list(expected), backend
        for name, wanted in expected.items():
            assert found[name].shape == wanted.shape, (backend, name)
            assert found[name].dtype == wanted.dtype, (backend, name)
            np.testing.assert_allclose(found[name], wanted, 1e-5, 1e-6, err_msg=f"{backend} {name}")


def test_a_number_that_is_too_large_for_an_extent_is_told(tmp_path: Any) -> None:
    run = OnBackends(Functions({"first": first_rows}), EXAMPLE, tmp_path)
    with pytest.raises(lamella.LamellaError, match="it counts to 9; numbers from 0 to 4 are possible"):
        run(EXAMPLE[0], torch.tensor(9))
