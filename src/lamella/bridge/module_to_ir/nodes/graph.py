"""Graph IR: what is computed, without order in time and without memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = object
"""A free value of a file: null, a truth, a number, a text, a tuple or a mapping of such."""
Argument: TypeAlias = str | tuple[str, ...] | None
"""An operand or result of a node: a tensor by its name, several as one pack, or nothing."""


@dataclass(frozen=True, slots=True)
class Symbol:
    r"""An extent that only the inputs tell; elsewhere in the file its negative `id` stands for it.

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
class State:
    """A variable that takes the value of a tensor after each run."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Place:
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
class Node:
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
    source: Place | None = None


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
class Cast:
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
    symbols: tuple[Symbol, ...]
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
    updates: tuple[State, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    save: tuple[str, ...]
    recompute: tuple[str, ...]
    aliases: tuple[Alias, ...]
    hooks: tuple[Hook, ...]
    casts: tuple[Cast, ...]
    gradients: Mapping[str, str] | None = None
    """In a graph that goes back too: the output that is the gradient of a parameter or an input, by its path."""
    seeds: Mapping[str, str] | None = None
    """In such a graph: the input that is the gradient of an output, by the output."""
    checks: tuple[Assertion, ...] = ()
    """What only a run can decide of the extents."""
