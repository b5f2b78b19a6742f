"""Calibration: the float model run over data, and what its tensors hold counted: histograms and second moments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lamella.base.arrays import Array
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.pipeline.backends import make_executable
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.diff.values import observed_model, observed_values
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.data import Batch
from lamella.pipeline.quantize.layers import Layer
from lamella.pipeline.quantize.ranges import Histogram
from lamella.pipeline.quantize.weights import Matrix

LARGEST_MOMENTS = 4096
"""The longest sum of a linear layer whose second moments are kept: their matrix has the square of it."""


class Observer:
    """A model that is compiled once, and whose runs give what some of its tensors hold."""

    def __init__(self, model: Model, wanted: Iterable[Tensor], options: Options) -> None:
        # What loading has honoured, and what only says how a file is read, has no meaning for a graph.
        chosen = replace(options, shape={}, types={}, weights=None, random=True, precision="f32")
        self._inputs = [item.name for item in listed(model.graph.inputs)]
        tensors = {item.name: item for item in wanted if item.name not in self._inputs}
        self._given = [item.name for item in wanted if item.name in self._inputs]
        self._run = make_executable(observed_model(model, tensors.values()), options.backend, chosen)

    def __call__(self, batch: Batch) -> dict[str, Array]:
        """What the tensors hold in a run on a batch."""
        found = observed_values(self._run(**batch))
        return {**found, **{name: np.asarray(batch[name]) for name in self._given}}


@dataclass(frozen=True, slots=True)
class Observations:
    """What calibration has seen: a histogram of each tensor, and the second moments of inputs of linear layers."""

    histograms: Mapping[str, Histogram]
    moments: Mapping[str, Matrix]
    """By layer."""


def observe(
    model: Model,
    wanted: Sequence[Tensor],
    linear: Sequence[Layer],
    batches: Iterable[Batch],
    options: Options,
) -> Observations:
    """Run a model over batches, and count what tensors hold; of linear layers also the moments of their inputs."""
    inputs = {layer.name: layer.activations[0] for layer in linear}
    tensors = {item.name: item for item in (*wanted, *inputs.values())}
    observer = Observer(model, list(tensors.values()), options)
    histograms = {item.name: Histogram() for item in wanted}
    moments: dict[str, Matrix] = {}
    for batch in batches:
        values = observer(batch)
        for name, histogram in histograms.items():
            histogram.add(values[name])
        for layer in linear:
            found = _moments(layer, values[inputs[layer.name].name])
            moments[layer.name] = moments.get(layer.name, 0.0) + found
    return Observations(histograms, moments)


def has_moments(layer: Layer) -> bool:
    """Whether a layer is linear: a matrix as its weight, and an axis of its input as long as its sums."""
    product, operand = layer.product, layer.activations[0] if layer.activations else None
    weight = None if product is None else product.operand(product.weight)
    if product is None or weight is None or operand is None or product.grouped or len(weight.shape) != 2:
        return False
    terms = weight.shape[1 - product.rows]
    axis = _summed_axis(layer)
    known = axis is not None and operand.shape[axis] == terms
    return known and isinstance(terms, int) and terms <= LARGEST_MOMENTS


def _summed_axis(layer: Layer) -> int | None:
    """The one axis of the input that the result does not have; None where there is not one alone."""
    assert layer.product is not None
    rank = len(layer.activations[0].shape)
    summed = [axis for axis in range(rank) if axis not in layer.product.kept]
    return summed[0] if len(summed) == 1 else None


def _moments(layer: Layer, values: Array) -> Matrix:
    axis = _summed_axis(layer)
    assert axis is not None  # has_moments
    rows = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis]).astype(np.float64)
    found: Matrix = rows.T @ rows
    return found
