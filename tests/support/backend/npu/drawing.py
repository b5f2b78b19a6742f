"""One call of an opcode, and the drawing of small shapes, descriptors and operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from lamella.backend.npu.opcodes import OpcodeInput, apply
from lamella.base import arrays, dtype
from lamella.base.arrays import Array
from lamella.base.diagnostic import Rule
from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant
from lamella.base.shape import row_major_strides
from lamella.lang.nem.resolved import AttributeValue, TensorType

T = TypeVar("T")
FLOATS = ("f16", "bf16", "f32")
INTEGERS = ("i8", "i16", "i32")


def tensor(elem: str, shape: Sequence[int], quant: Quant | None = None) -> TensorType:
    """A dense tensor type."""
    return TensorType(elem, tuple(shape), "ROW", row_major_strides(shape), quant)


@dataclass
class Case:
    """One call, and what it reported."""

    opcode: str
    inputs: list[OpcodeInput]
    outputs: list[TensorType]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    reported: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def run(self) -> list[Array]:
        """What our code gives; shapes and types are those that the outputs declare."""

        def report(rule: Rule, **values: object) -> None:
            self.reported.append((rule.code, values))

        found = apply(self.opcode, self.inputs, self.outputs, self.attributes, report)
        assert [item.shape for item in found] == [item.shape for item in self.outputs]
        wanted = [arrays.numpy_dtype(dtype.LANGUAGES["nem"][item.elem]) for item in self.outputs]
        assert [item.dtype for item in found] == wanted
        return found

    def codes(self) -> set[str]:
        """The rules that were reported."""
        return {code for code, _ in self.reported}


class Draw:
    """Draws numbers from hypothesis, and arrays from a drawn seed."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self.random = np.random.default_rng(self.integer(0, 10_000))

    def integer(self, low: int, high: int) -> int:
        """An integer in a closed range."""
        return int(self._data.draw(st.integers(low, high)))

    def one_of(self, *items: T) -> T:
        """One of some things."""
        return items[self.integer(0, len(items) - 1)]

    def shape(self, least: int = 1, most: int = 3) -> tuple[int, ...]:
        """A small shape."""
        return tuple(self.integer(1, 4) for _ in range(self.integer(least, most)))

    def operand(self, type: TensorType, low: int | None = None, high: int | None = None) -> OpcodeInput:
        """An operand: normal floats, or integers over the whole range or a given one."""
        element = dtype.LANGUAGES["nem"][type.elem]
        if element.is_float:
            return OpcodeInput(arrays.cast(self.random.standard_normal(type.shape), element), type)
        first = element.minimum if low is None else low
        last = element.maximum if high is None else high
        values = self.random.integers(first, last, type.shape, np.int64, endpoint=True)
        return OpcodeInput(arrays.cast(values, element), type)

    def scale(self) -> float:
        """A scale; powers of two make halves, which show how ties are rounded."""
        return self.one_of(0.5, 0.25, 1.0, float(self.random.uniform(0.01, 1.0)))

    def scales(self, count: int) -> tuple[float, ...]:
        """Different scales."""
        return tuple(float(item) for item in self.random.uniform(0.01, 1.0, count))

    def zeros(self, count: int) -> tuple[int, ...]:
        """Small zero points."""
        return tuple(int(item) for item in self.random.integers(-8, 8, count))

    def per_tensor(self) -> PerTensor:
        """One scale for all."""
        return PerTensor(self.scale(), self.zeros(1)[0])

    def quant(self, shape: Sequence[int], axes: Sequence[int]) -> Quant:
        """Any of the three forms, along one of some axes."""
        form = self.integer(0, 2)
        if form == 0:
            return self.per_tensor()
        axis = self.one_of(*axes)
        size = shape[axis]
        sign = self.one_of(axis, axis - len(shape))
        if form == 1:
            return PerChannel(sign, self.scales(size), self.zeros(size))
        group = self.integer(1, size + 1)
        count = -(-size // group)
        return PerGroup(sign, group, self.scales(count), self.zeros(count))
