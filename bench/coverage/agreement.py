"""Agreement of one small module: exported, made a graph, compared with eager mode on three backends."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lamella
from bench.coverage.one import Facts, difference, gather_facts
from bench.coverage.zoo import build_small
from bench.exports import FOLDER
from lamella.base.arrays import Array
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.graph.model import Model

AGREEMENT = FOLDER / "agreement.jsonl"
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


# --- the table ----------------------------------------------------------------------------------------------


def known_results(path: Path) -> dict[str, Facts]:
    """What earlier runs found out, by name; the last line of a name counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.strip()]
    return {row["name"]: row for row in rows}


STAGES = ("build", "eager", "export", "graph", *BACKENDS, "done")


def table(rows: Sequence[Facts]) -> Iterator[str]:
    """By source how many modules torch.export takes, how many of them become graphs and agree; then the others."""
    yield "| modules of | drawn | `torch.export` takes | become graphs | reference | cpu | nacvm | agree |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for source in (*sorted({row["name"].partition(":")[0] for row in rows}), ""):
        chosen = [row for row in rows if row["name"].startswith(f"{source}:" if source else "")]
        reached = [STAGES.index(row["stage"]) if row["stage"] in STAGES else 0 for row in chosen]
        counts = [sum(place > STAGES.index(stage) for place in reached) for stage in STAGES[2:-1]]
        share = f"{counts[-1] / counts[0]:.1%}" if counts[0] else "–"
        yield f"| {source or 'all'} | {len(chosen)} | {' | '.join(map(str, counts))} | {share} |"
    others = [row for row in rows if row["stage"] in STAGES[3:-1] or row["stage"] not in STAGES]
    if others:
        yield ""
    for row in others:
        yield f"- `{row['name']}` ({row['stage']}): {row['problem']}"
