"""The public functions that need a backend: load, compile, lower, save."""

from __future__ import annotations

from pathlib import Path

from lamella.base.errors import InputError
from lamella.pipeline.languages import Executable, Model, execution_of, language_of
from lamella.pipeline.options import options_of

LOADING = frozenset(
    (
        "model",
        "preset",
        "config",
        "dialect",
        "keep",
        "decompose",
        "weights",
        "unused",
        "cache",
        "shape",
        "architecture",
    )
)
"""Options that only reading a file can honour; a NAC file becomes a graph later, and so takes them later."""


def load(path: str | Path, /, **options: object) -> Model:
    """Read a model in any language; LamellaError holds all findings when something is wrong."""
    path = Path(path)
    chosen = options_of(options)
    return execution_of(language_of(path, chosen.language)).load(path, chosen)


def compile(  # the API's word: lamella.compile
    model: Model | str | Path, /, backend: str | None = None, **options: object
) -> Executable:
    """Make a model executable; inputs that a call leaves out are random, from the seed."""
    loaded = _loaded(model, options)
    return execution_of(loaded.language).compile(loaded, backend, options_of(options))


def lower(model: Model | str | Path, /, to: str, **options: object) -> Model:
    """Lower a model to a form below it."""
    loaded = _loaded(model, options)
    return execution_of(loaded.language).lower(loaded, to, options_of(options))


def save(model: Model, path: str | Path) -> None:
    """Write a model by the ending of the path."""
    execution_of(model.language).save(model, Path(path))


def _loaded(model: Model | str | Path, options: dict[str, object]) -> Model:
    if isinstance(model, str | Path):
        return load(model, **options)
    late = next((name for name in options if is_late(name, model)), None)
    if late is not None:
        raise InputError(f"option '{late}' comes too late for a loaded model", hint=f"load(…, {late}=…)")
    return model


def is_late(option: str, model: Model) -> bool:
    """Whether an option can change nothing of a model that is loaded."""
    return option in LOADING and model.language != "nac"
