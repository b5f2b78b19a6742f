"""`lamella.diff`: two models, files or modules of PyTorch compared from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack, cast

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.levels import Level
from lamella.base.optional import Foreign, need
from lamella.graph.model import Model
from lamella.pipeline.api_options import DiffOptions
from lamella.pipeline.diff.comparison import Comparison, compare
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.diff.sides import Side, as_graph, load_side, make_sides, require_two
from lamella.pipeline.given import options_of
from lamella.pipeline.options import Options
from lamella.pipeline.signatures import documented
from lamella.pipeline.torch.export import export_program

NAME = "torch"
MODULE = "torch.nn.modules.module.Module"


def is_torch_module(thing: object) -> bool:
    """Whether something is a module of PyTorch; PyTorch is not loaded to find out."""
    return any(f"{kind.__module__}.{kind.__name__}" == MODULE for kind in type(thing).mro())


def torch_side(
    module: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Side, dict[str, Array]]:
    """A module run by PyTorch on some arguments: the side with all its numbers, and the inputs of its graph."""
    model, program = export_program(module, args, kwargs)
    seen = _run(program, args, kwargs)
    inputs = {item.name: seen[item.name] for item in listed(model.graph.inputs) if item.name in seen}
    results = [seen[name] for name in program.graph_signature.user_outputs if name in seen]
    ends = dict(zip((item.name for item in listed(model.graph.outputs)), results, strict=False))
    return Side(model, NAME, observed={**seen, **ends}), inputs


def _run(program: Foreign, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Array]:
    """What every node of an exported program gives, by its name."""
    torch = need("torch")
    seen: dict[str, Array] = {}

    class Observer(torch.fx.Interpreter):  # type: ignore[misc,name-defined]  # loaded only where it is used
        """Runs a graph node by node, and keeps what each gives."""

        def run_node(self, node: object) -> object:
            """What a node gives."""
            value: object = super().run_node(node)
            if isinstance(value, torch.Tensor):
                seen[str(node)] = _array(value)
            return value

    lifted = {**program.state_dict, **program.constants}
    user = iter(torch.utils._pytree.tree_leaves((tuple(args), dict(kwargs))))
    specs = program.graph_signature.input_specs
    given = [next(user) if item.target is None else lifted[item.target] for item in specs]
    with torch.no_grad():
        Observer(program.graph_module).run(*given)
    return seen


def _array(value: Foreign) -> Array:
    """A tensor as an array; narrow types that NumPy has not are widened."""
    tensor = value.detach().cpu()
    widened = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    return np.array(widened.numpy())


@documented(DiffOptions)
def diff(
    left: object,
    right: object = None,
    /,
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    inputs: Mapping[str, npt.ArrayLike] | None = None,
    **options: Unpack[DiffOptions],
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
    item = item.model if isinstance(item, Level) else item
    if isinstance(item, str | Path):
        paths = [Path(one) for one in both if isinstance(one, str | Path)]
        return load_side(Path(item), paths, options), {}
    if is_torch_module(item):
        return torch_side(item, *call)
    language = getattr(item, "language", None)
    model = item if isinstance(item, Model) else None
    if model is None and isinstance(language, str):
        model = as_graph(cast("Model", item), options)  # what has a language is a model
    if model is None:
        raise InputError(f"a {type(item).__name__} is no model that can be compared")
    return Side(model), {}
