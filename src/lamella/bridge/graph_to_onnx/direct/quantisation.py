"""Linear quantisation as a pair of QuantizeLinear and DequantizeLinear, the form that runtimes look for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import F32, I8, I16, U8, U16, ElementType
from lamella.bridge.graph_to_onnx.direct.call import Call, Row
from lamella.bridge.graph_to_onnx.emitter import Emitter, Value
from lamella.bridge.graph_to_onnx.scope import Held
from lamella.graph.nodes import Operation, Tensor

LINEAR = "quant.zero_point_linear_quantize"
CODES: Mapping[tuple[int, bool], ElementType] = MappingProxyType(
    {(8, True): I8, (8, False): U8, (16, True): I16, (16, False): U16}
)
"""The types of codes, by their bits and whether they are signed."""


@dataclass(frozen=True, slots=True)
class LinearCode:
    """A code of linear quantisation: its type, scales and zero points, and the axis along which they differ."""

    element: ElementType
    scale: Array
    zero_point: Array
    axis: int | None
    lowest: int

    def encode(self, values: Array) -> Array:
        """The codes of numbers; halves go away from zero."""
        scale, zero = self.along(self.scale, values.ndim), self.along(self.zero_point, values.ndim)
        steps = values.astype(np.float32) / scale
        whole = np.trunc(steps)
        rounded = np.where(np.abs(steps - whole) >= 0.5, whole + np.sign(steps), whole)
        codes = np.clip(rounded + zero, self.lowest, self.element.maximum)
        return np.asarray(codes.astype(numpy_dtype(self.element)))

    def along(self, items: Array, rank: int) -> Array:
        """Numbers of the channels as an array that broadcasts to a rank."""
        if self.axis is None:
            return items
        return items.reshape([-1 if place == self.axis else 1 for place in range(rank)])

    def decode(self, emitter: Emitter, codes: Value) -> Value:
        """Codes as numbers."""
        return emitter.add("DequantizeLinear", (codes, *self._parameters(emitter)), F32, **self._where())

    def quantise(self, emitter: Emitter, value: Value) -> Value:
        """Numbers as codes."""
        return emitter.add(
            "QuantizeLinear", (value, *self._parameters(emitter)), self.element, **self._where()
        )

    def _parameters(self, emitter: Emitter) -> tuple[Value, Value]:
        return emitter.constant(self.scale), emitter.constant(self.zero_point)

    def _where(self) -> dict[str, int]:
        return {} if self.axis is None else {"axis": self.axis}


def find_code(operation: Operation) -> LinearCode | None:
    """The code of a quantisation; None where ONNX has no type for it."""
    tensor, given = operation.inputs[0], dict(operation.attributes)
    bits, signed = given.get("bits"), bool(given.get("signed", True))
    element = CODES.get((bits, signed)) if isinstance(bits, int) else None
    scales, zeros = (_numbers(given.get(name)) for name in ("scale", "zero_point"))
    if (
        operation.operator != LINEAR
        or element is None
        or not isinstance(tensor, Tensor)
        or tensor.element != F32
    ):
        return None
    if not scales or not zeros or any(not element.minimum <= item <= element.maximum for item in zeros):
        return None
    differing = max(len(set(scales)), len(set(zeros)))
    axis = _axis(given.get("channel_axis"), len(tensor.shape), differing)
    lowest = -element.maximum if signed and given.get("symmetric") else element.minimum
    scale, zero = np.asarray(scales, np.float32), np.asarray(zeros).astype(numpy_dtype(element))
    if axis is None:
        return LinearCode(element, scale[0].reshape(()), zero[0].reshape(()), None, lowest)
    size = max(len(scales), len(zeros))
    return LinearCode(element, np.broadcast_to(scale, size), np.broadcast_to(zero, size), axis, lowest)


def _numbers(value: object) -> tuple[float, ...]:
    items = value if isinstance(value, tuple) else (value,)
    return tuple(item for item in items if isinstance(item, int | float))


def _axis(value: object, rank: int, count: int) -> int | None:
    """The axis along which scales differ; none where one stands for all."""
    if not isinstance(value, int) or not -rank <= value < rank or count < 2:
        return None
    return value % rank


def _quantise(call: Call) -> list[Held] | None:
    code = find_code(call.operation)
    if code is None:
        return None
    value, emitter = call.value(), call.emitter
    if code.lowest > code.element.minimum:
        # A symmetric code leaves out the lowest number of its type.
        ends = (code.lowest - code.zero_point.astype(np.float32)) * code.scale
        least = code.along(np.asarray(ends, np.float32), len(call.input().shape))
        value = emitter.add("Max", (value, emitter.constant(least)), F32)
    return [code.decode(emitter, code.quantise(emitter, value))]


ROWS: Mapping[str, Row] = MappingProxyType({LINEAR: _quantise})
