"""A graph as files: flat SkriptND text, its data, and the names and origins that the text cannot say."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from lamella.base.diagnostic import printable
from lamella.base.dim import symbols
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, is_there, read_text_in, shown
from lamella.base.source import Source
from lamella.base.writer import make_folder, write_text
from lamella.bridge.graph_to_skriptnd import (
    Origins,
    graph_to_skriptnd,
    origins_of,
    restore_names,
    with_identifiers,
)
from lamella.graph.data import write_weights
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.graph.rewrite import defined, extents
from lamella.lang.skriptnd import parse, write
from lamella.lang.skriptnd.nodes import Document
from lamella.ops.library import Library
from lamella.pipeline.skriptnd.compose import ORIGINS, read_json_in

MAIN = "main"
ENDING = ".sknd"
TENSOR_FILE, STORE_FILE = ".dat", ".safetensors"


def write_model(model: Model, path: Path) -> tuple[Path, ...]:
    """Write a model as a folder, or as one text with its data beside it; gives the files written.

    The main text is written last: whoever finds it finds all that belongs to it.
    """
    alone = path.suffix.lower() == ENDING and not is_folder(path)
    folder, main = (path.parent, path) if alone else (path, path / f"{MAIN}{ENDING}")
    documents = graph_to_skriptnd(model)
    places = {name: folder / f"{name.replace('.', '/')}{ENDING}" for name in documents} | {MAIN: main}
    kept = {name for name in documents if alone and name != MAIN and _is_kept(places[name], documents[name])}
    texts = {name: write(document) for name, document in documents.items() if name not in kept}
    make_folder(folder)
    files: list[Path] = []
    flat = with_identifiers(model)
    if not alone:
        _refuse_leftovers(folder, flat)
    if flat.data:
        files += write_weights(path.with_suffix(STORE_FILE) if alone else folder, flat.graph, flat.data)
    if not alone:
        files.append(folder / ORIGINS)
        write_text(files[-1], json.dumps(origins_of(model), indent=1) + "\n")
    for name, text in sorted(texts.items(), key=lambda item: item[0] == MAIN):
        files.append(places[name])
        make_folder(files[-1].parent)
        write_text(files[-1], text)
    return tuple(files)


def _is_kept(path: Path, document: Document) -> bool:
    """Whether a module beside a text is there with all operators that the text calls; another is not replaced."""
    if not os.path.lexists(path):
        return False
    there = parse(Source(shown(path), read_text_in(path.parent, path.name))).document
    if all(item in there.declarations for item in document.declarations):
        return True
    hint = "write into another folder: the text names operators of a module of this name"
    raise InputError(
        f"'{shown(path)}' is there already, and declares other operators", path=shown(path), hint=hint
    )


def _refuse_leftovers(folder: Path, model: Model) -> None:
    """Data that lie in the folder would be taken for the model's own when it is read."""
    own = {f"{item.name}{TENSOR_FILE}" for item in model.graph.variables if item.name in (model.data or {})}
    found = (item.name for item in folder.iterdir() if item.suffix in (TENSOR_FILE, STORE_FILE))
    left = sorted(name for name in found if name not in own)
    if left and model.graph.variables:
        raise InputError(
            f"'{shown(folder)}' holds data of another model: {printable(left[0], 60)}",
            path=shown(folder),
            hint="write into an empty folder, or remove its .dat and .safetensors files",
        )


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
