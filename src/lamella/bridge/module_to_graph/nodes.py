"""What the lowering from a module to a graph takes and gives, and the frame of one instance in it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import F32, ElementType
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.module.annotations import ArgumentValue
from lamella.lang.module.instantiate.nodes import BuiltConstant, Instance, Known, TensorSlot
from lamella.lang.module.nodes import (
    Annotation,
)
from lamella.ops.library import Library


class Held(Enum):
    """Where a graph has the tensors that are computed once while tokens are generated."""

    INSIDE = "inside"
    OUTPUTS = "outputs"
    INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class CompilationSettings:
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
    optional: frozenset[str] = frozenset()
    """Inputs of the root that may be missing and are there; all others of that kind are left out."""
    held: Held = Held.INSIDE
    """Where tensors that `hold` names are: computed in the graph, all that it gives, or given to it."""
    has_history: bool = False
    """Whether delayed scales keep a history, in variables that each call of the graph updates."""
    has_gradients: bool = False
    """Whether gradients will be derived from the graph: what `@gradient` says of a tensor is kept beside it."""
    precision: Precision | None = None
    """The types of all operations whose declaration has no recipe of its own."""
    partial: bool = False
    """Whether inputs may lack types, whose tensors are then unknown: enough to see what is wrong whatever they are."""
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
class BuiltStep:
    """An operation of a statement: what it is called there, and the tensors that were made for it."""

    name: str
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation on a tensor of the graph, for what comes behind the graph: hooks, probes, memory, sharding.

    `arguments` are those that are written and the defaults of the others, each in its type.
    """

    path: str
    tensor: Tensor
    annotation: Annotation
    arguments: Mapping[str, ArgumentValue] = field(default_factory=dict)
    steps: tuple[BuiltStep, ...] = ()
    """The operations that it speaks of."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How the scale of a narrow tensor is found."""

    strategy: str = "per_tensor"
    margin: float = 0.0
    block: tuple[int, int] = (32, 32)
    history: int = 16
    """How many calls a scale of `delayed` looks back; where no history is kept it sees the present tensor alone."""
    interval: int = 1
    """Calls between two looks at the history."""


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
    scaling: Scaling | None = None
    reach: frozenset[str] = frozenset()
    backward: ElementType | None = None
    """The type of the gradients that its backward multiplies with."""


@dataclass(frozen=True, slots=True)
class GradientControl:
    """What `@gradient` does to the adjoint of a tensor: nothing goes back, or its scale, then its norm changes."""

    is_stopped: bool = False
    scale: float = 1.0
    limit: float | None = None
    """The largest norm of the adjoint."""


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
    controls: Mapping[str, GradientControl] = field(default_factory=dict)
    """What is done to adjoints, by tensor, where gradients will be derived."""


@dataclass(frozen=True, slots=True)
class Members:
    """Instances as an operand: the elements of an array, each with its path."""

    items: tuple[tuple[str, Instance], ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The value of a name whose statement was wrong: what reads it is not reported again."""


Bound: TypeAlias = Tensor | tuple[Tensor, ...] | int | float | Members | Unknown | None
"""What a name of the data world means; a number is a scalar that broadcasts."""


# --- frames: what the names of one instance mean, as constants and as tensors -------------------------------


class InstanceFrame:
    """An instance at its place in the model, with the tensors that are bound so far."""

    def __init__(self, instance: Instance, path: str = "", origin: Origin | None = None) -> None:
        self.instance = instance
        self.path = path
        self.origin = origin
        """What called the instance."""
        self.bound: dict[str, Bound] = {}
        self.given: dict[str, Bound] = {}
        """Parameters that the caller passes instead of storage of their own."""
        self.dims: dict[str, Known] = {}
        self._values = dict(instance.values)
        self.saved: Mapping[str, Bound] = {}
        """The forward tensors that a backward graph may read."""

    @property
    def name(self) -> str:
        """What the declaration is called."""
        return self.instance.module.name

    @property
    def known(self) -> Mapping[str, Known]:
        """The constant world: config parameters, let names, and the dimensions that the inputs bound."""
        return ChainMap(self.dims, self._values)

    def place(self, name: str) -> str:
        """The path of something in this declaration."""
        return f"{self.path}.{name}" if self.path else name

    def at(self, what: str, span: Span) -> Origin:
        """The origin of what a statement of this declaration makes."""
        return Origin(f"{self.place(what)}", span, self.origin)

    def data_names(self) -> Iterator[str]:
        """Every name of the data world, for hints about misspelt ones."""
        yield from self.bound
        yield from self.instance.tensors
        yield from self.instance.children
        yield from self.instance.constants


def graph_name(path: str) -> str:
    """The path of a parameter as graphs name it: `blocks[3].mlp.up` is `blocks.3.mlp.up`."""
    return path.replace("][", ".").replace("[", ".").replace("]", "")


UNKNOWN = Unknown()
