"""The operators of `mamba`, judged by torch: recurrences written as loops, gradients taken automatically."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import Array
from tests.support.judges.gradients import draw_normal, gives, pull, torch
from tests.support.judges.harness import near, refuse, run, run_text
from tests.support.judges.registry import Given, Refusal, judged

SEEDS = st.integers(0, 2**32 - 1)
SMALL = st.integers(1, 3)


class Sizes(NamedTuple):
    """Batch, groups, channels of a group, states, steps."""

    batch: int
    groups: int
    share: int
    states: int
    steps: int


SIZES = st.builds(Sizes, SMALL, SMALL, SMALL, SMALL, st.integers(1, 6))


# --- the recurrence -----------------------------------------------------------------------------------------


def scan(*inputs: Any) -> tuple[Any, Any]:
    """The recurrence step by step, as its definition says it."""
    u, delta, A, B, C, D, bias, state = inputs
    share = u.shape[1] // B.shape[1]
    wide_B, wide_C = (item.repeat_interleave(share, 1) for item in (B, C))
    dt = torch.nn.functional.softplus(delta + bias[:, None], threshold=100.0)
    rows = []
    for step in range(u.shape[2]):
        now = dt[:, :, step, None]
        state = torch.exp(now * A) * state + now * wide_B[..., step] * u[:, :, step, None]
        rows.append((wide_C[..., step] * state).sum(-1) + D * u[:, :, step])
    return torch.stack(rows, -1), state


def draw_scan(sizes: Sizes, seed: int) -> list[Array]:
    """Inputs of the recurrence: rates are negative."""
    b, g, share, n, t = sizes
    d = g * share
    shapes = ((b, d, t), (b, d, t), (d, n), (b, g, n, t), (b, g, n, t), (d,), (d,), (b, d, n))
    found = draw_normal(seed, *shapes)
    found[2] = -np.exp(found[2])
    return found


@judged("torch", "mamba.selective_scan", "mamba.selective_scan_backward")
@given(SIZES, st.booleans(), SEEDS)
def test_the_recurrence(sizes: Sizes, stateful: bool, seed: int) -> None:
    inputs = draw_scan(sizes, seed)
    if not stateful:
        inputs[7] = np.zeros_like(inputs[7])
    state = inputs[7] if stateful else None
    expected = scan(*map(torch.tensor, inputs))
    gives("mamba.selective_scan", [*inputs[:7], state], expected, {"chunk_size": 2})
    backs = draw_normal(seed + 1, expected[0].shape, expected[1].shape)
    gives(
        "mamba.selective_scan_backward", [backs[0], *inputs[:7], state, backs[1]], pull(scan, inputs, backs)
    )


def test_a_sequence_in_two_parts_is_the_sequence() -> None:
    inputs = draw_scan(Sizes(2, 2, 3, 4, 9), 5)
    whole = run("mamba.selective_scan", inputs)
    cut = [0, 1, 3, 4]
    early = [item[..., :4] if place in cut else item for place, item in enumerate(inputs)]
    first, state = run("mamba.selective_scan", early)
    late = [item[..., 4:] if place in cut else item for place, item in enumerate(inputs[:7])]
    second, last = run("mamba.selective_scan", [*late, state])
    near(np.concatenate([np.asarray(first), np.asarray(second)], -1), np.asarray(whole[0]), 1e-12)
    near(np.asarray(last), np.asarray(whole[1]), 1e-12)


def test_the_gradient_without_one_of_the_last_state() -> None:
    inputs = draw_scan(Sizes(2, 1, 2, 3, 5), 8)
    (back,) = draw_normal(9, (2, 2, 5))
    expected = pull(lambda *leaves: scan(*leaves)[0], inputs, [back])
    gives("mamba.selective_scan_backward", [back, *inputs], expected)


OPEN = """
import mamba;
graph G {
    @input {
        u: f64[b|2, 4, t|64]; delta: f64[b, 4, t]; A: f64[4, 3]; B: f64[b, 2, 3, t]; C: f64[b, 2, 3, t];
        D: f64[4]; bias: f64[4]; first: f64[b, 4, 3];
    }
    @output { y: f64[b, 4, t]; last: f64[b, 4, 3]; }
    @compose { y, last = found: mamba.selective_scan(u, delta, A, B, C, D, bias, first); }
}
"""


@pytest.mark.parametrize("steps", [1, 9, 64])
def test_only_the_run_tells_how_many_steps_there_are(steps: int) -> None:
    inputs = draw_scan(Sizes(2, 2, 2, 3, steps), steps)
    names = ("u", "delta", "A", "B", "C", "D", "bias", "first")
    found, _ = run_text(OPEN, dict(zip(names, inputs, strict=True)), {})
    for name, other in zip(("y", "last"), scan(*map(torch.tensor, inputs)), strict=True):
        near(found[name], other.numpy(), 1e-9)


def test_long_sequences_take_time_in_proportion() -> None:
    """2000 steps are far more than a formula over pairs of steps could take at once."""
    inputs = draw_scan(Sizes(1, 1, 4, 4, 2000), 3)
    gives("mamba.selective_scan", inputs, scan(*map(torch.tensor, inputs)))


# --- the convolution ----------------------------------------------------------------------------------------


def convolve(x: Any, weight: Any, bias: Any, state: Any, *, active: bool) -> tuple[Any, Any]:
    """Each channel with its past, by the convolution of torch."""
    kernel = weight.shape[-1]
    joined = torch.cat([state, x], -1)
    near_past = joined[..., joined.shape[-1] - x.shape[-1] - kernel + 1 :]
    mixed = torch.nn.functional.conv1d(near_past, weight.reshape(-1, 1, kernel), bias, groups=x.shape[1])
    kept = joined[..., joined.shape[-1] - state.shape[-1] :]
    return (torch.nn.functional.silu(mixed) if active else mixed), kept


@judged("torch", "mamba.conv1d", "mamba.conv1d_backward")
@given(SMALL, SMALL, st.integers(1, 5), st.integers(1, 4), st.integers(0, 1), st.booleans(), SEEDS)
def test_the_convolution(b: int, d: int, t: int, k: int, spare: int, flat: bool, seed: int) -> None:
    shapes = (b, d, t), (d, k) if flat else (d, 1, k), (d,), (b, d, k - 1 + spare)
    inputs = draw_normal(seed, *shapes)
    expected = convolve(*map(torch.tensor, inputs), active=True)
    gives("mamba.conv1d", inputs, expected, {"kernel_size": k})
    backs = draw_normal(seed + 1, *(item.shape for item in expected))
    pulled = pull(lambda *leaves: convolve(*leaves, active=True), inputs, backs)
    gives("mamba.conv1d_backward", [backs[0], *inputs, backs[1]], pulled)


@pytest.mark.parametrize("attributes", [{"activation": "none"}, {"silu": False}, {"silu": True}])
def test_the_convolution_without_bias_and_state(attributes: dict[str, Given]) -> None:
    x, weight, back = draw_normal(4, (2, 3, 6), (3, 1, 4), (2, 3, 6))
    empty = torch.zeros(3, dtype=torch.float64), torch.zeros((2, 3, 3), dtype=torch.float64)
    active = bool(attributes.get("silu", False))
    expected = convolve(torch.tensor(x), torch.tensor(weight), *empty, active=active)
    gives("mamba.conv1d", [x, weight], expected, attributes)
    found = run("mamba.conv1d_backward", [back, x, weight], attributes)
    pulled = pull(lambda a, b: convolve(a, b, *empty, active=active)[0], [x, weight], [back])
    for array, other in zip(found[:2], pulled, strict=True):
        near(np.asarray(array), other.numpy(), 1e-9)


# --- parts --------------------------------------------------------------------------------------------------


def split_proj(proj: Any, d_inner: int, conv_dim: int) -> tuple[Any, Any, Any]:
    """Columns for the gate, the convolution and the steps of the heads."""
    heads = proj.shape[-1] - d_inner - conv_dim
    gate, conv, delta = proj.split([d_inner, conv_dim, heads], -1)
    return gate, conv.transpose(1, 2), delta.repeat_interleave(d_inner // heads, -1).transpose(1, 2)


@judged("torch", "mamba.split_proj", "mamba.split_proj_backward")
@given(SMALL, SMALL, SMALL, SMALL, st.integers(0, 4), SEEDS)
def test_the_parts_of_the_projection(
    b: int, t: int, heads: int, share: int, conv_dim: int, seed: int
) -> None:
    sizes = {"d_inner": heads * share, "conv_dim": conv_dim}
    (proj,) = draw_normal(seed, (b, t, heads * share + conv_dim + heads))
    expected = split_proj(torch.tensor(proj), **sizes)
    gives("mamba.split_proj", [proj], expected, sizes)
    backs = draw_normal(seed + 1, *(item.shape for item in expected))
    pulled = pull(lambda leaf: split_proj(leaf, **sizes), [proj], backs)
    gives("mamba.split_proj_backward", [*backs, proj], pulled, sizes)


def split_conv(conv: Any, d_inner: int, n_groups: int, d_state: int) -> tuple[Any, ...]:
    """Channels, then what each group writes, then what it reads."""
    u, *rest = conv.split([d_inner, n_groups * d_state, n_groups * d_state], 1)
    return u, *(item.reshape(conv.shape[0], n_groups, d_state, conv.shape[2]) for item in rest)


@judged("torch", "mamba.split_conv", "mamba.split_conv_backward")
@given(SIZES, SEEDS)
def test_the_parts_of_the_convolution(sizes: Sizes, seed: int) -> None:
    b, g, share, n, t = sizes
    told = {"d_inner": g * share, "n_groups": g, "d_state": n}
    (conv,) = draw_normal(seed, (b, g * share + 2 * g * n, t))
    expected = split_conv(torch.tensor(conv), **told)
    gives("mamba.split_conv", [conv], expected, told)
    backs = draw_normal(seed + 1, *(item.shape for item in expected))
    gives("mamba.split_conv_backward", backs, pull(lambda leaf: split_conv(leaf, **told), [conv], backs))


def split_x_proj(proj: Any, dt_rank: int, d_state: int) -> tuple[Any, ...]:
    """Columns for the steps, for what is written and for what is read."""
    dt, *rest = proj.split([dt_rank, d_state, d_state], -1)
    return dt, *(item.transpose(1, 2).unsqueeze(1) for item in rest)


@judged("torch", "mamba.split_x_proj", "mamba.split_x_proj_backward", "mamba.transpose")
@given(SMALL, SMALL, SMALL, SMALL, SEEDS)
def test_the_parts_of_the_projection_of_channels(b: int, t: int, rank: int, n: int, seed: int) -> None:
    told = {"dt_rank": rank, "d_state": n}
    (proj,) = draw_normal(seed, (b, t, rank + 2 * n))
    expected = split_x_proj(torch.tensor(proj), **told)
    gives("mamba.split_x_proj", [proj], expected, told)
    backs = draw_normal(seed + 1, *(item.shape for item in expected))
    gives("mamba.split_x_proj_backward", backs, pull(lambda leaf: split_x_proj(leaf, **told), [proj], backs))
    gives("mamba.transpose", [proj], [torch.tensor(proj).transpose(1, 2)])


def expand_A(logs: Any, head_dim: int, d_state: int) -> Any:
    """Rates of decay for every channel and state."""
    return (-torch.exp(logs)).repeat_interleave(head_dim)[:, None].expand(-1, d_state)


@judged("torch", "mamba.expand_A", "mamba.expand_A_backward")
@judged("torch", "mamba.expand_head_param", "mamba.expand_head_param_backward")
@given(SMALL, SMALL, SMALL, SEEDS)
def test_numbers_of_heads(heads: int, size: int, n: int, seed: int) -> None:
    logs, back, narrow = draw_normal(seed, (heads,), (heads * size, n), (heads * size,))
    told = {"head_dim": size, "d_state": n}
    (rates,) = gives("mamba.expand_A", [logs], [expand_A(torch.tensor(logs), **told).contiguous()], told)
    pulled = pull(lambda leaf: expand_A(leaf, **told), [logs], [back])
    gives("mamba.expand_A_backward", [back, rates], pulled, {"head_dim": size})
    spread = torch.tensor(logs).repeat_interleave(size)
    gives("mamba.expand_head_param", [logs], [spread], {"head_dim": size})
    pulled = pull(lambda leaf: leaf.repeat_interleave(size), [logs], [narrow])
    gives("mamba.expand_head_param_backward", [narrow], pulled, {"head_dim": size})


# --- refusals -----------------------------------------------------------------------------------------------

PARTS = {"d_inner": 4, "conv_dim": 6}
SCAN = ((2, 3, 5), (2, 3, 5), (3, 4), (2, 2, 4, 5), (2, 2, 4, 5), (3,), (3,))
BACK = ((2, 3, 5), (2, 3, 5), (3, 1, 4))
TWO = "there must be one filter for each channel"
SHORT = "a state of 2 steps is too short for 4 columns"
REFUSALS = (
    Refusal("mamba.split_proj", "must be extents", ((1, 2, 9),), {"d_inner": 0, "conv_dim": 1}),
    Refusal("mamba.split_proj", "there must be more than 10 columns", ((1, 2, 10),), PARTS),
    Refusal("mamba.split_proj", "3 heads do not divide 4 channels", ((1, 2, 13),), PARTS),
    Refusal(
        "mamba.split_proj_backward",
        "3 heads do not divide 4 channels",
        ((1, 2, 4), (1, 6, 2), (1, 4, 2), (1, 2, 13)),
        PARTS,
    ),
    Refusal("mamba.conv1d", "'activation' must be one of", BACK[1:], {"activation": "relu"}),
    Refusal(
        "mamba.conv1d", "'kernel_size' is 3 and the weights have 4 columns", BACK[1:], {"kernel_size": 3}
    ),
    Refusal("mamba.conv1d", TWO, ((2, 3, 5), (3, 2, 4))),
    Refusal("mamba.conv1d", SHORT, (*BACK[1:], (3,), (2, 3, 2))),
    Refusal("mamba.conv1d_backward", "'activation' must be one of", BACK, {"activation": "relu"}),
    Refusal("mamba.conv1d_backward", TWO, (*BACK[:2], (3, 2, 4))),
    Refusal("mamba.conv1d_backward", SHORT, (*BACK, (3,), (2, 3, 2))),
    Refusal(
        "mamba.conv1d_backward",
        "the state has 3 steps and its gradient 4",
        (*BACK, (3,), (2, 3, 3), (2, 3, 4)),
    ),
    Refusal(
        "mamba.split_conv",
        "'d_inner', 'n_groups' and 'd_state' must be positive",
        ((1, 8, 2),),
        {"d_inner": 4, "n_groups": 0, "d_state": 2},
    ),
    Refusal(
        "mamba.split_conv",
        "there must be 8 channels",
        ((1, 9, 2),),
        {"d_inner": 4, "n_groups": 1, "d_state": 2},
    ),
    Refusal(
        "mamba.split_x_proj",
        "'dt_rank' and 'd_state' must be positive",
        ((1, 2, 4),),
        {"dt_rank": 0, "d_state": 2},
    ),
    Refusal("mamba.split_x_proj", "there must be 5 columns", ((1, 2, 6),), {"dt_rank": 1, "d_state": 2}),
    Refusal(
        "mamba.expand_A",
        "'head_dim' and 'd_state' must be positive",
        ((3,),),
        {"head_dim": 2, "d_state": 0},
    ),
    Refusal(
        "mamba.expand_A_backward", "'head_dim' must divide 3 channels", ((3, 2), (3, 2)), {"head_dim": 2}
    ),
    Refusal("mamba.expand_head_param", "'head_dim' must be positive", ((3,),), {"head_dim": 0}),
    Refusal(
        "mamba.expand_head_param_backward", "'head_dim' must divide 3 channels", ((3,),), {"head_dim": 2}
    ),
    Refusal("mamba.selective_scan", "'chunk_size' must be positive", SCAN, {"chunk_size": 0}),
    Refusal("mamba.selective_scan", "2 groups do not divide 3 channels", SCAN),
    Refusal("mamba.selective_scan_backward", "2 groups do not divide 3 channels", (SCAN[0], *SCAN)),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
