"""A block of a language model and its gradients over extents that only the run tells, judged by torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from tests.support.judges.draws import Array
from tests.support.judges.harness import compose_text
from tests.support.judges.llm import torch
from tests.support.judges.registry import judged

TEXT = """
import aten, layout, llm, math;

graph Block {
    @input {
        ids: int[b|4, n|9];
        positions: int[n];
        labels: int[b, n];
        table: f64[11, 8];
        norm: f64[8];
        head_norm: f64[4];
        into: f64[16, 8];
        out: f64[8, 8];
        up: f64[12, 8];
        down: f64[8, 6];
        freqs: f64[9, 2, 2];
    }
    @output {
        loss: f64[];
        d_table: f64[11, 8];
        d_norm: f64[8];
        d_up: f64[12, 8];
        d_down: f64[8, 6];
    }
    @compose {
        x = llm.embedding(ids, table);
        y, ~ = first: llm.rmsnorm(x, norm);
        qkv = llm.matmul{transpose="NT"}(y, into);
        [q, k, v] = parts: llm.split{sizes=[8, 4, 4]}(qkv);
        q4 = aten.reshape{shape=[b, n, 2, 4]}(q);
        k4 = aten.reshape{shape=[b, -1, 1, 4]}(k);
        v4 = aten.reshape{shape=[b, n, 1, 4]}(v);
        qt = aten.transpose{dim0=1, dim1=2}(q4);
        kt = aten.transpose{dim0=1, dim1=2}(k4);
        vt = aten.transpose{dim0=1, dim1=2}(v4);
        qn, kn, ~, ~ = normal: llm.qk_norm(qt, kt, head_norm, head_norm);
        qr, kr = turned: llm.rope(qn, kn, freqs, positions);
        mixed, ~ = attention: llm.flash_attention{window_size=3}(qr, kr, vt);
        flat = llm.reshape(mixed);
        added = llm.matmul{transpose="NT"}(flat, out);
        middle, z, rstd = second: llm.fused_residual_rmsnorm(x, added, norm);
        both = llm.matmul{transpose="NT"}(z, up);
        gated = llm.split_swiglu(both);
        lowered = llm.matmul{transpose="NT"}(gated, down);
        last = math.add(middle, lowered);
        logits = llm.matmul{transpose="NT"}(last, table);
        loss = llm.cross_entropy(logits, labels);
        d_logits = llm.cross_entropy_backward(1.0, logits, labels);
        d_last, d_table = head: llm.matmul_backward{transpose="NT"}(d_logits, last, table);
        d_gated, d_down = lower: llm.matmul_backward{transpose="NT"}(d_last, gated, down);
        d_both = llm.split_swiglu_backward(d_gated, both);
        d_z, d_up = upper: llm.matmul_backward{transpose="NT"}(d_both, z, up);
        ~, ~, d_norm = back: llm.fused_residual_rmsnorm_backward(d_z, d_last, middle, norm, rstd);
    }
}
"""
WEIGHTS = {
    "table": (11, 8),
    "norm": (8,),
    "head_norm": (4,),
    "into": (16, 8),
    "out": (8, 8),
    "up": (12, 8),
    "down": (8, 6),
    "freqs": (9, 2, 2),
}


def rms(x: Any, weight: Any) -> Any:
    """A normalisation by the root mean square."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, 1e-6)


def block(ids: Any, labels: Any, w: dict[str, Any], late: dict[str, Any]) -> Any:
    """The loss of the same block; `late` are leaves that stand for weights where they are used last."""
    b, n = ids.shape
    x = w["table"][ids]
    q, k, v = (rms(x, w["norm"]) @ w["into"].T).split([8, 4, 4], -1)
    q, k, v = (item.reshape(b, n, -1, 4).transpose(1, 2) for item in (q, k, v))
    angles = torch.view_as_complex(w["freqs"])[:n]
    q, k = (rms(item, w["head_norm"]) for item in (q, k))
    q, k = (torch.complex(item[..., :2], item[..., 2:]) * angles for item in (q, k))
    q, k = (torch.cat([item.real, item.imag], -1) for item in (q, k))
    near = torch.ones(n, n, dtype=torch.bool).tril().triu(-2)
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, near, enable_gqa=True)
    middle = x + mixed.transpose(1, 2).flatten(2) @ w["out"].T
    gate, through = (rms(middle, late["norm"]) @ late["up"].T).chunk(2, -1)
    last = middle + (torch.nn.functional.silu(gate) * through) @ late["down"].T
    return torch.nn.functional.cross_entropy((last @ late["table"].T).flatten(0, 1), labels.flatten())


@pytest.fixture(scope="module")
def run() -> Any:
    """The block, composed once for all extents."""
    return compile_model(compose_text(TEXT), dtype="f64")


@judged("torch", "llm.rmsnorm", "llm.flash_attention", "llm.rope", "llm.cross_entropy")
@pytest.mark.parametrize(("batch", "count"), [(1, 1), (2, 5), (4, 9)])
def test_a_block_for_any_extents(run: Any, batch: int, count: int) -> None:
    random = np.random.default_rng(batch)
    fed: dict[str, Array] = {name: random.normal(size=shape) for name, shape in WEIGHTS.items()}
    ids, labels = random.integers(0, 11, (batch, count)), random.integers(0, 11, (batch, count))
    found = run(ids=ids, labels=labels, positions=np.arange(count), **fed)
    weights = {name: torch.tensor(value) for name, value in fed.items()}
    names = ["table", "norm", "up", "down"]
    late = {name: weights[name].clone().requires_grad_() for name in names}
    loss = block(torch.tensor(ids), torch.tensor(labels), weights, late)
    grads = torch.autograd.grad(loss, [late[name] for name in names])
    np.testing.assert_allclose(found["loss"], loss.detach(), rtol=1e-6)
    for name, grad in zip(names, grads, strict=True):
        np.testing.assert_allclose(found[f"d_{name}"], grad, rtol=1e-6, atol=1e-6, err_msg=name)
