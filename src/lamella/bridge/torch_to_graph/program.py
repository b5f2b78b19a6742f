"""What is read of an exported program: the parts of PyTorch's own classes, as types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias


class Node(Protocol):
    """One line of an exported graph; `meta` holds its value on fake tensors, its module and its source line."""

    @property
    def op(self) -> str:
        """Its kind: `placeholder`, `get_attr`, `call_function` or `output`."""

    @property
    def name(self) -> str:
        """The name of its result."""

    @property
    def target(self) -> object:
        """What it calls, or the name of what it reads."""

    @property
    def args(self) -> tuple[Item, ...]:
        """What is given by position."""

    @property
    def kwargs(self) -> Mapping[str, Item]:
        """What is given by name."""

    @property
    def meta(self) -> Mapping[str, object]:
        """What the export remembers of it."""

    @property
    def users(self) -> Mapping[Node, None]:
        """The nodes that read it."""


Item: TypeAlias = "Node | int | float | bool | str | Sequence[Item] | object | None"
"""What a node is given: the result of another, a number, a word, a type of PyTorch, or a list."""


class Nodes(Protocol):
    """The lines of a graph, in order."""

    @property
    def nodes(self) -> Iterable[Node]:
        """Placeholders first, the output last."""


class Body(Protocol):
    """A graph with the graphs and tensors that it refers to by name."""

    @property
    def graph(self) -> Nodes:
        """Its lines."""


class Argument(Protocol):
    """What an input or an output stands for."""

    @property
    def name(self) -> str:
        """The node."""


class Specification(Protocol):
    """One input or output of the graph: what it is to the module."""

    @property
    def kind(self) -> object:
        """Whether it is a parameter, a buffer, a constant, an input of the user or something else."""

    @property
    def arg(self) -> Argument:
        """The node."""

    @property
    def target(self) -> str | None:
        """The name in the module."""


class Signature(Protocol):
    """All inputs and outputs of the graph, in order."""

    @property
    def input_specs(self) -> Sequence[Specification]:
        """What the placeholders are."""

    @property
    def output_specs(self) -> Sequence[Specification]:
        """What the results are."""


class Tree(Protocol):
    """How results are nested in what the module gives."""

    @property
    def type(self) -> type[object] | None:
        """The class of a container; None for a leaf."""

    @property
    def context(self) -> object:
        """What the container knows of its children, such as the keys of a dictionary."""

    @property
    def num_children(self) -> int:
        """How many children it has."""

    def children(self) -> Sequence[Tree]:
        """Its children in order."""


class CallSpecification(Protocol):
    """The trees of what a module takes and gives."""

    @property
    def out_spec(self) -> Tree | None:
        """The tree of what it gives."""


class Range(Protocol):
    """The values that a symbol may have."""

    @property
    def lower(self) -> object:
        """The smallest."""

    @property
    def upper(self) -> object:
        """The largest; it may be infinite."""


class Program(Protocol):
    """An exported program: `torch.export.ExportedProgram`."""

    @property
    def graph_module(self) -> Body:
        """The graph and what it refers to."""

    @property
    def graph_signature(self) -> Signature:
        """Its inputs and outputs."""

    @property
    def call_spec(self) -> CallSpecification:
        """How they are nested."""

    @property
    def state_dict(self) -> Mapping[str, object]:
        """Parameters and buffers that persist, by their names."""

    @property
    def constants(self) -> Mapping[str, object]:
        """Tensors that the export lifted out of the code, and buffers that do not persist."""

    @property
    def range_constraints(self) -> Mapping[object, Range]:
        """The ranges of the symbols in shapes."""

    def run_decompositions(self, decomp_table: object) -> Program:
        """The program in simpler operations."""


def kind_of(item: Specification) -> str:
    """The kind of an input or output in PyTorch's words, such as `PARAMETER`."""
    return str(getattr(item.kind, "name", item.kind))


def is_node(item: object) -> bool:
    """Whether something is a line of a graph."""
    return hasattr(item, "op") and hasattr(item, "meta") and hasattr(item, "users")
