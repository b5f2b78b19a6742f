"""The normal form of a model to be quantised: every product with its weight and bias, and nothing hidden in a compound.

Compounds are taken apart down to operators that have an integer form, or that run as one island of real numbers
(`WHOLE`); scales and shifts of channels go into weights; what is computed from weights alone is computed, and stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array
from lamella.graph.compose.decompose import decompose
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Graph, Node, Operation, Single, Tensor
from lamella.graph.passes import PASSES
from lamella.graph.passes.fold_constants import Evaluate, array_of
from lamella.graph.passes.products import FixedTensors
from lamella.graph.quantize.norms import raise_norms
from lamella.graph.quantize.spellings import SPELLINGS, spell_out
from lamella.graph.rewrite import members, operands_of, rename, results_of, uses

WHOLE = frozenset(
    (
        *("nn.softmax", "aten.softmax", "aten.log_softmax", "aten.safe_softmax", "llm.softmax"),
        *("aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm", "aten.fused_rms_norm"),
        *("llm.layernorm", "llm.rmsnorm", "nn.avg_pool", "math.mean_reduce"),
    )
)
"""Compounds that stay: targets have them, and real numbers stay inside."""
STEPS = (
    *("simplify", "cancel_transposes", "fold_transposes", "cse", "dce"),
    *("fold_batch_norm", "local_views", "cse", "dce"),
)
"""The passes that bring products, weights and biases together, in order."""
_FOLDED = re.compile(r"(\.(scaled|folded|shift)(_\d+)?)+$")


def to_normal_form(model: Model, evaluate: Evaluate) -> Model:
    """The model whose tensors codes are chosen for; weights must have data."""
    # A state that is given its own value is none: statistics of batch norms that are not trained.
    updates = tuple(item for item in model.graph.updates if item.value.name != item.variable.name)
    still = replace(model, graph=replace(model.graph, updates=updates))
    flat = spell_out(decompose(still, lambda name: name in WHOLE or name in SPELLINGS))
    flat = decompose(flat, lambda name: name in WHOLE)
    for name in STEPS:
        flat = PASSES[name](flat)
    flat = raise_norms(_computed(flat, evaluate))
    for name in ("simplify", "dce", "variable_dce"):
        flat = PASSES[name](flat)
    return _shortened(flat)


def _computed(model: Model, evaluate: Evaluate) -> Model:
    """The model with everything that depends on weights alone as weights."""
    graph = model.graph
    fixed = FixedTensors(graph, model.library)
    known = _Known(model, evaluate)
    kept = [node for node in graph.nodes if not (fixed.add(node) and known.compute(node))]
    read = {item.name for node in kept for item in operands_of(node)}
    read |= {item.name for item in members(graph.outputs)} | {item.value.name for item in graph.updates}
    made = [item for item in known.made.values() if item.name in read]
    # What is the same everywhere is a constant, which identities know: a mask that hides nothing goes away.
    uniform = {item.name: value for item in made if (value := _uniform(known.arrays[item.name])) is not None}
    constants = (
        *graph.constants,
        *(Constant(item, uniform[item.name]) for item in made if item.name in uniform),
    )
    weights = [item for item in made if item.name not in uniform]
    data = {**(model.data or {}), **{item.name: known.arrays[item.name] for item in weights}}
    variables = (*graph.variables, *weights)
    changed = replace(graph, nodes=tuple(kept), variables=variables, constants=constants)
    return _kept_outputs(replace(model, graph=changed, data=data), graph)


def _uniform(values: Array) -> Single | None:
    """The one finite value that an array is full of."""
    if not values.size or values.dtype.kind not in "biuf" or (values != values.flat[0]).any():
        return None
    found: Single = values.flat[0].item()
    return found if np.isfinite(values.flat[0]) else None


def _kept_outputs(model: Model, before: Graph) -> Model:
    """The model without what it computed of its own outputs: a variable cannot be one."""
    now = (*model.graph.variables, *(item.tensor for item in model.graph.constants))
    then = (*before.variables, *(item.tensor for item in before.constants))
    new = {item.name for item in now} - {item.name for item in then}
    if not new & {item.name for item in members(before.outputs)}:
        return model
    return replace(model, graph=before)


class _Known:
    """What operations on weights and constants give, computed as far as a walk has come."""

    def __init__(self, model: Model, evaluate: Evaluate) -> None:
        self._data = model.data or {}
        self._constants: Mapping[str, Constant] = {item.tensor.name: item for item in model.graph.constants}
        self._evaluate = evaluate
        self.arrays: dict[str, Array] = {}
        self.made: dict[str, Tensor] = {}

    def compute(self, node: Node) -> bool:
        """Compute an operation; False where an array or an extent is missing, or it makes more than plain tensors."""
        results = list(results_of(node))
        tensors = [item for item in results if isinstance(item, Tensor)]
        if not isinstance(node, Operation) or len(tensors) != len(results):
            return False
        if not all(isinstance(extent, int) for item in tensors for extent in item.shape):
            return False
        given = {item.name: self._array(item.name) for item in operands_of(node)}
        arrays = {name: array for name, array in given.items() if array is not None}
        if len(arrays) != len(given):
            return False
        found = self._evaluate(node, arrays)
        self.arrays.update({item.name: array for item, array in zip(tensors, found, strict=True)})
        self.made.update({item.name: item for item in tensors})
        return True

    def _array(self, name: str) -> Array | None:
        if name in self.arrays:
            return self.arrays[name]
        constant = self._constants.get(name)
        return array_of(constant) if constant is not None else self._data.get(name)


def _shortened(model: Model) -> Model:
    """The model whose folded weights are called as before, where nothing else is."""
    read, names = uses(model.graph), dict[str, str]()
    taken = {item.name for item in model.graph.variables} | set(read)
    for item in model.graph.variables:
        short = _FOLDED.sub("", item.name)
        if short != item.name and short not in taken and short not in names.values():
            names[item.name] = short
    data = {names.get(name, name): array for name, array in (model.data or {}).items()}
    return replace(model, graph=rename(model.graph, names), data=data) if names else model
