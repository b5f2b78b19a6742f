"""A graph as kernels: one for each formula of each operation, matrix products as `gemm`.

Operations that are composed are decomposed first; those without a formula, and the few formulas that no kernel is
written for, stay native.
"""

from __future__ import annotations

from collections.abc import Callable

from lamella.base.limits import DEFAULT, Limits
from lamella.bridge.graph_to_kernels.operations import Kernels
from lamella.graph.binding import signature
from lamella.graph.compose.decompose import decompose
from lamella.graph.model import Model
from lamella.kernels.nodes import Call, KernelGraph
from lamella.lang.tensor.nodes import Program

__all__ = ["graph_to_kernels"]


def graph_to_kernels(
    model: Model,
    keep: Callable[[str], bool] | None = None,
    wide: bool = False,
    limits: Limits = DEFAULT,
) -> KernelGraph:
    """The kernels of a model; operations that differ in names alone share them.

    `wide` holds and computes every real tensor in 64 bits.
    """
    flat = decompose(model, keep or (lambda operator: False), limits)
    kernels = Kernels(flat.library, wide)
    calls: dict[object, tuple[Call, ...]] = {}
    for operation in flat.graph.operations():
        key = signature(operation)
        if key not in calls:
            calls[key] = kernels.add(operation)
    functions = tuple(kernels.functions)
    return KernelGraph(flat, Program(functions), {key: found for key, found in calls.items() if found})
