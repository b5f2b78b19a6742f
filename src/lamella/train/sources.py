"""What can be trained: a graph of a model with its gradients, and what its text says of each parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lamella.bridge.module_to_graph.backward import AuxiliaryLosses
from lamella.graph.model import Model
from lamella.graph.nodes import Node
from lamella.graph.rewrite import operands_of, results_of

TARGETS = "targets"


@dataclass(frozen=True, slots=True)
class TensorMark:
    """What `@shard` and `@comm` say of a tensor: how it lies among ranks, and how it comes to lie so."""

    strategy: str = ""
    """How it is divided."""
    exchange: str = ""
    """What brings it there, where the text says that."""
    group: str = "default"
    """The axis of the mesh that exchanges it; default: any."""
    is_later: bool = True
    """Whether the exchange goes on while a rank computes."""
    is_scattered: bool = True
    """Whether a sum of which a rank needs a slice is not summed as a whole."""
    bucket: int | None = None
    """Bytes of gradients that travel together with it."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The extents of the axes of the mesh that the text is written for."""


@dataclass(frozen=True, slots=True)
class ParameterPolicy:
    """How one parameter is trained: its place in the model, and what `@trainable` says of it."""

    path: str
    rate_scale: float = 1.0
    decay_scale: float = 1.0
    clip: float | None = None
    """The largest norm of its own gradient."""
    gradient_scale: float = 1.0
    """What its gradient is multiplied with before that."""
    mark: TensorMark = field(default_factory=TensorMark)
    """How its `@shard` divides it."""
    is_streamed: bool = False
    """Whether `@memory(stream)` says that ranks which take other parts of a batch store slices of it."""


@dataclass(frozen=True, slots=True)
class StageMark:
    """The stage of a pipeline that a `@partition` says."""

    stage: int
    is_split: bool = True
    """Whether batches go through in parts."""
    is_recomputed: bool = False
    """Whether the way back computes again what the stage made."""


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
    pinned: frozenset[str] = frozenset()
    """What `@memory` says is to stay in memory, whatever its budget is."""
    divided: Mapping[str, int] = field(default_factory=dict)
    """The number of the call that sums over the ranks that have slices of a parameter, by its variable."""
    stages: Mapping[str, StageMark] = field(default_factory=dict)
    """The stages of tensors that the text gives one."""
    marks: Mapping[str, TensorMark] = field(default_factory=dict)
    """How tensors lie among ranks that are no parameters, where the text says that."""
    is_stage: bool = False
    """Whether it has the parameters of one stage of a pipeline only."""

    adjoints: Mapping[str, str] = field(default_factory=dict)
    """The gradients of tensors of the way forward, by these; what probes of gradients look at."""

    def policy(self, variable: str) -> ParameterPolicy:
        """How a parameter is trained."""
        return self.policies.get(variable) or ParameterPolicy(variable)

    @property
    def gradient_inputs(self) -> frozenset[str]:
        """The inputs that are gradients: those of outputs, and that of the losses of parts."""
        found = frozenset(self.seeds.values())
        return found if self.auxiliary is None else found | {self.auxiliary.seed}


def halves(nodes: Iterable[Node], seeds: Iterable[str]) -> tuple[list[Node], list[Node]]:
    """The operations that need no gradient of an output, and those that do."""
    late = set(seeds)
    forward: list[Node] = []
    backward: list[Node] = []
    for node in nodes:
        if any(item.name in late for item in operands_of(node)):
            late |= {item.name for item in results_of(node)}
            backward.append(node)
        else:
            forward.append(node)
    return forward, backward
