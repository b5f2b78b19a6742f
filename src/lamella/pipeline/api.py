"""The public functions that need a backend: load, compile, lower, save."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from lamella.base.errors import InputError
from lamella.pipeline import backends, languages
from lamella.pipeline.api_options import CompileOptions, LoadOptions, LowerOptions
from lamella.pipeline.given import Use, find_inert, options_of
from lamella.pipeline.languages import (
    FOLDER,
    MODULE,
    REGISTRY,
    Executable,
    Model,
    architectures,
    language_of,
    subject_of,
)
from lamella.pipeline.options import Options, table
from lamella.pipeline.signatures import documented

UNIT = "ir"
"""The form of a compiled unit of the Module DSL: graph, schedule and schemas as JSON."""


@documented(LoadOptions)
def load(path: str | Path, /, **options: Unpack[LoadOptions]) -> Model:
    """Read a model in any language; LamellaError holds all findings when something is wrong."""
    chosen = options_of(options)
    _require_effects(Path(path), "load", chosen, {})
    return read(Path(path), chosen)


@documented(CompileOptions)
def compile(  # the API's word: lamella.compile
    source: Model | str | Path, /, backend: str | None = None, **options: Unpack[CompileOptions]
) -> Executable:
    """Make a loaded model, or that of a path, executable.

    A call gives every input; with `seed=N` or `random=True` those that it leaves out are random.
    """
    chosen, given = options_of(options), _as_given(source, "is compiled")
    _require_effects(given, "compile", chosen, {"backend": backend})
    return make_executable(given, backend, chosen)


@documented(LowerOptions)
def lower(source: Model | str | Path, /, to: str, **options: Unpack[LowerOptions]) -> Model:
    """Lower a loaded model, or that of a path, to a form below it."""
    chosen, given = options_of(options), _as_given(source, "is lowered")
    _require_effects(given, "unit" if to == UNIT else "lower", chosen, {"to": to})
    return lower_model(given, to, chosen)


def save(model: Model, path: str | Path) -> None:
    """Write a model by the ending of the path."""
    _require_model(model, "is saved")
    REGISTRY[model.language].save(model, Path(path))


# --- the same for commands, whose options are checked already ---------------------------------------------------


def read(path: Path, options: Options) -> Model:
    """Read a model in any language."""
    return language_of(path, options.language).load(path, options)


def make_executable(model: Model | Path, backend: str | None, options: Options) -> Executable:
    """Read a model where it is a path, and make it executable."""
    if isinstance(model, Path):
        backends.start(backend)
        model = read(model, options)
    return backends.make_executable(model, backend, options)


def lower_model(model: Model | Path, to: str, options: Options) -> Model:
    """Read a model where it is a path, and lower it; a compiled unit is made from the text, not from its graph."""
    if to == UNIT:
        if not isinstance(model, Path) or language_of(model, options.language) not in (
            MODULE,
            FOLDER,
            languages.UNIT,
        ):
            hint = "lower the path of a .module file or of a Hugging Face folder"
            raise InputError("only models of the Module DSL become compiled units", hint=hint)
        return architectures().build_unit(model, options)
    loaded = read(model, options) if isinstance(model, Path) else model
    return REGISTRY[loaded.language].lower(loaded, to, options)


def _as_given(model: Model | str | Path, deed: str) -> Model | Path:
    if isinstance(model, str | Path):
        return Path(model)
    _require_model(model, deed)
    return model


def _require_model(thing: object, deed: str) -> None:
    """InputError for what is no model of ours, such as a module of PyTorch."""
    if not isinstance(getattr(thing, "language", None), str):
        hint = "lamella.load(PATH) gives one, lamella.from_torch(MODULE, ARGUMENTS) makes one"
        raise InputError(f"a model {deed}, not a {type(thing).__name__}", hint=hint)


def _require_effects(model: Model | Path, step: str, options: Options, also: Mapping[str, object]) -> None:
    """InputError for an option that cannot have an effect, or that comes too late for a loaded model."""
    if isinstance(model, Path):
        steps = ("load",) if step == "load" else ("load", step)
        use = Use(steps, subject_of(model, options.language), str(model), also=also)
    else:
        use = Use((step,), _subject_of_model(model), also=also)
    inert = find_inert(use, options)
    if inert is None:
        return
    name = inert.option
    if not isinstance(model, Path) and table()[name].effects.get("load"):
        raise InputError(f"option '{name}' comes too late for a loaded model", hint=f"load(…, {name}=…)")
    raise inert.error()


def _subject_of_model(model: Model) -> str:
    """The kind of a model that is loaded."""
    return "graph" if model.language == "skriptnd" else model.language
