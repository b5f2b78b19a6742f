"""The operators of `rand`, judged by the moments of their distributions and by their seed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import Array, shapes
from tests.support.judges.harness import refuse, run, same
from tests.support.judges.registry import Given, Refusal, judged

COUNT = 40_000
NAMES = ("rand.uniform", "rand.normal", "rand.bernoulli")


def _sample(
    operator: str, attributes: Mapping[str, Given], types: tuple[str, ...] = (), seed: int = 0
) -> Array:
    (found,) = run(operator, (), attributes, types, seed=seed)
    assert isinstance(found, np.ndarray)
    return found


def _agree(sample: Array, mean: float, std: float) -> None:
    """See that mean and spread lie within six standard errors of what they should be."""
    error = 6 / np.sqrt(sample.size)
    wide = sample.astype(np.float64)
    assert abs(wide.mean() - mean) <= error * std + 1e-12
    assert abs(wide.std() - std) <= error * max(std, 1e-12) + 1e-12


@judged("statistics", "rand.uniform")
@given(st.integers(-9, 9), st.integers(1, 9), st.integers(0, 999))
def test_uniform_reals(low: int, width: int, seed: int) -> None:
    found = _sample(
        "rand.uniform", {"min": low / 2, "max": (low + width) / 2, "shape": (COUNT,)}, ("real",), seed
    )
    assert found.dtype == np.float32
    assert found.min() >= low / 2
    assert found.max() < (low + width) / 2
    _agree(found, (2 * low + width) / 4, width / 2 / np.sqrt(12))


@judged("statistics", "rand.uniform")
@given(st.integers(-9, 9), st.integers(1, 9), st.integers(0, 999))
def test_uniform_integers(low: int, count: int, seed: int) -> None:
    found = _sample("rand.uniform", {"min": low, "max": low + count, "shape": (COUNT,)}, ("int",), seed)
    assert found.dtype == np.int64
    assert set(np.unique(found)) == set(range(low, low + count))
    _agree(found, low + (count - 1) / 2, np.sqrt((count * count - 1) / 12))


@judged("statistics", "rand.normal")
@given(st.integers(-9, 9), st.integers(0, 9), st.integers(0, 999))
def test_normal(mean: int, std: int, seed: int) -> None:
    found = _sample("rand.normal", {"mean": mean / 2, "std": std / 2, "shape": (COUNT,)}, seed=seed)
    assert found.dtype == np.float32
    _agree(found, mean / 2, std / 2)
    if std:
        scaled = (found.astype(np.float64) - mean / 2) / (std / 2)
        assert abs(np.mean(scaled**3)) < 6 * np.sqrt(15 / COUNT)
        assert abs(np.mean(scaled**4) - 3) < 6 * np.sqrt(96 / COUNT)


@judged("statistics", "rand.bernoulli")
@given(st.integers(0, 8), st.integers(0, 999))
def test_bernoulli(eighths: int, seed: int) -> None:
    found = _sample("rand.bernoulli", {"prob": eighths / 8, "shape": (COUNT,)}, seed=seed)
    assert found.dtype == np.bool_
    _agree(found, eighths / 8, np.sqrt(eighths / 8 * (1 - eighths / 8)))


def _needed(operator: str, shape: tuple[int, ...]) -> dict[str, Given]:
    return {"shape": shape, "prob": 0.5} if operator == "rand.bernoulli" else {"shape": shape}


@judged("statistics", *NAMES)
@pytest.mark.parametrize("operator", NAMES)
@given(shapes(), st.integers(0, 999))
def test_a_seed_gives_the_same_numbers_again(operator: str, shape: tuple[int, ...], seed: int) -> None:
    attributes = _needed(operator, shape)
    first = _sample(operator, attributes, seed=seed)
    assert first.shape == shape
    same(_sample(operator, attributes, seed=seed), first)


@judged("statistics", *NAMES)
@pytest.mark.parametrize("operator", NAMES)
def test_another_seed_gives_other_numbers(operator: str) -> None:
    attributes = _needed(operator, (100,))
    assert np.any(_sample(operator, attributes, seed=1) != _sample(operator, attributes, seed=2))


REFUSALS = (
    Refusal("rand.uniform", "'min' must be below 'max'", (), {"min": 1.0, "max": 1.0, "shape": (2,)}),
    Refusal("rand.uniform", "'shape' must not be negative", (), {"shape": (-2,)}),
    Refusal("rand.normal", "'std' must not be negative", (), {"std": -1.0, "shape": (2,)}),
    Refusal("rand.normal", "'shape' must not be negative", (), {"shape": (-2,)}),
    Refusal("rand.bernoulli", "'prob' must be at least 0", (), {"prob": 1.5, "shape": (2,)}),
    Refusal("rand.bernoulli", "'shape' must not be negative", (), {"prob": 0.5, "shape": (-2,)}),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
