"""What generation and packed sequences need of `llm`: positions, caches and attention over them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.llm import agree, differentiate, draw, torch
from tests.support.judges.registry import judged

Data = st.DataObject


def attend(q: Any, k: Any, v: Any, visible: Any) -> tuple[Any, Any]:
    """Attention of as many heads of queries as of keys, where a table says which keys each query sees."""
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@judged("numpy", "llm.positions", "llm.advance")
@given(st.integers(0, 9), st.integers(0, 5))
def test_positions(seen: int, count: int) -> None:
    agree("positions", [np.asarray(seen)], np.arange(seen, seen + count), count=count)
    agree("advance", [np.asarray(seen), np.arange(15)], np.asarray(seen + count), count=count)


@judged("numpy", "llm.remember")
@given(st.integers(1, 4), st.integers(0, 4), st.data())
def test_caches(count: int, room: int, data: Data) -> None:
    seen = data.draw(st.integers(0, room))
    cache, x = draw(data, 2, 1, room + count, 3), draw(data, 2, 1, count, 3)
    expected = cache.copy()
    expected[:, :, seen : seen + count] = x
    agree("remember", [cache, x, np.asarray(seen)], expected)


@judged("torch", "llm.flash_attention")
@given(st.integers(1, 4), st.integers(0, 4), st.none() | st.integers(1, 4), st.data())
def test_attention_from_a_position(count: int, room: int, window: int | None, data: Data) -> None:
    seen = data.draw(st.integers(0, room))
    q, k, v = draw(data, 2, 1, count, 2), draw(data, 2, 1, room + count, 2), draw(data, 2, 1, room + count, 2)
    at, other = torch.arange(seen, seen + count)[:, None], torch.arange(room + count)
    visible = other <= at if window is None else (other <= at) & (at - other < window)
    expected = attend(torch.tensor(q), torch.tensor(k), torch.tensor(v), visible)
    inputs = [q, k, v, None, np.asarray(seen)]
    if window is None:
        agree("flash_attention", inputs, expected)
    else:
        agree("flash_attention", inputs, expected, window_size=window)


@judged("torch", "llm.flash_attention", "llm.flash_attention_backward")
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.booleans(), st.data())
def test_packed_sequences(sizes: list[int], causal: bool, data: Data) -> None:
    begins, count = np.cumsum([0, *sizes]).astype(np.int32), sum(sizes)
    q, k, v, back = (draw(data, 2, 1, count, 2) for _ in range(4))
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    visible = owner[:, None] == owner
    if causal:
        visible = visible & torch.ones(count, count, dtype=torch.bool).tril()
    (out, lse), grads = differentiate(lambda q, k, v: attend(q, k, v, visible), [q, k, v], [back], [0, 1, 2])
    agree("flash_attention", [q, k, v, begins], [out, lse], causal=causal)
    agree("flash_attention_backward", [back, q, k, v, out, lse, begins], grads, causal=causal)
    agree("flash_attention_backward", [back, q, k, v, None, None, begins], grads, causal=causal)


@judged("numpy", "llm.last_token", "llm.first_token")
@given(st.integers(1, 3), st.integers(1, 5), st.data())
def test_vectors_of_chosen_tokens(batch: int, length: int, data: Data) -> None:
    """The first counts where all are padding."""
    row = st.lists(st.integers(0, 2), min_size=length, max_size=length)
    ids = np.asarray(data.draw(st.lists(row, min_size=batch, max_size=batch)), np.int64)
    x = draw(data, batch, length, 2)
    places = [max((place for place, one in enumerate(item) if one != 1), default=0) for item in ids]
    agree("last_token", [x, ids], x[np.arange(batch), places], pad=1)
    agree("first_token", [x, ids], x[np.arange(batch), (ids == 2).argmax(-1)], token=2)
    agree("first_token", [x, ids], x[np.arange(batch), ids.argmax(-1)])
