"""One file into another, by their endings: what `lamella convert` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.paths import is_there, shown
from lamella.base.suggest import nearest
from lamella.pipeline.languages import (
    ENDINGS,
    FOLDER,
    MODULE,
    NAC,
    ONNX,
    REGISTRY,
    SKRIPTND,
    Conversion,
    Language,
    Model,
    architectures,
    language_of,
    nac_graphs,
    nac_writing,
)
from lamella.pipeline.nac.execution import save as save_nac
from lamella.pipeline.nac.model import Model as NacModel
from lamella.pipeline.nac.model import is_whole, stays_whole
from lamella.pipeline.nac.model import read_checked as read_nac
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella.graph.model import Model as GraphModel

STORE_FILE = ".safetensors"
FOR_NAC = ("quantize", "optimize", "external", "plain_signatures", "embed", "tokenizer", "plan", "shape")
"""Options that say how a NAC file is written."""


def convert(source: Path, target: Path, options: Options) -> Conversion:
    """Read a file and write it under another ending; LamellaError holds what cannot be said there."""
    language = language_of(source, options.language)
    _refuse_misspelt(target)
    if language in (MODULE, FOLDER) and not target.suffix:
        return Conversion(*architectures().export(source, target, options))
    model = _read(language, source, target, options)
    refuse_own_weights(model, source, target, options)
    if ENDINGS.get(target.suffix.lower()) == "nac":
        if language in (MODULE, FOLDER):
            options = architectures().with_parts(source, options)
        return _to_nac(model, target, options)
    if ENDINGS.get(target.suffix.lower()) == ONNX.name:
        return _to_onnx(model, target, options)
    if isinstance(model, NacModel):
        save_nac(model, target, options)
        return Conversion((target,))
    whole = SKRIPTND.lower(model, "sknd", options) if model.language == SKRIPTND.name else model
    REGISTRY[whole.language].save(whole, target)
    # A folder keeps a list of the names that a text cannot spell; one text does not.
    lines = REGISTRY[whole.language].respelled(whole) if target.suffix else []
    return Conversion((target,), _findings(whole)[len(_findings(model)) :], tuple(lines))


def _refuse_misspelt(target: Path) -> None:
    """InputError for an ending that is nearly one of ours: a folder of that name is hardly what was meant."""
    ending = target.suffix.lower()
    close = nearest(ending, ENDINGS) if ending not in ENDINGS and not is_there(target) else []
    if close:
        hint = f"did you mean '{target.with_suffix(close[0])}'? a folder needs no ending"
        raise InputError(f"'{target.name}' has no ending of a model", hint=hint)


def _read(language: Language, source: Path, target: Path, options: Options) -> Model:
    """The model of a file; of NAC that stays NAC it does not matter what its operations mean."""
    if language is NAC and ENDINGS.get(target.suffix.lower()) == "nac":
        return read_nac(source, options.limits)
    return language.load(source, options)


def _findings(model: Model) -> tuple[Diagnostic, ...]:
    """What there is to say about a model: a graph whose numbers were drawn says so."""
    found: tuple[Diagnostic, ...] = getattr(model, "findings", ())
    return found


def refuse_own_weights(model: Model, source: Path, target: Path, options: Options) -> None:
    """The weights beside a source stay: names and numbers of a target beside it may be others."""
    if not target.name:
        return  # a folder such as '.', whose writer minds what lies in it
    store = target.with_suffix(STORE_FILE)
    beside = source != target and source.with_suffix(STORE_FILE) == store and is_there(store)
    from_nac, to_nac = isinstance(model, NacModel), ENDINGS.get(target.suffix.lower()) == "nac"
    if not beside or source.suffix.lower() == ".pt2" or (isinstance(model, NacModel) and is_whole(model)):
        return
    anew = from_nac and (options.quantize is not None or options.weights is not None)
    if not to_nac or options.external or anew:
        raise InputError(
            f"'{shown(store)}' holds the weights of '{source.name}', and '{target.name}' would replace them",
            hint="give the output another name or folder",
        )


def _to_onnx(model: Model, target: Path, options: Options) -> Conversion:
    """Write an ONNX file of a graph, of that of a NAC file or of a compiled unit."""
    graph = nac_graphs().to_graph(model, options) if isinstance(model, NacModel) else model
    if graph.language != SKRIPTND.name:
        graph = REGISTRY[model.language].lower(model, "sknd", options)
    written = ONNX.from_graph(cast("GraphModel", graph), target, options)
    ONNX.save(written, target)
    return Conversion((target,), _findings(written)[len(_findings(model)) :])


def _to_nac(model: Model, target: Path, options: Options) -> Conversion:
    """Write a NAC file; one that stays as it is needs no graph and no arrays."""
    asked = options.weights is not None or any(
        getattr(options, name) not in (None, False, {}) for name in FOR_NAC
    )
    if isinstance(model, NacModel) and not asked and stays_whole(model, target):
        NAC.save(model, target)
        return Conversion((target,))
    return nac_writing().convert_to_nac(model, target, options)
