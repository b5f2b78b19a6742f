"""SkriptND models for the API: load, compile, lower, save."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lamella.backend.reference import Executable, compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.graph.data import read_weights, write_weights
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.lang.skriptnd.rules import data as data_rules
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.passing import apply_pass
from lamella.pipeline.skriptnd.reading import chosen_graph, compose_graph, read_module
from lamella.pipeline.skriptnd.writing import restore_origins, write_model


def load(path: Path, options: Options) -> Model:
    """Read, check and compose a model; LamellaError holds all findings when something is wrong."""
    read = read_module(path, options)
    if not read.sound:
        raise LamellaError(read.findings)
    graph, findings = compose_graph(read.module, chosen_graph(read.module, options), options)
    if graph is None:
        raise LamellaError(errors([*read.findings, *findings]))
    data = _data(path, graph, options)
    if path.is_dir():
        graph, data = _restored(graph, data, path, options)
    model = Model(graph, read.module.library, data)
    return specialise_shapes(model, options.shape) if options.shape else model


def _restored(
    graph: Graph, data: Mapping[str, Array] | None, folder: Path, options: Options
) -> tuple[Graph, Mapping[str, Array] | None]:
    """A graph that `lower` wrote gets its names back, and so do its data."""
    restored = restore_origins(graph, folder, options.limits)
    names = {old.name: new.name for old, new in zip(graph.variables, restored.variables, strict=True)}
    return restored, data and {names[name]: array for name, array in data.items()}


def _data(path: Path, graph: Graph, options: Options) -> Mapping[str, Array] | None:
    """The weights where the user says, else those in the model's folder, else none."""
    if not graph.variables:
        return None
    home = options.weights or (path if path.is_dir() else None)
    if home is None:
        return None
    arrays, findings = read_weights(home, graph, options.limits)
    if options.weights is None and not arrays:
        findings = tuple(item for item in findings if item.code != data_rules.NO_DATA.code)
    if errors(findings):
        raise LamellaError(errors(findings))
    return arrays or None


def compile(  # the API's word: lamella.compile
    model: Model, backend: str | None, options: Options
) -> Executable:
    """Make a graph executable; inputs that a call leaves out are random, from the seed."""
    if backend not in (None, "reference"):
        raise InputError(f"there is no backend '{backend}' for a graph", hint="graphs run on: reference")
    return compile_model(
        model,
        seed=options.seed,
        dtype=options.dtype or "f32",
        quantized=options.quantized,
        limits=options.limits,
    )


def lower(model: Model, to: str, options: Options) -> Model:
    """The graph after the passes that the options name; the forms below it come with their languages."""
    if to not in ("sknd", "skriptnd"):
        raise InputError(f"there is no road to '{to}' from here", hint="a graph lowers to: sknd")
    for name in options.passes:
        model = apply_pass(model, name, options.limits)
    return model


def save(model: Model, path: Path) -> None:
    """Write a model: a folder, a .sknd file with its data beside it, or the data alone as .safetensors."""
    if path.suffix == ".safetensors":
        write_weights(path, model.graph, model.data or {})
    elif path.suffix in ("", ".sknd"):
        write_model(model, path)
    else:
        raise InputError(
            f"'{path.name}' is no ending for a graph", hint="graphs are written as .sknd or a folder"
        )
