"""Cross-layer equalisation: channels between two layers scaled so that the ranges of both weights are alike.

    W2 relu(W1 x + b1) = (W2 S) relu(S⁻¹ W1 x + S⁻¹ b1)        S diagonal and positive

A rectifier, a maximum and a mean over places let a positive factor through. The factors are powers of two: every
number of the model changes its exponent alone, and the model computes the same numbers, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Tensor
from lamella.pipeline.quantize.layers import Layer, Layers

ROUNDS = 4
"""How often all pairs are visited: a layer in the middle of a chain belongs to two of them."""
LARGEST = 2.0**12
"""The largest factor of a channel, and the inverse of the least."""
THROUGH = frozenset(["nn.relu", "nn.max_pool", "nn.avg_pool", "math.mean_reduce"])
"""Operations of one tensor that let positive factors of channels through."""
CHANNELS = 1
"""The axis of activations along which channels lie, in the layers that are looked at."""

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two layers, the result of the first being read by the second alone."""

    first: Layer
    second: Layer


def find_pairs(model: Model, found: Layers) -> Iterator[Pair]:
    """The pairs of layers between which channels can be scaled."""
    shared = _shared_weights(model)
    outputs = {item.name for item in model.graph.outputs if isinstance(item, Tensor)}
    for layer in found.layers.values():
        if not _is_plain(layer) or layer.weight in shared or _bias_name(layer) in shared:
            continue
        second = _next_layer(layer, found, outputs)
        if (
            second is not None
            and _is_plain(second)
            and second.weight not in shared
            and not _is_grouped(second)
        ):
            yield Pair(layer, second)


def _shared_weights(model: Model) -> set[str]:
    """Weights that more than one operation reads."""
    seen: set[str] = set()
    shared: set[str] = set()
    for operation in model.graph.operations():
        for item in operation.inputs:
            if isinstance(item, Tensor):
                (shared if item.name in seen else seen).add(item.name)
    return shared


def _is_plain(layer: Layer) -> bool:
    """A convolution or a linear layer whose channels lie where they usually do."""
    if layer.product is None or layer.operation.operator not in ("nn.conv", "nn.linear"):
        return False
    formats = {value for name, value in layer.operation.attributes if name.endswith("_format")}
    return formats <= {"NCX"} and layer.product.rows == 0 and layer.product.channel == CHANNELS


def _is_grouped(layer: Layer) -> bool:
    return layer.product is not None and layer.product.grouped


def _bias_name(layer: Layer) -> str | None:
    assert layer.product is not None
    bias = layer.product.operand(layer.product.bias)
    return None if bias is None else bias.name


def _next_layer(layer: Layer, found: Layers, outputs: set[str]) -> Layer | None:
    """The layer that alone reads the result of another, through what lets factors through; None where there is none."""
    name = layer.name
    while name not in outputs:
        readers = found.readers.get(name, ())
        node = readers[0] if len(readers) == 1 else None
        if (
            not isinstance(node, Operation)
            or len(node.outputs) != 1
            or not isinstance(node.outputs[0], Tensor)
        ):
            return None
        result = node.outputs[0].name
        if result in found.layers and found.layers[result].product is not None:
            return found.layers[result]
        if not _lets_through(node):
            return None
        name = result
    return None


def _lets_through(node: Operation) -> bool:
    """Whether factors of channels may be taken before an operation or after it: what cuts at a number is not so."""
    attributes = dict(node.attributes)
    axes = attributes.get("axes") or ()
    return (
        node.operator in THROUGH
        and attributes.get("max") is None
        and isinstance(axes, tuple)
        and CHANNELS not in axes
        and not any(isinstance(axis, int) and axis < 0 for axis in axes)
    )


def equalise(model: Model, found: Layers) -> tuple[Model, int]:
    """The model with the weights of neighbours equalised, and how many pairs there are; it computes the same."""
    pairs = list(find_pairs(model, found))
    data = dict(model.data or {})
    for _ in range(ROUNDS):
        for pair in pairs:
            factors = _factors(pair, data)
            _scale(pair, factors, data)
    return (replace(model, data=data), len(pairs)) if pairs else (model, 0)


def _factors(pair: Pair, data: Mapping[str, Array]) -> Vector:
    """The factor of each channel: the power of two nearest to what makes both ranges their geometric mean."""
    one, other = _weight(pair.first, data), _weight(pair.second, data)
    rows = np.abs(one).reshape(len(one), -1).max(axis=1)
    columns = np.abs(np.moveaxis(other, 1, 0)).reshape(other.shape[1], -1).max(axis=1)
    alive = (rows > 0) & (columns > 0)
    wanted = np.sqrt(np.where(alive, rows, 1.0) / np.where(alive, columns, 1.0))
    return np.asarray(2.0 ** np.rint(np.log2(np.clip(wanted, 1 / LARGEST, LARGEST))))


def _weight(layer: Layer, data: Mapping[str, Array]) -> Array:
    assert layer.weight is not None
    return np.asarray(data[layer.weight], np.float64)


def _scale(pair: Pair, factors: Vector, data: dict[str, Array]) -> None:
    """Divide the rows and the bias of the first layer, and multiply what the second reads of each channel."""
    one, other = _weight(pair.first, data), _weight(pair.second, data)
    assert pair.first.weight is not None
    assert pair.second.weight is not None
    data[pair.first.weight] = (one / factors.reshape(-1, *[1] * (one.ndim - 1))).astype(np.float32)
    data[pair.second.weight] = (other * factors.reshape(1, -1, *[1] * (other.ndim - 2))).astype(np.float32)
    bias = _bias_name(pair.first)
    if bias is not None:
        data[bias] = (np.asarray(data[bias], np.float64) / factors).astype(np.float32)
