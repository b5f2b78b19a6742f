"""Agreement of one small module: exported, made a graph, compared with eager mode on three backends."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lamella
from bench.coverage.one import Facts, difference, gather_facts
from bench.coverage.zoo import build_small
from lamella.base.arrays import Array
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.graph.model import Model

BACKENDS = ("reference", "cpu", "nacvm")
TOLERANCE = 1e-4
"""How far results may lie apart, in parts of the largest number."""


def agree(name: str) -> Facts:
    """What is found out about a module; `stage` says how far it came, `done` that it agrees everywhere."""
    return gather_facts(name, _stages(name))


def _stages(name: str) -> Iterator[tuple[str, Facts]]:
    """The stages that come next, each with what the one before found out."""
    module, inputs = build_small(name)
    yield "eager", {"parameters": sum(item.numel() for item in module.parameters())}
    with torch.inference_mode():
        expected = [item.numpy() for item in module(**inputs)]
    yield "export", {}
    with torch.no_grad():
        program = torch.export.export(module, (), dict(inputs), strict=False)
    yield "graph", {}
    model = torch_to_graph(program)
    for backend in BACKENDS:
        yield backend, {}
        begun = time.perf_counter()
        apart = difference(_results(model, backend, inputs), expected)
        yield backend, {backend: apart, f"{backend}_s": round(time.perf_counter() - begun, 2)}
        if not apart <= TOLERANCE:
            raise ValueError(f"it differs by {apart:.1e}")
    yield "done", {}


def _results(model: Model, backend: str, inputs: Mapping[str, Tensor]) -> list[Array]:
    if backend != "nacvm":
        return _run(model, backend, inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.nac")
        lamella.save(model, path)
        return _run(path, backend, inputs)


def _run(model: Model | Path, backend: str, inputs: Mapping[str, Tensor]) -> list[Array]:
    executable: Any = lamella.compile(model, backend=backend)
    given = zip(executable.inputs, inputs.values(), strict=True)
    return list(executable(**{name: item.numpy() for name, item in given}).values())
