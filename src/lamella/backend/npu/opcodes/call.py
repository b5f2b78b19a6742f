"""What an opcode function is given: typed arrays, the types of its results, attributes, and where to report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lamella.base import dtype
from lamella.base.arrays import Array
from lamella.base.diagnostic import Rule
from lamella.base.dtype import ElementType
from lamella.lang.nem.resolved import AttributeValue, TensorType


class OpcodeReport(Protocol):
    """Takes a rule and the values of its sentence; who asks knows the task and the iteration."""

    def __call__(self, rule: Rule, **values: object) -> None:
        """Record one finding."""


@dataclass(frozen=True, slots=True)
class OpcodeInput:
    """An input: an array of the type's shape whose NumPy type is `arrays.numpy_dtype` of its element type."""

    array: Array
    type: TensorType


@dataclass(frozen=True, slots=True)
class OpcodeCall:
    """One execution of an opcode."""

    opcode: str
    inputs: Sequence[OpcodeInput]
    outputs: Sequence[TensorType]
    attributes: Mapping[str, AttributeValue]
    report: OpcodeReport

    def operand(self, index: int) -> OpcodeInput | None:
        """An optional input, or None where it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        return int(value) if isinstance(value, int | float) else default

    def number(self, name: str, default: float = 0.0) -> float:
        """A float attribute, which may be written as an integer."""
        value = self.attributes.get(name, default)
        return float(value) if isinstance(value, int | float) else default

    def integers(self, name: str) -> tuple[int, ...]:
        """A list attribute."""
        value = self.attributes.get(name, ())
        return value if isinstance(value, tuple) else ()

    def word(self, name: str) -> str:
        """An identifier or string attribute."""
        return str(self.attributes.get(name, ""))

    def axis(self) -> int:
        """The attribute `axis`, counted from the front of the first input."""
        return self.integer("axis") % max(len(self.inputs[0].type.shape), 1)


def element_of(type: TensorType) -> ElementType:
    """The element type of a tensor type."""
    return dtype.LANGUAGES["nem"][type.elem]
