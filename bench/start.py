"""Measure the start-up of the command beside the bare interpreter."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.measuring import best, row

NEM = "buffer A : L2 (size=8)\nbuffer B : L1 (size=8)\ntransfer.sync(dst=B, src=A)\n"
SKRIPTND = """import nn;
graph G {
    @input { x: real[1, 3, 32, 32]; }
    @variable { w: real[8, 3, 3, 3]; }
    @output { y: real[1, 8, 32, 32]; }
    @compose { c = nn.conv(x, w); y = nn.relu(c); }
}
"""


def children() -> float:
    """CPU seconds of the processes that have ended, which other work on the machine does not lengthen."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure() -> None:
    """CPU seconds of the smallest commands."""
    with tempfile.TemporaryDirectory() as folder:
        small, model = Path(folder) / "small.nem", Path(folder) / "small.sknd"
        small.write_text(NEM, encoding="utf-8")
        model.write_text(SKRIPTND, encoding="utf-8")
        bare = best(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), children)
        for what, target, words in (
            ("--help", 0.3, ["--help"]),
            ("check of a small NEM file", 0.4, ["check", str(small)]),
            ("check of a small SkriptND file", 0.4, ["check", str(model)]),
        ):
            command = [sys.executable, "-m", "lamella", *words]
            run = partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
            seconds = best(run, children)
            beside = f"target {target} s; bare interpreter {bare:.2f} s"
            row(f"lamella {what}", f"{seconds:.2f} s CPU", beside)
