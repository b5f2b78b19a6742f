"""Measure the NEM tools: ratios against named peers in the same run, and the targets beside them.

usage: run.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
from lark import Lark

from lamella.backend.npu import compile_plan
from lamella.base.source import Source
from lamella.lang.nem import parse
from lamella.pipeline.nem.program import check_program, plan_of, read_program
from lamella.plan.timing import simulate

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "npu"
ROUNDS = 3


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of a few rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def row(what: str, measured: str, beside: str) -> None:
    """One line of the table."""
    print(f"{what:46} {measured:>16}   {beside}")


def flat_program(lines: int) -> str:
    """Chained transfers between two buffers, one task and one region a pair of lines."""
    text = ["buffer A : L2 (size=8000000)", "buffer B : L1 (size=400000)"]
    for number in range(lines // 2):
        deps = f", deps=[t{number - 1}]" if number else ""
        text.append(f"let r{number} = region(A, {number} * 64, 64) elem=i8, shape=[64], layout=N")
        text.append(
            f"t{number} = transfer.async(dst=region(B, {number % 1000 * 64}, 64), src=r{number}{deps})"
        )
    return "\n".join([*text, f"wait(t{lines // 2 - 1})", ""])


def tiled_program(tiles: int) -> Source:
    """The convolution example with another number of tiles and no device to limit its memory."""
    text = (EXAMPLES / "conv_relu.nem").read_text(encoding="utf-8")
    text = text.replace("const T = 4 ", f"const T = {tiles} ")
    return Source("tiled.nem", text.replace('include "npm_lite.nem"', "").replace("device npm_lite", ""))


def measure_parser() -> None:
    """The hand-written parser beside Lark on the same grammar and text."""
    source = Source("flat.nem", flat_program(1000))
    grammar = (ROOT / "src" / "lamella" / "lang" / "nem" / "grammar.lark").read_text(encoding="utf-8")
    peer = Lark(grammar, parser="lalr", propagate_positions=True)
    ours, theirs = best(lambda: parse(source)), best(lambda: peer.parse(source.text))
    row(
        "parse 1 000 lines",
        f"{ours * 1000:.0f} ms",
        f"Lark {theirs * 1000:.0f} ms: {theirs / ours:.1f} x as fast",
    )


def measure_checker() -> None:
    """A long program, and a nest with 10^9 iterations."""
    source = Source("flat.nem", flat_program(10_000))
    row("check 10 000 lines, hazards included", f"{best(lambda: check_program(source)):.2f} s", "target 2 s")
    source = tiled_program(1_000_000_000)
    row("check a loop of 10^9 iterations", f"{best(lambda: check_program(source)):.3f} s", "target 1 s")


def measure_simulator() -> None:
    """Cycles of long loops by window-periodic analysis."""
    for tiles, what, target in ((20_000, "100 000 task instances", 1), (10_000_000, "10^7 iterations", 2)):
        plan = plan_of(check_program(tiled_program(tiles)))
        report = simulate(plan)
        seconds = best(partial(simulate, plan))
        row(f"simulate {what}", f"{seconds:.3f} s", f"target {target} s; schedule ÷ bound {report.ratio:.4f}")


def measure_interpreter() -> None:
    """The bit-exact run of the convolution example beside torch's float convolution of the same shapes."""
    executable = compile_plan(plan_of(read_program(EXAMPLES / "conv_relu.nem")))
    x, w = torch.randn(4, 64, 16, 16), torch.randn(128, 64, 3, 3)
    ours = best(executable)
    theirs = best(lambda: torch.relu(torch.nn.functional.conv2d(x, w)))
    beside = f"torch f32 {theirs * 1000:.1f} ms: {ours / theirs:.1f} x as long"
    row("run conv_relu bit-exactly (57.8 M MACs)", f"{ours * 1000:.0f} ms", beside)


def measure_start() -> None:
    """Start-up of the command beside the bare interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.nem"
        small.write_text("buffer A : L2 (size=8)\nbuffer B : L1 (size=8)\ntransfer.sync(dst=B, src=A)\n")
        bare = best(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
        for what, target, words in (
            ("--help", 0.3, ["--help"]),
            ("check of a small file", 0.4, ["check", str(small)]),
        ):
            command = [sys.executable, "-m", "lamella", *words]
            seconds = best(partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL))
            row(f"lamella {what}", f"{seconds:.2f} s", f"target {target} s; bare interpreter {bare:.2f} s")


if __name__ == "__main__":
    for measure in (measure_parser, measure_checker, measure_simulator, measure_interpreter, measure_start):
        measure()
