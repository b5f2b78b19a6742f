"""SkriptND models for the API: load. No pass and no backend is needed for that, and none is loaded."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dim import symbols
from lamella.base.dtype import F64
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, is_there, shown
from lamella.bridge.graph_to_skriptnd import Origins, restore_names, with_identifiers
from lamella.graph.data import FoundWeights, read_weights
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.graph.rewrite import defined, extents
from lamella.lang.skriptnd.rules import data as data_rules
from lamella.lang.skriptnd.rules.names import SHADOWED_MODULE
from lamella.ops.library import Library
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.compose import ORIGINS, chosen_graph, compose_graph, read_json_in, read_module

MAIN = "main"
ENDING = ".sknd"
STORE_FILE = ".safetensors"


def load(path: Path, options: Options) -> Model:
    """Read, check and compose a model; LamellaError holds all findings when something is wrong."""
    read = read_module(path, options, again=False)
    if not read.sound:
        raise LamellaError(read.findings)
    graph, findings = compose_graph(read.module, chosen_graph(read.module, options), options)
    if graph is None:
        raise LamellaError(errors([*read.findings, *findings]))
    folder = path.parent if path.name == f"{MAIN}{ENDING}" else path
    data, warnings = _data(folder, graph, options)
    if is_folder(folder):
        graph, data = _restored(graph, data, folder, options)
    shadowed = [item for item in read.findings if item.code == SHADOWED_MODULE.code]
    return Model(graph, read.module.library, data or None, (*shadowed, *warnings))


def _restored(
    graph: Graph, data: Mapping[str, Array], folder: Path, options: Options
) -> tuple[Graph, Mapping[str, Array]]:
    """A graph that `lower` wrote gets its names back, and so do its data."""
    restored = restore_origins(graph, folder, options.limits)
    names = {old.name: new.name for old, new in zip(graph.variables, restored.variables, strict=True)}
    return restored, {names[name]: array for name, array in data.items()}


def _data(path: Path, graph: Graph, options: Options) -> FoundWeights:
    """The weights where the user says, else those in the model's folder or beside its file, else none."""
    beside = path if is_folder(path) else path.with_suffix(STORE_FILE)
    home = options.weights or (beside if is_there(beside) else None)
    if options.weights is not None and not graph.variables:
        hint = "leave the option out, or choose another graph"
        raise InputError(f"graph '{graph.name}' has no variables that could take weights", hint=hint)
    if home is None or not graph.variables:
        return FoundWeights({}, ())
    flat = flat_graph(_widened(graph) if options.dtype == "f64" else graph, home)
    arrays, findings = read_weights(home, flat, options.limits)
    names = {old.name: new.name for old, new in zip(flat.variables, graph.variables, strict=True)}
    if options.weights is None and not arrays:
        findings = tuple(item for item in findings if item.code != data_rules.NO_DATA.code)
    if errors(findings):
        raise LamellaError(errors(findings))
    return FoundWeights({names[name]: array for name, array in arrays.items()}, _gathered(findings))


def _gathered(findings: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """One finding for each rule: what holds of one variable often holds of hundreds."""
    counts = Counter(item.code for item in findings)
    firsts = {item.code: item for item in reversed(findings)}
    return tuple(_with_count(item, counts[item.code] - 1) for item in findings if firsts[item.code] is item)


def _with_count(finding: Diagnostic, others: int) -> Diagnostic:
    return replace(finding, message=f"{finding.message} (and {others} more)") if others else finding


def _widened(graph: Graph) -> Graph:
    """The graph with variables that hold 64 bits, so that data for a run in 64 bits are not rounded."""
    variables = (replace(item, element=F64) if item.element.is_float else item for item in graph.variables)
    return replace(graph, variables=tuple(variables))


# --- names that a text of identifiers cannot have ----------------------------------------------------------------


def flat_graph(graph: Graph, home: Path) -> Graph:
    """The graph as its data are named in a folder that `lower` wrote: a text of identifiers has no dots in names."""
    if not is_there(home / ORIGINS):
        return graph
    return with_identifiers(Model(graph, Library())).graph


def restore_origins(graph: Graph, folder: Path, limits: Limits) -> Graph:
    """The graph with the names that `origins.json` beside its text remembers, where there is one."""
    path = folder / ORIGINS
    if not os.path.lexists(path):
        return graph
    found = read_json_in(folder, ORIGINS, limits)
    if not _sound(found) or _merges_extents(graph, cast(Origins, found)):
        raise InputError(
            "not a file of names and origins", path=shown(path), hint="remove it to go on without"
        )
    return restore_names(graph, cast(Origins, found))


def _sound(found: object) -> bool:
    """Whether the content has the form that we write; it may have been edited."""
    if not isinstance(found, dict) or set(found) != {"graph", "dialect", "tensors", "extents"}:
        return False
    tensors, sizes = found["tensors"], found["extents"]
    return (
        _is_text(found["graph"])
        and _is_text(found["dialect"])
        and isinstance(tensors, dict)
        and all(_sound_entry(entry) for entry in tensors.values())
        and len({entry["name"] for entry in tensors.values()}) == len(tensors)
        and isinstance(sizes, dict)
        and all(_is_text(item) for item in sizes.values())
    )


def _merges_extents(graph: Graph, origins: Origins) -> bool:
    """Whether two extents would get one name, which would say that they are equal."""
    shapes = (extent for item in defined(graph) for extent in extents(item))
    names = {symbol.name for extent in shapes for symbol in symbols(extent)}
    renamed = [origins["extents"].get(name, name) for name in names]
    return len(set(renamed)) < len(renamed)


def _is_text(value: object) -> bool:
    """Whether a value is a string of Unicode; JSON can spell halves of characters."""
    return isinstance(value, str) and value.encode("utf-8", "replace").decode("utf-8") == value


def _sound_entry(entry: object) -> bool:
    if not isinstance(entry, Mapping) or not _is_text(entry.get("name")):
        return False
    lists = [entry[key] for key in ("origin", "node") if key in entry]
    return all(isinstance(item, list) and all(_is_text(word) for word in item) for item in lists)
