"""A training graph as resources of the file that it trains: version 1.6 has no section for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.bridge.graph_to_nac.file import Writing, graph_to_nac
from lamella.graph.model import Model
from lamella.lang.nac.check import check
from lamella.lang.nac.check.training import FORMAT, GRAPH, NOTES, read_entry
from lamella.lang.nac.nodes import File, Resource
from lamella.lang.nac.write import write


@dataclass(frozen=True, slots=True)
class TrainingGraph:
    """A graph from inputs, targets and parameters to a loss and gradients, and what each of them is.

    `inputs` and `parameters` give, by the names of the graph's inputs, the inputs and parameters of the file; `saved`
    the instructions of its program; `gradients`, by the names of parameters, the graph's outputs.
    """

    model: Model
    loss: str
    gradients: Mapping[str, str]
    parameters: Mapping[str, str]
    targets: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    saved: Mapping[str, int] = field(default_factory=dict)
    rate: float | None = None


def with_training(file: File, training: TrainingGraph) -> tuple[File, tuple[Diagnostic, ...]]:
    """The file with its training graph, and what was left out; LamellaError holds what does not fit or go into NAC."""
    written = graph_to_nac(training.model, Writing())
    content: dict[str, object] = {
        "format": FORMAT,
        "targets": list(training.targets),
        "inputs": dict(training.inputs),
        "parameters": dict(training.parameters),
        "saved": dict(training.saved),
        "loss": training.loss,
        "gradients": dict(training.gradients),
        "lr": training.rate,
    }
    kept = {key: value for key, value in content.items() if value not in ({}, [], None)}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    made = without_training(file)
    resources = (Resource(NOTES, text.encode()), Resource(GRAPH, write(written.file)))
    made = replace(made, resources=(*made.resources, *resources))
    _, findings = read_entry(made, check)
    if errors(findings):
        raise LamellaError(findings)
    return made, written.findings


def without_training(file: File) -> File:
    """The file without a training graph in its resources."""
    kept = tuple(item for item in file.resources if item.name not in (NOTES, GRAPH))
    return replace(file, resources=kept)
