"""The two sides of a comparison: models of any language, with each other's extents and numbers, and how they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.dim import Extent, bounds, symbols
from lamella.base.errors import Found, InputError
from lamella.bridge.hf_to_module import is_model_folder
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, tensors
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.pipeline import languages
from lamella.pipeline.comparison_options import REALS
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.languages import MODULE, NAC, language_of
from lamella.pipeline.options import Options

DEFAULT_EXTENT = 4
"""The size of an extent that both models leave open under different names."""
FORM = "sknd"
CPU, REFERENCE = "cpu", "reference"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two models, and the backend and the precision that it runs in; None is the reference, f32."""

    model: Model
    backend: str | None = None
    notes: tuple[str, ...] = ()
    precision: str | None = None
    observed: Mapping[str, Array] | None = None
    """What its tensors hold, where it was run already."""

    @property
    def way(self) -> str:
        """How it runs, in words."""
        name = self.backend or REFERENCE
        return name if self.precision is None else f"{name} {self.precision}"


def load_sides(paths: Sequence[Path], options: Options) -> tuple[Side, Side]:
    """Both sides of a comparison: two models, or one model on two backends or in two precisions.

    A module without weights of its own takes those of the Hugging Face folder beside it.
    """
    require_two(paths, options)
    loaded = [load_side(path, paths, options) for path in paths]
    return make_sides(loaded, options)


def make_sides(loaded: Sequence[Side], options: Options) -> tuple[Side, Side]:
    """One or two loaded models as the sides of a comparison.

    Extents that one model leaves open and the other does not get the other's size; `shape` speaks of the side that
    has such an extent.
    """
    shaped = _with_extents([side.model for side in loaded], options)
    sides = [replace(side, model=model) for side, model in zip(loaded, shaped, strict=True)]
    left, right = (sides * 2)[:2]
    backends = _both(options.backends) if options.backends else (left.backend, right.backend)
    precisions = _both(options.precisions) if options.precisions else (left.precision, right.precision)
    found = [
        replace(side, backend=backend or _backend_for(precision), precision=precision)
        for side, backend, precision in zip((left, right), backends, precisions, strict=True)
    ]
    return with_each_others_numbers(found[0], found[1], options)


def require_two(models: Sequence[object], options: Options) -> None:
    """InputError where there are not two sides, but fewer or more."""
    for word, given in (("backends", options.backends), ("precisions", options.precisions)):
        if len(given) > 2:
            raise InputError(f"{len(given)} {word} are given, for two sides", hint="name one or two")
    if len(models) == 1 and len(options.backends) != 2 and len(options.precisions) != 2:
        hint = "name a second model, two backends (--backend reference --backend cpu) or two precisions"
        raise InputError("one model on one backend has nothing to be compared with", hint=hint)


def _both(words: Sequence[str]) -> tuple[str | None, str | None]:
    return words[0], words[-1]


def _backend_for(precision: str | None) -> str | None:
    """The backend that computes in a precision: narrow products are the processor's."""
    return None if precision is None or precision in REALS else CPU


def load_side(path: Path, paths: Sequence[Path], options: Options) -> Side:
    """The graph of a file in any language that has one."""
    chosen = replace(options, shape={})
    notes: tuple[str, ...] = ()
    language = language_of(path, options.language)
    folder = next((item for item in paths if item != path and is_model_folder(item)), None)
    if language is MODULE and options.weights is None and folder is not None:
        chosen, notes = replace(chosen, weights=folder), (f"{path}: weights of {folder}",)
    model = as_graph(language.load(path, chosen), chosen)
    if model is None:
        raise InputError(
            f"'{path}' is no graph but {language.name}",
            hint="compare .sknd, .nac, .module, .pt2, .onnx, compiled units or Hugging Face folders",
        )
    return Side(model, notes=notes)


def as_graph(model: languages.Model, options: Options) -> Model | None:
    """The graph of a model; None where it has none."""
    if isinstance(model, Model):
        return model
    if model.language in (NAC.name, languages.UNIT.name):
        lowered = languages.REGISTRY[model.language].lower(model, FORM, options)
        return lowered if isinstance(lowered, Model) else None
    return None


# --- numbers of variables -----------------------------------------------------------------------------------


