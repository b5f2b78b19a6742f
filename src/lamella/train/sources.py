"""What can be trained: a graph of a model with its gradients, and what its text says of each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamella.bridge.module_to_graph.backward import AuxiliaryLosses
from lamella.graph.model import Model

TARGETS = "targets"


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
    """A graph that computes outputs from inputs, and gradients from those of the outputs, the seeds.

    Where `loss` names an output the graph has its loss already: it takes no seeds then.
    """

    model: Model
    gradients: Mapping[str, str]
    """The tensor that is the gradient of a parameter, by the variable that the parameter is."""
    seeds: Mapping[str, str]
    """The input that is the gradient of an output, by the output."""
    loss: str = ""
    targets: tuple[str, ...] = (TARGETS,)
    """The inputs of a step that are compared with what the model gives."""
    policies: Mapping[str, ParameterPolicy] = field(default_factory=dict)
    """By the variable that the parameter is."""
    auxiliary: AuxiliaryLosses | None = None
    """The losses of parts of the model, where there are some."""
    origin: object = field(default=None, compare=False)
    """What it was made from: a source of the Module DSL, a graph, a NAC file."""
    kept: frozenset[str] | None = None
    """The tensors of the way forward that the way back may read; others it computes again. None: all are kept."""
    moved: frozenset[str] = frozenset()
    """Of what is kept, that which lies outside of the memory of the run until it is read."""

    def policy(self, variable: str) -> ParameterPolicy:
        """How a parameter is trained."""
        return self.policies.get(variable) or ParameterPolicy(variable)
