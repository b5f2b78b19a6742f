"""Measure whole models: ours beside onnxruntime, OpenVINO and torch, each in its own process, in turn, in one run.

usage: python -m bench.models [NAME …] [--threads 1,2] [--batch 1,8] [--against torch,onnxruntime,openvino,inductor]
                              [--backend cpu] [--quick] [--rounds N] [--patience S] [--apart]
Without names all networks of bench/networks; results are also written to build/bench/models.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

# before torch reads it: without it a bf16 product of torch dies where the tiles are not granted
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from bench.exports import FOLDER, material_of
from lamella.pipeline.bench.contest import Standing, Terms, difference, hold
from lamella.pipeline.bench.contestants import PEERS, Material, version_of
from lamella.pipeline.options import Options

NAMES = (
    *("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b16", "bert", "gpt2_prefill"),
    *("gpt2_decode", "lstm", "unet", "mamba", "qwen3_decode"),
)
LARGE_BYTES = 1 << 30
"""Weights beyond this are held by one contestant at a time."""


def measure(name: str, batch: int, threads: int, wanted: argparse.Namespace) -> dict[str, object]:
    """One line of the table."""
    material = material_of(name, batch)
    weights = material.model.with_suffix(".safetensors").stat().st_size
    names = [*wanted.backend, *wanted.against]
    with TemporaryDirectory(prefix="lamella-objects-") as cache:
        terms = Terms(
            threads,
            wanted.rounds,
            wanted.seconds,
            wanted.patience,
            wanted.apart or weights > LARGE_BYTES,
            Path(cache),
        )
        options = Options(threads=threads, given=frozenset({"threads"}))
        standings = hold(names, material, terms, options)
        again = hold(
            wanted.backend[:1], material, Terms(threads, 0, 0, wanted.patience, cache=Path(cache)), options
        )
    line = _line(standings, threads, len(wanted.backend))
    facts = {"name": name, "batch": batch, "threads": threads, "weights": weights}
    return {**facts, **line, "cached_s": again[0].load + again[0].first}


def _line(standings: Sequence[Standing], threads: int, ours: int) -> dict[str, object]:
    """Facts of a line: times in milliseconds, the ratio of our first backend to the best peer."""
    judge = next((item for item in standings[ours:] if not item.problem), None)
    rows = {}
    for item in standings:
        apart = difference(item.results, judge.results)[1] if judge is not None and not item.problem else None
        rows[item.name] = {
            "min_ms": item.best(threads) * 1e3,
            "median_ms": item.median(threads) * 1e3,
            "load_s": item.load,
            "first_s": item.first,
            "peak_mb": item.peak / 1e6,
            "difference": apart,
            "problem": item.problem,
        }
    best = min((item.best(threads) for item in standings[ours:] if item.wall), default=math.nan)
    return {"contestants": rows, "ratio": standings[0].best(threads) / best}


# --- the table ----------------------------------------------------------------------------------------------


def head(names: Sequence[str]) -> str:
    """The names of the columns."""
    words = "".join(f"{name[:11]:>12}" for name in names)
    return f"{'model':16}{'batch':>6}{'thr':>4}{words}{'ratio':>8}{'compile':>9}{'cached':>8}{'peak MB':>9}{'differs':>9}"


def told(line: dict[str, object], names: Sequence[str]) -> str:
    """One line: milliseconds of each, our ratio to the best peer, our start, our memory."""
    rows = line["contestants"]
    assert isinstance(rows, dict)
    words = "".join(f"{_time(rows[name]):>12}" for name in names)
    ours = rows[names[0]]
    start = f"{ours['load_s'] + ours['first_s']:>8.2f}s{line['cached_s']:>7.2f}s"
    apart = ours["difference"]
    tail = f"{ours['peak_mb']:>9.0f}{apart if apart is not None else math.nan:>9.1e}"
    return f"{line['name']:16}{line['batch']:>6}{line['threads']:>4}{words}{line['ratio']:>8.2f}{start}{tail}"


def _time(row: dict[str, object]) -> str:
    return "out" if row["problem"] else f"{row['min_ms']:.2f}"


def numbers(text: str) -> list[int]:
    """`1,8` as numbers."""
    return [int(word) for word in text.split(",")]


def words(text: str) -> list[str]:
    """`torch,onnxruntime` as words."""
    return [word for word in text.split(",") if word]


def main(arguments: Sequence[str]) -> None:
    """Measure what is asked for, a line at a time."""
    parser = argparse.ArgumentParser(prog="bench.models", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--threads", type=numbers, default=[1])
    parser.add_argument("--batch", type=numbers, default=[1])
    parser.add_argument("--against", type=words, default=["torch", "onnxruntime", "openvino"])
    parser.add_argument("--backend", type=words, default=["cpu"])
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="of each contestant in a round")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds until a contestant is out")
    parser.add_argument("--apart", action="store_true", help="one contestant after the other")
    wanted = parser.parse_args(arguments)
    wanted.rounds = wanted.rounds or (2 if wanted.quick else 5)
    wanted.seconds = wanted.seconds or (0.2 if wanted.quick else 0.6)
    for word in (*wanted.names, *wanted.against):
        if word not in (*NAMES, *PEERS):
            parser.error(f"'{word}' is none of {', '.join((*NAMES, *PEERS))}")
    _run(wanted)


def _run(wanted: argparse.Namespace) -> None:
    lines: list[dict[str, object]] = []
    names = [*wanted.backend, *wanted.against]
    versions = ", ".join(f"{name} {version_of(name)}" for name in wanted.against)
    print(f"{date.today()}  {processor()}  {versions}")
    print("milliseconds of the fastest call: CPU time with one thread, time on the wall with more")
    print(head(names), flush=True)
    for name in wanted.names or NAMES:
        for batch in wanted.batch:
            for threads in wanted.threads:
                lines.append(measure(name, batch, threads, wanted))
                print(told(lines[-1], names), flush=True)
                for who, row in lines[-1]["contestants"].items():  # type: ignore[attr-defined]
                    if row["problem"]:
                        print(f"    {who}: {row['problem']}", flush=True)
    ratios = [line["ratio"] for line in lines if isinstance(line["ratio"], float) and line["ratio"] > 0]
    if ratios:
        print(
            f"geometric mean of {len(ratios)} ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}"
        )
    target = FOLDER / "models.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"machine": processor(), "lines": lines}, indent=1), encoding="utf-8")


def processor() -> str:
    """The name of the processor, and how many there are."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{name or platform.processor()} x {os.cpu_count()}"


if __name__ == "__main__":
    main(sys.argv[1:])
