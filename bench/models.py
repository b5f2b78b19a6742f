"""Measure whole models: ours beside onnxruntime, OpenVINO and torch, each in its own process, in turn, in one run.

usage: python -m bench.models [NAME …] [--threads 1,2] [--batch 1,8] [--against torch,onnxruntime,openvino,inductor]
                              [--backend cpu] [--precision f32|bf16|w8|w4|fp8|int8] [--quick] [--rounds N] [--seconds S]
                              [--patience S] [--apart]
Without names all networks of bench/networks; results are also written to build/bench/models.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

# before torch reads it: without it a bf16 product of torch dies where the tiles are not granted
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from bench.exports import FOLDER, material_of
from lamella.pipeline.bench import Heat, processor
from lamella.pipeline.bench.ceilings import measure_ceilings
from lamella.pipeline.bench.contest import Standing, Terms, hold
from lamella.pipeline.bench.contestants import version_of
from lamella.pipeline.comparison_options import PEERS, PRECISIONS
from lamella.pipeline.options import Options

NAMES = (
    *("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b16", "bert", "gpt2_prefill"),
    *("gpt2_decode", "lstm", "unet", "mamba", "qwen3_decode"),
    *("densenet121", "convnext_tiny", "t5_encoder"),
)
LARGE_BYTES = 1 << 32
"""Weights beyond this are held by one contestant at a time: apart, they meet different moments of a noisy memory."""


def measure(name: str, batch: int, threads: int, wanted: argparse.Namespace) -> Heat:
    """One line of the table: our machine code is compiled cold in the contest, and found again afterwards."""
    material, work = material_of(name, batch)
    with TemporaryDirectory(prefix="lamella-objects-") as cache:
        terms = Terms(
            threads,
            wanted.rounds,
            wanted.seconds,
            wanted.patience,
            wanted.apart or work.fixed > LARGE_BYTES,
            Path(cache),
        )
        options = Options(threads=threads, precision=wanted.precision)
        standings = hold([*wanted.backend, *wanted.against], material, terms, options)
        again = hold(wanted.backend[:1], material, replace(terms, rounds=0), options)[0]
    ceilings = measure_ceilings(threads)
    return Heat(batch, threads, standings, len(wanted.backend), work, ceilings, again)


# --- the table ----------------------------------------------------------------------------------------------


def head(names: Sequence[str]) -> str:
    """The names of the columns."""
    words = "".join(f"{name[:11]:>12}" for name in names)
    start = f"{'compile':>9}{'CPU':>7}{'cached':>8}{'CPU':>7}"
    tail = (
        f"{'bound':>9}{'ratio':>7}{start}{'peak MB':>9}{'aside':>7}{'cached':>8}{'ORT MB':>8}{'differs':>9}"
    )
    return f"{'model':16}{'batch':>6}{'thr':>4}{words}{tail}"


def told(name: str, heat: Heat) -> Iterator[str]:
    """A line: milliseconds of each, the bound, our ratio to the best peer, our start, our memory; then who is out."""
    times = "".join(f"{_time(item, heat.threads):>12}" for item in heat.standings)
    ours = heat.standings[0]
    bound = max(heat.arithmetic_bound, heat.bandwidth_bound) * 1e3
    start = f"{ours.load + ours.first:>8.2f}s{ours.busy:>6.2f}s{heat.cached:>7.2f}s{heat.again.busy:>6.2f}s"
    runtime = next((item.peak for item in heat.standings if item.name == "onnxruntime"), 0)
    apart = heat.differs(ours)
    peaks = (
        f"{ours.peak / 1e6:>9.0f}{ours.aside / 1e6:>7.0f}{heat.again.peak / 1e6:>8.0f}{runtime / 1e6:>8.0f}"
    )
    tail = f"{peaks}{math.nan if apart is None else apart[1]:>9.1e}"
    yield f"{name:16}{heat.batch:>6}{heat.threads:>4}{times}{bound:>9.2f}{heat.ratio:>7.2f}{start}{tail}"
    for item in heat.standings:
        if item.problem:
            yield f"    {item.name}: {item.problem}"


def _time(item: Standing, threads: int) -> str:
    return "out" if item.problem else f"{item.best(threads) * 1e3:.2f}"


def numbers(text: str) -> list[int]:
    """`1,8` as numbers."""
    return [int(word) for word in text.split(",")]


def words(text: str) -> list[str]:
    """`torch,onnxruntime` as words."""
    return [word for word in text.split(",") if word]


def main(arguments: Sequence[str]) -> None:
    """Measure what is asked for, a line at a time."""
    parser = argparse.ArgumentParser(prog="bench.models", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--threads", type=numbers, default=[1])
    parser.add_argument("--batch", type=numbers, default=[1])
    parser.add_argument("--against", type=words, default=["torch", "onnxruntime", "openvino"])
    parser.add_argument("--backend", type=words, default=["cpu"])
    parser.add_argument(
        "--precision", default=PRECISIONS[0], choices=PRECISIONS, help="of ours; peers compute in f32"
    )
    parser.add_argument("--quick", action="store_true", help="few samples")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="of each contestant in a round")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds until a contestant is out")
    parser.add_argument("--apart", action="store_true", help="one contestant after the other")
    wanted = parser.parse_args(arguments)
    wanted.rounds = wanted.rounds or (2 if wanted.quick else 5)
    wanted.seconds = wanted.seconds or (0.2 if wanted.quick else 0.6)
    for known, given in ((NAMES, wanted.names), (PEERS, wanted.against)):
        for word in given:
            if word not in known:
                parser.error(f"'{word}' is none of {', '.join(known)}")
    _run(wanted)


def _run(wanted: argparse.Namespace) -> None:
    # What is installed has bytecode: contestants keep theirs, whatever a checkout is told.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str((FOLDER / "bytecode").absolute()))
    versions = ", ".join(f"{name} {version_of(name)}" for name in wanted.against)
    print(f"{date.today()}  {processor()} x {os.cpu_count()}  {versions}")
    print("milliseconds of the fastest call: CPU time with one thread, time on the wall with more")
    print(head([*wanted.backend, *wanted.against]), flush=True)
    heats: list[tuple[str, Heat]] = []
    for name in wanted.names or NAMES:
        for batch in wanted.batch:
            for threads in wanted.threads:
                heats.append((name, measure(name, batch, threads, wanted)))
                print(*told(*heats[-1]), sep="\n", flush=True)
                _save(heats)
    ratios = [heat.ratio for _, heat in heats if heat.ratio > 0]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of {len(ratios)} ratios to the best peer: {mean:.2f}, worst {max(ratios):.2f}")


def _save(heats: Sequence[tuple[str, Heat]]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = [{"model": name, **heat.to_json()} for name, heat in heats]
    facts = {"date": str(date.today()), "processor": processor(), "lines": lines}
    (FOLDER / "models.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
