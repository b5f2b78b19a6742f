"""Attention and rotary positions of `llm`, judged by torch and its automatic gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import Array, arrays
from tests.support.judges.harness import refuse
from tests.support.judges.llm import agree, differentiate, draw, torch
from tests.support.judges.registry import Given, Refusal, judged

Data = st.DataObject
EPS = 0.125


@dataclass(frozen=True, slots=True)
class Case:
    """The extents and options of a call."""

    batch: int
    shared: int
    ratio: int
    count: int
    width: int
    causal: bool
    window: int | None
    scale: float | None
    sloped: bool

    @property
    def heads(self) -> int:
        """How many heads the queries have."""
        return self.shared * self.ratio

    @property
    def packed(self) -> int:
        """How many heads queries, keys and values have together."""
        return self.heads + 2 * self.shared

    @property
    def slopes(self) -> tuple[float, ...]:
        """A slope for each head."""
        return tuple(2.0 ** -(head + 1) for head in range(self.heads))

    def attributes(self) -> dict[str, Given]:
        """What the call is given."""
        found: dict[str, Given] = {"causal": self.causal}
        if self.window is not None:
            found["window_size"] = self.window
        if self.scale is not None:
            found["softmax_scale"] = self.scale
        if self.sloped:
            found["alibi_slopes"] = self.slopes
        return found


small = st.integers(1, 3)
cases = st.builds(
    Case,
    *(small, small, small, st.integers(1, 5), st.sampled_from([2, 4])),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 4),
    scale=st.none() | st.just(0.5),
    sloped=st.booleans(),
)


def attend(case: Case, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Attention written out, keys and values repeated for the queries that share them."""
    k, v = (item.repeat_interleave(case.ratio, 1) for item in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if case.scale is None else case.scale)
    rows, columns = scores.shape[-2:]
    at, other = torch.arange(rows)[:, None] + columns - rows, torch.arange(columns)
    if case.sloped:
        scores = scores + torch.tensor(case.slopes, dtype=scores.dtype)[:, None, None] * (other - at)
    hidden = (other > at) & case.causal
    if case.window is not None:
        hidden = hidden | (at - other >= case.window)
    scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@judged("torch", "llm.flash_attention", "llm.flash_attention_backward")
@given(cases, st.integers(0, 3), st.data())
def test_attention(case: Case, before: int, data: Data) -> None:
    q = draw(data, case.batch, case.heads, case.count, case.width)
    k, v = (draw(data, case.batch, case.shared, before + case.count, case.width) for _ in range(2))
    back = draw(data, *q.shape)
    (out, lse), grads = differentiate(lambda *leaves: attend(case, *leaves), [q, k, v], [back], [0, 1, 2])
    agree("flash_attention", [q, k, v], [out, lse], **case.attributes())
    agree("flash_attention_backward", [back, q, k, v, out, lse], grads, **case.attributes())
    agree("flash_attention_backward", [back, q, k, v], grads, **case.attributes())


@judged("torch", "llm.flash_attention")
@given(small, small, st.booleans(), st.data())
def test_attention_of_torch(shared: int, ratio: int, causal: bool, data: Data) -> None:
    q = draw(data, 2, shared * ratio, 4, 4)
    k, v = (draw(data, 2, shared, 4, 4) for _ in range(2))
    tensors = [torch.tensor(item) for item in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=True)
    case = Case(2, shared, ratio, 4, 4, causal, None, None, False)
    agree("flash_attention", [q, k, v], [expected, attend(case, *tensors)[1]], causal=causal)


