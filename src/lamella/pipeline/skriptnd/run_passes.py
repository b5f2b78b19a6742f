"""Passes by name, with the backend that some of them need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.suggest import list_known
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Operation, Tensor
from lamella.graph.passes import BEFORE_KERNELS, FORMER_NAMES, PASSES, Pass
from lamella.graph.passes.fold_constants import Evaluate, fold_constants
from lamella.graph.passes.fuse import fuse
from lamella.graph.passes.merge_products import merge_products
from lamella.graph.passes.optimise import optimise
from lamella.graph.passes.reduce_precision import FULL, reduce_precision
from lamella.graph.rewrite import Substitution, members, results_of
from lamella.ops.library import Library

FOLD, OPTIMISE, FUSE, REDUCE = "fold_constants", "optimise", "fuse", "reduce_precision"
ALL_PASSES: Mapping[str, Pass] = {**PASSES, "merge_products": merge_products, FUSE: fuse}
"""Every pass that needs nothing but the model."""
PASS_NAMES = (FOLD, *ALL_PASSES, OPTIMISE)
MOST_KNOWN = 256
"""Operations that an evaluator keeps compiled."""


def apply_pass(model: Model, name: str, limits: Limits = DEFAULT, precision: str = FULL) -> Model:
    """The model after one pass; what it was called before is understood too."""
    if name == REDUCE and precision != FULL:
        return reduce_precision(model, precision)
    name = FORMER_NAMES.get(name, name)
    if name == FOLD:
        return fold_constants(model, evaluator(model.library, limits))
    if name == OPTIMISE:
        return optimise(model, evaluator(model.library, limits)).model
    if name not in ALL_PASSES:
        raise InputError(f"there is no pass '{name}'", hint=list_known(name, PASS_NAMES, "passes are:"))
    return ALL_PASSES[name](model)


def passes_until(last: str, precision: str = FULL) -> tuple[str, ...]:
    """The passes on the way to kernels of a precision, up to one of them."""
    place = BEFORE_KERNELS.index(FUSE)
    reduced = () if precision == FULL else (REDUCE,)
    names = (*BEFORE_KERNELS[:place], *reduced, *BEFORE_KERNELS[place:])
    if last not in names:
        hint = f"a graph goes through: {', '.join(names)}"
        raise InputError(f"'{last}' is not a pass on the way to kernels", hint=hint)
    return names[: len(names) - names[::-1].index(last)]


def evaluator(library: Library, limits: Limits = DEFAULT) -> Evaluate:
    """What computes one operation on known arrays: the reference backend, which keeps equal operations compiled."""
    known: dict[str, GraphExecutable] = {}

    def evaluate(operation: Operation, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        names, plain = _numbered(operation)
        key = repr(plain)
        if key not in known:
            if len(known) == MOST_KNOWN:
                known.clear()
            graph = Graph("fold", tuple(dict.fromkeys(members(plain.inputs))), plain.outputs, (plain,))
            known[key] = compile_model(Model(graph, library), limits=limits)
        executable = known[key]
        found = executable(**{names[name]: array for name, array in arrays.items()})
        return tuple(found[name] for name in executable.outputs)

    return evaluate


def _numbered(operation: Operation) -> tuple[Mapping[str, str], Operation]:
    """An operation whose tensors have numbers for names, so that equal ones look alike; items of a pack keep theirs."""
    names: dict[str, str] = {}
    stems: dict[str, str] = {}
    for item in (*members(operation.inputs), *results_of(operation)):
        stem, colon, number = item.name.partition(":")
        names[item.name] = stems.setdefault(stem, f"t{len(stems)}") + colon + number

    def rename(tensor: Tensor) -> Tensor:
        return replace(tensor, name=names[tensor.name], origin=None)

    found = Substitution(rename).node(replace(operation, origin=None))
    return names, found if isinstance(found, Operation) else operation
