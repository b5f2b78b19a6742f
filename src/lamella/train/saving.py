"""What a training leaves: weights, a model with them, or a folder that transformers loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.paths import is_folder, is_there, shown
from lamella.base.writer import make_folder, whole_folder
from lamella.bridge.module_to_graph import graph_name
from lamella.graph.data import write_weights
from lamella.graph.model import Model
from lamella.pipeline.languages import FOLDER, MODULE, REGISTRY, SKRIPTND, language_of
from lamella.pipeline.module.export import export_source
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.weight_plan import weights_of
from lamella.pipeline.options import Options

STORE = ".safetensors"
FORM = "sknd"
MODELS = (".sknd", ".nac", ".nacs", ".onnx")
FILES = (
    ".bin",
    ".ckpt",
    ".gguf",
    ".h5",
    ".json",
    ".module",
    ".npy",
    ".npz",
    ".pkl",
    ".pt",
    ".pt2",
    ".pth",
    ".zip",
)
"""Endings of files that nobody means for a folder, and that are not written here."""


def is_source(path: Path, options: Options) -> bool:
    """Whether a path is a model of the Module DSL, which is saved as a folder."""
    return language_of(path, options.language) in (MODULE, FOLDER)


def load_graph(path: Path, options: Options) -> Model:
    """The graph of a file in any language that has one."""
    language = language_of(path, options.language)
    model = language.load(path, options)
    lowered = model if isinstance(model, Model) else REGISTRY[model.language].lower(model, FORM, options)
    if not isinstance(lowered, Model):
        hint = "models are .module, .sknd, .nac, .onnx, .pt2, compiled units or Hugging Face folders"
        raise InputError(f"'{shown(path)}' is no graph but {language.name}", hint=hint)
    return lowered


def require_save(path: Path, target: Path, options: Options) -> None:
    """InputError for a place where nothing can be saved, before hours of steps are taken."""
    ending = target.suffix.lower()
    if ending in (STORE, *MODELS) and not is_folder(target):
        if ending != STORE and target.resolve() == path.resolve():
            raise InputError(f"'{shown(target)}' is the model itself, and would be replaced")
    elif not is_source(path, options) or ending in FILES:
        folder = (
            "; a name without one is a folder that transformers loads" if is_source(path, options) else ""
        )
        hint = f"endings are: {', '.join((STORE, *MODELS))}{folder}"
        raise InputError(f"'{target.name}' has no ending of a model or of weights", hint=hint)
    else:
        require_new(target)


def require_new(target: Path) -> None:
    """InputError for a folder that holds something already."""
    if is_there(target) and (not is_folder(target) or any(target.iterdir())):
        hint = "name a new folder: files of another model would be taken for parts of this one"
        raise InputError(f"'{shown(target)}' is there already, and is no empty folder", hint=hint)


def save_trained(
    path: Path,
    target: Path,
    trained: Mapping[str, Array],
    every: Callable[[], Mapping[str, Array]],
    options: Options,
) -> tuple[tuple[Path, ...], tuple[Diagnostic, ...]]:
    """Write the model of a path with trained numbers, by the names of variables; gives the files written.

    `every` gives the numbers of all weights, those that were drawn and stayed as they were among them.
    """
    ending = target.suffix.lower()
    make_folder(target.parent)
    if ending == STORE:
        model = load_graph(path, options)
        return write_weights(target, model.graph, {**every(), **trained}), ()
    if is_source(path, options) and ending not in MODELS:
        return _save_folder(path, target, trained, every, options)
    model = _with(load_graph(path, options), {**every(), **trained})
    SKRIPTND.save(model, target)
    return (target,), model.findings


def _save_folder(
    path: Path,
    target: Path,
    trained: Mapping[str, Array],
    every: Callable[[], Mapping[str, Array]],
    options: Options,
) -> tuple[tuple[Path, ...], tuple[Diagnostic, ...]]:
    """Weights of a folder that were not trained keep their bytes; those of a file were drawn, and are written."""
    source = read_source(path, options)
    known = trained if source.folder is not None or options.weights is not None else {**every(), **trained}
    names = {item.path: graph_name(item.path) for item in weights_of(source.instance)}
    numbers = {place: known[name] for place, name in names.items() if name in known}
    with whole_folder(target) as beside:
        found = export_source(source, beside, options, numbers)
    return tuple(target / item.relative_to(beside) for item in found.files), found.findings


def _with(model: Model, numbers: Mapping[str, Array]) -> Model:
    return replace(model, data={**(model.data or {}), **numbers})
