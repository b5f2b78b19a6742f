"""SkriptND models for the API: load, lower, save."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.dim import symbols
from lamella.base.dtype import F64
from lamella.base.errors import Found, InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, is_there, read_text_in, shown
from lamella.base.placement import placement_line
from lamella.base.source import NOWHERE, Source, Span
from lamella.base.writer import make_folder, write_text
from lamella.bridge.graph_to_skriptnd import (
    Origins,
    graph_to_skriptnd,
    origins_of,
    restore_names,
    with_identifiers,
)
from lamella.graph.data import FoundWeights, read_weights, write_weights
from lamella.graph.model import Model
from lamella.graph.nodes import Graph
from lamella.graph.passes.fuse import fuse_model
from lamella.graph.rewrite import defined, extents, members
from lamella.lang.skriptnd import parse, write
from lamella.lang.skriptnd.nodes import Document
from lamella.lang.skriptnd.rules import data as data_rules
from lamella.lang.skriptnd.rules.graphs import OPEN_EXTENTS
from lamella.lang.skriptnd.rules.names import SHADOWED_MODULE
from lamella.ops.library import Library
from lamella.pipeline import languages
from lamella.pipeline.languages import ENDINGS, KERNELS, NAC, STREAM_ENDINGS
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.compose import ORIGINS, chosen_graph, compose_graph, read_json_in, read_module
from lamella.pipeline.skriptnd.run_passes import FUSE, apply_pass, passes_until

if TYPE_CHECKING:
    from lamella.kernels.nodes import KernelGraph


# --- A graph as files: flat SkriptND text, its data, and the names and origins that the text cannot ---------


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


OTHER_ENDINGS = ({*ENDINGS, *STREAM_ENDINGS, ".npy", ".onnx"}) - {ENDING, STORE_FILE}
"""Files that are no graph; any other name is that of a folder, whatever it ends with."""
KERNEL_FORMS = ("tensor", "llvm", "asm", "ptx")
"""What kernels are lowered to."""
BINARY_FORM = "nac"
"""The binary of a graph."""
ENOUGH = 8
"""The size that a hint proposes for an open extent."""


def load(path: Path, options: Options) -> Model:
    """Read, check and compose a model; LamellaError holds all findings when something is wrong."""
    read = read_module(path, options)
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


def lower(model: Model, to: str, options: Options) -> languages.Model:
    """The graph after the passes that the options name, or its kernels."""
    if to not in ("sknd", "skriptnd", BINARY_FORM, *KERNEL_FORMS):
        raise InputError(f"there is no lowering to '{to}' from here", hint=f"a graph lowers to: {_listed()}")
    last = options.after if to in ("sknd", "skriptnd") else None
    model = _after_passes(
        model, (*options.passes, *(passes_until(last, options.precision) if last else ())), options
    )
    if to == BINARY_FORM:
        return NAC.from_graph(model, Path(f"{model.graph.name}.nac"), options)
    if to not in KERNEL_FORMS:
        return with_numbers(model, options)
    _require_extents(model, to)
    if to == "ptx" and options.target is None:
        options = replace(options, target="cuda")
    kernels = cast("KernelGraph", KERNELS.from_graph(model, Path(), options))
    if not kernels.program.functions:
        reason = placement_line(kernels.placement) or "it has none"
        raise InputError("no operation of this graph becomes a kernel", hint=reason)
    if to == "tensor" and options.after is None:
        return kernels
    return KERNELS.lower(kernels, to, options)


def _after_passes(model: Model, names: Sequence[str], options: Options) -> Model:
    try:
        for name in names:
            model = apply_pass(model, name, options.limits, options.precision)
    except Found as problem:
        raise LamellaError(problem.findings) from None
    return model


def explain(model: Model, options: Options) -> list[str]:
    """What fusion groups, and what it leaves apart and why."""
    before = _after_passes(model, (*options.passes, *passes_until(FUSE, options.precision)[:-1]), options)
    try:
        return fuse_model(before).lines()
    except Found as problem:
        raise LamellaError(problem.findings) from None


def printed(model: Model) -> str:
    """The modules of a graph one after the other, each behind the name of its file."""
    texts = {name: write(document) for name, document in graph_to_skriptnd(model).items()}
    return "\n".join(f"# {name}.sknd\n{text}" for name, text in texts.items())


def with_numbers(model: Model, options: Options, all_or_none: bool = True) -> Model:
    """The model with numbers for all its variables: those it lacks are drawn from the seed, with a finding.

    One that has none at all stays so where a text without data may stand for it: then every run draws them.
    """
    data = model.data or {}
    lacks = any(item.name not in data for item in model.graph.variables)
    if not lacks or (all_or_none and not data):
        return model
    run = compile_model(model, seed=options.start_seed, limits=options.limits)
    return replace(model, data=run.state, findings=(*model.findings, *run.find_random()))


def _require_extents(model: Model, to: str) -> None:
    """Kernels are written for known extents: those of the inputs that are open must be given."""
    found = {
        symbol.name: (symbol, item.name)
        for item in reversed(list(members(model.graph.inputs)))
        for extent in extents(item)
        for symbol in symbols(extent)
    }
    if not found:
        return
    sizes = {name: min(max(symbol.low, ENOUGH), symbol.high) for name, (symbol, _) in sorted(found.items())}
    words = ",".join(f"{name}={size}" for name, size in sizes.items())
    repair = f"say for which: lamella lower FILE --to {to} --shape {words}, or lamella.load(…, shape={sizes})"
    span, names = _declaration(model, next(reversed(found.values()))[1]), ", ".join(map(repr, sizes))
    raise LamellaError([OPEN_EXTENTS.at(span, graph=model.graph.name, names=names, repair=repair)])


def _declaration(model: Model, name: str) -> Span:
    """Where the text of a graph declares an input."""
    found = model.library.find(f"main.{model.graph.name}")
    inputs = () if found is None else found.operator.parameters("input")
    return next((item.span for item in inputs if item.name == name.partition(":")[0]), NOWHERE)


def _listed() -> str:
    return ", ".join(("sknd", BINARY_FORM, *KERNEL_FORMS))


def save(model: Model, path: Path) -> None:
    """Write a model: a folder, a .sknd file with its data beside it, a .nac file, or the data alone as .safetensors."""
    ending = path.suffix.lower()
    if ending == STORE_FILE:
        write_weights(path, model.graph, model.data or {})
    elif ENDINGS.get(ending) == BINARY_FORM:
        NAC.save(NAC.from_graph(model, path, Options()), path)
    elif ending in OTHER_ENDINGS:
        hint = "graphs are written as a folder or .sknd, their data as .safetensors"
        raise InputError(f"'{path.name}' is no ending for a graph", hint=hint)
    else:
        _require_whole(model)
        write_model(model, path)


def _require_whole(model: Model) -> None:
    """Data for some variables alone would make a folder that nobody can read."""
    data = model.data or {}
    missing = [item.name for item in model.graph.variables if item.name not in data]
    if data and missing:
        hint = "load the model with weights=…, or lower(model, 'sknd', seed=N) draws them"
        what = f"{len(missing)} of {len(model.graph.variables)} variables"
        raise InputError(f"{what} have no numbers, such as '{missing[0][:80]}'", hint=hint)
