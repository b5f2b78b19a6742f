"""SkriptND models for the API: lower, save."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError, printable
from lamella.base.dim import symbols
from lamella.base.errors import Found, InputError
from lamella.base.paths import is_folder, read_text_in, shown
from lamella.base.placement import placement_line
from lamella.base.source import NOWHERE, Source, Span
from lamella.base.writer import make_folder, write_text
from lamella.bridge.graph_to_skriptnd import (
    graph_to_skriptnd,
    names_in_text,
    origins_of,
    with_identifiers,
)
from lamella.graph.data import write_weights
from lamella.graph.model import Model
from lamella.graph.passes.fuse import fuse_model
from lamella.graph.rewrite import extents, members
from lamella.lang.skriptnd import parse, write
from lamella.lang.skriptnd.nodes import Document
from lamella.lang.skriptnd.rules.graphs import OPEN_EXTENTS
from lamella.pipeline import languages
from lamella.pipeline.languages import ENDINGS, KERNELS, NAC, ONNX, PLANS, STREAM_ENDINGS, plan_reports
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.compose import ORIGINS
from lamella.pipeline.skriptnd.loading import ENDING, MAIN, STORE_FILE
from lamella.pipeline.skriptnd.run_passes import FUSE, apply_pass, passes_until

if TYPE_CHECKING:
    from lamella.kernels.nodes import KernelGraph


# --- A graph as files: flat SkriptND text, its data, and the names and origins that the text cannot ---------


TENSOR_FILE = ".dat"
LONGEST = 80
"""Characters of a name that are printed."""


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


OTHER_ENDINGS = ({*ENDINGS, *STREAM_ENDINGS, ".npy"}) - {ENDING, STORE_FILE}
"""Files that are no graph; any other name is that of a folder, whatever it ends with."""
KERNEL_FORMS = ("tensor", "llvm", "asm", "ptx")
"""What kernels are lowered to."""
SELECTION = "select"
"""The pass from a graph to opcodes, as --explain names it."""
PLAN_FORMS = ("nem", "stcb")
"""What plans are lowered to."""
BINARY_FORM = "nac"
"""The binary of a graph."""
ENOUGH = 8
"""The size that a hint proposes for an open extent."""


def lower(model: Model, to: str, options: Options) -> languages.Model:
    """The graph after the passes that the options name, or its kernels."""
    if to not in ("sknd", "skriptnd", BINARY_FORM, ONNX.name, *KERNEL_FORMS, *PLAN_FORMS):
        raise InputError(f"there is no lowering to '{to}' from here", hint=f"a graph lowers to: {_listed()}")
    last = options.after if to in ("sknd", "skriptnd") else None
    model = _after_passes(
        model, (*options.passes, *(passes_until(last, options.precision) if last else ())), options
    )
    if to == BINARY_FORM:
        return NAC.from_graph(model, Path(f"{model.graph.name}.nac"), options)
    if to == ONNX.name:
        return ONNX.from_graph(model, Path(f"{model.graph.name}.onnx"), options)
    if to in PLAN_FORMS:
        return _to_plan(model, to, options)
    if to not in KERNEL_FORMS:
        return with_numbers(model, options)
    require_extents(model, to)
    if to == "ptx" and options.target is None:
        options = replace(options, target="cuda")
    kernels = cast("KernelGraph", KERNELS.from_graph(model, Path(), options))
    if not kernels.program.functions:
        reason = placement_line(kernels.placement) or "it has none"
        raise InputError("no operation of this graph becomes a kernel", hint=reason)
    if to == "tensor" and options.after is None:
        return kernels
    return KERNELS.lower(kernels, to, options)


def _to_plan(model: Model, to: str, options: Options) -> languages.Model:
    """The plan of a graph whose extents are known; variables without numbers are drawn from the seed."""
    require_extents(model, to)
    whole = with_numbers(model, options, all_or_none=False)
    return PLANS.lower(PLANS.from_graph(whole, Path(), options), to, options)


def _after_passes(model: Model, names: Sequence[str], options: Options) -> Model:
    try:
        for name in names:
            model = apply_pass(model, name, options.limits, options.precision)
    except Found as problem:
        raise LamellaError(problem.findings) from None
    return model


def explain(model: Model, options: Options) -> list[str]:
    """What fusion groups, and what it leaves apart and why; or what is selected for a device."""
    if options.explain == SELECTION:
        return plan_reports().explain_selection(model, options)
    before = _after_passes(model, (*options.passes, *passes_until(FUSE, options.precision)[:-1]), options)
    try:
        return fuse_model(before).lines()
    except Found as problem:
        raise LamellaError(problem.findings) from None


def printed(model: Model) -> str:
    """The modules of a graph one after the other, each behind the name of its file."""
    texts = {name: write(document) for name, document in graph_to_skriptnd(model).items()}
    return "\n".join(f"# {name}.sknd\n{text}" for name, text in texts.items())


def respelled(model: Model) -> list[str]:
    """The inputs and outputs whose names a text calls otherwise, in lines."""
    names = names_in_text(model.graph).tensors
    ports = (("input", model.graph.inputs), ("output", model.graph.outputs))
    return [
        f"{word} '{printable(item.name, LONGEST)}' is called '{names[item.name]}' in the text"
        for word, arguments in ports
        for item in members(arguments)
        if names.get(item.name, item.name) != item.name
    ]


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


def require_extents(model: Model, to: str) -> None:
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
    return ", ".join(("sknd", BINARY_FORM, ONNX.name, *KERNEL_FORMS, *PLAN_FORMS))


def save(model: Model, path: Path) -> None:
    """Write a model: a folder, a .sknd file with its data beside it, .nac, .onnx, or the data alone as .safetensors."""
    ending = path.suffix.lower()
    if ending == STORE_FILE:
        write_weights(path, model.graph, model.data or {})
    elif ENDINGS.get(ending) == BINARY_FORM:
        NAC.save(NAC.from_graph(model, path, Options()), path)
    elif ENDINGS.get(ending) == ONNX.name:
        ONNX.save(ONNX.from_graph(model, path, Options()), path)
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
