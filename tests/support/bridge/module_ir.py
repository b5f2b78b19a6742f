"""Compiled units for tests: written, and read again as plain JSON by what knows nothing of our nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import numpy.typing as npt

from lamella.backend.reference import compile_model
from lamella.bridge.module_to_graph import CompilationSettings, Compiled, module_to_graph
from lamella.bridge.module_to_ir import UnitIR, module_to_ir, write_ir
from lamella.bridge.module_to_ir.graph import members, operations
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.lang.module.instantiate import Instance
from lamella.pipeline.given import options_of
from lamella.pipeline.module.folders import read_source

Array = npt.NDArray[Any]
TYPES = {"fp32": np.float32, "fp64": np.float64, "int64": np.int64, "int32": np.int32, "bool": np.bool_}
MODELS = Path(__file__).parents[3] / "src/lamella/models/models"
TINY = {
    "d_model": 16,
    "n_layers": 2,
    "num_heads": 2,
    "num_kv_heads": 1,
    "vocab_size": 32,
    "d_ff": 24,
    "max_seq": 16,
}


@dataclass(frozen=True)
class Built:
    """An instance with its graph and its unit."""

    instance: Instance
    compiled: Compiled
    unit: UnitIR

    @property
    def model(self) -> Model:
        """The graph that the unit was made from."""
        assert self.compiled.model is not None
        return self.compiled.model


def instance_of(path: Path, **config: object) -> Instance:
    """The model of a file with these values."""
    return read_source(path, options_of({"config": config})).instance


def built(instance: Instance, settings: CompilationSettings | None = None) -> Built:
    """The unit of an instance."""
    compiled = module_to_graph(instance, settings)
    assert not [str(item) for item in compiled.findings if item.severity == "error"]
    return Built(instance, compiled, module_to_ir(compiled, instance))


def built_text(folder: Path, text: str, settings: CompilationSettings | None = None) -> Built:
    """The unit of a text."""
    path = folder / "test.module"
    path.write_text(dedent(text), encoding="utf-8")
    return built(instance_of(path), settings)


def tiny(name: str = "llama", settings: CompilationSettings | None = None, **config: object) -> Built:
    """The unit of a small model of the library."""
    return built(instance_of(MODELS / f"{name}.module", **{**TINY, **config}), settings)


def written(unit: UnitIR, folder: Path) -> dict[str, Any]:
    """The files of a unit as plain JSON, by name."""
    files = write_ir(unit, folder)
    return {item.stem: json.loads(item.read_text()) for item in files}


def values_of(graph: Graph, model: Model, inputs: dict[str, Array]) -> dict[str, Array]:
    """What the reference computes for every tensor of a graph, inputs and variables included."""
    made = [item for node in operations(graph) for argument in node.outputs for item in members(argument)]
    executable = compile_model(replace(model, graph=replace(graph, outputs=tuple(made))))
    values = executable(**inputs)
    return {**inputs, **executable.state, **values}


# --- another reading of the table of symbols --------------------------------------------------------------------


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "/": lambda left, right: left // right,
    "\\": lambda left, right: -(-left // right),
    "%": lambda left, right: left % right,
    "<<": min,
    ">>": max,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
}


def evaluator(symbols: list[dict[str, Any]], known: dict[str, int]) -> list[int]:
    """The value of each entry of a table of symbols, in plain integers."""
    values: list[int] = []

    def at(number: int) -> int:
        return number if number >= 0 else values[-number - 1]

    for entry in symbols:
        operands = [at(item) for item in entry.get("operands", [])]
        kind = entry["kind"]
        if kind == "symbol":
            found = known[entry["text"]]
            assert entry["low"] <= found <= entry["high"]
        elif kind == "number":
            found = entry["value"]
        elif kind == "sum":
            found = sum(
                factor * int(np.prod([at(item) for item in rest], dtype=object))
                for factor, *rest in entry["terms"]
            )
        elif kind == "?":
            found = operands[1] if operands[0] else operands[2]
        else:
            found = OPERATIONS[kind](*operands)
        values.append(int(found))
    return values


def known_sizes(value: Any, values: list[int]) -> Any:
    """A plain JSON value with every id of the table in a size replaced."""
    sizes = ("bytes", "offset", "size", "total", "unshared")
    if isinstance(value, dict):
        return {
            key: (item if item >= 0 else values[-item - 1]) if key in sizes else known_sizes(item, values)
            for key, item in value.items()
        }
    return [known_sizes(item, values) for item in value] if isinstance(value, list) else value
