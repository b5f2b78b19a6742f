"""Gradients of the modules of the standard library, against torch in 64 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.support.bridge.module_gradients import Run, Tensors, compare, differentiated, run

X = np.random.default_rng(11).normal(size=(2, 5, 8))
WRAPPED = """
import std.{place}.{module}

model M():
  params:
    part: {module}({arguments})
  forward:
    in: x: [B, T, 8]
    out: y: [B, T, 8]
    graph:
      x -> part() -> y
"""


def gradients(place: str, module: str, arguments: Mapping[str, object]) -> Run:
    """The gradients of a module of the library."""
    written = ", ".join(f"{name}={_written(value)}" for name, value in arguments.items())
    return run(differentiated(WRAPPED.format(place=place, module=module, arguments=written)), {"x": X})


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def turn(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary positions, the two halves of a head as pairs."""
    half = x.shape[-1] // 2
    rates = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * rates
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


def attend(
    x: torch.Tensor, w: Tensors, heads: int, shared: int, options: Mapping[str, object]
) -> torch.Tensor:
    """Grouped-query attention with all that GQA may be asked for."""
    width = w["out_weight"].shape[1] // heads
    qkv = F.linear(x, w["qkv_weight"], w.get("qkv_bias"))
    split = qkv.split([heads * width, shared * width, shared * width], -1)
    q, k, v = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part in split)
    if "q_norm_weight" in w:
        q = F.rms_norm(q, (width,), w["q_norm_weight"], 1e-6)
        k = F.rms_norm(k, (width,), w["k_norm_weight"], 1e-6)
    if options.get("use_rope", True):
        q, k = turn(q, 10000.0), turn(k, 10000.0)
    k, v = (part.repeat_interleave(heads // shared, 1) for part in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(width)
    ahead = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
    seen = ahead >= 0 if options.get("causal", True) else torch.ones_like(ahead, dtype=torch.bool)
    if "window" in options:
        seen = seen & (ahead < int(str(options["window"])))
    mixed = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v
    return F.linear(mixed.transpose(1, 2).flatten(2), w["out_weight"], w.get("out_bias"))


def part_of(w: Tensors, prefix: str) -> dict[str, torch.Tensor]:
    """The weights below a path."""
    return {name.removeprefix(prefix): item for name, item in w.items() if name.startswith(prefix)}


FLAGS: list[dict[str, object]] = [
    {},
    {"use_bias": True, "use_out_bias": True},
    {"use_qk_norm": True, "head_dim": 6},
    {"window": 2},
    {"causal": False, "use_rope": False},
    {"use_bias": True, "use_qk_norm": True, "window": 3},
]


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: " ".join(flags) or "plain")
def test_grouped_query_attention(flags: dict[str, object]) -> None:
    arguments = {"d_model": 8, "num_heads": 4, "num_kv_heads": 2, "max_seq": 16, **flags}
    ours = gradients("modules.attention", "GQA", arguments)
    compare(ours, lambda i, w: attend(i["x"], part_of(w, "part."), 4, 2, flags))


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x) ** 2,
    "silu": F.silu,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_plain_networks(activation: str) -> None:
    arguments = {"d_model": 8, "d_ff": 6, "activation": activation}
    ours = gradients("modules.mlp", "MLP", arguments)

    def judge(i: Tensors, w: Tensors) -> torch.Tensor:
        raised = F.linear(i["x"], w["part.up_weight"], w["part.up_bias"])
        return F.linear(ACTIVATIONS[activation](raised), w["part.down_weight"], w["part.down_bias"])

    compare(ours, judge)


@pytest.mark.parametrize("module", ["SwiGLU_MLP", "GeGLU_MLP"])
def test_gated_networks(module: str) -> None:
    ours = gradients("modules.mlp", module, {"d_model": 8, "d_ff": 6})

    def judge(i: Tensors, w: Tensors) -> torch.Tensor:
        gate, up = (i["x"] @ w["part.up_weight"].T).chunk(2, -1)
        gated = F.silu(gate) if module == "SwiGLU_MLP" else F.gelu(gate)
        return (gated * up) @ w["part.down_weight"].T

    compare(ours, judge)


