"""Measure how long kernels take to compile: cold, from the cache, and in a process that begins with nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.kernels_gemm import plain_text
from bench.kernels_rows import EXAMPLES, example
from bench.measuring import best, row
from bench.start import children
from lamella.backend.cpu import compile_program
from lamella.backend.cpu.host import host_target
from lamella.base.source import Source
from lamella.kernels.library import GemmShape, batched_gemm, packed_gemm
from lamella.lang.tensor import parse
from lamella.lang.tensor.nodes import Program

COLD_S, CACHED_S, FIRST_S = 0.045, 0.002, 0.45
FIRST = """
import sys
import numpy as np
import lamella
kernels = lamella.compile(sys.argv[1])
x = np.ones((64, 128), "f4", order="F")
kernels.softmax(x, np.empty_like(x), groups=128)
"""


@contextmanager
def cached_in(folder: str) -> Iterator[None]:
    """Keep machine code in this folder for a while; an empty name keeps none."""
    before = os.environ.get("LAMELLA_CACHE")
    os.environ["LAMELLA_CACHE"] = folder
    try:
        yield
    finally:
        os.environ.pop("LAMELLA_CACHE")
        if before is not None:
            os.environ["LAMELLA_CACHE"] = before


def programs() -> Iterator[tuple[str, Program]]:
    """Kernels of all sorts, each a program of its own."""
    for name in ("fibonacci", "fused", "rows", "flash_attention", "ader"):
        found, _ = parse(Source(f"{name}.tensor", example(name)))
        for function in found.functions:
            yield f"@{function.name}", Program((function,))
    yield (
        "a product of 512 x 512 x 512",
        parse(Source("gemm.tensor", plain_text((512, 512, 512), "f32", 1)))[0],
    )
    yield "the same with packed weights", packed_gemm(GemmShape(512, 512, 512), host_target())
    yield "a batch of 8 x 8 x 8", batched_gemm(GemmShape(8, 8, 8))


def told(seconds: float, target: float) -> str:
    """A target beside a time."""
    return f"target {target * 1000:.0f} ms {'ok' if seconds <= target else 'missed'}"


def measure(quick: bool) -> None:
    """Seconds of the processor until kernels can be called."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        for name, program in list(programs())[:: 3 if quick else 1]:
            compiled = partial(compile_program, program, threads=1)
            with cached_in(""):
                compiled()
                cold = best(compiled)
            with cached_in(folder):
                compiled()
                again = best(compiled)
            row(f"compile {name}, cold", f"{cold * 1000:.1f} ms CPU", told(cold, COLD_S))
            row(f"compile {name}, cached", f"{again * 1000:.2f} ms CPU", told(again, CACHED_S))
        measure_first_call(folder)


def measure_first_call(folder: str) -> None:
    """From the start of a process to the result of a kernel whose code is in the cache."""
    command = [sys.executable, "-c", FIRST, str(EXAMPLES / "rows.tensor")]
    with cached_in(folder):
        run = partial(subprocess.run, command, check=True)
        run()
        used, passed = best(run, children), best(run, time.perf_counter)
    said = f"{used:.2f} s CPU, {passed:.2f} s"
    row("first call of a cached kernel, process and all", said, told(used, FIRST_S))