@judged("torch", "llm.attention")
@given(cases, st.integers(0, 3), st.none() | st.just(1.5), st.booleans(), st.data())
def test_attention_with_more(case: Case, before: int, cap: float | None, sinking: bool, data: Data) -> None:
    """A bias, a mask that leaves each query something, sinks, a soft cap; windows on both sides."""
    q = draw(data, case.batch, case.heads, case.count, case.width)
    k, v = (draw(data, case.batch, case.shared, before + case.count, case.width) for _ in range(2))
    heads = data.draw(st.sampled_from((1, case.heads)))
    bias = draw(data, data.draw(st.sampled_from((1, case.batch))), heads, case.count, before + case.count)
    sinks = draw(data, case.heads) if sinking else None
    rows, columns = case.count, before + case.count
    at, other = torch.arange(rows)[:, None] + before, torch.arange(columns)
    mask = np.array(data.draw(st.lists(st.integers(0, 1), min_size=columns, max_size=columns)))
    mask = np.broadcast_to(
        mask | (case.window is not None) | (np.arange(columns) == 0), (case.batch, columns)
    )
    tensors = [torch.tensor(item) for item in (q, *(item.repeat(case.ratio, 1) for item in (k, v)))]
    scores = tensors[0] @ tensors[1].mT * (case.width**-0.5 if case.scale is None else case.scale)
    scores = scores if cap is None else cap * (scores / cap).tanh()
    scores = scores + torch.tensor(bias)
    if case.sloped:
        scores = scores + torch.tensor(case.slopes, dtype=scores.dtype)[:, None, None] * (other - at)
    hidden = ((other > at) & case.causal) | torch.tensor(mask == 0)[:, None, None]
    if case.window is not None:
        hidden = hidden | ((at - other).abs() >= case.window)
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        column = torch.tensor(sinks)[None, :, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], -1)
    expected = scores.softmax(-1)[..., :columns] @ tensors[2]
    more = {} if cap is None else {"softcap": cap}
    inputs = [q, k, v, bias, mask.astype(np.int64), sinks]
    agree("attention", inputs, [expected], **case.attributes(), **more)


@judged("numpy", "llm.flash_attention", "llm.flash_attention_backward")
def test_a_query_that_sees_nothing_gives_nothing() -> None:
    q, k = np.ones((1, 1, 3, 2)), np.ones((1, 1, 1, 2))
    out, lse = np.zeros((1, 1, 3, 2)), np.full((1, 1, 3), -np.inf)
    out[..., 2, :], lse[..., 2] = 1.0, 2**0.5
    agree("flash_attention", [q, k, k], [out, lse])
    back = np.ones_like(out)
    agree(
        "flash_attention_backward",
        [back, q, k, k, out, lse],
        [np.zeros_like(q), np.zeros_like(k), np.ones_like(k)],
    )


@judged("torch", "llm.flash_attention_packed", "llm.flash_attention_packed_backward")
@given(cases, st.data())
def test_packed_attention(case: Case, data: Data) -> None:
    qkv = draw(data, case.batch, case.count, case.packed, case.width)
    back = draw(data, case.batch, case.count, case.heads, case.width)

    def packed(qkv: Any) -> tuple[Any, Any]:
        out, lse = attend(case, *qkv.transpose(1, 2).split([case.heads, case.shared, case.shared], 1))
        return out.transpose(1, 2), lse

    (out, lse), grads = differentiate(packed, [qkv], [back], [0])
    given_ = {"num_heads": case.heads, "num_kv_heads": case.shared, **case.attributes()}
    agree("flash_attention_packed", [qkv], [out, lse], **given_)
    agree("flash_attention_packed_backward", [back, qkv, out, lse], grads, **given_)
    agree("flash_attention_packed_backward", [back, qkv], grads, **given_)


def turn(x: Any, freqs: Any, at: Any, interleaved: bool) -> Any:
    """Rotary positions of `[B, H, T, D]` as complex products; `at` is `[T]` or `[B, T]`."""
    angles = torch.view_as_complex(torch.as_tensor(freqs)[at])
    angles = angles[:, None] if angles.ndim == 3 else angles
    size = angles.shape[-1]
    head, rest = x[..., : 2 * size], x[..., 2 * size :]
    if interleaved:
        turned = torch.view_as_complex(head.unflatten(-1, (size, 2)).contiguous()) * angles
        return torch.cat([torch.view_as_real(turned).flatten(-2), rest], -1)
    turned = torch.complex(head[..., :size], head[..., size:]) * angles
    return torch.cat([turned.real, turned.imag, rest], -1)


def angles_of(data: Data, rows: int, columns: int) -> Array:
    """Cosines and sines for positions."""
    angle = draw(data, rows, columns)
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def positions_of(data: Data, batch: int, count: int, rank: int | None) -> Array | None:
    """Drawn positions: none, shared by the batch, or of its own for each item."""
    if rank is None:
        return None
    found: Array = data.draw(arrays((batch, count)[2 - rank :], ("int64", "int32"), 0, 5))
    return found


ranks = st.sampled_from([None, 1, 2])


