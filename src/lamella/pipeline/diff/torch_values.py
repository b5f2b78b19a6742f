"""A module of PyTorch as a side of a comparison: its exported graph, with what PyTorch computes for every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lamella.base.arrays import Array
from lamella.base.optional import Foreign, need
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.diff.sides import Side
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
