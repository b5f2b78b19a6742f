"""Measure kernels over rows and attention, those of `examples/kernels`, beside torch and beside a copy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from bench.contest import OURS, Report, Work, contest, fill, tell, view
from bench.kernels_gemm import compiled, flops, named, peak_rate
from lamella.backend.cpu import CompiledKernels

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "kernels"
STREAMED_BYTES = 8 << 20
"""An output of more bytes will not be found in a cache when it is read again."""
STREAMED = '%Y: memref<f32x?x?> {alignment=64, "streamed"=true, stride_gcd=[1,16]}'
ROWS = ((128, 768), (512, 1024), (1024, 4096), (4096, 4096))
L2_BYTES = 2 << 20
"""Tensors that together are larger come from beyond the second cache."""
EPSILON = 1e-5
ATTENTION = ((12, 128, 128), (12, 512, 512), (4, 2048, 2048))


def example(name: str) -> str:
    """The text of an example."""
    return (EXAMPLES / f"{name}.tensor").read_text(encoding="utf-8")


def row_kernels(threads: int, streamed: bool) -> CompiledKernels:
    """The kernels over rows; `streamed` ones write past the caches, but softmax, which reads its output again."""
    text = example("rows")
    softmax, behind = text.index("func @softmax"), text.index("func @layernorm")
    others = text[behind:].replace("%Y: memref<f32x?x?>", STREAMED if streamed else "%Y: memref<f32x?x?>")
    return compiled(text[softmax:behind] + others, threads)


def row_calls(report: Report, rows: int, width: int) -> dict[str, tuple[Work, Work, int, float]]:
    """By kernel: our call, torch's, how many tensors are moved, and the share of a copy's speed to be reached."""
    x, r, y = fill(rows, width), fill(rows, width), torch.empty(rows, width)
    scale, shift = fill(width), fill(width)
    kernels = row_kernels(report.threads, 4 * rows * width > STREAMED_BYTES)
    cx, cr, cy = view(x), view(r), view(y)
    g, b = scale.numpy(), shift.numpy()
    size = (width,)
    return {
        "softmax": (
            partial(kernels.softmax, cx, cy, groups=rows),
            lambda: torch.softmax(x, 1),
            2,
            0.6,
        ),
        "layernorm": (
            partial(kernels.layernorm, cx, g, b, EPSILON, cy, groups=rows),
            lambda: F.layer_norm(x, size, scale, shift, EPSILON),
            2,
            0.6,
        ),
        "residual + rmsnorm": (
            partial(kernels.residual_rmsnorm, cx, cr, g, EPSILON, cy, groups=rows),
            lambda: F.rms_norm(x + r, size, scale, EPSILON),
            3,
            0.6,
        ),
        "bias + gelu": (
            partial(kernels.bias_gelu, cx, b, cy, groups=rows),
            lambda: F.gelu(x + shift, approximate="tanh"),
            2,
            0.45,
        ),
    }


def measure_rows(report: Report, quick: bool) -> None:
    """Kernels over rows: faster than torch everywhere, and near a copy where the tensors leave the second cache."""
    for rows, width in ROWS[:3] if quick else ROWS:
        source, target = fill(rows, width), torch.empty(rows, width)
        for name, (ours, theirs, tensors, share) in row_calls(report, rows, width).items():
            moved = 4 * rows * width * tensors
            work: dict[str, Work] = {OURS: ours, "torch eager": theirs, "copy": partial(target.copy_, source)}
            times = contest(report, work)
            copied = times.pop("copy") * tensors / 2
            what = f"{name}, {rows} x {width}"
            tell(report, what, times, amount=moved, unit="GB/s", target=1.0, limit=copied)
            least = share if moved > L2_BYTES * report.threads else None
            pair = {OURS: times[OURS], "copy": copied}
            tell(report, what, pair, amount=moved, unit="GB/s", target=least)


def measure_attention(report: Report, quick: bool) -> None:
    """Attention in blocks."""
    kernels = compiled(example("flash_attention"), report.threads)
    for heads, queries, keys in ATTENTION[:2] if quick else ATTENTION:
        q, k, v = fill(heads, queries, 64), fill(heads, keys, 64), fill(heads, keys, 64)
        o = torch.empty(heads, queries, 64)
        groups = heads * queries // 64
        work: dict[str, Work] = {
            OURS: partial(kernels.flash_attention, view(q), view(k), view(v), view(o), groups=groups),
            "torch SDPA": partial(F.scaled_dot_product_attention, q[None], k[None], v[None]),
        }
        amount = 2 * heads * flops((queries, keys, 64))
        limit = amount / peak_rate() / report.threads
        what = f"attention, {named((heads, queries, keys))}, 64"
        tell(report, what, contest(report, work), amount=amount, unit="GF/s", limit=limit)


PARTS: tuple[Callable[[Report, bool], None], ...] = (measure_rows, measure_attention)
