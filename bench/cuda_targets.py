"""Every figure to which a GPU is held, beside what it has to reach: all benchmarks of `bench/cuda*.py` in one call.

`python -m bench.cuda_targets` runs them one after the other and prints a table; it fails where a figure is missed or
missing, or a benchmark fails. `python -m bench.cuda_targets products token` runs some, `--list` names them,
`--seconds N` stops what takes longer, `--log FOLDER` keeps what each of them prints. Peers are compiled in the same
process as ours, so all of it takes about half an hour, a third of that for ResNet-50 by torch.compile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.cuda import ATTENTIONS
from bench.measuring import FIGURES, require_gpu

PUBLISHED_PART = 0.75
"""How much of what FlashAttention-3 published attention has to reach, where it is slower than that of torch."""


class Job(NamedTuple):
    """A benchmark: its module with arguments, and the least of its figures."""

    arguments: str
    least: Mapping[str, float]


def _networks(names: Sequence[str], batch: int, peers: Sequence[str]) -> dict[str, float]:
    return {f"{name} b{batch}, {peer}": 1.0 for name in names for peer in peers}


TEXTS = ("bert", "gpt2_prefill")
PEERS = ("torch", "compiled")
JOBS: dict[str, Job] = {
    "products": Job(
        "bench.cuda --only products",
        {f"bf16 product {size}^3, in a row": 0.95 for size in (4096, 8192)}
        | {f"f32 product {size}^3, in a row": 0.9 for size in (4096, 8192)}
        | {f"f8e4m3 product {size}^3, in a row": 0.85 for size in (4096, 8192)},
    ),
    "rows": Job(
        "bench.cuda --only rows",
        {f"{name}, of a copy": 0.85 for name in ("softmax", "layer norm", "RMS norm", "SwiGLU")},
    ),
    "attention": Job("bench.cuda --only attention", {}),
    "token": Job(
        "bench.cuda_decode --tokens 130 --compiled",
        {"token bf16, of its bound": 0.55, "token bf16, beside transformers": 1.2},
    ),
    "codes": Job("bench.cuda_decode --tokens 130 --precision w8,w4,fp8", {}),
    "step": Job(
        "bench.cuda_training --compiled",
        {"tokens/s bf16": 66_300.0, "step bf16, torch.compile": 1.0, "first loss bf16, of 20 s": 1.0},
    ),
    "losses": Job("bench.cuda_training --losses 50 --rate 3e-4", {"losses, what bf16 costs torch": 1.0}),
    "start": Job(
        "bench.model_start gpt2_prefill --backend cuda --precision bf16",
        {"gpt2_prefill cold, of 5.0 s": 1.0, "gpt2_prefill found again, of 1.0 s": 1.0},
    ),
    "texts": Job(
        "bench.cuda_models bert gpt2_prefill --batch 1,32 --compiled",
        _networks(TEXTS, 1, PEERS) | _networks(TEXTS, 32, PEERS),
    ),
    "image": Job("bench.cuda_models resnet50 --batch 1 --compiled", _networks(("resnet50",), 1, PEERS)),
    "images": Job("bench.cuda_models resnet50 --batch 32 --compiled", _networks(("resnet50",), 32, PEERS)),
}


def attention_rows(found: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Each attention with its least: what torch takes, or a part of what is published; and the backward pass."""
    rows = {}
    for batch, heads, shared, tokens, depth, causal in ATTENTIONS:
        name = f"{batch}x{heads}/{shared}x{tokens}x{depth}{' causal' * causal}"
        beside, published = (
            found.get(f"attention {name}{end}", 0.0) for end in ("", ", of what is published")
        )
        rows[f"attention {name}, of either"] = max(beside, published / PUBLISHED_PART), 1.0
        rows[f"back {name}"] = found.get(f"back {name}", 0.0), 0.9
    return rows


def judge(name: str, found: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """The figures of a benchmark with their least; 0 where one is missing."""
    if name == "attention":
        return attention_rows(found)
    return {what: (found.get(what, 0.0), least) for what, least in JOBS[name].least.items()}


def run(name: str, seconds: float, log: Path) -> tuple[dict[str, float], str]:
    """What a benchmark notes, and how it failed; what it prints goes to a file."""
    problem = ""
    with TemporaryDirectory() as folder, (log / f"{name}.txt").open("w", encoding="utf-8") as output:
        figures = Path(folder) / "figures"
        command = [sys.executable, "-m", *JOBS[name].arguments.split()]
        environment = os.environ | {FIGURES: str(figures), "PYTHONUNBUFFERED": "1"}
        try:
            done = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                timeout=seconds,
                check=False,
            )
            problem = f"ended with status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            problem = f"stopped after {seconds:.0f} s"
            output.write(f"\n{problem}\n")
        lines = figures.read_text(encoding="utf-8").splitlines() if figures.exists() else []
    return {str(what): float(value) for what, value in map(json.loads, lines)}, problem


def tell(name: str, found: Mapping[str, float], problem: str) -> int:
    """Print the lines of a benchmark; tells how many figures it misses, a failure being one more."""
    rows, missed = judge(name, found), int(bool(problem))
    for what, (value, least) in rows.items():
        missed += not value >= least  # what is no number is missed, too
        verdict = "" if value >= least else "   missing" if not value else "   MISSED"
        print(f"{name:10} {what:58} {value:10.2f}   least {least:g}{verdict}")
    for what, value in found.items():
        if what not in rows:
            print(f"{name:10} {what:58} {value:10.2f}")
    if problem:
        print(f"{name:10} {problem}")
    return missed


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="name the benchmarks with their commands")
    parser.add_argument("--seconds", type=float, default=600.0, help="the most that one of them may take")
    parser.add_argument("--log", type=Path, default=Path("build/cuda"), metavar="FOLDER")
    chosen = parser.parse_args()
    if chosen.list:
        for name, job in JOBS.items():
            print(f"{name:10} python -m {job.arguments}")
        return 0
    if unknown := sorted({*chosen.names} - JOBS.keys()):
        parser.error(f"no benchmark is called {', '.join(unknown)}; --list names them")
    require_gpu()
    chosen.log.mkdir(parents=True, exist_ok=True)
    missed = 0
    for name in chosen.names or JOBS:
        begin = time.perf_counter()
        missed += tell(name, *run(name, chosen.seconds, chosen.log))
        print(f"{name:10} took {time.perf_counter() - begin:.0f} s", flush=True)
    print(f"{missed} figures missed" if missed else "all figures reached")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
