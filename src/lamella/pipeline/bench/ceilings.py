"""The ceilings of this machine, measured: the peak of f32 arithmetic, and the bandwidth of reading memory.

Both by loops of our own in LLVM's language, so that no library's choice stands between the numbers and the machine.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np

from lamella.backend.cpu.jit import build
from lamella.backend.cpu.jit.engine import host_machine

LANES = {"avx512": 16, "avx2": 8, "neon": 4}
SUMS = {"avx512": 24, "avx2": 12, "neon": 24}
"""Sums in flight: enough to hide the latency of one, few enough for the registers."""
STREAM_BYTES = 256 << 20
"""More than caches hold."""
STEPS = 200_000
ROUNDS = 7
STREAMS = 8


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine can do with so many threads."""

    threads: int
    gflops: float
    """Billions of f32 additions and multiplications a second."""
    gbytes: float
    """Billions of bytes a second from memory."""


@cache
def measure_ceilings(threads: int) -> Ceilings:
    """The ceilings of this machine, measured once in a session."""
    level = host_machine().level
    lanes, sums = LANES.get(level, 4), SUMS.get(level, 12)
    code = build(loops_text(lanes, sums), ("peak", "stream"))
    peak = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(code.address("peak"))
    stream = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code.address("stream"))
    sinks = [np.zeros(64, np.float32) for _ in range(threads)]
    count = STREAM_BYTES // 4 // threads // (lanes * STREAMS)
    parts = [np.ones(count * lanes * STREAMS, np.float32) for _ in range(threads)]

    def compute(place: int) -> None:
        peak(STEPS, sinks[place].ctypes.data)

    def read(place: int) -> None:
        stream(count, parts[place].ctypes.data, sinks[place].ctypes.data)

    flops = 2.0 * lanes * sums * STEPS * threads
    return Ceilings(
        threads,
        flops / _fastest(compute, threads) / 1e9,
        sum(part.nbytes for part in parts) / _fastest(read, threads) / 1e9,
    )


def _fastest(work: Callable[[int], None], threads: int) -> float:
    """CPU seconds of the slowest thread in the fastest round: what others do on the machine is not ours."""

    def timed(place: int) -> float:
        start = time.thread_time()
        work(place)  # a call of machine code lets the other threads run
        return time.thread_time() - start

    with ThreadPoolExecutor(threads) as pool:
        return min(max(pool.map(timed, range(threads))) for _ in range(ROUNDS))


def loops_text(lanes: int, sums: int) -> str:
    """Two functions: `peak(steps, sink)` and `stream(steps, source, sink)`."""
    kind = f"<{lanes} x float>"
    factor = [f"  %k = load {kind}, ptr %out, align 4"]
    lines = [f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})"]
    lines += _loop("peak", "i64 %n, ptr %out", kind, factor, _fused(kind, lanes, sums))
    lines += _loop("stream", "i64 %n, ptr %in, ptr %out", kind, [], _summed(kind, lanes))
    return "\n".join(lines)


def _fused(kind: str, lanes: int, sums: int) -> list[tuple[str, list[str]]]:
    """Independent sums, each one product and one addition a step."""
    call = f"call {kind} @llvm.fma.v{lanes}f32"
    return [
        (f"%s{place}", [f"  %s{place}.next = {call}({kind} %s{place}, {kind} %k, {kind} %k)"])
        for place in range(sums)
    ]


def _summed(kind: str, lanes: int) -> list[tuple[str, list[str]]]:
    """Consecutive vectors, each added to a sum of its own."""
    found = []
    for place in range(STREAMS):
        lines = [
            f"  %o{place} = mul i64 %i, {lanes * STREAMS}",
            f"  %a{place} = add i64 %o{place}, {lanes * place}",
            f"  %p{place} = getelementptr float, ptr %in, i64 %a{place}",
            f"  %v{place} = load {kind}, ptr %p{place}, align 4",
            f"  %s{place}.next = fadd {kind} %s{place}, %v{place}",
        ]
        found.append((f"%s{place}", lines))
    return found


def _loop(
    name: str, parameters: str, kind: str, before: list[str], sums: list[tuple[str, list[str]]]
) -> list[str]:
    """A function that steps `%i` up to `%n` and adds its sums up in the end, so that none of them is idle."""
    phis = [f"  {word} = phi {kind} [ zeroinitializer, %entry ], [ {word}.next, %loop ]" for word, _ in sums]
    total = ["  %t0 = fadd {0} {1}.next, {1}.next".format(kind, sums[0][0])]
    for place, (word, _) in enumerate(sums[1:]):
        total.append(f"  %t{place + 1} = fadd {kind} %t{place}, {word}.next")
    return [
        f"define void @{name}({parameters}) {{",
        "entry:",
        *before,
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
        *phis,
        *(line for _, lines in sums for line in lines),
        "  %i.next = add i64 %i, 1",
        "  %more = icmp slt i64 %i.next, %n",
        "  br i1 %more, label %loop, label %end",
        "end:",
        *total,
        f"  store {kind} %t{len(sums) - 1}, ptr %out, align 4",
        "  ret void",
        "}",
    ]
