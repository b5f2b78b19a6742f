"""Small models with drawn weights, codes for all their tensors by the ends of what they hold, and the integer graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import F32, I8, ElementType
from lamella.base.quant import PerChannel, PerTensor
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.quantize import IntegerModel, TensorCodes, to_integers, to_normal_form
from lamella.graph.rewrite import members, results_of
from lamella.graph.verify import verify
from lamella.pipeline.skriptnd.run_passes import evaluator

WEIGHTED = {"nn.conv": 1, "nn.linear": 1}


@dataclass(frozen=True, slots=True)
class Quantised:
    """A model in its normal form, what it was fed, what it gave, its codes and its integer graph."""

    normal: Model
    fed: Mapping[str, Array]
    wanted: Mapping[str, Array]
    codes: Mapping[str, TensorCodes]
    found: IntegerModel

    @property
    def operators(self) -> list[str]:
        """What the integer graph calls, in order."""
        return [item.operator for item in self.found.model.graph.operations()]


def with_weights(model: Model, seed: int = 0) -> Model:
    """The model with drawn numbers in its variables."""
    rng = np.random.default_rng(seed)
    data = {
        item.name: rng.normal(0, 0.5, [int(str(size)) for size in item.shape]).astype(
            numpy_dtype(item.element)
        )
        for item in model.graph.variables
    }
    return replace(model, data=data)


def inputs_of(model: Model, seed: int = 1) -> dict[str, Array]:
    """Drawn numbers for the inputs; integers are small."""
    rng = np.random.default_rng(seed)
    found = {}
    for item in members(model.graph.inputs):
        shape = [int(str(size)) for size in item.shape]
        drawn = rng.normal(0, 1, shape) if item.element.is_float else rng.integers(0, 4, shape)
        found[item.name] = drawn.astype(numpy_dtype(item.element))
    return found


def affine(values: Array, element: ElementType = I8) -> TensorCodes:
    """Codes from the smallest number, or zero, to the largest, or zero."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = (high - low) / (element.maximum - element.minimum) or 1.0
    zero = round(element.minimum - low / scale)
    return TensorCodes(PerTensor(scale, max(element.minimum, min(zero, element.maximum))), element)


def symmetric(values: Array, axis: int | None = None, element: ElementType = I8) -> TensorCodes:
    """Codes around zero, of the whole tensor or of each index along an axis."""
    if axis is None:
        return TensorCodes(PerTensor(float(np.abs(values).max()) / element.maximum or 1.0), element)
    rows = np.abs(np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)).max(1)
    scales = tuple(float(item) / element.maximum or 1.0 for item in rows)
    return TensorCodes(PerChannel(axis, scales, (0,) * len(scales)), element)


def tensors_of(model: Model, fed: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of real numbers that a model computes."""
    made = [item for node in model.graph.nodes for item in results_of(node) if isinstance(item, Tensor)]
    outputs = tuple(dict.fromkeys([*members(model.graph.outputs), *made]))
    watched = replace(model, graph=replace(model.graph, outputs=outputs, updates=()))
    return {**compile_model(watched)(**fed)}


def choose(model: Model, fed: Mapping[str, Array], weights: ElementType = I8) -> dict[str, TensorCodes]:
    """Codes for all activations by the ends of what they hold, and for the channels of all weights."""
    found = {
        name: affine(values)
        for name, values in {**fed, **tensors_of(model, fed)}.items()
        if values.dtype.kind == "f" and np.isfinite(values).all()
    }
    for operation in model.graph.operations():
        place = WEIGHTED.get(operation.operator)
        weight = None if place is None else operation.inputs[place]
        if isinstance(weight, Tensor) and model.data is not None and weight.name in model.data:
            found[weight.name] = symmetric(model.data[weight.name], 0, weights)
    return found


def quantise(
    model: Model, island: ElementType = F32, weights: ElementType = I8, keep: frozenset[str] = frozenset()
) -> Quantised:
    """The integer graph of a model with drawn weights; both graphs are whole."""
    normal = to_normal_form(model, evaluator(model.library))
    fed = inputs_of(normal)
    codes = choose(normal, fed, weights)
    found = to_integers(normal, codes, island, keep)
    for item in (normal, found.model):
        assert verify(item.graph, item.library) == []
    return Quantised(normal, fed, compile_model(model)(**fed), codes, found)


def noise(wanted: Array, found: Array) -> float:
    """The power of what differs over that of what was wanted."""
    wide = wanted.astype(np.float64)
    return float(((wide - found) ** 2).sum() / (wide**2).sum())
