"""What the road from a module to a graph takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import F32, ElementType
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.module.annotations import ArgumentValue
from lamella.lang.module.instantiate.nodes import BuiltConstant, Instance, TensorSlot
from lamella.lang.module.nodes import Annotation
from lamella.ops.library import Library


@dataclass(frozen=True, slots=True)
class Settings:
    """What is decided for a whole compilation."""

    element: ElementType = F32
    """The element type of what does not say its own."""
    library: Library = field(default_factory=Library)
    given: Callable[[str], bool] | None = None
    """Whether an optional parameter has numbers; without it none has."""
    extents: Mapping[str, int] = field(default_factory=dict)
    """The sizes of dimensions that the inputs would bind otherwise, by the names that the root declares."""
    cached: int = 0
    """How many positions the caches of attention hold; 0 builds a graph without caches."""
    once: bool = False
    """Whether equal elements of an array that take tensors of the same types are built once: enough to see what is
    wrong, but no graph to run."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter that has its own storage: where it stands in the model, and the variable that it is."""

    path: str
    tensor: Tensor
    slot: TensorSlot


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation on a tensor of the graph, for what comes behind the graph: hooks, probes, memory, sharding.

    `arguments` are those that are written and the defaults of the others, each in its type.
    """

    path: str
    tensor: Tensor
    annotation: Annotation
    arguments: Mapping[str, ArgumentValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the scale of a narrow tensor is found; strategies that look back see the present tensor alone."""

    strategy: str = "per_tensor"
    margin: float = 0.0
    block: tuple[int, int] = (32, 32)


@dataclass(frozen=True, slots=True)
class Precision:
    """The types of one operation: of its operands, of its sums, of its results; None leaves what is there.

    It holds for the statements of one frame and, inside what they call, for the operations of `reach`.
    """

    frame: object = None
    compute: ElementType | None = None
    accumulate: ElementType | None = None
    output: ElementType | None = None
    storage: ElementType | None = None
    scaling: Scaling = field(default_factory=Scaling)
    reach: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A graph made from an instance, with what the graph itself cannot say."""

    model: Model | None
    weights: tuple[Weight, ...]
    marks: tuple[Mark, ...]
    constants: Mapping[str, BuiltConstant]
    """What `constants:` builds, by the variable that holds it."""
    findings: tuple[Diagnostic, ...]
    names: tuple[tuple[str, Tensor], ...] = ()
    """Every name of the data world that is bound, by its path, with the tensor it means."""


@dataclass(frozen=True, slots=True)
class Members:
    """Instances as an operand: the elements of an array, each with its path."""

    items: tuple[tuple[str, Instance], ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The value of a name whose statement was wrong: what reads it is not reported again."""


Bound: TypeAlias = Tensor | tuple[Tensor, ...] | int | float | Members | Unknown | None
"""What a name of the data world means; a number is a scalar that broadcasts."""
