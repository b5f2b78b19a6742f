"""Recurrent layers, judged by loops over their steps in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import Array
from tests.support.judges.gradients import draw_normal, gives, pull, torch
from tests.support.judges.harness import refuse, run
from tests.support.judges.registry import Refusal, judged
from tests.support.judges.routes import SEEDS

FEW = st.integers(1, 3)


def tensors(*arrays: Array | None) -> list[Any]:
    """Arrays as tensors of torch."""
    return [None if item is None else torch.tensor(item) for item in arrays]


@judged("torch", "recurrent.token_shift")
@given(FEW, st.integers(1, 5), FEW, st.booleans(), SEEDS)
def test_vectors_of_the_step_before(batch: int, steps: int, width: int, known: bool, seed: int) -> None:
    x, state = draw_normal(seed, (batch, steps, width), (batch, width))
    before = state if known else np.zeros_like(state)
    shifted = np.concatenate([before[:, None], x], axis=1)[:, :-1]
    gives("recurrent.token_shift", [x, state if known else None], [shifted, x[:, -1]])


def average(key: Any, value: Any, decay: Any, first: Any, state: Any = None) -> tuple[Any, Any]:
    """Weighted averages and the last state as sums of plain exponentials, which may overflow where ours do not."""
    empty = torch.zeros_like(key[:, 0])
    above, below = (
        (empty, empty)
        if state is None
        else (state[:, 0] * torch.exp(state[:, 2]), state[:, 1] * torch.exp(state[:, 2]))
    )
    found = []
    for step in range(key.shape[1]):
        now, weight = torch.exp(key[:, step]), torch.exp(key[:, step] + first)
        found.append((above + weight * value[:, step]) / (below + weight))
        left = torch.exp(-torch.exp(decay))
        above, below = left * above + now * value[:, step], left * below + now
    return torch.stack(found, 1), torch.stack([above, below], 1)


@judged("torch", "recurrent.wkv")
@given(FEW, st.integers(1, 5), FEW, st.booleans(), SEEDS)
def test_averages_that_decay(batch: int, steps: int, width: int, known: bool, seed: int) -> None:
    wide = (batch, steps, width)
    key, value, decay, first, told = draw_normal(seed, wide, wide, (width,), (width,), (batch, 3, width))
    told[:, 1] = np.abs(told[:, 1]) + 0.5
    state = told if known else None
    wanted, sums = average(*tensors(key, value, decay, first, state))
    found, kept = run("recurrent.wkv", [key, value, decay, first, state])
    assert isinstance(kept, np.ndarray)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-9)
    np.testing.assert_allclose(kept[:, :2] * np.exp(kept[:, 2:]), sums, rtol=1e-9)


def test_large_keys_do_not_overflow() -> None:
    key = np.array([[[900.0], [-900.0], [901.0]]])
    value = np.array([[[1.0], [2.0], [3.0]]])
    found, _ = run("recurrent.wkv", [key, value, np.zeros(1), np.zeros(1), None])
    wanted = (np.exp(-2.0) + 3) / (np.exp(-2.0) + 1)
    np.testing.assert_allclose(np.asarray(found)[0, :, 0], [1.0, 1.0, wanted], rtol=1e-9)


@judged("torch", "recurrent.l2_norm")
@given(FEW, st.integers(1, 4), SEEDS)
def test_vectors_over_their_length(rows: int, width: int, seed: int) -> None:
    (x,) = draw_normal(seed, (rows, 2, width))
    wanted = torch.tensor(x) * torch.rsqrt((torch.tensor(x) ** 2).sum(-1, keepdim=True) + 1e-3)
    gives("recurrent.l2_norm", [x], [wanted], {"eps": 1e-3})


@judged("torch", "recurrent.solve_lower", "recurrent.solve_lower_backward")
@given(FEW, FEW, st.integers(1, 5), FEW, SEEDS)
def test_triangular_systems(batch: int, heads: int, size: int, width: int, seed: int) -> None:
    """What the matrix has on and above its diagonal is not read, and gets no gradient."""
    square, wide = (batch, heads, size, size), (batch, heads, size, width)
    matrix, right, back = draw_normal(seed, square, wide, wide)

    def forward(a: Any, r: Any) -> Any:
        return torch.linalg.solve_triangular(a.tril(-1) + torch.eye(size), r, upper=False)

    (found,) = gives("recurrent.solve_lower", [matrix, right], [forward(*tensors(matrix, right))])
    pulled = pull(forward, [matrix, right], [back])
    gives("recurrent.solve_lower_backward", [back, matrix, found], pulled)


@judged("torch", "recurrent.delta_decay", "recurrent.delta_overlap", "recurrent.delta_write")
@judged("torch", "recurrent.delta_read")
@given(FEW, FEW, FEW, st.integers(1, 4), st.booleans(), SEEDS)
def test_the_delta_rule_is_its_recurrence(
    batch: int, shared: int, share: int, steps: int, known: bool, seed: int
) -> None:
    heads, keys, values = shared * share, 3, 2
    narrow, wide = (batch, shared, steps, keys), (batch, heads, steps, values)
    drawn = draw_normal(
        seed, narrow, narrow, wide, (batch, steps, heads), (heads,), (heads,), (batch, heads, steps)
    )
    q, k, v, sizes, rates, shift, strength = drawn
    beta = 1 / (1 + np.exp(-strength))
    state = draw_normal(seed + 1, (batch, heads, keys, values))[0] if known else None

    steepness = torch.nn.functional.softplus(torch.tensor(sizes + shift))
    logs = -torch.exp(torch.tensor(rates))[:, None] * steepness.transpose(1, 2)
    (decay,) = gives("recurrent.delta_decay", [sizes, rates, shift], [logs.cumsum(-1)])
    wanted, last = _recur(q, k, v, logs.numpy(), beta, state)

    spread = np.repeat(k, share, axis=1)
    left = np.exp(np.minimum(decay[..., :, None] - decay[..., None, :], 0))
    mutual = np.tril(beta[..., None] * (spread @ spread.swapaxes(-1, -2)) * left, -1)
    (overlap,) = gives("recurrent.delta_overlap", [k, decay, beta], [mutual])
    rest = v if state is None else v - np.exp(decay)[..., None] * (spread @ state)
    (wished,) = gives("recurrent.delta_write", [v, k, decay, beta, state], [beta[..., None] * rest])
    written = np.linalg.solve(overlap + np.eye(steps), wished)
    gives("recurrent.delta_read", [q, k, written, decay, state], [wanted, last])


def _recur(
    q: Array, k: Array, v: Array, logs: Array, beta: Array, state: Array | None
) -> tuple[Array, Array]:
    """What each step reads, and the last state: a state decays, takes what it did not give for the key, is read."""
    share = v.shape[1] // k.shape[1]
    q, k = (np.repeat(item, share, axis=1) for item in (q, k))
    kept = np.zeros((*v.shape[:2], k.shape[-1], v.shape[-1])) if state is None else state
    found = []
    for step in range(v.shape[2]):
        kept = kept * np.exp(logs[:, :, step])[..., None, None]
        missing = v[:, :, step] - np.einsum("bhk,bhkv->bhv", k[:, :, step], kept)
        kept = kept + np.einsum("bhk,bhv->bhkv", k[:, :, step], beta[:, :, step, None] * missing)
        found.append(np.einsum("bhk,bhkv->bhv", q[:, :, step], kept))
    return np.stack(found, 2), kept


HEADS = "3 heads of values cannot share 2 heads of keys"
KEYS, TIMES = (1, 2, 4, 5), (1, 3, 4)
REFUSALS = (
    Refusal("recurrent.delta_overlap", HEADS, (KEYS, TIMES, TIMES)),
    Refusal("recurrent.delta_write", HEADS, ((1, 3, 4, 5), KEYS, TIMES, TIMES)),
    Refusal("recurrent.delta_read", HEADS, (KEYS, KEYS, (1, 3, 4, 5), TIMES)),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
