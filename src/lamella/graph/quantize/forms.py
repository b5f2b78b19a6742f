"""What operators are to quantisation, told by their attributes: bounds, functions of one tensor, windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lamella.base.errors import Unsupported
from lamella.graph.nodes import Operation, Tensor, Value, tensors
from lamella.graph.quantize.codes import TensorCodes

UNARY: Mapping[str, str] = {
    "nn.sigmoid": "quant.sigmoid",
    "math.tanh": "quant.tanh",
    "nn.silu": "quant.silu",
    "math.exp": "quant.exp",
    "math.log": "quant.log",
    "math.sqrt": "quant.sqrt",
    "math.abs": "quant.abs",
    "math.neg": "quant.neg",
}
"""Functions of one tensor that have an integer form as they are."""
BINARY: Mapping[str, str] = {
    f"math.{name}": f"quant.{name}" for name in ("add", "sub", "mul", "div", "min", "max")
}
"""Functions of two tensors that have an integer form."""


class UnaryForm(NamedTuple):
    """The integer form of a function of one tensor."""

    operator: str
    attributes: dict[str, Value]


class Bounds(NamedTuple):
    """The ends between which an operation keeps numbers."""

    low: float
    high: float

    def held_by(self, codes: TensorCodes) -> bool:
        """Whether codes that keep to their type keep to these ends, as near as they tell numbers."""
        found = codes.single
        if found is None:
            return False
        first, last = (
            found.scale * (end - found.zero_point) for end in (codes.element.minimum, codes.element.maximum)
        )
        return first >= self.low - found.scale / 2 and last <= self.high + found.scale / 2


def bounds_of(operation: Operation, numbers: Sequence[float | None]) -> Bounds | None:
    """The ends of an operation that only cuts numbers off; `numbers` are those of its constant inputs."""
    given = dict(operation.attributes)
    if operation.operator == "nn.relu" and not given.get("alpha"):
        return Bounds(0.0, _real(given.get("max"), math.inf))
    if operation.operator == "aten.relu6":
        return Bounds(0.0, 6.0)
    if operation.operator == "aten.hardtanh":
        return Bounds(_real(given.get("min_val"), -1.0), _real(given.get("max_val"), 1.0))
    if operation.operator == "math.clamp":
        low, high = numbers[1], numbers[2]
        return None if low is None or high is None else Bounds(low, high)
    if operation.operator in ("math.max", "math.min"):
        end = numbers[1]
        if end is None:
            return None
        return Bounds(end, math.inf) if operation.operator == "math.max" else Bounds(-math.inf, end)
    return None


def unary_form(operation: Operation, bounds: Bounds | None) -> UnaryForm | None:
    """The integer form of a function of one tensor; None where it has none."""
    given = dict(operation.attributes)
    if bounds is not None:
        if bounds == (0.0, math.inf):
            return UnaryForm("quant.relu", {})
        low, high = (max(min(end, 1e30), -1e30) for end in bounds)
        return UnaryForm("quant.clamp", {"low": low, "high": high})
    if operation.operator == "nn.relu" and given.get("max") is None:
        return UnaryForm("quant.leaky_relu", {"alpha": given.get("alpha")})
    if operation.operator == "aten.leaky_relu":
        slope = _real(given.get("negative_slope"), 0.01)
        return UnaryForm("quant.leaky_relu", {"alpha": slope}) if 0.0 <= slope <= 1.0 else None
    if operation.operator == "nn.gelu" and given.get("approximate") is None:
        return UnaryForm("quant.gelu", {})
    found = UNARY.get(operation.operator)
    return None if found is None else UnaryForm(found, {})


def _real(value: Value, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default


# --- windows -----------------------------------------------------------------------------------------------------


def integers_of(value: Value, count: int) -> tuple[int, ...]:
    """An attribute of so many integers, one standing for all."""
    items = value if isinstance(value, tuple) else (value,)
    found = tuple(item for item in items if isinstance(item, int))
    if len(found) not in (1, count) or len(found) != len(items):
        raise Unsupported("its window depends on the run")
    return found * count if len(found) == 1 else found


class WindowSizes(NamedTuple):
    """The extents of a sliding window problem, one number each per axis."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    window: tuple[int, ...]
    """The window with its gaps."""
    stride: tuple[int, ...]


def padding_of(attributes: Mapping[str, Value], sizes: WindowSizes) -> tuple[int, ...]:
    """The padding before and after each axis, as the rounding down of output extents needs it."""
    count = len(sizes.inputs)
    given = attributes.get("padding")
    if given is not None:
        found = integers_of(given, 2 * count)
        if not attributes.get("ceil_mode"):
            return found
        before = found[:count]
    else:
        total = [
            (out - 1) * step + window - size
            for size, out, window, step in zip(
                *(sizes.inputs, sizes.outputs, sizes.window, sizes.stride), strict=True
            )
        ]
        upper = attributes.get("padding_align", "UPPER") == "UPPER"
        before = tuple(item // 2 if upper else -(-item // 2) for item in total)
    after = [
        max((out - 1) * step + window - size - first, 0)
        for size, out, window, step, first in zip(
            *(sizes.inputs, sizes.outputs, sizes.window, sizes.stride, before), strict=True
        )
    ]
    if min(before, default=0) < 0:
        raise Unsupported("its padding is negative")
    return (*before, *after)


def known_shape(tensor: Tensor) -> tuple[int, ...]:
    """A shape of numbers; Unsupported where an extent is open."""
    found = tuple(extent for extent in tensor.shape if isinstance(extent, int))
    if len(found) != len(tensor.shape):
        raise Unsupported(f"extents of '{tensor.name}' are open")
    return found


def single_output(operation: Operation) -> Tensor:
    """The one tensor that an operation makes."""
    found = [item for output in operation.outputs for item in tensors(output)]
    if len(found) != 1 or len(operation.outputs) != 1:
        raise Unsupported("it makes several tensors")
    return found[0]
