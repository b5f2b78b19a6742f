"""Networks as files that every contestant reads: torch's program, its ONNX, our graph, the inputs.

They are kept in build/bench/exports, or where $BENCH_EXPORTS says, which several checkouts may share.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from lamella.pipeline.bench.contestants import Material
from lamella.pipeline.bench.work import GraphWork

FOLDER = Path("build/bench")
SOURCES = sorted((Path(__file__).parent / "networks").glob("*.py"))


def material_of(name: str, batch: int) -> tuple[Material, GraphWork]:
    """The files of a network, made where they are missing, and its work."""
    place = Path(os.environ.get("BENCH_EXPORTS") or FOLDER / "exports")
    folder = place / f"{name}-{batch}-{_digest()}"
    if not folder.exists():
        _export(name, batch, folder)
    arrays = {path.stem.partition(".")[2]: np.load(path) for path in sorted(folder.glob("input*.npy"))}
    work = GraphWork(**json.loads((folder / "work.json").read_text(encoding="utf-8")))
    onnx = folder / "model.onnx"
    programs = folder / "program.pt2", onnx if onnx.exists() else None
    return Material(folder / "main.sknd", *programs, "torch writes no ONNX of it", arrays), work


def _export(name: str, batch: int, folder: Path) -> None:
    """Write the files elsewhere and put them in place at once: nobody reads half of them."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    subprocess.run([sys.executable, "-m", "bench.export_network", str(made), name, str(batch)], check=True)
    with suppress(OSError):  # somebody else was faster
        made.rename(folder)


def _digest() -> str:
    """What the networks are made from, as a few letters."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:8]
