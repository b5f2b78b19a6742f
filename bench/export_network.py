"""Write one network as the files that contestants read, in a process that ends and gives its memory back.

usage: python -m bench.export_network FOLDER NAME BATCH
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

import lamella
from bench.networks import build
from lamella.bridge.graph_to_kernels import flatten
from lamella.pipeline.bench.work import count_graph


def export(folder: Path, name: str, batch: int) -> None:
    """Write torch's program, our graph, the inputs, the work of a run, and torch's ONNX where it can write it."""
    folder.mkdir(parents=True, exist_ok=True)
    module, inputs = build(name, batch)
    program = torch.export.export(module, inputs)
    torch.export.save(program, folder / "program.pt2")
    model = lamella.from_torch(module, inputs)
    lamella.save(model, folder / "main.sknd")
    names = lamella.compile(model, backend="reference").inputs
    for place, (word, tensor) in enumerate(zip(names, inputs, strict=True)):
        np.save(folder / f"input{place}.{word}.npy", tensor.numpy())
    work = count_graph(flatten(model), {})
    (folder / "work.json").write_text(json.dumps(asdict(work)), encoding="utf-8")
    _write_onnx(program, folder / "model.onnx", name)


def _write_onnx(program: object, path: Path, name: str) -> None:
    path.unlink(missing_ok=True)
    try:
        torch.onnx.export(program, dynamo=True, verbose=False).save(path, external_data=True)
    except (torch.onnx.errors.OnnxExporterError, ImportError, RuntimeError) as problem:
        print(f"{name}: torch writes no ONNX: {str(problem).splitlines()[0][:200]}", file=sys.stderr)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    export(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