@judged("torch", "llm.rope", "llm.rope_backward")
@given(ranks, st.booleans(), cases, st.integers(1, 3), st.data())
def test_rope(rank: int | None, interleaved: bool, case: Case, columns: int, data: Data) -> None:
    width = 2 * max(columns, case.width // 2)
    freqs = angles_of(data, 6, columns)
    given_ = positions_of(data, case.batch, case.count, rank)
    q = draw(data, case.batch, case.heads, case.count, width)
    k = draw(data, case.batch, case.shared, case.count, width)
    backs = [draw(data, *q.shape), draw(data, *k.shape)]
    at = torch.as_tensor(np.arange(case.count) if given_ is None else given_, dtype=torch.int64)

    def both(q: Any, k: Any) -> tuple[Any, Any]:
        return turn(q, freqs, at, interleaved), turn(k, freqs, at, interleaved)

    results, grads = differentiate(both, [q, k], backs, [0, 1])
    agree("rope", [q, k, freqs, given_], results, interleaved=interleaved)
    agree("rope_backward", [*backs, freqs, given_], grads, interleaved=interleaved)


@judged("torch", "llm.rope")
def test_one_row_of_positions_serves_the_batch() -> None:
    x, freqs = np.ones((2, 1, 3, 4)), np.random.default_rng(0).normal(size=(6, 2, 2))
    expected = turn(torch.tensor(x), freqs, torch.tensor([2, 4, 5]), False)
    agree("rope", [x, x, freqs, np.asarray([[2, 4, 5]])], [expected, expected])


@judged("torch", "llm.rope_packed", "llm.rope_packed_backward")
@judged("torch", "llm.qkv_qk_norm_rope", "llm.qkv_qk_norm_rope_backward")
@given(ranks, st.booleans(), cases, st.booleans(), st.data())
def test_packed_rope(rank: int | None, interleaved: bool, case: Case, partly: bool, data: Data) -> None:
    shape = case.batch, case.count, case.packed, case.width
    qkv, back, freqs = draw(data, *shape), draw(data, *shape), angles_of(data, 6, case.width // 2)
    q_weight, k_weight = draw(data, case.width), draw(data, case.width)
    given_ = positions_of(data, case.batch, case.count, rank)
    at = torch.as_tensor(np.arange(case.count) if given_ is None else given_, dtype=torch.int64)
    sizes = [case.heads, case.shared, case.shared]

    def turned(qkv: Any, columns: int) -> Any:
        q, k, v = qkv.transpose(1, 2).split(sizes, 1)
        both = [turn(item, freqs[:, :columns].copy(), at, interleaved) for item in (q, k)]
        return torch.cat([*both, v], 1).transpose(1, 2)

    def normal(x: Any, weight: Any) -> tuple[Any, Any]:
        rstd = (x.square().mean(-1) + EPS).rsqrt()
        return x * rstd[..., None] * weight, rstd

    def whole(qkv: Any, q_weight: Any, k_weight: Any) -> tuple[Any, ...]:
        q, k, v = qkv.split(sizes, 2)
        (q, q_rstd), (k, k_rstd) = normal(q, q_weight), normal(k, k_weight)
        return turned(torch.cat([q, k, v], 2), case.width // 2), q_rstd, k_rstd

    named: dict[str, Given] = {
        "num_heads": case.heads,
        "num_kv_heads": case.shared,
        "interleaved": interleaved,
    }
    rotary: dict[str, Given] = {"rotary_dim": 2} if partly else {}
    columns = 1 if partly else case.width // 2
    (out,), grads = differentiate(lambda x: turned(x, columns), [qkv], [back], [0])
    agree("rope_packed", [qkv, freqs, given_], out, **named, **rotary)
    agree("rope_packed_backward", [back, freqs, given_], grads, **named, **rotary)
    inputs = [qkv, q_weight, k_weight]
    (out, *rstds), grads = differentiate(whole, inputs, [back], [0, 1, 2])
    agree("qkv_qk_norm_rope", [*inputs, freqs, given_], [out, *rstds], **named, eps=EPS)
    agree("qkv_qk_norm_rope_backward", [back, *inputs, freqs, given_, *rstds], grads, **named, eps=EPS)
    agree("qkv_qk_norm_rope_backward", [back, *inputs, freqs, given_], grads, **named, eps=EPS)


@judged("torch", "llm.split_and_reshape", "llm.split_and_reshape_backward")
@given(cases, st.data())
def test_split_and_reshape(case: Case, data: Data) -> None:
    qkv = draw(data, case.batch, case.count, case.packed * case.width)
    sizes = [case.heads, case.shared, case.shared]

    def parted(qkv: Any) -> tuple[Any, ...]:
        heads = qkv.unflatten(-1, (case.packed, case.width)).transpose(1, 2)
        return tuple(heads.split(sizes, 1))

    backs = [draw(data, case.batch, size, case.count, case.width) for size in sizes]
    results, grads = differentiate(parted, [qkv], backs, [0])
    agree("split_and_reshape", [qkv], results, num_heads=case.heads, num_kv_heads=case.shared)
    agree("split_and_reshape_backward", backs, grads)


PACKED = "2 heads of queries and 1 of keys and values need 4 heads"
COUNTS = {"num_heads": 2, "num_kv_heads": 1}
ATTENTION = ((1, 3, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4))
FINE = ((1, 2, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4))
REFUSALS = (
    *(
        refusal
        for name, before in (("flash_attention", ()), ("flash_attention_backward", (0,)))
        for refusal in (
            Refusal(
                f"llm.{name}",
                "3 heads of queries cannot share 2 heads of keys",
                (*(ATTENTION[0] for _ in before), *ATTENTION),
            ),
            Refusal(
                f"llm.{name}",
                "'window_size' must be positive",
                (*(FINE[0] for _ in before), *FINE),
                {"window_size": 0},
            ),
            Refusal(
                f"llm.{name}",
                "'alibi_slopes' must hold a number for each of 2 heads",
                (*(FINE[0] for _ in before), *FINE),
                {"alibi_slopes": (0.5, 0.5, 0.5)},
            ),
        )
    ),
    Refusal("llm.attention", "3 heads of queries cannot share 2 heads of keys", ATTENTION),
    Refusal("llm.attention", "'window_size' must be positive", FINE, {"window_size": 0}),
    Refusal("llm.attention", "'softcap' must be positive", FINE, {"softcap": 0.0}),
    Refusal(
        "llm.attention",
        "'alibi_slopes' must hold a number for each of 2 heads",
        FINE,
        {"alibi_slopes": (0.5, 0.5, 0.5)},
    ),
    Refusal(
        "llm.attention",
        "'bias' must be for 1 sequences and 2 heads, or for all of them",
        (*FINE, (1, 3, FINE[0][2], FINE[1][2])),
    ),
    Refusal(
        "llm.attention",
        "'sinks' must hold a number for each of 2 heads",
        (*FINE, (1, 1, 2, 2), (1, 2), (3,)),
        element="f32 f32 f32 f32 i64 f32",
    ),
    Refusal("llm.flash_attention_packed", PACKED, ((1, 2, 3, 4),), COUNTS),
    Refusal("llm.rope_packed", PACKED, ((1, 2, 3, 4), (6, 2, 2)), COUNTS),
    Refusal("llm.rope_packed", "must be even", ((1, 2, 4, 4), (6, 2, 2)), {**COUNTS, "rotary_dim": 3}),
    *(
        refusal
        for name, first, given_ in (
            ("rope", ((1, 2, 7, 4), (1, 1, 7, 4)), {}),
            ("rope_packed", ((1, 7, 4, 4),), COUNTS),
            ("qkv_qk_norm_rope", ((1, 7, 4, 4), (4,), (4,)), COUNTS),
        )
        for refusal in (
            Refusal(f"llm.{name}", "3 angles need vectors of at least 6", (*first, (9, 3, 2)), given_),
            Refusal(
                f"llm.{name}", "there are 7 positions, but angles for only 6", (*first, (6, 2, 2)), given_
            ),
        )
    ),
    Refusal("llm.qkv_qk_norm_rope", PACKED, ((1, 2, 3, 4), (4,), (4,), (6, 2, 2)), COUNTS),
    Refusal(
        "llm.split_and_reshape", "there must be heads", ((1, 2, 8),), {"num_heads": 0, "num_kv_heads": 1}
    ),
    Refusal("llm.split_and_reshape", "7 columns cannot be divided into 4 heads", ((1, 2, 7),), COUNTS),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refused(refusal: Refusal) -> None:
    refuse(refusal)
