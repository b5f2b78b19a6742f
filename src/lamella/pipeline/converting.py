"""One file into another, by their endings: what `lamella convert` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.paths import is_there, shown
from lamella.pipeline.languages import ENDINGS, Model, execution_of, language_of, part_of
from lamella.pipeline.options import Options

STORE_FILE = ".safetensors"
FOR_NAC = ("quantize", "optimize", "external", "plain_signatures", "embed", "tokenizer", "plan", "shape")
"""Options that say how a NAC file is written."""


class Conversion(Protocol):
    """What was written, and what there is to tell about it."""

    @property
    def written(self) -> tuple[Path, ...]:
        """The files, the main one last."""

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """Warnings and notes."""

    @property
    def lines(self) -> tuple[str, ...]:
        """A report as people read it."""

    @property
    def data(self) -> Mapping[str, object] | None:
        """The report as data."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A file that was written as it was read."""

    written: tuple[Path, ...]
    findings: tuple[Diagnostic, ...] = ()
    lines: tuple[str, ...] = ()
    data: Mapping[str, object] | None = None


def convert(source: Path, target: Path, options: Options) -> Conversion:
    """Read a file and write it under another ending; LamellaError tells what cannot be said there."""
    language = language_of(source, options.language)
    if language == "module" and not target.suffix:
        return Plain(*part_of("module", "exporting").export(source, target, options))
    model = _read(language, source, target, options)
    _refuse_own_weights(model, source, target, options)
    if ENDINGS.get(target.suffix.lower()) == "nac":
        if language == "module":
            options = part_of("module", "packing").with_parts(source, options)
        return _to_nac(model, target, options)
    if model.language == "nac":
        part_of("nac", "execution").save(model, target, options)
    elif model.language == "skriptnd":
        return Plain((target,), part_of("skriptnd", "execution").save_whole(model, target, options))
    else:
        execution_of(model.language).save(model, target)
    return Plain((target,))


def _read(language: str, source: Path, target: Path, options: Options) -> Model:
    """The model of a file; of NAC that stays NAC it does not matter what its operations mean."""
    if language == "nac" and ENDINGS.get(target.suffix.lower()) == "nac":
        return cast(Model, part_of("nac", "model").read_checked(source, options.limits))
    return execution_of(language).load(source, options)


def _refuse_own_weights(model: Model, source: Path, target: Path, options: Options) -> None:
    """The weights beside a source stay: names and numbers of a target beside it may be others."""
    store = target.with_suffix(STORE_FILE)
    beside = source != target and source.with_suffix(STORE_FILE) == store and is_there(store)
    from_nac, to_nac = model.language == "nac", ENDINGS.get(target.suffix.lower()) == "nac"
    if (
        not beside
        or source.suffix.lower() == ".pt2"
        or (from_nac and part_of("nac", "model").is_whole(model))
    ):
        return
    anew = from_nac and (options.quantize is not None or options.weights is not None)
    if not to_nac or options.external or anew:
        raise InputError(
            f"'{shown(store)}' holds the weights of '{source.name}', and '{target.name}' would replace them",
            hint="give the output another name or folder",
        )


def _to_nac(model: Model, target: Path, options: Options) -> Conversion:
    """Write a NAC file; one that stays as it is needs no graph and no arrays."""
    asked = options.weights is not None or any(
        getattr(options, name) not in (None, False, {}) for name in FOR_NAC
    )
    if model.language == "nac" and not asked and part_of("nac", "model").stays_whole(model, target):
        execution_of("nac").save(model, target)
        return Plain((target,))
    return cast(Conversion, part_of("nac", "converting.convert").convert_to_nac(model, target, options))
