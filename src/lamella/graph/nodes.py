"""The composed graph: tensors, operations, control flow, variables.

Everything is frozen and compared by value; origins are carried and not compared. A tensor has one name in the whole
graph, regions included. A region sees the tensors around it, so a branch needs no list of what it captures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from math import prod
from typing import TypeAlias

from lamella.base.card import Card, join_names, make_table, show_html, show_line
from lamella.base.dim import Condition, Dim, Extent
from lamella.base.dtype import ElementType
from lamella.base.origin import Origin, derived
from lamella.base.records import dataclass
from lamella.ops.instance import Check, Repeated

Shape: TypeAlias = tuple[Extent, ...]
Single: TypeAlias = int | float | bool | str | Dim | Condition
Value: TypeAlias = Single | tuple[Single, ...] | Repeated | None


@dataclass(frozen=True, slots=True)
class Quantization:
    """The quantisation operator of a tensor, with all its attributes."""

    operator: str
    attributes: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: its name in the graph, its element type, its shape, how it is quantised."""

    name: str
    element: ElementType
    shape: Shape
    quantization: Quantization | None = None
    origin: Origin | None = derived()


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack of equally shaped tensors whose length only the run tells."""

    name: str
    element: ElementType
    shape: Shape
    size: Dim
    origin: Origin | None = derived()


Argument: TypeAlias = Tensor | tuple[Tensor, ...] | Pack | None


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor known before the run: one value everywhere, or all values in row-major order."""

    tensor: Tensor
    value: Single | tuple[Single, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of an operator, by its qualified name, with every attribute it has; null ones are None."""

    operator: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    attributes: tuple[tuple[str, Value], ...] = ()
    types: tuple[tuple[str, ElementType], ...] = ()
    origin: Origin | None = derived()


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the graph that runs under a condition or repeatedly; its outputs may be tensors from around it."""

    inputs: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Tensor, ...]
    checks: tuple[Check, ...] = field(default=(), compare=False)
    """Assertions of operators that were composed in it, for the run to test each time."""


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`: conditions tested in order, one branch for each and one for none of them."""

    conditions: tuple[Region, ...]
    branches: tuple[Region, ...]
    outputs: tuple[Tensor, ...]
    origin: Origin | None = derived()


@dataclass(frozen=True, slots=True)
class Loop:
    """`do`: the body's inputs are the carried tensors, the items of the scans, then the index where it has one.

    Its outputs are the new carried tensors, then one tensor for each scan output. The loop ends at `count`, after the
    last scanned item, or when `condition` (whose inputs are those of the body) is false, tested first where `pretest`
    says so.
    """

    carried: tuple[Tensor, ...]
    scans: tuple[tuple[Tensor, ...] | Pack, ...]
    body: Region
    outputs: tuple[Argument, ...]
    count: Tensor | Extent | None = None
    condition: Region | None = None
    pretest: bool = False
    index: bool = False
    origin: Origin | None = derived()


Node: TypeAlias = Operation | Branch | Loop


@dataclass(frozen=True, slots=True)
class Update:
    """After the outputs are computed, a variable takes the value of a tensor."""

    variable: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Graph:
    """A composed graph, its nodes in topological order."""

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    nodes: tuple[Node, ...]
    variables: tuple[Tensor, ...] = ()
    constants: tuple[Constant, ...] = ()
    updates: tuple[Update, ...] = ()
    checks: tuple[Check, ...] = field(default=(), compare=False)
    """Assertions of operators that were composed in place, for the run to test."""

    def operations(self) -> Iterator[Operation]:
        """Every operation, those of regions included."""
        return (node for node in walk(self.nodes) if isinstance(node, Operation))

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """What it is: its operations, what it takes and gives, its weights."""
        operations = list(self.operations())
        shapes = ([size for size in item.shape if isinstance(size, int)] for item in self.variables)
        rows = ((_named(item.outputs), item.operator, _typed(item.outputs)) for item in operations)
        return Card(
            "graph",
            self.name,
            (
                ("operations", f"{len(operations):,}"),
                ("variables", f"{len(self.variables):,}"),
                ("values", f"{sum(map(prod, shapes)):,}"),
                ("interface", f"{_typed(self.inputs, True)} -> {_typed(self.outputs, True)}"),
            ),
            (make_table("operations", ("result", "operator", "type"), rows, len(operations)),),
        )


def _named(arguments: tuple[Argument, ...]) -> str:
    """The names of some tensors, for a card."""
    return join_names([item.name for argument in arguments for item in _parts(argument)])


def _typed(arguments: tuple[Argument, ...], with_names: bool = False) -> str:
    """What some tensors are, for a card."""
    return join_names(
        [
            f"{item.name + ': ' if with_names else ''}{item.element}[{', '.join(map(str, item.shape))}]"
            for argument in arguments
            for item in _parts(argument)
        ]
    )


def _parts(argument: Argument) -> tuple[Tensor | Pack, ...]:
    return (argument,) if isinstance(argument, Pack) else tensors(argument)


def regions(node: Node) -> tuple[Region, ...]:
    """The regions of a node."""
    if node.__class__ is Operation:  # nearly all are
        return ()
    if isinstance(node, Branch):
        return (*node.conditions, *node.branches)
    if isinstance(node, Loop):
        return (node.body,) if node.condition is None else (node.body, node.condition)
    return ()


def walk(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Every node in order, each before those of its regions."""
    for node in nodes:
        yield node
        for region in regions(node):
            yield from walk(region.nodes)


def tensors(argument: Argument) -> tuple[Tensor, ...]:
    """The tensors of an argument; a pack of unknown length has none of its own."""
    if isinstance(argument, Tensor):
        return (argument,)
    return argument if isinstance(argument, tuple) else ()
