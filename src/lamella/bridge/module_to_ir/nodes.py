"""The parts of a compiled unit as they stand in its files; fields have the names that the files have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

# --- graph IR: what is computed, without order in time and without memory -----------------------------------


Json: TypeAlias = object
"""A free value of a file: null, a truth, a number, a text, a tuple or a mapping of such."""
Argument: TypeAlias = str | tuple[str, ...] | None
"""An operand or result of a node: a tensor by its name, several as one pack, or nothing."""


@dataclass(frozen=True, slots=True)
class SymbolEntry:
    r"""An extent that is known only at run time; elsewhere in the file its negative `id` stands for it.

    `kind` is `symbol` (with its range), `number`, `sum` (of `terms`: a factor, then the ids that it multiplies), one of
    the operations / \ % << >> on `operands`, `?` (a condition and two extents), a comparison, or a logical operation.
    Operands are ids of entries above, or numbers that are not negative. `text` is for people.
    """

    id: int
    kind: str
    text: str
    low: int | None = None
    high: int | None = None
    value: int | None = None
    terms: tuple[tuple[int, ...], ...] = ()
    operands: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorDecl:
    """A tensor: how it is called in the graph and in the model, its type, and how long it is kept."""

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    memory: str
    trainable: bool = False
    tied_to: str | None = None
    optional: bool = False
    is_none: bool = False
    layout: str = "row_major"
    quantization: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Built:
    """A table that is computed before the run by a function of the language."""

    name: str
    function: str
    positional: tuple[Json, ...]
    named: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Literal:
    """The value of a constant tensor: one everywhere, or a list of all in row-major order."""

    name: str
    value: Json


@dataclass(frozen=True, slots=True)
class StateDecl:
    """A variable that takes the value of a tensor after each run."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where something is written: the dotted name that the file is imported by, line and column from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation with its arguments by name."""

    name: str
    arguments: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A call of an operator, with all its attributes and the element types that it fixes."""

    id: str
    op: str
    primitive: str
    path: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    attributes: Mapping[str, Json]
    types: Mapping[str, str]
    annotations: tuple[Annotation, ...] = ()
    layer: int | None = None
    stage: int | None = None
    source: SourcePlace | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of an edge: a node and the number of its operand or result, or the graph itself."""

    node: str | None
    slot: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor on its way from where it is made to where it is read."""

    tensor: str
    source: Endpoint
    dest: Endpoint
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name of a tensor: the path that the model calls it by."""

    path: str
    tensor: str


@dataclass(frozen=True, slots=True)
class Hook:
    """A point at which a run may call back."""

    point: str
    mode: str
    path: str
    tensor: str
    node: str | None
    layer: int | None


@dataclass(frozen=True, slots=True)
class CastNode:
    """A node that changes the element type."""

    node: str
    found: str
    given: str


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition on extents that a run tests, with the sentence for when it is false."""

    condition: int
    message: str


@dataclass(frozen=True, slots=True)
class GraphIR:
    """A graph: its nodes stand in an order in which they can run."""

    format: str
    name: str
    kind: str
    file: str
    digest: str
    config: Mapping[str, Json]
    symbols: tuple[SymbolEntry, ...]
    inputs: tuple[TensorDecl, ...]
    outputs: tuple[str, ...]
    params: tuple[TensorDecl, ...]
    constants: tuple[TensorDecl, ...]
    states: tuple[TensorDecl, ...]
    intermediates: tuple[TensorDecl, ...]
    variables: tuple[str, ...]
    """The tensors that have storage of their own, in order."""
    built: tuple[Built, ...]
    literals: tuple[Literal, ...]
    updates: tuple[StateDecl, ...]
    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]
    save: tuple[str, ...]
    recompute: tuple[str, ...]
    aliases: tuple[Alias, ...]
    hooks: tuple[Hook, ...]
    casts: tuple[CastNode, ...]
    gradients: Mapping[str, str] | None = None
    """In a graph that goes back too: the output that is the gradient of a parameter or an input, by its path."""
    seeds: Mapping[str, str] | None = None
    """In such a graph: the input that is the gradient of an output, by the output."""
    checks: tuple[Assertion, ...] = ()
    """What only a run can decide of the extents."""


# --- schedule IR: in which order, on which stream, and where in memory --------------------------------------


@dataclass(frozen=True, slots=True)
class BufferAlias:
    """Memory that belongs to another buffer: which, and how far behind its start."""

    buffer: str
    offset: int


@dataclass(frozen=True, slots=True)
class ScheduleBuffer:
    """Memory of one tensor; a size is a number of bytes, or the id of an expression where it is negative.

    It is in use from the start of op `first` to the end of op `last`; what is there before the first op begins at -1.
    One that aliases another has that one's pool and an offset in it.
    """

    id: str
    tensor: str
    kind: str
    dtype: str
    bytes: int
    first: int
    last: int
    pool: str
    offset: int
    aliases: tuple[BufferAlias, ...] = ()


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A part of a buffer that an op reads or writes."""

    buffer: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ScheduledOp:
    """An op of the schedule: the kernel, its memory, its stream, and the node of the graph that it is."""

    order: int
    kernel: str
    node: str
    inputs: tuple[BufferRef, ...]
    outputs: tuple[BufferRef, ...]
    stream: str
    layer: int | None = None
    hook: str | None = None


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """Where streams wait for each other: before op `before`, `stream` waits until op `after_op` is done."""

    after_op: int
    before: int
    stream: str
    kind: str
    group: str


