"""One call of an operator as those who translate it directly see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.dim import Dim, Extent
from lamella.base.dtype import ElementType
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_onnx.emitter import DATA_ELEMENTS, Emitter, Given, Value
from lamella.bridge.graph_to_onnx.scope import Held, Scope
from lamella.graph.nodes import Argument, Operation, Tensor
from lamella.graph.nodes import Value as AttributeValue
from lamella.ops.instance import Instance


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator: its values, its attributes, the symbols of its definition."""

    scope: Scope
    operation: Operation
    instance: Instance

    @property
    def emitter(self) -> Emitter:
        """Where nodes go."""
        return self.scope.emitter

    def held(self, place: int) -> Held:
        """What an input is."""
        return self.scope.held(self.operation.inputs[place])

    def value(self, place: int = 0) -> Value:
        """The value of an input that is a tensor."""
        found = self.held(place)
        if not isinstance(found, Value):
            raise Unsupported(f"the operator {self.operation.operator} needs a tensor here")
        return found

    def optional(self, place: int) -> Value | None:
        """The value of an input that may be left out."""
        found = self.held(place)
        return found if isinstance(found, Value) else None

    def input(self, place: int = 0) -> Tensor:
        """The tensor of an input."""
        return _tensor(self.operation.inputs[place])

    def output(self, place: int = 0) -> Tensor:
        """The tensor of an output."""
        return _tensor(self.operation.outputs[place])

    @property
    def element(self) -> ElementType:
        """The type of the first output."""
        found = self.output().element
        return DATA_ELEMENTS.get(found, found)

    def attribute(self, name: str) -> AttributeValue:
        """An attribute."""
        return dict(self.operation.attributes).get(name)

    def symbol(self, name: str) -> object:
        """A symbol of the definition."""
        return self.instance.symbols.get(name)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute or a symbol that is a list of known integers."""
        found = self.symbol(name)
        items = found if isinstance(found, tuple) else (found,)
        known = tuple(item for item in items if isinstance(item, int))
        return known if len(known) == len(items) else None

    def integer(self, name: str) -> int | None:
        """An attribute or a symbol that is a known integer."""
        found = self.symbol(name)
        return int(found) if isinstance(found, int) else None

    def real(self, name: str, default: float = 0.0) -> float:
        """An attribute that is a number."""
        found = self.symbol(name)
        return float(found) if isinstance(found, int | float) else default

    def extents(self, name: str) -> tuple[Extent, ...]:
        """A symbol that is a list of extents."""
        found = self.symbol(name)
        items = found if isinstance(found, tuple) else (found,)
        return tuple(item for item in items if isinstance(item, int | Dim))

    def node(self, op_type: str, *inputs: Value | None, **attributes: Given) -> Value:
        """A node whose result has the type of the first output."""
        return self.emitter.add(op_type, inputs, self.element, **attributes)

    def alone(self, op_type: str, *inputs: Value | None, **attributes: Given) -> list[Held]:
        """A node that is the whole call."""
        return [self.node(op_type, *inputs, **attributes)]

    def vector(self, items: Sequence[Extent]) -> Value:
        """Extents as a vector."""
        return self.scope.shape(items)

    def axis(self, name: str = "axis", rank: int | None = None) -> int | None:
        """An axis, counted from the first."""
        found = self.integer(name)
        size = len(self.input().shape) if rank is None else rank
        return found if found is None or found >= 0 else found + size


Row: TypeAlias = Callable[[Call], "list[Held] | None"]
"""Translates a call into nodes of its own; None where this call is to take another way."""


def _tensor(argument: Argument) -> Tensor:
    if isinstance(argument, tuple):
        argument = argument[0]
    if not isinstance(argument, Tensor):
        raise Unsupported("a pack of open length stands here")
    return argument
