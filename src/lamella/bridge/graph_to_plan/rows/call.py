"""One operation of a graph as the rows of the selection see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_plan.emitter import Emitter
from lamella.bridge.graph_to_plan.values import Shape, Value, reshaped
from lamella.graph.nodes import Operation, Tensor, tensors

Given: TypeAlias = Value | tuple[Value, ...] | None


@dataclass(frozen=True, slots=True)
class RowCall:
    """An operation with the values of its inputs, and what makes tasks for it."""

    emit: Emitter
    operation: Operation
    inputs: Sequence[Given]
    attributes: Mapping[str, object]
    is_single: Callable[[Tensor], bool]
    """Whether a tensor of the graph is read once, and is no output."""

    def value(self, number: int) -> Value:
        """An input that must be there."""
        found = self.optional(number)
        if found is None:
            raise Unsupported(f"input {number} is missing")
        return found

    def optional(self, number: int) -> Value | None:
        """An input, where it is given."""
        found = self.inputs[number] if number < len(self.inputs) else None
        if isinstance(found, tuple):
            raise Unsupported(f"input {number} is a pack of tensors")
        return found

    def pack(self, number: int) -> tuple[Value, ...]:
        """The tensors of a pack."""
        found = self.inputs[number]
        return found if isinstance(found, tuple) else () if found is None else (found,)

    def tensor(self, number: int) -> Tensor:
        """The tensor of the graph that an input is."""
        found = self.operation.inputs[number]
        if not isinstance(found, Tensor):
            raise Unsupported(f"input {number} is no tensor")
        return found

    def output(self, number: int = 0) -> Tensor:
        """The tensor of the graph that a result is."""
        (found,) = tensors(self.operation.outputs[number])
        return found

    def shape(self, number: int = 0) -> Shape:
        """The extents of a result."""
        return static(self.output(number))

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is a number."""
        found = self.attributes.get(name)
        return found if isinstance(found, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of numbers; empty where it is not given."""
        found = self.attributes.get(name)
        if isinstance(found, int):
            return (found,)
        return tuple(item for item in found if isinstance(item, int)) if isinstance(found, tuple) else ()

    def real(self, name: str, default: float = 0.0) -> float:
        """An attribute that is a real number."""
        found = self.attributes.get(name)
        return float(found) if isinstance(found, int | float) else default

    def flag(self, name: str) -> bool:
        """An attribute that is true or false."""
        return self.attributes.get(name) is True

    def given(self, name: str) -> bool:
        """Whether an attribute has a value."""
        return self.attributes.get(name) is not None

    def word(self, name: str) -> str:
        """An attribute that is a string; empty where it is not given."""
        found = self.attributes.get(name)
        return found if isinstance(found, str) else ""

    def aligned(self, number: int, align: str) -> Value:
        """An operand with as many axes as the result, at the place that an attribute gives it or at the end."""
        found, rank = self.value(number), len(self.shape())
        start = self.attributes.get(align)
        place = start if isinstance(start, int) else rank - len(found.shape)
        if place < 0:
            place += rank
        behind = rank - place - len(found.shape)
        if place < 0 or behind < 0:
            raise Unsupported(f"operand {number} does not lie inside of the result")
        shape = (1,) * place + found.shape + (1,) * behind
        again = reshaped(found, shape)
        return found if again is None else again


Row: TypeAlias = Callable[[RowCall], Value | Sequence[Value | None]]
"""Makes the tasks of one operation; gives its results."""


def static(tensor: Tensor) -> Shape:
    """The extents of a tensor, which are numbers."""
    found = tuple(extent for extent in tensor.shape if isinstance(extent, int))
    if len(found) != len(tensor.shape):
        raise Unsupported(f"'{tensor.name}' has an extent that only the run tells")
    return found
