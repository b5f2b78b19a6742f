"""What a road that goes forward and back remembers, and what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lamella.base.diagnostic import Diagnostic
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound, Compiled
from lamella.bridge.module_to_graph.road import Place
from lamella.graph.build import Given
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Tensor, Value
from lamella.lang.module.nodes import Backward, Forward, Port


@dataclass(frozen=True, slots=True, eq=False)
class Called:
    """A call of an operator that the forward graph makes."""

    operator: str
    inputs: tuple[Given, ...]
    attributes: Mapping[str, Value]
    results: tuple[Argument, ...]
    place: Place

    def tensors(self) -> Iterator[Tensor]:
        """The tensors that the call gives."""
        return flat(self.results)

    def operands(self) -> Iterator[Tensor]:
        """The tensors that the call reads."""
        return flat(self.inputs)


@dataclass(slots=True, eq=False)
class Visit:
    """An instance that was built at its place: what went in, what it called, what came out."""

    frame: Frame
    forward: Forward
    inputs: tuple[tuple[Port, Bound], ...]
    steps: list[Called | Visit] = field(default_factory=list)
    outputs: tuple[Bound, ...] = ()
    names: tuple[str, ...] = ()
    """What the outputs are called."""
    pulled: list[Called] = field(default_factory=list)
    """The calls of its own graph that gradients went back through."""
    reads: set[str] = field(default_factory=set)
    """The names of the tensors that its backward graph reads."""
    is_wrong: bool = False
    """Whether its backward graph has mistakes: what it reads is not all known then."""
    done: bool = False
    """Whether `instance.backward()` was written for it."""

    @property
    def backward(self) -> Backward | None:
        """The backward section, where one with a graph is written."""
        found = self.frame.instance.module.backward
        return found if found is not None and found.graph is not None else None

    def calls(self) -> Iterator[Called]:
        """Every call of the instance and of all that it calls, in order."""
        for step in self.steps:
            if isinstance(step, Called):
                yield step
            else:
                yield from step.calls()

    def visits(self) -> Iterator[Visit]:
        """The instances that it calls itself."""
        return (step for step in self.steps if isinstance(step, Visit))


@dataclass(frozen=True, slots=True)
class Differentiated:
    """A graph with its gradients: forward inputs and `d_<output>` in, forward outputs and gradients out."""

    compiled: Compiled
    """The graph with its weights, marks and constants."""
    gradients: Mapping[str, str] = field(default_factory=dict)
    """The output that is the gradient of a parameter, by the path of the parameter."""
    input_gradients: Mapping[str, str] = field(default_factory=dict)
    """The output that is the gradient of an input, by the input."""
    seeds: Mapping[str, str] = field(default_factory=dict)
    """The input that is the gradient of an output, by the output."""
    saved: tuple[str, ...] = ()
    """The tensors of the forward part that the backward part reads; parameters and constants are not among them."""

    @property
    def model(self) -> Model | None:
        """The graph; None where something is wrong."""
        return self.compiled.model

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """What is wrong, and what is told."""
        return self.compiled.findings


def flat(arguments: Sequence[object]) -> Iterator[Tensor]:
    """The tensors among arguments, those of packs one by one."""
    for item in arguments:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, tuple):
            yield from flat(item)