@dataclass(frozen=True, slots=True)
class LayoutField:
    """A tensor in a layout: where it begins, and how long it is."""

    name: str
    offset: int
    bytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Tensors that lie together in one block of memory."""

    fields: tuple[LayoutField, ...]
    total: int


@dataclass(frozen=True, slots=True)
class ActivationLayout(MemoryLayout):
    """The activations that outlive the forward pass."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A block of memory from which buffers take theirs."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most bytes of one kind of buffers that are in use at once, and without reuse of memory."""

    kind: str
    bytes: int
    unshared: int


@dataclass(frozen=True, slots=True)
class ScheduleIR:
    """An execution plan."""

    format: str
    name: str
    alignment: int
    symbols: tuple[SymbolEntry, ...]
    ops: tuple[ScheduledOp, ...]
    buffers: tuple[ScheduleBuffer, ...]
    pools: tuple[Pool, ...]
    sync_points: tuple[SyncPoint, ...]
    activation_layout: ActivationLayout
    gradient_layout: MemoryLayout
    peaks: tuple[PeakMemory, ...]


# --- what belongs to a compiled unit beside its graph and its plan: weights, config, metadata ---------------


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """A tensor of a checkpoint as a part of a parameter; a range that only the checkpoint has is null."""

    name: str
    function: str = ""
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class MappingSpec:
    """How a parameter, or the slices of it that `path` says, and tensors of a checkpoint correspond.

    `kind` is direct, fuse, transform, split, stack or tied.
    """

    path: str
    kind: str
    parts: tuple[CheckpointPart, ...]
    dim: int = 0
    optional: bool = False
    derived: bool = False


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """Parameters that differ in their indices alone: `{i}` in the path counts through the range of `i`, half open."""

    path: str
    ranges: Mapping[str, tuple[int, int]]
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    lr_scale: float
    wd_scale: float
    grad_clip: float | None
    shard: Mapping[str, Json] | None
    storage: Mapping[str, Json] | None
    optional: bool
    tied_to: str | None
    imports: tuple[MappingSpec, ...]
    exports: tuple[MappingSpec, ...]
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class WeightSchema:
    """All parameters of a model."""

    format: str
    model: str
    transforms: int
    """The version of the table of transform functions."""
    functions: tuple[str, ...]
    weights: tuple[WeightEntry, ...]


@dataclass(frozen=True, slots=True)
class ConfigPair:
    """A config parameter and the keys of `config.json` that it is read from, the first that is there."""

    name: str
    keys: tuple[str, ...]
    type: str
    default: str | None
    value: Json
    source: str
    direction: str


@dataclass(frozen=True, slots=True)
class Constrained:
    """A constraint as it is written."""

    condition: str
    message: str


@dataclass(frozen=True, slots=True)
class ConfigSchema:
    """The config of a model, and what it is called in Hugging Face."""

    format: str
    architecture: str
    config_class: str
    model_type: str
    params: tuple[ConfigPair, ...]
    derived: Mapping[str, Json]
    constraints: tuple[Constrained, ...]


@dataclass(frozen=True, slots=True)
class TypedPort:
    """An input or output of the model with its type, extents as text where they are not known."""

    name: str
    dtype: str
    shape: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a user of the unit asks before running it."""

    format: str
    compiler: str
    model: str
    lock: str
    inputs: tuple[TypedPort, ...]
    outputs: tuple[TypedPort, ...]
    hooks: tuple[Hook, ...]
    marks: Mapping[str, tuple[Mapping[str, Json], ...]]
    """Annotations that change no numbers, by name: probes, asserts, profiles, adapters, recipes, …"""
    parameters: int
    trainable: int
    flops: str
    flops_per_token: str
    operators: Mapping[str, int]
    collectives: tuple[str, ...]
    stages: tuple[int, ...]
    warnings: tuple[Mapping[str, Json], ...]
    digest: str
    """SHA-256 of the other parts, without the places where things are written."""


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """The graph of a model and its gradients in one, with its own plan."""

    graph: GraphIR
    schedule: ScheduleIR


@dataclass(frozen=True, slots=True)
class UnitIR:
    """A compiled unit."""

    graph: GraphIR
    schedule: ScheduleIR
    weights: WeightSchema
    config: ConfigSchema
    metadata: Metadata
    training: TrainingParts | None = None


__all__ = [
    "ActivationLayout",
    "Alias",
    "Annotation",
    "Argument",
    "Assertion",
    "BufferAlias",
    "BufferRef",
    "Built",
    "CastNode",
    "CheckpointPart",
    "ConfigPair",
    "ConfigSchema",
    "Constrained",
    "Edge",
    "Endpoint",
    "GraphIR",
    "GraphNode",
    "Hook",
    "LayoutField",
    "Literal",
    "MappingSpec",
    "MemoryLayout",
    "Metadata",
    "PeakMemory",
    "Pool",
    "ScheduleBuffer",
    "ScheduleIR",
    "ScheduledOp",
    "SourcePlace",
    "StateDecl",
    "SymbolEntry",
    "SyncPoint",
    "TensorDecl",
    "TrainingParts",
    "TypedPort",
    "UnitIR",
    "WeightEntry",
    "WeightSchema",
]
