"""Measure how NAC files are opened: seconds and memory before the first weight is touched, beside safetensors."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file as save_store

from bench.measuring import row
from lamella.base.dtype import F32
from lamella.bridge.graph_to_nac import graph_to_nac
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.lang.nac import save_file
from lamella.lang.nac.nodes import File
from lamella.ops.library import Library

WIDTH = 4096
LAYERS = 16
"""Matrices of 64 MiB: one gigabyte in all."""
OURS = """
import lamella.lang.nac, lamella.base.limits
from pathlib import Path
def work(path): return lamella.lang.nac.open_file(Path(path), lamella.base.limits.DEFAULT)
"""
THEIRS = """
from safetensors import safe_open
def work(path):
    store = safe_open(path, "np")
    return store, {key: store.get_slice(key).get_shape() for key in store.keys()}
"""
FRAME = """
import json, sys, time
{imports}
def held():  # kilobytes in memory; the peak that the system keeps survives a fork, so it tells nothing here
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
before = held()
start = time.perf_counter()
kept = work(sys.argv[1])
seconds = time.perf_counter() - start
print(json.dumps([seconds, held() - before, before]))
"""


def measure() -> None:
    """Open one gigabyte of weights."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.nac"
        file = _large()
        save_file(path, file)
        beside = Path(folder) / "large.safetensors"
        _store(file, beside)
        theirs = _opened(THEIRS, beside)
        ours = _opened(OURS, path)
        peer = f"target 0.15 s, 60 MB; safetensors {theirs[0] * 1000:.1f} ms, {theirs[1] / 1024:.0f} MB"
        words = f"{ours[0] * 1000:.1f} ms, {ours[1] / 1024:.0f} MB"
        row(f"open {path.stat().st_size / 1e9:.2f} GB of NAC", words, peer)
        row(
            "memory of the whole process",
            f"{(ours[1] + ours[2]) / 1024:.0f} MB",
            "interpreter and imports included",
        )


def _large() -> File:
    """A chain of matrix products whose weights take a gigabyte."""
    builder = Builder(Library(), "large")
    value = builder.input("x", F32, (1, WIDTH))
    zeros = np.zeros((WIDTH, WIDTH), np.float32)
    data = {}
    for number in range(LAYERS):
        weight = builder.variable(f"layer{number}.weight", F32, (WIDTH, WIDTH))
        data[weight.name] = zeros
        value = builder.call("aten.linear", value, weight, None)
    graph = builder.finish(value)
    return graph_to_nac(replace(Model(graph, Library()), data=data)).file


def _store(file: File, path: Path) -> None:
    save_store({item.name: np.zeros((WIDTH, WIDTH), np.float32) for item in file.parameters}, str(path))


def _opened(imports: str, path: Path) -> list[float]:
    """Seconds and kilobytes of a fresh process after its imports."""
    program = FRAME.format(imports=imports)
    rounds = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True
        )
        rounds.append(json.loads(done.stdout))
    fastest: list[float] = min(rounds)
    return fastest
