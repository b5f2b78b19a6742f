"""Random numbers in programs of PyTorch: our generator, the seed, and distributions that PyTorch's own draws judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as f

from lamella.base.arrays import Array
from tests.support.bridge.torch_models.backends import Functions, OnBackends
from tests.support.bridge.torch_models.judge import results_of

COUNT = 4096
CHANCES = torch.tensor([0.1, 0.2, 0.0, 0.7])
DRAWS: dict[str, Callable[..., Any]] = {
    "rand": lambda x: torch.rand(64, 64),
    "rand_like": lambda x: torch.rand_like(x),
    "uniform": lambda x: torch.empty_like(x).uniform_(-3, 5),
    "randn": lambda x: torch.randn(64, 64, dtype=torch.float64),
    "normal": lambda x: torch.normal(x * 0 + 3, 2.0),
    "log_normal": lambda x: torch.empty_like(x).log_normal_(0, 0.25),
    "randint": lambda x: torch.randint(3, 9, (COUNT,)),
    "randperm": lambda x: torch.randperm(COUNT),
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x * 0 + 1)),
    "bernoulli_p": lambda x: torch.bernoulli(x, 0.3),
    "exponential": lambda x: torch.empty_like(x).exponential_(2.0),
    "geometric": lambda x: torch.empty_like(x).geometric_(0.3),
    "cauchy": lambda x: torch.empty_like(x).cauchy_(1, 2).clamp(-9, 9),
    "multinomial": lambda x: torch.multinomial(CHANCES.expand(COUNT, 4), 1)[:, 0],
    "several": lambda x: torch.multinomial(CHANCES.expand(COUNT, 4), 2),
    "replaced": lambda x: torch.multinomial(CHANCES, COUNT, replacement=True),
    "dropout": lambda x: f.dropout(x * 0 + 1, 0.25, True),
    "features": lambda x: f.dropout2d((x * 0 + 1).reshape(64, 16, 2, 2), 0.5, True).mean((-1, -2)),
    "alpha_dropout": lambda x: f.alpha_dropout(x, 0.3, True),
    "rrelu": lambda x: f.rrelu(x, training=True),
    "attention": lambda x: f.scaled_dot_product_attention(
        x.reshape(1, 8, 16, 32), x.reshape(1, 8, 16, 32), x.reshape(1, 8, 16, 32), dropout_p=0.5
    ),
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: Any) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
    """What PyTorch draws, and what each backend does."""
    torch.manual_seed(1)
    x, module = torch.randn(64, 64), Functions(DRAWS)
    return results_of(module(x)), OnBackends(module, (x,), tmp_path_factory.mktemp("random"), seed=5)(x)


def test_distributions_are_those_of_torch(
    drawn: tuple[dict[str, Array], dict[str, dict[str, Array]]],
) -> None:
    expected, found = drawn
    for name, wanted in expected.items():
        ours = found["reference"][name]
        assert (ours.shape, ours.dtype) == (wanted.shape, wanted.dtype), name
        left, right = ours.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
        values = np.unique(np.r_[left, right])
        # The test of Kolmogorov and Smirnov: how far two shares of numbers up to a value lie apart, at most.
        shares = [np.searchsorted(np.sort(item), values, "right") / item.size for item in (left, right)]
        assert np.abs(shares[0] - shares[1]).max() < 3 * np.sqrt(2 / left.size), name


def test_draws_hold_what_they_promise(drawn: tuple[dict[str, Array], dict[str, dict[str, Array]]]) -> None:
    ours = drawn[1]["reference"]
    assert sorted(ours["randperm"]) == list(range(COUNT))
    assert not np.array_equal(ours["randperm"], np.arange(COUNT))
    assert (ours["several"][:, 0] != ours["several"][:, 1]).all()
    assert 2 not in ours["multinomial"]
    assert 2 not in ours["replaced"]
    assert not np.array_equal(ours["rand"], ours["rand_like"])


def test_a_seed_draws_the_same_on_every_backend(
    drawn: tuple[dict[str, Array], dict[str, dict[str, Array]]],
) -> None:
    reference = drawn[1]["reference"]
    for backend in ("cpu", "nacvm"):
        for name, ours in reference.items():
            np.testing.assert_allclose(drawn[1][backend][name], ours, 1e-4, 1e-5, err_msg=f"{backend} {name}")


def test_another_seed_draws_others(tmp_path: Path) -> None:
    module, x = Functions({"rand": DRAWS["rand"]}), torch.ones(2)
    first, second, again = (OnBackends(module, (x,), tmp_path, seed)(x) for seed in (1, 2, 1))
    for backend, found in first.items():
        assert not np.array_equal(found["rand"], second[backend]["rand"])
        np.testing.assert_array_equal(found["rand"], again[backend]["rand"])
