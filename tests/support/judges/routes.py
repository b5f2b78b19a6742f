"""Routes of tokens to experts: drawn ones, and the orders that NumPy and torch give them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.support.judges.draws import Array
from tests.support.judges.gradients import torch

SMALL = st.integers(1, 4)
SEEDS = st.integers(0, 2**32 - 1)


class Sizes(NamedTuple):
    """Tokens, experts, experts of a token, columns."""

    tokens: int
    experts: int
    top: int
    columns: int


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    """Sizes with at least as many experts as a token takes."""
    experts = draw(st.integers(1, 6))
    return Sizes(draw(st.integers(1, 6)), experts, draw(st.integers(1, experts)), draw(SMALL))


def draw_routes(drawn: Sizes, seed: int) -> Array:
    """The experts of each token, no one twice, some perhaps never."""
    random = np.random.default_rng(seed)
    rows = [random.permutation(drawn.experts)[: drawn.top] for _ in range(drawn.tokens)]
    return np.asarray(rows, np.int32)


def order(indices: Array) -> Array:
    """Slots in the order of their experts, by the stable sort of NumPy."""
    return np.argsort(indices.reshape(-1), kind="stable").astype(np.int32)


def offsets_of(indices: Array, experts: int) -> Array:
    """Where the rows of each expert begin."""
    counts = np.bincount(indices.reshape(-1), minlength=experts)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def rank(scores: Any, count: int) -> Any:
    """The best of each row, by the stable sort of torch."""
    return torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, :count]
