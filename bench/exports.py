"""Networks as files that every contestant reads: torch's program, its ONNX, our graph, the inputs; kept in build/.

usage: python -m bench.exports FOLDER NAME BATCH    one network, in a process that ends and gives its memory back
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

from lamella.pipeline.bench.contestants import Material

FOLDER = Path("build/bench")
STAMP = "stamp"
SOURCES = sorted((Path(__file__).parent / "networks").glob("*.py"))


def material_of(name: str, batch: int) -> Material:
    """The files of a network, made where they are missing or older than what they are made from."""
    folder = FOLDER / "exports" / f"{name}-{batch}"
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != _digest():
        command = [sys.executable, "-m", "bench.exports", str(folder), name, str(batch)]
        subprocess.run(command, check=True)
        stamp.write_text(_digest(), encoding="utf-8")
    arrays = {path.stem.partition(".")[2]: np.load(path) for path in sorted(folder.glob("input*.npy"))}
    onnx = folder / "model.onnx"
    return Material(folder / "main.sknd", folder / "program.pt2", onnx if onnx.exists() else None, arrays)


def _digest() -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()


def _export(folder: Path, name: str, batch: int) -> None:
    """Write all files of a network; torch and its exporter are loaded only here."""
    import torch  # noqa: PLC0415

    import lamella  # noqa: PLC0415
    from bench.networks import build  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    module, inputs = build(name, batch)
    program = torch.export.export(module, inputs)
    torch.export.save(program, folder / "program.pt2")
    model = lamella.load(folder / "program.pt2")
    lamella.save(model, folder / "main.sknd")
    names = lamella.compile(model, backend="reference").inputs
    for place, (word, tensor) in enumerate(zip(names, inputs, strict=True)):
        np.save(folder / f"input{place}.{word}.npy", tensor.numpy())
    try:
        torch.onnx.export(program, dynamo=True, verbose=False).save(folder / "model.onnx", external_data=True)
    except Exception as problem:  # noqa: BLE001  # the exporter raises what it likes; then its peers are missing
        print(f"{name}: torch writes no ONNX: {str(problem).splitlines()[0][:200]}", file=sys.stderr)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _export(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
