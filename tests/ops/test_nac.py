"""The operators of `nac`, judged by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.judges.draws import Array, arrays
from tests.support.judges.harness import refuse, run
from tests.support.judges.registry import Refusal, judged

REFUSALS = (
    Refusal("nac.converge", "at least one tensor", ([],)),
    Refusal("nac.converge", "'threshold' must be from 1 to 100", ([(2,)],), {"threshold": 0}),
    Refusal("nac.converge", "'threshold' must be from 1 to 100", ([(2,)],), {"threshold": 101}),
)


def scores(branches: list[Array]) -> list[float]:
    """The cosine of each branch with the mean of the others, 0 beside zeros."""
    found = []
    for number, branch in enumerate(branches):
        others = [item for place, item in enumerate(branches) if place != number]
        mean = np.mean(others, axis=0) if others else np.zeros_like(branch)
        norms = np.linalg.norm(branch) * np.linalg.norm(mean)
        found.append(float(np.sum(branch * mean) / norms) if norms else 0.0)
    return found


def converge(branches: list[Array], threshold: int) -> Array:
    """What the coherence rule gives."""
    least = threshold / 100 - 1e-5
    kept = [item for item, score in zip(branches, scores(branches), strict=True) if score >= least]
    if kept:
        return np.asarray(np.mean(kept, axis=0))
    centre = np.mean(branches, axis=0)
    distances = np.array([np.sum((item - centre) ** 2) for item in branches])
    return branches[int(np.argmax(distances <= np.min(distances) * 1.00001))]


def is_clear(branches: list[Array], threshold: int) -> bool:
    """Whether rounding cannot change which branches are taken."""
    return all(abs(score - threshold / 100) > 1e-4 for score in scores(branches))


@judged("numpy", "nac.converge")
@given(st.lists(st.integers(0, 3), max_size=3), st.integers(1, 5), st.integers(1, 100), st.data())
def test_converge(shape: list[int], count: int, threshold: int, data: st.DataObject) -> None:
    branches = tuple(data.draw(arrays(tuple(shape), ("float32",))) for _ in range(count))
    wide = [item.astype(np.float64) for item in branches]
    assume(is_clear(wide, threshold))
    (found,) = run("nac.converge", (branches,), {"threshold": threshold})
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, converge(wide, threshold), rtol=1e-4, atol=1e-4)


@judged("numpy", "nac.converge")
@given(st.integers(1, 100), arrays((4,), ("float32",)))
def test_what_disagrees_is_left_out(threshold: int, branch: Array) -> None:
    """Of a branch twice and its opposite the two are taken, since they agree with what is left of the others."""
    assume(float(np.max(np.abs(branch))) > 1e-3)
    branches = (branch, 2 * branch, -branch / 2)
    (found,) = run("nac.converge", (branches,), {"threshold": threshold})
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, 1.5 * branch, rtol=1e-5)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
