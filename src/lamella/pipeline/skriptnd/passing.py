"""Passes by name, with the backend that some of them need."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Operation
from lamella.graph.passes import PASSES
from lamella.graph.passes.fold_constants import fold_constants
from lamella.ops.library import Library

FOLD = "fold_constants"
PASS_NAMES = (FOLD, *PASSES)


def apply_pass(model: Model, name: str, limits: Limits = DEFAULT) -> Model:
    """The model after one pass."""
    if name == FOLD:
        return fold_constants(model, evaluator(model.library, limits))
    if name not in PASSES:
        raise InputError(f"there is no pass '{name}'", hint=f"passes are: {', '.join(PASS_NAMES)}")
    return PASSES[name](model)


def evaluator(
    library: Library, limits: Limits = DEFAULT
) -> Callable[[Operation, Mapping[str, Array]], tuple[Array, ...]]:
    """What computes one operation on known arrays: the reference backend."""

    def evaluate(operation: Operation, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
        graph = Graph("fold", operation.inputs, operation.outputs, (operation,))
        executable = compile_model(Model(graph, library), limits=limits)
        found = executable(**arrays)
        return tuple(found[name] for name in executable.outputs)

    return evaluate
