"""`lamella.diff`: two models, files or modules of PyTorch compared from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.graph.model import Model
from lamella.pipeline.diff.comparison import Comparison, compare
from lamella.pipeline.diff.sides import Side, as_graph, load_side, make_sides, require_two
from lamella.pipeline.diff.torch_values import is_torch_module, torch_side
from lamella.pipeline.given import options_of
from lamella.pipeline.options import Options


def diff(
    left: object,
    right: object = None,
    /,
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    inputs: Mapping[str, npt.ArrayLike] | None = None,
    **options: object,
) -> Comparison:
    """Compare two of: a path of any language, a loaded model, a module of PyTorch; or one on two backends.

    A module is exported with `args` and `kwargs` and run on them by PyTorch itself; these are the inputs of the other
    side too. `inputs` gives arrays by name otherwise; what is not given is drawn from the seed. Options are those of
    the command: `backends=("reference", "cpu")`, `precisions=`, `tolerance=`, `corners=`, and those of loading.
    """
    chosen = replace(options_of(options, by_command=True), random=True)
    require_two([left] if right is None else [left, right], chosen)
    given = {name: np.asarray(value) for name, value in (inputs or {}).items()}
    sides: list[Side] = []
    for item in (left,) if right is None else (left, right):
        side, taken = _side(item, (left, right), (args, kwargs or {}), chosen)
        sides.append(side)
        given = {**taken, **given}
    return compare(*make_sides(sides, chosen), chosen, given)


def _side(
    item: object,
    both: tuple[object, object],
    call: tuple[Sequence[object], Mapping[str, object]],
    options: Options,
) -> tuple[Side, dict[str, Array]]:
    """One side, and the inputs that it was run on already."""
    if isinstance(item, str | Path):
        paths = [Path(one) for one in both if isinstance(one, str | Path)]
        return load_side(Path(item), paths, options), {}
    if is_torch_module(item):
        return torch_side(item, *call)
    language = getattr(item, "language", None)
    model = item if isinstance(item, Model) else None
    if model is None and isinstance(language, str):
        model = as_graph(item, options)  # type: ignore[arg-type]  # what has a language is a model
    if model is None:
        raise InputError(f"a {type(item).__name__} is no model that can be compared")
    return Side(model), {}
