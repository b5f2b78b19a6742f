"""Adapters in the weights that they add to, and out of them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Unpack

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.paths import is_folder, shown
from lamella.pipeline.api_options import LoadOptions
from lamella.pipeline.given import options_of
from lamella.pipeline.languages import Conversion
from lamella.pipeline.options import Options
from lamella.pipeline.signatures import documented
from lamella.train.adapters.model import AdapterModel, find_adapters
from lamella.train.adapters.places import AdapterRows, find_biased
from lamella.train.adapters.specs import DORA, IA3, LORA
from lamella.train.saving import require_save, save_trained


def merged(model: AdapterModel, arrays: Mapping[str, Array], sign: float = 1.0) -> dict[str, Array]:
    """The weights with adapters in them by the names of variables; with the sign −1 those that had them, without.

    Sums are those of doubles, rounded once.
    """
    adapted, data = model.adapted, model.frozen.data or {}
    if adapted.spec.kind not in (LORA, DORA, IA3):
        hint = "save it as it is: it computes something of its own"
        raise InputError(f"{adapted.spec.kind} cannot be merged into weights", hint=hint)
    if adapted.spec.kind == DORA and sign < 0:
        raise InputError("dora cannot be taken out again: the norms of the weights are lost")
    roles = {
        (item.module, item.role): np.asarray(arrays[item.variable], np.float64) for item in adapted.weights
    }
    biases = {name: bias.name for name, (_, bias) in find_biased(model.frozen.graph).items()}
    found: dict[str, Array] = {}
    for place in adapted.places:
        for name, rows, change in _changes(place, roles, biases, sign):
            whole = found.get(name)
            if whole is None:
                whole = np.array(data[name], np.float64)
            view = whole.T if place.product.is_turned and whole.ndim == 2 else whole
            view[rows] = change(view[rows])
            found[name] = whole
    return {name: array.astype(np.asarray(data[name]).dtype) for name, array in found.items()}


class _Change:
    """What becomes of the rows of a weight."""

    def __init__(
        self, delta: Array | float = 0.0, magnitude: Array | None = None, factor: Array | float = 1.0
    ) -> None:
        self._delta, self._magnitude, self._factor = delta, magnitude, factor

    def __call__(self, rows: Array) -> Array:
        total: Array = rows * self._factor + self._delta
        if self._magnitude is None:
            return total
        scaled: Array = total * (self._magnitude / np.linalg.norm(total, axis=1))[:, None]
        return scaled


def _changes(
    place: AdapterRows, roles: Mapping[tuple[str, str], Array], biases: Mapping[str, str], sign: float
) -> Iterator[tuple[str, slice, _Change]]:
    """The variables that an adapter at a place changes, their rows, and how."""
    rows, weight = slice(place.first, place.last), place.product.weight.name
    if place.spec.kind in (LORA, DORA):
        delta = place.spec.scale * sign * (roles[place.module, "lora_B"] @ roles[place.module, "lora_A"])
        if place.product.experts:
            yield weight, slice(None), _Change(delta.swapaxes(1, 2) if place.product.is_turned else delta)
            return
        yield weight, rows, _Change(delta, roles.get((place.module, "magnitude")))
        return
    inward = roles.get((place.module, "input_scale"))
    if inward is not None:
        yield weight, rows, _Change(factor=inward[None, :] ** sign)
        return
    scale = roles[place.module, "scale"] ** sign
    yield weight, rows, _Change(factor=scale[:, None])
    bias = (
        place.product.bias.name if place.product.bias is not None else biases.get(place.product.result.name)
    )
    if bias is not None:
        yield bias, rows, _Change(factor=scale)


@documented(LoadOptions)
def merge_adapter(
    path: str | Path, adapter: str | Path, target: str | Path, /, **options: Unpack[LoadOptions]
) -> tuple[Path, ...]:
    """Write the model of a path with the adapter of a folder in its weights; gives the files written."""
    return _merged(Path(path), Path(adapter), Path(target), options, False)


@documented(LoadOptions)
def unmerge_adapter(
    path: str | Path, adapter: str | Path, target: str | Path, /, **options: Unpack[LoadOptions]
) -> tuple[Path, ...]:
    """Write the model of a path, whose weights hold the adapter of a folder, without it; gives the files written."""
    return _merged(Path(path), Path(adapter), Path(target), options, True)


def _merged(model: Path, adapter: Path, target: Path, options: LoadOptions, is_out: bool) -> tuple[Path, ...]:
    chosen = options_of({**options, "adapters": (str(adapter),), "unmerge": is_out}, by_command=True)
    return merge(model, target, chosen).written


def merge(path: Path, target: Path, options: Options) -> Conversion:
    """Write the model of a path with the adapter that options name in its weights, or taken out of them."""
    require_save(path, target, options)
    for words in options.adapters:
        if not is_folder(Path(words)):
            hint = "`lamella train MODEL --adapter KIND --save FOLDER` writes one"
            raise InputError(f"'{printable(words, 80)}' is no folder of an adapter", hint=hint)
    model = find_adapters(path, options)
    if model is None:
        raise InputError("there is no adapter to merge")
    if model.drawn:
        hint = "give the weights that the adapter was trained with: --weights F"
        raise InputError(f"'{shown(path)}' has no numbers for {len(model.drawn)} weights", hint=hint)
    data = model.adapted.model.data or {}
    arrays = {item.variable: data[item.variable] for item in model.adapted.weights}
    frozen = model.frozen.data or {}
    every = {name: frozen[name] for name in model.trainable.policies if name in frozen}
    changed = merged(model, arrays, -1.0 if options.unmerge else 1.0)
    return Conversion(*save_trained(path, target, changed, lambda: every, options))
