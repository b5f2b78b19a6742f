"""Networks as files that every contestant reads: torch's program, its ONNX, our graph, the inputs; kept in build/."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from lamella.pipeline.bench.contestants import Material
from lamella.pipeline.bench.work import GraphWork

FOLDER = Path("build/bench")
STAMP = "stamp"
SOURCES = sorted((Path(__file__).parent / "networks").glob("*.py"))


def material_of(name: str, batch: int) -> tuple[Material, GraphWork]:
    """The files of a network, made where they are missing or older than what they are made from, and its work."""
    folder = FOLDER / "exports" / f"{name}-{batch}"
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != _digest():
        command = [sys.executable, "-m", "bench.export_network", str(folder), name, str(batch)]
        subprocess.run(command, check=True)
        stamp.write_text(_digest(), encoding="utf-8")
    arrays = {path.stem.partition(".")[2]: np.load(path) for path in sorted(folder.glob("input*.npy"))}
    work = GraphWork(**json.loads((folder / "work.json").read_text(encoding="utf-8")))
    onnx = folder / "model.onnx"
    programs = folder / "program.pt2", onnx if onnx.exists() else None
    return Material(folder / "main.sknd", *programs, "torch writes no ONNX of it", arrays), work


def _digest() -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()
