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
from lamella.graph.nodes import Argument, Node, Operation, Tensor
from lamella.graph.passes.products import WeightedProduct
from lamella.graph.rewrite import FreshNames, defined, results_of, uses
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


RoundedOperands = tuple[Mapping[str, Codes], Mapping[str, WeightCodes]]
"""The codes of activations, by the tensors whose ranges decide, and of weights."""


def probe_layers(
    model: Model, found: Layers, codes: RoundedOperands, batches: Iterable[Batch], options: Options
) -> dict[str, LayerError]:
    """The error of each layer alone, its operands rounded to their codes."""
    new = start_graph(model)
    copies = _copy_layers(new, found, codes)
    graph = replace(
        model.graph,
        nodes=(*model.graph.nodes, *new.nodes),
        variables=(*model.graph.variables, *new.variables),
    )
    probed = replace(model, graph=graph, data={**(model.data or {}), **new.data}, hints=())
    results = [found.tensors[name] for name in copies]
    observer = Observer(probed, [*results, *copies.values()], options)
    errors = {name: LayerError(np.zeros(())) for name in copies}
    for batch in batches:
        values = observer(batch)
        for name, copy in copies.items():
            product = found.layers[name].product
            errors[name].add(values[name], values[copy.name], 0 if product is None else product.channel)
    return errors


def _copy_layers(new: SimulatedGraph, found: Layers, codes: RoundedOperands) -> dict[str, Tensor]:
    """A second result of each layer, from rounded operands."""
    rounded: dict[str, Tensor] = {}
    copies: dict[str, Tensor] = {}
    for name, layer in found.layers.items():
        call = layer.operation
        inputs = tuple(_operand(new, item, found, codes, rounded) for item in call.inputs)
        copies[name] = new.call(call.operator, inputs, f"{name}.probe", **dict(call.attributes))
    return copies


def _operand(
    new: SimulatedGraph,
    argument: Argument,
    found: Layers,
    codes: RoundedOperands,
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


# --- bias correction ----------------------------------------------------------------------------------------


def correct_biases(
    model: Model, errors: Mapping[str, LayerError], layers: Iterable[Layer]
) -> tuple[Model, set[str]]:
    """The model whose biases take out the mean errors of its layers, and the layers that have it.

    A layer without a bias gets one where its operator takes it; one whose bias others read too is left alone.
    """
    work = _Correction(model)
    for layer in layers:
        if layer.product is not None and layer.product.bias is not None and layer.name in errors:
            work.correct(layer.product, errors[layer.name].means())
    return work.corrected_model(), set(work.changed)


class _Correction:
    """Biases under correction: their numbers, and the operations that read new ones."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.variables = list(model.graph.variables)
        self.data = dict(model.data or {})
        self.names = FreshNames(item.name for item in defined(model.graph))
        self.reads = uses(model.graph)
        self.changed: dict[str, Operation] = {}
        """By result the operation that makes it."""

    def correct(self, product: WeightedProduct, means: Vector) -> None:
        """Take the mean errors of a product's channels out of its bias, where the bias is its own."""
        bias = product.operand(product.bias)
        if bias is None:
            bias = self._add_bias(product, means.shape)
        elif bias.name not in self.data or self.reads.get(bias.name) != 1:
            return
        self.changed.setdefault(product.result.name, product.operation)
        self.data[bias.name] = (np.asarray(self.data[bias.name], np.float64) - means).astype(np.float32)

    def _add_bias(self, product: WeightedProduct, shape: tuple[int, ...]) -> Tensor:
        assert product.bias is not None
        bias = Tensor(self.names.take(f"{product.result.name}.bias"), F32, shape)
        self.variables.append(bias)
        self.data[bias.name] = np.zeros(shape, np.float32)
        inputs = list(product.operation.inputs)
        inputs[product.bias] = bias
        self.changed[product.result.name] = replace(product.operation, inputs=tuple(inputs))
        return bias

    def corrected_model(self) -> Model:
        """The model with the new biases."""
        graph = self.model.graph
        nodes = tuple(self._node(node) for node in graph.nodes)
        return replace(
            self.model, graph=replace(graph, nodes=nodes, variables=tuple(self.variables)), data=self.data
        )

    def _node(self, node: Node) -> Node:
        return self.changed.get(next((item.name for item in results_of(node)), ""), node)
