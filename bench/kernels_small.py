"""Measure small products in large numbers: batches, a tall matrix, a fused chain, beside a copy of the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from bench.contest import OURS, Report, Work, contest, copy_seconds, fill, tell, tell_mean, view
from bench.kernels_gemm import compiled, named, peak_rate
from lamella.kernels.library import BLOCK_ROWS, Shape, batched_gemm, stream_result, tall_gemm

COUNT = 10_000
STREAMED_BYTES = 8 << 20
"""Results of more bytes will not be found in a cache when they are read again."""
SHAPES = 40
SMALLEST = ((2, 2, 2), (3, 3, 3), (4, 4, 4), (2, 4, 3))
LARGEST = ((16, 16, 16), (32, 32, 32), (64, 64, 64))
TALL = (1_000_000, 16, 16)
CHAIN = """
func @fused(%alpha: f32, %A: memref<f32x16x8x?>, %B: memref<f32x8x8>, %C: memref<f32x8x16>,
            %D: memref<f32x16x16x?>) {
  %0 = builtin.group_id : index
  %a = subview %A[0:16,0:8,%0] : memref<f32x16x8>
  %d = subview %D[0:16,0:16,%0] : memref<f32x16x16>
  %t = alloca : memref<f32x16x8,local>
  %zero = constant 0.0 : f32
  %one = constant 1.0 : f32
  gemm.n.t %one, %a, %B, %zero, %t
  gemm.n.n %alpha, %t, %C, %one, %d
}
func @first(%A: memref<f32x16x8x?>, %B: memref<f32x8x8>, %T: memref<f32x16x8x?>) {
  %0 = builtin.group_id : index
  %a = subview %A[0:16,0:8,%0] : memref<f32x16x8>
  %t = subview %T[0:16,0:8,%0] : memref<f32x16x8>
  %zero = constant 0.0 : f32
  %one = constant 1.0 : f32
  gemm.n.t %one, %a, %B, %zero, %t
}
func @second(%alpha: f32, %T: memref<f32x16x8x?>, %C: memref<f32x8x16>, %D: memref<f32x16x16x?>) {
  %0 = builtin.group_id : index
  %t = subview %T[0:16,0:8,%0] : memref<f32x16x8>
  %d = subview %D[0:16,0:16,%0] : memref<f32x16x16>
  %one = constant 1.0 : f32
  gemm.n.n %alpha, %t, %C, %one, %d
}
"""
"""The chain of the specification's last sample, whole and in two calls; all matrices lie one behind the other."""


def sampled_shapes() -> list[tuple[int, int, int]]:
    """Shapes between 2 and 64, small ones as likely as large ones."""
    random = np.random.default_rng(0)
    drawn = np.exp2(random.uniform(1, 6, (SHAPES - len(SMALLEST + LARGEST), 3))).round().astype(int)
    return [*SMALLEST, *((int(m), int(n), int(k)) for m, n, k in drawn), *LARGEST]


def bound_seconds(report: Report, moved: float, amount: float) -> float:
    """What no kernel can be faster than: a copy of the same bytes, or the arithmetic where it takes longer."""
    return max(copy_seconds(report, int(moved)), amount / peak_rate() / report.threads)


def batch_contest(report: Report, m: int, n: int, k: int) -> dict[str, float]:
    """Many products of one shape."""
    a, b, c = fill(COUNT, k, m), fill(COUNT, n, k), torch.empty(COUNT, n, m)
    program = batched_gemm(Shape(m, n, k))
    large = 4 * COUNT * m * n > STREAMED_BYTES
    kernels = compiled(stream_result(program) if large else program, report.threads)
    views = [view(item).transpose(0, 1, 2) for item in (a, b, c)]
    work: dict[str, Work] = {
        OURS: partial(kernels.kernel, *views, groups=COUNT),
        "torch.bmm": lambda: torch.bmm(b, a, out=c),
        "NumPy matmul": lambda: np.matmul(b.numpy(), a.numpy(), out=c.numpy()),
    }
    times = contest(report, work)
    times["bound"] = bound_seconds(report, 4.0 * COUNT * (m * k + k * n + m * n), 2.0 * COUNT * m * n * k)
    return times


