"""A graph as kernels: one for each formula of each operation, matrix products as `gemm`.

Operations that are composed are decomposed first; those without a formula, and the few formulas that no kernel is
written for, stay native.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from lamella.base.limits import DEFAULT, Limits
from lamella.bridge.graph_to_kernels.operations import Kernels
from lamella.bridge.graph_to_kernels.steps import Unsupported
from lamella.graph.binding import quantizer_of, signature
from lamella.graph.compose.decompose import decompose
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Operation, Tensor, regions, walk
from lamella.graph.rewrite import members
from lamella.kernels.nodes import Call, KernelGraph
from lamella.lang.tensor.nodes import Program

__all__ = ["flatten", "graph_to_kernels"]


def flatten(model: Model, limits: Limits = DEFAULT) -> Model:
    """The model with every compound operator replaced by its components, itself where it has none."""
    return decompose(model, _none, limits)


def _none(operator: str) -> bool:
    """No operator is taken whole."""
    return False


def graph_to_kernels(
    model: Model,
    keep: Callable[[str], bool] | None = None,
    wide: bool = False,
    limits: Limits = DEFAULT,
    extents: Mapping[str, int] | None = None,
    quantized: bool = False,
) -> KernelGraph:
    """The kernels of a model; operations that differ in names alone share them.

    `wide` holds and computes every real tensor in 64 bits. `extents` are the numbers of those that the graph leaves
    open; an operation with others has no kernel. With `quantized` what quantises tensors has kernels too.
    """
    flat = decompose(model, keep, limits) if keep else flatten(model, limits)
    kernels = Kernels(flat.library, wide, extents or {})
    calls: dict[object, tuple[Call, ...]] = {}
    native: dict[object, str] = {}
    quantizers = _quantizers(flat, limits) if quantized else ()
    for operation in (*flat.graph.operations(), *quantizers):
        key = signature(operation)
        if key not in calls and key not in native:
            try:
                calls[key] = kernels.add(operation)
            except Unsupported as problem:
                native[key] = str(problem)
    return KernelGraph(flat, Program(tuple(kernels.functions)), calls, native, kernels.extents, quantizers)


def _quantizers(model: Model, limits: Limits) -> tuple[Operation, ...]:
    """What quantises the tensors of a graph, decomposed like the graph itself."""
    found = {item.name: quantizer_of(item) for item in _tensors(model.graph)}
    nodes = tuple(item for item in found.values() if item is not None)
    given = tuple(item for node in nodes for item in node.inputs)
    alone = Graph(model.graph.name, given, tuple(item for node in nodes for item in node.outputs), nodes)
    return tuple(decompose(replace(model, graph=alone), _none, limits).graph.operations())


def _tensors(graph: Graph) -> Iterator[Tensor]:
    """Every tensor that a run holds by itself."""
    arguments = [*graph.inputs, *graph.variables, *(item.tensor for item in graph.constants)]
    for node in walk(graph.nodes):
        arguments += [*node.outputs, *(item for region in regions(node) for item in region.inputs)]
    return (item for item in members(arguments) if isinstance(item, Tensor))
