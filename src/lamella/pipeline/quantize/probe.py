"""What quantisation does to each layer alone: its result with rounded operands, beside its result as it is.

From one run over the data come the signal-to-noise ratio of each layer and the mean error of each of its channels,
which bias correction takes out: `b' = b - mean(ŷ - y)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.dtype import F32
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Operation, Tensor
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.calibrate import Observer
from lamella.pipeline.quantize.data import Batch
from lamella.pipeline.quantize.layers import Layer, Layers
from lamella.pipeline.quantize.simulate import Codes, SimulatedGraph, decibels, relative_error, start_graph
from lamella.pipeline.quantize.weights import WeightCodes

Vector = npt.NDArray[np.float64]


@dataclass(slots=True)
class LayerError:
    """The error of a layer's result over the data: its sum by channel, its square, and the square of the result."""

    sums: Vector
    lost: float = 0.0
    size: float = 0.0
    count: int = 0
    """Elements of each channel."""

    def add(self, exact: Array, found: Array, axis: int) -> None:
        """Count the error of one batch."""
        values = exact.astype(np.float64)
        error = found.astype(np.float64) - values
        others = tuple(number for number in range(error.ndim) if number != axis)
        self.sums = self.sums + error.sum(axis=others)
        self.lost += float(np.square(error).sum())
        self.size += float(np.square(values).sum())
        self.count += math.prod(error.shape[number] for number in others)

    def means(self) -> Vector:
        """The mean error of each channel."""
        return self.sums / max(self.count, 1)

    def corrected(self) -> LayerError:
        """The same error where the mean of each channel is taken out."""
        lost = self.lost - float(np.square(self.sums).sum()) / max(self.count, 1)
        return replace(self, sums=np.zeros_like(self.sums), lost=max(lost, 0.0))

    @property
    def sqnr(self) -> float:
        """The signal-to-quantisation-noise ratio in dB."""
        return decibels(relative_error(self.lost, self.size))


def probe_layers(
    model: Model,
    found: Layers,
    codes: tuple[Mapping[str, Codes], Mapping[str, WeightCodes]],
    batches: Iterable[Batch],
    options: Options,
) -> dict[str, LayerError]:
    """The error of each layer alone, its operands rounded to their codes: those of activations and of weights."""
    new = start_graph(model)
    rounded: dict[str, Tensor] = {}
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    for layer in found.layers.values():
        inputs = tuple(_operand(new, item, found, codes, rounded) for item in layer.operation.inputs)
        copy = new.call(
            layer.operation.operator, inputs, f"{layer.name}.probe", **dict(layer.operation.attributes)
        )
        (result,) = layer.operation.outputs
        assert isinstance(result, Tensor)
        pairs[layer.name] = result, copy
    graph = replace(
        model.graph,
        nodes=(*model.graph.nodes, *new.nodes),
        variables=(*model.graph.variables, *new.variables),
    )
    probed = replace(model, graph=graph, data={**(model.data or {}), **new.data}, hints=())
    observer = Observer(probed, [item for pair in pairs.values() for item in pair], options)
    errors: dict[str, LayerError] = {}
    for batch in batches:
        values = observer(batch)
        for name, (exact, copy) in pairs.items():
            layer = found.layers[name]
            axis = layer.product.channel if layer.product is not None else 0
            error = errors.setdefault(name, LayerError(np.zeros(())))
            error.add(values[exact.name], values[copy.name], axis)
    return errors


def _operand(
    new: SimulatedGraph,
    argument: Argument,
    found: Layers,
    codes: tuple[Mapping[str, Codes], Mapping[str, WeightCodes]],
    rounded: dict[str, Tensor],
) -> Argument:
    """An operand as the codes of it say it; what has none is as it is."""
    if not isinstance(argument, Tensor):
        return argument
    activations, weights = codes
    name = argument.name
    leader = found.ranges.get(name)
    if name not in rounded and name in weights:
        rounded[name] = new.weight(argument, weights[name].values())
    elif name not in rounded and leader is not None and leader in activations:
        rounded[name] = new.rounded(argument, activations[leader])
    return rounded.get(name, argument)


def correct_biases(
    model: Model, errors: Mapping[str, LayerError], layers: Iterable[Layer]
) -> tuple[Model, set[str]]:
    """The model whose biases take out the mean errors of its layers, and the layers that have it.

    A layer without a bias gets one where its operator takes it; one whose bias others read too is left alone.
    """
    graph = model.graph
    data = dict(model.data or {})
    names = {item.name for item in graph.variables}
    read: dict[str, int] = {}
    for operation in graph.operations():
        for item in operation.inputs:
            if isinstance(item, Tensor):
                read[item.name] = read.get(item.name, 0) + 1
    changed: dict[str, Operation] = {}
    variables = list(graph.variables)
    for layer in layers:
        product = layer.product
        if product is None or product.bias is None or layer.name not in errors:
            continue
        bias, means = product.operand(product.bias), errors[layer.name].means()
        if bias is None:
            bias = Tensor(_free(f"{layer.name}.bias", names), F32, means.shape)
            variables.append(bias)
            data[bias.name] = np.zeros(means.shape, np.float32)
            inputs = list(product.operation.inputs)
            inputs[product.bias] = bias
            changed[layer.name] = replace(product.operation, inputs=tuple(inputs))
        elif bias.name not in names or read.get(bias.name) != 1:
            continue
        names.add(bias.name)
        changed.setdefault(layer.name, product.operation)
        data[bias.name] = (np.asarray(data[bias.name], np.float64) - means).astype(np.float32)
    nodes = tuple(
        changed.get(_result_name(node), node) if isinstance(node, Operation) else node for node in graph.nodes
    )
    return replace(model, graph=replace(graph, nodes=nodes, variables=tuple(variables)), data=data), set(
        changed
    )


def _free(stem: str, names: set[str]) -> str:
    name = stem
    while name in names:
        name += "_"
    return name


def _result_name(node: Operation) -> str:
    found = node.outputs[0] if node.outputs else None
    return found.name if isinstance(found, Tensor) else ""
