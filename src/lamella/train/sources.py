"""What can be trained: the graph of a model with its gradients, and what its text says of each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.bridge.module_to_graph import fusion_hints
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.bridge.module_to_graph.nodes import Weight
from lamella.bridge.module_to_ir.annotations import KEPT, MOVED, find_memory_modes
from lamella.graph.model import Model
from lamella.lang.module.annotations import read_annotation
from lamella.lang.module.instantiate import Instance
from lamella.pipeline.module.execution import locate_weights, settings_of, with_data
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.options import Options


@dataclass(frozen=True, slots=True)
class ParameterPolicy:
    """How one parameter is trained: its place in the model, and what `@trainable` says of it."""

    path: str
    rate_scale: float = 1.0
    decay_scale: float = 1.0
    clip: float | None = None
    """The largest norm of its own gradient."""


@dataclass(frozen=True, slots=True)
class TrainableGraph:
    """A graph that computes outputs from inputs, and gradients from those of the outputs.

    Every gradient is an output; the gradients of outputs, the seeds, are inputs.
    """

    model: Model
    seeds: Mapping[str, str]
    """The input that is the gradient of an output, by the output."""
    gradients: Mapping[str, str]
    """The output that is the gradient of a parameter, by the variable that the parameter is."""
    policies: Mapping[str, ParameterPolicy] = field(default_factory=dict)
    """By the variable that the parameter is."""
    kept: frozenset[str] | None = None
    """The tensors of the way forward that the way back may read; others it computes again. None: all are kept."""
    moved: frozenset[str] = frozenset()
    """Of what is kept, that which lies outside of the memory of the run until it is read."""

    def policy(self, variable: str) -> ParameterPolicy:
        """How a parameter is trained."""
        return self.policies.get(variable) or ParameterPolicy(variable)


def trainable(path: Path, options: Options) -> TrainableGraph:
    """A model with its gradients; LamellaError holds what is wrong."""
    return trainable_source(read_source(path, options), options)


def trainable_source(source: Source, options: Options) -> TrainableGraph:
    """A model of the Module DSL that is instantiated, with its gradients and its weights."""
    weights = locate_weights(source.instance, source.folder, options)
    settings = replace(settings_of(source.program, options), given=weights.has)
    found = differentiate(source.instance, settings)
    if errors(found.findings):
        raise LamellaError(errors(found.findings))
    if found.model is None:
        raise InputError("the model gives no tensor", hint="declare its outputs, and bind them in its graph")
    compiled = found.compiled
    names = {item.path: item.tensor.name for item in compiled.weights}
    modes = find_memory_modes(compiled, source.instance, found.saved, found.seeds.values())
    model = replace(found.model, hints=fusion_hints(compiled.marks))
    return TrainableGraph(
        with_data(model, compiled, weights, options),
        found.seeds,
        {names[path]: gradient for path, gradient in found.gradients.items()},
        {item.tensor.name: _policy(item, source.instance) for item in compiled.weights},
        frozenset(name for name, mode in modes.items() if mode in KEPT),
        frozenset(name for name, mode in modes.items() if mode in MOVED),
    )


def _policy(weight: Weight, root: Instance) -> ParameterPolicy:
    """What the last `@trainable` of a parameter says."""
    said = [item for item in weight.slot.annotations if item.name == "trainable"]
    if not said:
        return ParameterPolicy(weight.path)
    values = read_annotation(said[-1], root.values).arguments
    rate, decay, clip = (values.get(name) for name in ("lr_scale", "wd_scale", "grad_clip"))
    return ParameterPolicy(
        weight.path,
        _number(rate, 1.0),
        _number(decay, 1.0),
        None if clip is None else _number(clip, 0.0),
    )


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default
