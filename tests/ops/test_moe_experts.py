"""The products and experts of `moe`, judged by torch: one expert after the other, gradients taken automatically."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.judges.draws import Array
from tests.support.judges.gradients import draw_normal, gives, pull, torch
from tests.support.judges.harness import near, refuse, run_text, same
from tests.support.judges.registry import Given, Refusal, judged
from tests.support.judges.routes import SEEDS, SMALL, Sizes, draw_routes, offsets_of, rank, sizes

SLOPES = torch.nn.functional
ACTIVATIONS: dict[str, Any] = {
    "swiglu": SLOPES.silu,
    "geglu": SLOPES.gelu,
    "silu": SLOPES.silu,
    "gelu": lambda x: SLOPES.gelu(x, approximate="tanh"),
    "relu": SLOPES.relu,
    "relu2": lambda x: SLOPES.relu(x).square(),
}
GATED = ("swiglu", "geglu")


def multiply(x: Any, weights: Any, offsets: Array, straight: bool) -> Any:
    """One product of torch for each group."""
    groups = [x[start:stop] for start, stop in pairwise(offsets)]
    pairs = zip(groups, weights, strict=True)
    return torch.cat([rows @ (matrix if straight else matrix.T) for rows, matrix in pairs])


@judged("torch", "moe.grouped_gemm", "moe.grouped_gemm_backward", "moe.grouped_gemm_weight_grad")
@pytest.mark.parametrize("transpose", ["NN", "NT", "TN"])
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), SMALL, SMALL, SEEDS)
def test_grouped_products(transpose: str, counts: list[int], a: int, b: int, seed: int) -> None:
    offsets = np.cumsum([0, *counts]).astype(np.int32)
    straight = transpose == "NN"
    shape = (len(counts), a, b) if straight else (len(counts), b, a)
    x, weights, back = draw_normal(seed, (sum(counts), a), shape, (sum(counts), b))
    told: dict[str, Given] = {"transpose": transpose}

    def forward(left: Any, right: Any) -> Any:
        return multiply(left, right, offsets, straight)

    expected = forward(torch.tensor(x), torch.tensor(weights))
    gives("moe.grouped_gemm", [x, weights, offsets], [expected], told)
    pulled = pull(forward, [x, weights], [back])
    gives("moe.grouped_gemm_backward", [back, x, weights, offsets], pulled, told)
    gives("moe.grouped_gemm_weight_grad", [x, back, offsets], pulled[1:], told)


def test_what_is_not_finite_stays_in_its_group() -> None:
    x, weights, back = draw_normal(3, (6, 3), (3, 2, 3), (6, 2))
    x[0, 1], back[1, 0] = np.inf, np.nan
    offsets = np.asarray([0, 2, 2, 6], np.int32)
    pulled = pull(lambda a, b: multiply(a, b, offsets, straight=False), [x, weights], [back])
    found = gives("moe.grouped_gemm_backward", [back, x, weights, offsets], pulled)
    assert not np.isfinite(found[1][0]).all()


def apply_experts(x: Any, up: Any, down: Any, *, offsets: Array, activation: str) -> Any:
    """One expert after the other, with the functions of torch."""
    first = multiply(x, up, offsets, straight=False)
    if activation in GATED:
        gate, other = first.chunk(2, -1)
        hidden = ACTIVATIONS[activation](gate) * other
    else:
        hidden = ACTIVATIONS[activation](first)
    return multiply(hidden, down, offsets, straight=False)


@judged("torch", "moe.experts", "moe.experts_backward")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@settings(max_examples=8)
@given(sizes(), SMALL, SEEDS)
def test_experts(activation: str, drawn: Sizes, width: int, seed: int) -> None:
    n, e, k, c = drawn
    indices = draw_routes(drawn, seed)
    offsets, rows = offsets_of(indices, e), width * (2 if activation in GATED else 1)
    inputs = draw_normal(seed, (n * k, c), (e, rows, c), (e, c, width))
    told: dict[str, Given] = {"activation": activation}

    def forward(*leaves: Any) -> Any:
        return apply_experts(*leaves, offsets=offsets, activation=activation)

    expected = forward(*map(torch.tensor, inputs))
    backs = draw_normal(seed + 1, (n * k, c))
    pulled = pull(forward, inputs, backs)
    for routes in (offsets, indices):
        gives("moe.experts", [*inputs, routes], [expected], told)
        gives("moe.experts_backward", [*backs, *inputs, routes], pulled, told)


LAYER = """
import moe;
graph G {
    @input { x: real[n|64, 4]; gate: real[5, 4]; up: real[5, 6, 4]; down: real[5, 4, 3]; }
    @output { y: real[n, 4]; indices: i32[n, 2]; }
    @compose {
        weights, indices, ~ = routed: moe.router{top_k=2}(x, gate);
        offsets = moe.compute_offsets{num_experts=5}(indices);
        permuted, slots = sorted: moe.permute(x, indices, offsets);
        outputs = moe.experts(permuted, up, down, offsets);
        y = moe.unpermute(outputs, weights, slots);
    }
}
"""


@pytest.mark.parametrize("tokens", [1, 7, 64])
def test_a_whole_layer_in_32_bits(tokens: int) -> None:
    drawn = draw_normal(tokens, (tokens, 4), (5, 4), (5, 6, 4), (5, 4, 3))
    x, gate, up, down = (item.astype(np.float32) for item in drawn)
    found, _ = run_text(LAYER, {"x": x, "gate": gate, "up": up, "down": down}, {})
    weights = torch.softmax(torch.tensor(x @ gate.T), -1)
    chosen = rank(weights, 2)
    same(found["indices"], chosen.int().numpy())
    shares = weights.gather(1, chosen)
    shares = (shares / shares.sum(-1, keepdim=True)).numpy()
    expected = np.zeros_like(x)
    for token, slot in np.ndindex(tokens, 2):
        expert = int(chosen[token, slot])
        first = torch.tensor(up[expert] @ x[token]).chunk(2)
        hidden = (SLOPES.silu(first[0]) * first[1]).numpy()
        expected[token] += shares[token, slot] * (down[expert] @ hidden)
    near(found["y"], expected)


# --- refusals -----------------------------------------------------------------------------------------------

EXPERTS = ((6, 4), (3, 10, 4), (3, 4, 5))
REAL = "f32 f32 f32 i32"
BACK = "f32 f32 f32 f32 i32"
REFUSALS = (
    Refusal(
        "moe.grouped_gemm",
        "'transpose' must be one of",
        ((6, 4), (2, 5, 4), (3,)),
        {"transpose": "TT"},
        "f32 f32 i32",
    ),
    Refusal(
        "moe.grouped_gemm", "there are 4 offsets for 2 groups", ((6, 4), (2, 5, 4), (4,)), {}, "f32 f32 i32"
    ),
    Refusal(
        "moe.grouped_gemm",
        "rows of 5 items do not fit the weights",
        ((6, 5), (2, 5, 4), (3,)),
        {},
        "f32 f32 i32",
    ),
    Refusal(
        "moe.grouped_gemm_backward",
        "'transpose' must be one of",
        ((6, 5), (6, 4), (2, 5, 4), (3,)),
        {"transpose": "TT"},
        REAL,
    ),
    Refusal(
        "moe.grouped_gemm_backward",
        "there are 4 offsets for 2 groups",
        ((6, 5), (6, 4), (2, 5, 4), (4,)),
        {},
        REAL,
    ),
    Refusal(
        "moe.grouped_gemm_backward",
        "rows of 5 items do not fit the weights",
        ((6, 4), (6, 5), (2, 5, 4), (3,)),
        {},
        REAL,
    ),
    Refusal(
        "moe.grouped_gemm_weight_grad",
        "'transpose' must be one of",
        ((6, 5), (6, 4), (3,)),
        {"transpose": "TT"},
        "f32 f32 i32",
    ),
    Refusal("moe.experts", "'activation' must be one of", (*EXPERTS, (4,)), {"activation": "mish"}, REAL),
    Refusal("moe.experts", "10 rows do not fit 5 columns", (*EXPERTS, (4,)), {"activation": "relu"}, REAL),
    Refusal("moe.experts", "'routes' must have 1 or 2 dimensions", (*EXPERTS, (3, 2, 1)), {}, REAL),
    Refusal("moe.experts", "'routes' must have 4 items", (*EXPERTS, (5,)), {}, REAL),
    Refusal(
        "moe.experts_backward",
        "'activation' must be one of",
        (EXPERTS[0], *EXPERTS, (4,)),
        {"activation": "mish"},
        BACK,
    ),
    Refusal(
        "moe.experts_backward",
        "10 rows do not fit 5 columns",
        (EXPERTS[0], *EXPERTS, (4,)),
        {"activation": "relu"},
        BACK,
    ),
    Refusal(
        "moe.experts_backward",
        "'routes' must have 1 or 2 dimensions",
        (EXPERTS[0], *EXPERTS, (3, 2, 1)),
        {},
        BACK,
    ),
    Refusal("moe.experts_backward", "'routes' must have 4 items", (EXPERTS[0], *EXPERTS, (5,)), {}, BACK),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
