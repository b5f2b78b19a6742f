"""Measure NEM: parser, checker, simulator and interpreter."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from lark import Lark

from bench.measuring import best, row
from lamella.backend.npu import compile_plan
from lamella.base.source import Source
from lamella.lang.nem import parse
from lamella.pipeline.nem.program import check_program, plan_of, read_program
from lamella.plan.timing import simulate

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "npu"


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


def measure() -> None:
    """Everything about NEM."""
    for part in (measure_parser, measure_checker, measure_simulator, measure_interpreter):
        part()
