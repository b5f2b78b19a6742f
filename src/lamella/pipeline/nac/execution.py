"""NAC files for the API: load, lower, save."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.paths import is_folder
from lamella.lang.nac import save_file, upgrade_version
from lamella.lang.nac.files import save_assembly
from lamella.pipeline import languages
from lamella.pipeline.languages import SKRIPTND, nac_graphs
from lamella.pipeline.nac.model import BINARY, TEXT, Model, read_checked
from lamella.pipeline.options import Options


def load(path: Path, options: Options) -> Model:
    """Read a file or an assembly text; LamellaError holds all findings when something is wrong.

    Operations that nobody here knows are errors too: `show`, `fmt`, and `convert` into another NAC file take them.
    """
    model = read_checked(path, options.limits)
    unknown = nac_graphs().find_foreign(model, options.limits)
    if unknown:
        raise LamellaError([*model.findings, *unknown])
    return model


def lower(model: Model, to: str, options: Options) -> languages.Model:
    """The graph of a file, after the passes that the options name, or its kernels."""
    return SKRIPTND.lower(nac_graphs().to_graph(model, options), to, options)


def explain(model: Model, options: Options) -> list[str]:
    """What a pass does to the graph of a file, and why."""
    return SKRIPTND.explain(nac_graphs().to_graph(model, options), options)


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
    if path.suffix.lower() not in ("", ".sknd", ".onnx") and not is_folder(path):
        hint = "NAC is written as .nac (binary) or .nacs (text), its graph as .sknd, .onnx or a folder"
        raise InputError(f"'{path.name}' is no ending for a NAC file", hint=hint)
    SKRIPTND.save(nac_graphs().to_graph(model, options), path)
