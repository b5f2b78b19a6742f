"""Normalisations and activations of `llm`, judged by torch and its automatic gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import axis_of, shapes
from tests.support.judges.harness import refuse, run
from tests.support.judges.llm import agree, differentiate, draw, torch
from tests.support.judges.registry import Refusal, judged

Data = st.DataObject
Shape = tuple[int, ...]
EPS = 0.125
leads = shapes(0, 3, 0, 3)


def rms(x: Any, weight: Any) -> tuple[Any, Any]:
    """A normalisation by the root mean square, and the reciprocal of that root."""
    rstd = (x.square().mean(-1) + EPS).rsqrt()
    return x * rstd[..., None] * weight, rstd


@judged("torch", "llm.rmsnorm", "llm.rmsnorm_backward")
@given(leads, st.integers(1, 4), st.data())
def test_rmsnorm(lead: Shape, width: int, data: Data) -> None:
    x, weight, back = draw(data, *lead, width), draw(data, width), draw(data, *lead, width)
    (y, rstd), grads = differentiate(rms, [x, weight], [back], [0, 1])
    expected = torch.nn.functional.rms_norm(torch.tensor(x), (width,), torch.tensor(weight), EPS)
    np.testing.assert_allclose(y, expected)
    agree("rmsnorm", [x, weight], [y, rstd], eps=EPS)
    agree("rmsnorm_backward", [back, x, weight, rstd], grads, eps=EPS)
    agree("rmsnorm_backward", [back, x, weight], grads, eps=EPS)


@judged("torch", "llm.fused_residual_rmsnorm", "llm.fused_residual_rmsnorm_backward")
@given(leads, st.integers(1, 4), st.data())
def test_fused_residual_rmsnorm(lead: Shape, width: int, data: Data) -> None:
    residual, x, weight = draw(data, *lead, width), draw(data, *lead, width), draw(data, width)
    kept, back = draw(data, *lead, width), draw(data, *lead, width)

    def fused(residual: Any, x: Any, weight: Any) -> tuple[Any, ...]:
        return (residual + x, *rms(residual + x, weight))

    (total, y, rstd), grads = differentiate(fused, [residual, x, weight], [kept, back], [0, 1, 2])
    agree("fused_residual_rmsnorm", [residual, x, weight], [total, y, rstd], eps=EPS)
    agree("fused_residual_rmsnorm_backward", [back, kept, total, weight, rstd], grads, eps=EPS)
    agree("fused_residual_rmsnorm_backward", [back, kept, total, weight], grads, eps=EPS)


@judged("torch", "llm.layernorm", "llm.layernorm_backward")
@pytest.mark.parametrize("shifted", [False, True])
@given(leads, st.integers(1, 4), st.data())
def test_layernorm(shifted: bool, lead: Shape, width: int, data: Data) -> None:
    x, weight, back = draw(data, *lead, width), draw(data, width), draw(data, *lead, width)
    bias = draw(data, width) if shifted else np.zeros(width)

    def normalise(x: Any, weight: Any, bias: Any) -> tuple[Any, ...]:
        mean = x.mean(-1)
        variance = (x - mean[..., None]).square().mean(-1)
        return torch.nn.functional.layer_norm(x, (width,), weight, bias, EPS), mean, (variance + EPS).rsqrt()

    (y, mean, rstd), grads = differentiate(normalise, [x, weight, bias], [back], [0, 1, 2])
    agree("layernorm", [x, weight, bias if shifted else None], [y, mean, rstd], eps=EPS)
    agree("layernorm_backward", [back, x, weight, mean, rstd], grads, eps=EPS)
    agree("layernorm_backward", [back, x, weight], grads, eps=EPS)


@judged("torch", "llm.group_rmsnorm", "llm.group_rmsnorm_backward")
@given(leads, st.integers(1, 3), st.integers(1, 3), st.data())
def test_group_rmsnorm(lead: Shape, groups: int, each: int, data: Data) -> None:
    width = groups * each
    x, weight, back = draw(data, *lead, width), draw(data, width), draw(data, *lead, width)

    def normalise(x: Any, weight: Any) -> tuple[Any, Any]:
        y, rstd = rms(x.reshape(*lead, groups, each), weight.reshape(groups, each))
        return y.reshape(*lead, width), rstd

    (y, rstd), grads = differentiate(normalise, [x, weight], [back], [0, 1])
    agree("group_rmsnorm", [x, weight], [y, rstd], n_groups=groups, eps=EPS)
    agree("group_rmsnorm_backward", [back, x, weight, rstd], grads, n_groups=groups, eps=EPS)
    agree("group_rmsnorm_backward", [back, x, weight], grads, n_groups=groups, eps=EPS)


@judged("torch", "llm.qk_norm", "llm.qk_norm_backward")
@given(st.lists(st.integers(1, 3), min_size=5, max_size=5), st.data())
def test_qk_norm(sizes: list[int], data: Data) -> None:
    batch, heads, shared, count, width = sizes
    q, k = draw(data, batch, heads, count, width), draw(data, batch, shared, count, width)
    weights = draw(data, width), draw(data, width)
    backs = [draw(data, *q.shape), draw(data, *k.shape)]

    def both(q: Any, k: Any, q_weight: Any, k_weight: Any) -> tuple[Any, ...]:
        (q_norm, q_rstd), (k_norm, k_rstd) = rms(q, q_weight), rms(k, k_weight)
        return q_norm, k_norm, q_rstd, k_rstd

    results, grads = differentiate(both, [q, k, *weights], backs, [0, 1, 2, 3])
    agree("qk_norm", [q, k, *weights], results, eps=EPS)
    agree("qk_norm_backward", [*backs, q, k, *weights, *results[2:]], grads, eps=EPS)
    agree("qk_norm_backward", [*backs, q, k, *weights], grads, eps=EPS)


@judged("torch", "llm.swiglu", "llm.swiglu_backward", "llm.split_swiglu", "llm.split_swiglu_backward")
@given(leads, st.integers(0, 3), st.data())
def test_swiglu(lead: Shape, width: int, data: Data) -> None:
    gate, up, back = (draw(data, *lead, width) for _ in range(3))
    (out,), grads = differentiate(lambda g, u: torch.nn.functional.silu(g) * u, [gate, up], [back], [0, 1])
    agree("swiglu", [gate, up], out)
    agree("swiglu_backward", [back, gate, up], grads)
    whole = np.concatenate([gate, up], -1)
    agree("split_swiglu", [whole], out)
    agree("split_swiglu_backward", [back, whole], np.concatenate(grads, -1))


@judged("torch", "llm.clamped_swiglu")
@given(leads, st.integers(0, 4), st.data())
def test_gates_within_limits(lead: Shape, width: int, data: Data) -> None:
    """As GPT-OSS has it: gates and values in turn."""
    x = draw(data, *lead, 2 * width)
    gate, up = torch.tensor(x)[..., ::2].clamp(max=0.5), torch.tensor(x)[..., 1::2].clamp(-0.5, 0.5)
    wanted = (up + 1) * gate * torch.sigmoid(1.3 * gate)
    agree("clamped_swiglu", [x], [wanted.numpy()], alpha=1.3, limit=0.5)


@judged("torch", "llm.geglu", "llm.geglu_backward", "llm.gelu", "llm.gelu_backward")
@pytest.mark.parametrize("approximate", [False, True])
@given(leads, st.data())
def test_gelu(approximate: bool, shape: Shape, data: Data) -> None:
    gate, up, back = (draw(data, *shape) for _ in range(3))

    def gelu(x: Any) -> Any:
        return torch.nn.functional.gelu(x, approximate="tanh" if approximate else "none")

    (out,), grads = differentiate(gelu, [gate], [back], [0])
    agree("gelu", [gate], out, approximate=approximate)
    agree("gelu_backward", [back, gate], grads, approximate=approximate)
    (out,), grads = differentiate(lambda g, u: gelu(g) * u, [gate, up], [back], [0, 1])
    agree("geglu", [gate, up], out, approximate=approximate)
    agree("geglu_backward", [back, gate, up], grads, approximate=approximate)


BY_INPUT: list[tuple[str, Callable[[Any], Any]]] = [
    ("silu", torch.nn.functional.silu),
    ("relu", torch.relu),
    ("relu2", lambda x: torch.relu(x).square()),
]
BY_OUTPUT: list[tuple[str, Callable[[Any], Any]]] = [
    ("sigmoid", torch.sigmoid),
    ("exp_neg", lambda x: -torch.exp(x)),
    ("sqrt", torch.sqrt),
]
OTHERS = {"silu", "relu", "sigmoid", "sqrt"}
"""Those whose forward operator stands in another module."""


@judged("torch", "llm.relu2", "llm.relu2_backward", "llm.relu_backward", "llm.silu_backward")
@pytest.mark.parametrize(("name", "function"), BY_INPUT, ids=[name for name, _ in BY_INPUT])
@given(leads, st.data())
def test_activations(name: str, function: Callable[[Any], Any], shape: Shape, data: Data) -> None:
    x, back = draw(data, *shape), draw(data, *shape)
    (out,), grads = differentiate(function, [x], [back], [0])
    if name not in OTHERS:
        agree(name, [x], out)
    agree(f"{name}_backward", [back, x], grads)


@judged("torch", "llm.exp_neg", "llm.exp_neg_backward", "llm.sigmoid_backward", "llm.sqrt_backward")
@judged("torch", "llm.tanh_backward")
@pytest.mark.parametrize(("name", "function"), BY_OUTPUT, ids=[name for name, _ in BY_OUTPUT])
@given(leads, st.data())
def test_activations_by_what_they_gave(
    name: str, function: Callable[[Any], Any], shape: Shape, data: Data
) -> None:
    x, back = draw(data, *shape, low=1), draw(data, *shape)
    (out,), grads = differentiate(function, [x], [back], [0])
    if name not in OTHERS:
        agree(name, [x], out)
    agree(f"{name}_backward", [back, out], grads)


@judged("torch", "llm.softmax", "llm.softmax_backward")
@given(shapes(1, 4, 1, 3), st.data())
def test_softmax(shape: Shape, data: Data) -> None:
    x, back, dim = draw(data, *shape), draw(data, *shape), data.draw(axis_of(len(shape)))
    (out,), grads = differentiate(lambda x: torch.softmax(x, dim), [x], [back], [0])
    agree("softmax", [x], out, dim=dim)
    agree("softmax_backward", [back, out], grads, dim=dim)


def test_far_values_stay_finite() -> None:
    far = np.asarray([-1e4, -750.0, 750.0, 1e4])
    for name in ("swiglu", "geglu"):
        for result in run(f"llm.{name}_backward", [np.ones(4), far, np.ones(4)]):
            assert np.isfinite(np.asarray(result)).all()


GROUPS = "6 columns cannot be divided into 4 groups"
REFUSALS = (
    Refusal("llm.clamped_swiglu", "gates and values must be pairs", ((2, 3),)),
    Refusal("llm.clamped_swiglu", "'limit' must be positive", ((2, 4),), {"limit": 0.0}),
    Refusal("llm.softmax", "'dim' must be at least -2 and below 2", ((2, 3),), {"dim": 2}),
    Refusal("llm.group_rmsnorm", GROUPS, ((2, 6), (6,)), {"n_groups": 4}),
    Refusal("llm.group_rmsnorm_backward", GROUPS, ((2, 6), (2, 6), (6,)), {"n_groups": 4}),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refused(refusal: Refusal) -> None:
    refuse(refusal)
