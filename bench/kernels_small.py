"""Measure small products in large numbers: batches, a tall matrix, a fused chain, beside a copy of the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from bench.contest import OURS, Report, Work, contest, copy_call, fill, tell, tell_mean, view
from bench.kernels_gemm import compiled, named, peak_rate
from lamella.backend.cpu.host import host_target
from lamella.kernels.library import BLOCK_ROWS, GemmShape, batched_gemm, stream_result, streamed_gemm

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
CHAIN_FLOPS = 2.0 * (16 * 8 * 8 + 16 * 16 * 8)


def sampled_shapes() -> list[tuple[int, int, int]]:
    """Shapes between 2 and 64, small ones as likely as large ones."""
    random = np.random.default_rng(0)
    drawn = np.exp2(random.uniform(1, 6, (SHAPES - len(SMALLEST + LARGEST), 3))).round().astype(int)
    return [*SMALLEST, *((int(m), int(n), int(k)) for m, n, k in drawn), *LARGEST]


def bounded_contest(report: Report, work: dict[str, Work], moved: float, amount: float) -> dict[str, float]:
    """A contest with a bound that no kernel passes: a copy of the same bytes, or the arithmetic if it takes longer."""
    times = contest(report, {**work, "bound": copy_call(int(moved))})
    times["bound"] = max(times["bound"], amount / peak_rate() / report.threads)
    return times


def batch_contest(report: Report, m: int, n: int, k: int) -> dict[str, float]:
    """Many products of one shape."""
    a, b, c = fill(COUNT, k, m), fill(COUNT, n, k), torch.empty(COUNT, n, m)
    program = batched_gemm(GemmShape(m, n, k))
    large = 4 * COUNT * m * n > STREAMED_BYTES
    kernels = compiled(stream_result(program) if large else program, report.threads)
    work: dict[str, Work] = {
        OURS: partial(kernels.kernel, *map(view, (a, b, c)), groups=COUNT),
        "torch.bmm": lambda: torch.bmm(b, a, out=c),
        "NumPy matmul": lambda: np.matmul(b.numpy(), a.numpy(), out=c.numpy()),
    }
    moved = 4.0 * COUNT * (m * k + k * n + m * n)
    return bounded_contest(report, work, moved, 2.0 * COUNT * m * n * k)


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
    kernels = compiled(streamed_gemm(GemmShape(m, n, k), host_target()), report.threads)
    work: dict[str, Work] = {
        OURS: partial(kernels.kernel, view(a), view(b), view(c), groups=-(-m // BLOCK_ROWS)),
        "torch.mm": lambda: torch.mm(b, a, out=c),
    }
    moved = 4.0 * (m * k + k * n + m * n)
    times = bounded_contest(report, work, moved, 2.0 * m * n * k)
    for peer, target in (("torch.mm", 1.0), ("bound", 0.7)):
        pair = {OURS: times[OURS], peer: times[peer]}
        what = f"tall and skinny, {named((m, n, k))}"
        tell(report, what, pair, amount=moved, unit="GB/s", target=target, limit=times["bound"])


def chain_contest(report: Report, count: int) -> dict[str, float]:
    """The fused chain beside the same work in two calls, ours and torch's."""
    a, b, c = fill(count, 8, 16), fill(8, 8), fill(16, 8)
    d, t = torch.zeros(count, 16, 16), torch.empty(count, 8, 16)
    many_b, many_c = b.expand(count, 8, 8), c.expand(count, 16, 8)
    kernels = compiled(CHAIN, report.threads)
    arrays = {name: view(item) for name, item in zip("abcdt", (a, b, c, d, t), strict=True)}

    def unfused() -> None:
        kernels.first(arrays["a"], arrays["b"], arrays["t"], groups=count)
        kernels.second(0.5, arrays["t"], arrays["c"], arrays["d"], groups=count)

    def batched() -> None:
        torch.bmm(many_b.transpose(1, 2), a, out=t)
        d.baddbmm_(many_c, t, alpha=0.5)

    given = [arrays[name] for name in "abcd"]
    fused = partial(kernels.fused, 0.5, *given, groups=count)
    work: dict[str, Work] = {OURS: fused, "own two calls": unfused, "torch two calls": batched}
    return bounded_contest(report, work, 4.0 * count * (16 * 8 + 2 * 16 * 16), count * CHAIN_FLOPS)


def measure_chain(report: Report, quick: bool) -> None:
    """The fused chain: in a cache, and in memory, where leaving out what is between the products pays most."""
    for count in (COUNT, 10 * COUNT)[: 1 if quick else 2]:
        times = chain_contest(report, count)
        amount, limit = count * CHAIN_FLOPS, times["bound"]
        for peer, target in (("torch two calls", 1.5), ("own two calls", None)):
            pair = {OURS: times[OURS], peer: times[peer]}
            what = f"fused chain, {count:,} matrices"
            tell(report, what, pair, amount=amount, unit="GF/s", target=target, limit=limit)


PARTS: tuple[Callable[[Report, bool], None], ...] = (measure_batches, measure_tall, measure_chain)
