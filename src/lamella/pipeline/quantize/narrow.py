"""Weights stored narrow: codes and scales in the place of real numbers, which operations of the graph make again.

    w = real(codes) * scales                    a scale for the tensor or for each channel
    w = reshape(real(codes) * scales)           a scale for each group of a channel

Everything else computes as it did. The chain is the one that kernels of products take in: narrow numbers are what
they read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array, cast
from lamella.base.dtype import F32, I4, I8
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Operation, Tensor, Value
from lamella.graph.rewrite import FreshNames, Substitution, defined
from lamella.pipeline.quantize.weights import WeightCodes


def narrow_weights(model: Model, weights: Mapping[str, WeightCodes]) -> Model:
    """The model whose weights are made of codes; their results keep the names of the weights."""
    graph = model.graph
    names = FreshNames(item.name for item in defined(graph))
    data = {name: array for name, array in (model.data or {}).items() if name not in weights}
    variables: list[Tensor] = []
    nodes: list[Operation] = []
    for tensor in graph.variables:
        if tensor.name not in weights:
            variables.append(tensor)
            continue
        stored = _Stored(weights[tensor.name], tensor)
        codes = Tensor(names.take(f"{tensor.name}.codes"), stored.element, stored.codes.shape)
        scales = Tensor(names.take(f"{tensor.name}.scales"), F32, stored.scales.shape)
        variables += [codes, scales]
        data |= {codes.name: cast(stored.codes, stored.element), scales.name: stored.scales}
        nodes += _decoding(model, tensor, codes, scales, names)
    nodes_after = (*nodes, *graph.nodes)
    return replace(model, graph=replace(graph, variables=tuple(variables), nodes=nodes_after), data=data)


def widen_codes(model: Model) -> Model:
    """The model whose codes of 4 bits lie in bytes, for formats without such a type."""

    def widen(tensor: Tensor) -> Tensor:
        return replace(tensor, element=I8) if tensor.element == I4 else tensor

    graph = Substitution(widen).graph(model.graph)
    nodes = tuple(_with_types(node) if isinstance(node, Operation) else node for node in graph.nodes)
    narrow = {item.name for item in model.graph.variables if item.element == I4}
    data = {name: cast(array, I8) if name in narrow else array for name, array in (model.data or {}).items()}
    return replace(model, graph=replace(graph, nodes=nodes), data=data)


def _with_types(operation: Operation) -> Operation:
    types = tuple((name, I8 if element == I4 else element) for name, element in operation.types)
    return replace(operation, types=types)


class _Stored:
    """The arrays that are stored of a weight: codes and scales of one rank, groups along an axis of their own."""

    def __init__(self, found: WeightCodes, tensor: Tensor) -> None:
        self.element = I4 if found.bits <= 4 else I8
        shape, rows = found.codes.shape, found.rows
        groups = found.scales.shape[1]
        if groups == 1:
            place = [1] * len(shape)
            if found.scales.size > 1:
                place[rows] = -1
            self.codes: Array = found.codes
            self.scales: Array = found.scales.reshape(place).astype(np.float32)
        elif rows == 0:
            self.codes = found.codes.reshape(shape[0], groups, -1)
            self.scales = found.scales[:, :, None].astype(np.float32)
        else:
            self.codes = found.codes.reshape(groups, -1, shape[1])
            self.scales = np.ascontiguousarray(found.scales.T[:, None, :]).astype(np.float32)


def can_group(shape: tuple[int, ...], rows: int, group: int) -> bool:
    """Whether a weight can be stored in groups: whole ones, along rows that lie in one piece or in columns."""
    columns = int(np.prod([extent for axis, extent in enumerate(shape) if axis != rows]))
    return columns % group == 0 and columns > group and (rows == 0 or len(shape) == 2)


def _decoding(
    model: Model, weight: Tensor, codes: Tensor, scales: Tensor, names: FreshNames
) -> list[Operation]:
    """The operations that make a weight of its codes."""
    made: list[Operation] = []

    def apply(operator: str, inputs: tuple[Argument, ...], name: str, **attributes: Value) -> Tensor:
        types = {"R": F32} if operator == "layout.cast" else None
        made.append(call(model.library, operator, inputs, attributes, [name], types))
        (result,) = made[-1].outputs
        assert isinstance(result, Tensor)
        return result

    is_grouped = codes.shape != weight.shape
    real = apply("layout.cast", (codes,), names.take(f"{weight.name}.real"))
    name = names.take(f"{weight.name}.groups") if is_grouped else weight.name
    scaled = apply("math.mul", (real, scales), name)
    if is_grouped:
        apply("layout.reshape", (scaled,), weight.name, shape=weight.shape)
    return [replace(item, origin=weight.origin) for item in made]
