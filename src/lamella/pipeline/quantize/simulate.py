"""Simulated quantisation: the float graph with a switch at each tensor that may be rounded to its codes.

    x' = x + e (codes(x) - x)        w' = w + e (codes(w) - w)

The switches `e` are inputs, so that one compiled graph says what any choice of layers does to the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lamella.base.arrays import Array
from lamella.base.dtype import F32, ElementType
from lamella.base.quant import PerTensor
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Tensor, Value
from lamella.graph.rewrite import FreshNames, Substitution, defined, results_of
from lamella.ops.library import Library
from lamella.pipeline.diff.flow import listed
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.calibrate import Observer
from lamella.pipeline.quantize.data import Batch
from lamella.pipeline.quantize.weights import WeightCodes

ROUND = "quant.zero_point_linear_quantize"

Codes = tuple[PerTensor, ElementType]
"""What the codes of an activation are."""
WeightChoice = tuple[str, int]
"""A weight and how many bits its codes have."""


@dataclass(slots=True)
class SimulatedGraph:
    """A graph under construction whose tensors are rounded where their switches are on."""

    library: Library
    names: FreshNames
    nodes: list[Node] = field(default_factory=list)
    variables: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    data: dict[str, Array] = field(default_factory=dict)

    def call(self, operator: str, inputs: Sequence[Argument], stem: str, **attributes: Value) -> Tensor:
        """A new operation of one result."""
        made = call(self.library, operator, inputs, attributes, [self.names.take(stem)])
        self.nodes.append(made)
        (result,) = made.outputs
        assert isinstance(result, Tensor)
        return result

    def switch(self, stem: str) -> Tensor:
        """A new input that is one number."""
        found = Tensor(self.names.take(f"{stem}.switch"), F32, ())
        self.inputs.append(found)
        return found

    def rounded(self, tensor: Tensor, codes: Codes) -> Tensor:
        """A tensor rounded to what its codes can say."""
        quant, element = codes
        return self.call(
            ROUND,
            (tensor,),
            f"{tensor.name}.rounded",
            zero_point=quant.zero_point,
            scale=quant.scale,
            bits=element.bits,
            channel_axis=1,
        )

    def moved(self, tensor: Tensor, lost: Tensor, switch: Tensor) -> Tensor:
        """A tensor with what it loses added where the switch is on."""
        part = self.call("math.mul", (lost, switch), f"{tensor.name}.part")
        return self.call("math.add", (tensor, part), f"{tensor.name}.moved")

    def weight(self, tensor: Tensor, array: Array) -> Tensor:
        """A new variable like another, with other numbers."""
        found = replace(tensor, name=self.names.take(f"{tensor.name}.other"), origin=None)
        self.variables.append(found)
        self.data[found.name] = array
        return found


def start_graph(model: Model) -> SimulatedGraph:
    """A graph under construction whose names do not meet those of a model."""
    return SimulatedGraph(model.library, FreshNames(item.name for item in defined(model.graph)))


class Simulation:
    """A compiled model with switches: how far its outputs lie from those in full precision, for any choice."""

    def __init__(
        self,
        model: Model,
        activations: Mapping[str, Codes],
        weights: Mapping[str, Sequence[WeightCodes]],
        options: Options,
    ) -> None:
        self._switches: dict[str | WeightChoice, str] = {}
        built = self._build(model, activations, weights)
        self._run = Observer(
            built, [item for item in listed(built.graph.outputs) if item.element.is_float], options
        )
        self._exact: list[dict[str, Array]] = []
        self._batches: Sequence[Batch] = ()
        self.runs = 0
        """How often the model was run."""

    def _build(
        self,
        model: Model,
        activations: Mapping[str, Codes],
        weights: Mapping[str, Sequence[WeightCodes]],
    ) -> Model:
        graph, new = model.graph, start_graph(model)
        current: dict[str, Tensor] = {}
        change = Substitution(lambda item: current.get(item.name, item))
        for tensor in graph.variables:
            for codes in weights.get(tensor.name, ()):
                lost = new.weight(tensor, codes.values() - np.asarray((model.data or {})[tensor.name]))
                switch = self._switch(new, (tensor.name, codes.bits))
                current[tensor.name] = new.moved(current.get(tensor.name, tensor), lost, switch)
        for tensor in listed(graph.inputs):
            self._round(new, tensor, activations, current)
        for node in graph.nodes:
            new.nodes.append(change.node(node))
            for item in results_of(node):
                if isinstance(item, Tensor):
                    self._round(new, item, activations, current)
        outputs = tuple(change.argument(item) for item in graph.outputs)
        whole = replace(
            graph,
            inputs=(*graph.inputs, *new.inputs),
            outputs=outputs,
            nodes=tuple(new.nodes),
            variables=(*graph.variables, *new.variables),
            updates=(),
        )
        return replace(model, graph=whole, data={**(model.data or {}), **new.data}, hints=())

    def _switch(self, new: SimulatedGraph, key: str | WeightChoice) -> Tensor:
        found = new.switch(key if isinstance(key, str) else f"{key[0]}.{key[1]}")
        self._switches[key] = found.name
        return found

    def _round(
        self,
        new: SimulatedGraph,
        tensor: Tensor,
        activations: Mapping[str, Codes],
        current: dict[str, Tensor],
    ) -> None:
        if tensor.name not in activations:
            return
        rounded = new.rounded(tensor, activations[tensor.name])
        lost = new.call("math.sub", (rounded, tensor), f"{tensor.name}.lost")
        current[tensor.name] = new.moved(tensor, lost, self._switch(new, tensor.name))

    def take(self, batches: Sequence[Batch]) -> None:
        """The batches that choices are judged on: their outputs in full precision are computed once."""
        self._batches = batches
        self._exact = [self._values(batch, ()) for batch in batches]

    def error(self, chosen: Iterable[str | WeightChoice]) -> float:
        """The relative error of the outputs with some switches on: the norm of the difference in parts of the norm."""
        on = list(chosen)
        lost = size = 0.0
        for batch, exact in zip(self._batches, self._exact, strict=True):
            found = self._values(batch, on)
            for name, values in exact.items():
                lost += squared_norm(difference(values, found[name]))
                size += squared_norm(np.where(np.isfinite(values), values, 0.0))
        return relative_error(lost, size)

    def _values(self, batch: Batch, chosen: Iterable[str | WeightChoice]) -> dict[str, Array]:
        self.runs += 1
        on = {self._switches[key] for key in chosen if key in self._switches}
        switches = {name: np.asarray(name in on, np.float32) for name in self._switches.values()}
        return self._run({**batch, **switches})


def difference(exact: Array, found: Array) -> Array:
    """How far numbers lie apart, in f64; what is infinite in both is equal."""
    one, other = exact.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(one == other, 0.0, other - one)


def squared_norm(values: Array) -> float:
    """The sum of the squares of all numbers."""
    with np.errstate(over="ignore"):
        return float(np.square(values.astype(np.float64)).sum())


def relative_error(lost: float, size: float) -> float:
    """The root of a squared error in parts of a squared norm; infinite where there is nothing to compare with."""
    if not lost:
        return 0.0
    return math.sqrt(lost / size) if size and math.isfinite(lost) else math.inf


def decibels(error: float) -> float:
    """A relative error as a signal-to-quantisation-noise ratio in dB."""
    return math.inf if not error else -20.0 * math.log10(error) if math.isfinite(error) else -math.inf