@pytest.mark.parametrize("normalize", [True, False])
def test_mixture_of_experts(normalize: bool) -> None:
    arguments = {"d_model": 8, "d_ff": 6, "num_experts": 5, "top_k": 2, "normalize": normalize}
    ours = gradients("modules.moe", "MoE", arguments)

    def judge(i: Tensors, w: Tensors) -> torch.Tensor:
        flat = i["x"].reshape(-1, 8)
        weights, chosen = (flat @ w["part.router"].T).softmax(-1).topk(2)
        weights = weights / weights.sum(-1, keepdim=True) if normalize else weights
        gate, up = torch.einsum("nc,nkfc->nkf", flat, w["part.gate_up"][chosen]).chunk(2, -1)
        rows = torch.einsum("nkf,nkcf->nkc", F.silu(gate) * up, w["part.down"][chosen])
        return (weights[..., None] * rows).sum(1).reshape(i["x"].shape)

    compare(ours, judge)


def test_state_space_mixer() -> None:
    arguments = {"d_model": 8, "d_state": 3, "d_conv": 3, "expand": 1, "dt_rank": 2}
    ours = gradients("modules.mamba", "MambaMixer", arguments)

    def judge(i: Tensors, w: Tensors) -> torch.Tensor:
        w = part_of(w, "part.")
        channels, gate = (i["x"] @ w["in_weight"].T).chunk(2, -1)
        padded = F.pad(channels.transpose(1, 2), (2, 0))
        u = F.silu(F.conv1d(padded, w["conv1d_weight"], w["conv1d_bias"], groups=8)).transpose(1, 2)
        dt, writes, reads = (u @ w["x_weight"].T).split([2, 3, 3], -1)
        step = F.softplus(dt @ w["dt_weight"].T + w["dt_bias"])
        decay = torch.exp(step[..., None] * -w["A_log"].exp())
        state, found = torch.zeros(2, 8, 3, dtype=torch.float64), []
        for t in range(5):
            state = decay[:, t] * state + (step * u)[:, t, :, None] * writes[:, t, None]
            found.append((state * reads[:, t, None]).sum(-1))
        scanned = torch.stack(found, 1) + u * w["D"]
        return (F.silu(gate) * scanned) @ w["out_weight"].T

    compare(ours, judge)


LLAMA = """
import std.models.llama.Llama

model M(tie: bool = false):
  params:
    net: Llama(vocab_size=11, d_model=8, n_layers=2, num_heads=4, num_kv_heads=2, d_ff=6, max_seq=16, tie=tie)
  forward:
    in: (ids: [B, T, int64], labels: [B, T, int64])
    out: loss: scalar
    graph:
      ids -> net() -> logits
      (logits, labels) -> cross_entropy() -> loss
"""


@pytest.mark.parametrize("tie", [False, True])
def test_a_whole_llama_with_its_loss(tie: bool) -> None:
    rng = np.random.default_rng(2)
    ids, labels = rng.integers(0, 11, (2, 2, 5))
    ours = run(differentiated(LLAMA, tie=tie), {"ids": ids, "labels": labels})

    def judge(i: Tensors, w: Tensors) -> torch.Tensor:
        x = w["net.embedding"][i["ids"]]
        for number in range(2):
            block = part_of(w, f"net.blocks.{number}.")
            normed = F.rms_norm(x, (8,), block["ln1.weight"], 1e-6)
            x = x + attend(normed, part_of(block, "attention."), 4, 2, {})
            normed = F.rms_norm(x, (8,), block["ln2.weight"], 1e-6)
            gate, up = (normed @ block["mlp.up_weight"].T).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ block["mlp.down_weight"].T
        head = w["net.embedding"] if tie else w["net.lm_head"]
        logits = F.rms_norm(x, (8,), w["net.final_norm"], 1e-6) @ head.T
        return F.cross_entropy(logits.reshape(-1, 11), i["labels"].reshape(-1))

    compare(ours, judge)
    assert ("net.lm_head" in ours.gradients) is not tie