def measure_batches(report: Report, quick: bool) -> None:
    """Batches: against NumPy where matrices are tiny, else against the bound, and always against torch.bmm."""
    shares: list[float] = []
    for m, n, k in sampled_shapes()[:: 6 if quick else 1]:
        times = batch_contest(report, m, n, k)
        what, amount = f"batch of {COUNT:,}, {named((m, n, k))}", 2.0 * COUNT * m * n * k
        tiny = max(m, n, k) <= 4
        peer, target = ("NumPy matmul", 3.0) if tiny else ("bound", 0.7)
        for name, least in ((peer, target), ("torch.bmm", 1.0)):
            pair = {OURS: times[OURS], name: times[name]}
            ratio = tell(report, what, pair, amount=amount, unit="GF/s", target=least, limit=times["bound"])
            shares += [ratio] if name == "bound" else []
    tell_mean(report, "batches above 4, share of the bound", shares, 0.7)


def measure_tall(report: Report, quick: bool) -> None:
    """A matrix of a million rows."""
    m, n, k = (TALL[0] // 10 if quick else TALL[0]), TALL[1], TALL[2]
    a, b, c = fill(k, m), fill(n, k), torch.empty(n, m)
    kernels = compiled(stream_result(tall_gemm(Shape(m, n, k))), report.threads)
    times = contest(
        report,
        {
            OURS: partial(kernels.kernel, view(a), view(b), view(c), groups=-(-m // BLOCK_ROWS)),
            "torch.mm": lambda: torch.mm(b, a, out=c),
        },
    )
    moved = 4.0 * (m * k + k * n + m * n)
    bound = bound_seconds(report, moved, 2.0 * m * n * k)
    what = f"tall and skinny, {named((m, n, k))}"
    tell(report, what, times, amount=moved, unit="GB/s", target=1.0, limit=bound)
    tell(report, what, {OURS: times[OURS], "bound": bound}, amount=moved, unit="GB/s", target=0.7)


def measure_chain(report: Report, quick: bool) -> None:
    """The fused chain beside the same work in two calls, ours and torch's."""
    a, b, c = fill(COUNT, 8, 16), fill(8, 8), fill(16, 8)
    d, t = torch.zeros(COUNT, 16, 16), torch.empty(COUNT, 8, 16)
    many_b, many_c = b.expand(COUNT, 8, 8), c.expand(COUNT, 16, 8)
    kernels = compiled(CHAIN, report.threads)
    arrays = {name: view(item) for name, item in zip("abcdt", (a, b, c, d, t), strict=True)}

    def unfused() -> None:
        kernels.first(arrays["a"], arrays["b"], arrays["t"], groups=COUNT)
        kernels.second(0.5, arrays["t"], arrays["c"], arrays["d"], groups=COUNT)

    def batched() -> None:
        torch.bmm(many_b.transpose(1, 2), a, out=t)
        d.baddbmm_(many_c, t, alpha=0.5)

    fused = partial(kernels.fused, 0.5, arrays["a"], arrays["b"], arrays["c"], arrays["d"], groups=COUNT)
    times = contest(report, {OURS: fused, "two calls": unfused, "torch.bmm twice": batched})
    amount = 2.0 * COUNT * (16 * 8 * 8 + 16 * 16 * 8)
    limit = bound_seconds(report, 4.0 * COUNT * (16 * 8 + 2 * 16 * 16), amount)
    what = f"fused chain, {COUNT:,} matrices"
    tell(report, what, times, amount=amount, unit="GF/s", target=1.5, limit=limit)


PARTS: tuple[Callable[[Report, bool], None], ...] = (measure_batches, measure_tall, measure_chain)