def with_each_others_numbers(left: Side, right: Side, options: Options) -> tuple[Side, Side]:
    """Both sides with numbers for all variables: those that one lacks are the other's, else drawn from the seed."""
    full = replace(left, model=_filled(left.model, {}, options))
    known = dict(full.model.data or {})
    return full, replace(
        right, model=_filled(right.model, _numbers_for(right.model, full.model, known), options)
    )


def _numbers_for(model: Model, other: Model, known: Mapping[str, Array]) -> dict[str, Array]:
    """Numbers for the variables that a model has none for: those of the same name, then those in the same place."""
    data = model.data or {}
    lacking = [item for item in model.graph.variables if item.name not in data]
    found = {
        item.name: known[item.name]
        for item in lacking
        if item.name in known and known[item.name].shape == item.shape
    }
    if data:
        return found
    names = {item.name for item in model.graph.variables}
    spare = [item for item in other.graph.variables if item.name not in names]
    for item in (item for item in lacking if item.name not in found):
        match = next((one for one in spare if one.shape == item.shape), None)
        if match is not None:
            spare.remove(match)
            found[item.name] = known[match.name]
    return found


def _filled(model: Model, numbers: Mapping[str, Array], options: Options) -> Model:
    data = {**numbers, **(model.data or {})}
    if all(item.name in data for item in model.graph.variables):
        return replace(model, data=data) if model.graph.variables else model
    known = replace(model, data=data)
    drawn = compile_model(known, seed=options.start_seed, limits=options.limits).state
    return replace(model, data={**drawn, **data})


# --- extents ------------------------------------------------------------------------------------------------


def _with_extents(models: Sequence[Model], options: Options) -> list[Model]:
    """The models with the extents that the user gives, each of those that it has, and with each other's sizes."""
    owned = [_open_extents(model.graph) for model in models]
    unknown = [name for name in options.shape if not any(name in names for names in owned)]
    if unknown:
        known = ", ".join(sorted(set().union(*owned))) or "none"
        raise InputError(f"there is no open extent '{unknown[0][:80]}'", hint=f"open extents are: {known}")
    given = [{name: size for name, size in options.shape.items() if name in names} for names in owned]
    models = [_specialised(model, values) for model, values in zip(models, given, strict=True)]
    if len(models) == 1:
        return list(models)
    left, right = models
    sizes = _common_sizes(left.graph, right.graph)
    return [_specialised(left, sizes[0]), _specialised(right, sizes[1])]


def _open_extents(graph: Graph) -> set[str]:
    """The names of the extents that the inputs of a graph leave open."""
    shapes = (item.shape for argument in graph.inputs for item in tensors(argument))
    return {symbol.name for shape in shapes for extent in shape for symbol in symbols(extent)}


def _specialised(model: Model, values: Mapping[str, int]) -> Model:
    if not values:
        return model
    try:
        return specialise_shapes(model, values)
    except Found as problem:
        raise LamellaError(problem.findings) from None


def _common_sizes(left: Graph, right: Graph) -> tuple[dict[str, int], dict[str, int]]:
    """Sizes for extents that are open on one side only, or that bear two names, by the places of inputs."""
    found: tuple[dict[str, int], dict[str, int]] = ({}, {})
    one, other = (listed(graph.inputs) for graph in (left, right))
    for mine, theirs in zip(one, other, strict=False):
        for pair in zip(mine.shape, theirs.shape, strict=False):
            if pair[0] == pair[1]:
                continue
            size = _size_for(pair, found)
            for extent, values in zip(pair, found, strict=True):
                name = _name(extent)
                if name is not None and size is not None:
                    values.setdefault(name, size)
    return found


def _size_for(pair: tuple[Extent, Extent], found: tuple[dict[str, int], dict[str, int]]) -> int | None:
    """One size for two extents: what is known of either, else a small one that both allow."""
    for extent, values in zip(pair, found, strict=True):
        name = _name(extent)
        if isinstance(extent, int):
            return extent
        if name in values:
            return values[name]
    low, high = max(bounds(item)[0] for item in pair), min(bounds(item)[1] for item in pair)
    return min(max(low, DEFAULT_EXTENT), high) if low <= high else None


def _name(extent: Extent) -> str | None:
    """The name of an extent that is nothing but open; None of a number and of a computed one."""
    found = list(symbols(extent))
    return found[0].name if len(found) == 1 and str(extent) == found[0].name else None
