"""NAC files for the API: load, compile, lower, save."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.paths import is_folder
from lamella.lang.nac import save_file, upgrade_version
from lamella.lang.nac.files import save_assembly
from lamella.pipeline import languages
from lamella.pipeline.languages import execution_of, part_of
from lamella.pipeline.nac.model import BINARY, TEXT, Model, read_checked
from lamella.pipeline.options import Options

MACHINE = "nacvm"
"""The backend that obeys the instructions and the memory schedule of a file."""
GRAPHS = "skriptnd"


def load(path: Path, options: Options) -> Model:
    """Read a file or an assembly text; LamellaError holds all findings when something is wrong.

    Operations that nobody here knows are errors too: `show`, `fmt`, and `convert` into another NAC file take them.
    """
    model = read_checked(path, options.limits)
    unknown = part_of("nac", "translating").find_foreign(model, options.limits)
    if unknown:
        raise LamellaError([*model.findings, *unknown])
    return model


def compile(  # the API's word: lamella.compile
    model: Model, backend: str | None, options: Options
) -> languages.Executable:
    """Make a file executable on the virtual machine, or its graph on a backend for graphs, as for 64 bits."""
    wide = options.dtype == "f64"
    if backend == MACHINE and wide:
        hint = "--backend reference computes in 64 bits"
        raise InputError("the virtual machine computes in the types of the file", hint=hint)
    if options.training:
        training: languages.Executable = part_of("nac", "training").compile_training(model, backend, options)
        return training
    if backend in (None, MACHINE) and not wide:
        running = part_of("nac", "running")
        executable: languages.Executable = running.compile_file(model, options)
        return executable
    graphs: languages.Executable = part_of("nac", "running").compile_graph(model, backend, options, to_graph)
    return graphs


def lower(model: Model, to: str, options: Options) -> languages.Model:
    """The graph of a file, after the passes that the options name, or its kernels."""
    return execution_of(GRAPHS).lower(to_graph(model, options), to, options)


def to_graph(model: Model, options: Options, known: Mapping[str, object] | None = None) -> languages.Model:
    """The graph of a file, with the extents that the user gives; `known` are types of inputs."""
    translation = part_of("nac", "translating").translate(model, options, known)
    graph: languages.Model = part_of(GRAPHS, "shaping").with_extents(translation.model, options)
    return graph


def save(model: Model, path: Path, options: Options | None = None) -> None:
    """Write a model by the ending of the path: .nac (bytes of version 1.6), .nacs (assembly text), or its graph."""
    ending = path.suffix.lower()
    if ending not in (BINARY, TEXT):
        _save_graph(model, path, options or Options())
        return
    if model.mapped is not None:
        model.mapped.check_whole()
    if ending == BINARY:
        save_file(path, upgrade_version(model.file))
    else:
        save_assembly(path, model.file)


def _save_graph(model: Model, path: Path, options: Options) -> None:
    """Write the graph of a file; endings that are not of graphs are refused before anything is read."""
    if path.suffix.lower() not in ("", ".sknd") and not is_folder(path):
        hint = "NAC is written as .nac (binary) or .nacs (text), its graph as .sknd or a folder"
        raise InputError(f"'{path.name}' is no ending for a NAC file", hint=hint)
    execution_of(GRAPHS).save(to_graph(model, options), path)
