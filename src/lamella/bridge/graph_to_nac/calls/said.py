"""How the operations of a graph are said: calls of ATen, or calls of the library under their own names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lamella.base.dim import Dim, Values
from lamella.base.dtype import ElementType
from lamella.base.origin import Origin
from lamella.bridge.aten.nodes import Call, Operand
from lamella.bridge.graph_to_nac.calls.restate import restate_extent, restate_operand
from lamella.graph.nodes import Branch, Constant, Operation, Single, Tensor, Value
from lamella.ops.instance import Repeated, singles

Input: TypeAlias = Tensor | tuple[Tensor, ...] | Single | None
"""An input of a call: what a graph passes, or the number that is the same everywhere in a constant."""


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call of an operator of the library: its inputs, all its attributes, the types that its tensors do not tell."""

    operator: str
    inputs: tuple[Input, ...]
    attributes: tuple[tuple[str, Value], ...]
    types: Mapping[str, ElementType]
    names: tuple[str, ...] = ()
    """What the operator calls its inputs."""


Saying: TypeAlias = Call | OwnCall


@dataclass(frozen=True, slots=True)
class Step:
    """An operation and how it is said, with the tensors of the graph it comes from."""

    operation: Operation
    saying: Saying

    @property
    def origin(self) -> Origin | None:
        """What the operation was made from."""
        return self.operation.origin


@dataclass(frozen=True, slots=True)
class Part:
    """A block: what runs in it, and the tensors that it hands over."""

    steps: tuple[Move, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """A branch or a convergence with its blocks, and the condition or the tensor that the blocks share."""

    node: Branch | Operation
    given: Tensor
    parts: tuple[Part, ...]

    @property
    def origin(self) -> Origin | None:
        """What the node was made from."""
        return self.node.origin


Move: TypeAlias = Step | Fork


@dataclass(slots=True)
class Plan:
    """All operations in order; tensors that are others; constants that are stored like weights."""

    steps: list[Move] = field(default_factory=list)
    aliases: dict[str, Tensor] = field(default_factory=dict)
    stored: dict[str, Constant] = field(default_factory=dict)
    """By the names of the constants in the graph; equal ones share one."""
    outputs: list[Tensor] = field(default_factory=list)
    updates: dict[str, Tensor] = field(default_factory=dict)
    """By the names of the variables that are states, what they become."""

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor that another one is."""
        while tensor.name in self.aliases:
            tensor = self.aliases[tensor.name]
        return tensor


def tensors_of(saying: Saying) -> Iterator[Tensor]:
    """The tensors that a call reads."""
    operands = saying.inputs if isinstance(saying, OwnCall) else saying.operands.values()
    for operand in operands:
        yield from tensors_in(operand)


def tensors_in(operand: Operand | Input) -> Iterator[Tensor]:
    """The tensors in an operand."""
    if isinstance(operand, Tensor):
        yield operand
    elif isinstance(operand, tuple):
        for item in operand:
            yield from tensors_in(item)


def renew(saying: Saying, values: Values, tensors: Mapping[str, Tensor]) -> Saying:
    """A call with other tensors and restated extents; Inexpressible where an extent cannot be."""
    if isinstance(saying, Call):
        operands = {name: restate_operand(item, values, tensors) for name, item in saying.operands.items()}
        return Call(saying.schema, operands)
    inputs = tuple(_input(item, values, tensors) for item in saying.inputs)
    attributes = tuple((name, _value(item, values)) for name, item in saying.attributes)
    return replace(saying, inputs=inputs, attributes=attributes)


def _input(item: Input, values: Values, tensors: Mapping[str, Tensor]) -> Input:
    if isinstance(item, tuple):
        return tuple(tensors.get(tensor.name, tensor) for tensor in item)
    if isinstance(item, Tensor):
        return tensors.get(item.name, item)
    return restate_extent(item, values) if isinstance(item, Dim) else item


def _value(value: Value, values: Values) -> Value:
    if isinstance(value, tuple):
        return tuple(restate_extent(item, values) if isinstance(item, Dim) else item for item in value)
    if isinstance(value, Repeated):
        item, length = (
            restate_extent(part, values) if isinstance(part, Dim) else part for part in singles(value)
        )
        return Repeated(item, length) if isinstance(length, Dim) else value
    return restate_extent(value, values) if isinstance(value, Dim) else value


def type_of(tensor: Tensor) -> str:
    """The element type and the shape of a tensor, in words."""
    return f"{tensor.element}[{', '.join(map(str, tensor.shape))}]"
