"""Operators on codes as runtimes look for them: DequantizeLinear, an operator of real numbers, QuantizeLinear.

ONNX's scales are singles and its operators compute in singles, so that results may be one code apart from ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import numpy_dtype
from lamella.base.dtype import F16, F32, I8, I16, I32, U8, U16, ElementType
from lamella.bridge.graph_to_onnx.arithmetic import cast
from lamella.bridge.graph_to_onnx.direct.call import Call, Row
from lamella.bridge.graph_to_onnx.direct.products import inverse, spatial, transposed
from lamella.bridge.graph_to_onnx.emitter import Given, Value
from lamella.bridge.graph_to_onnx.scope import Held

CODES = (I8, U8, I16, U16)
"""Types of codes that ONNX has."""


def _parameters(call: Call, scale: float, zero: int, element: ElementType) -> tuple[Value, Value]:
    emitter = call.emitter
    return (
        emitter.constant(np.asarray(scale, np.float32)),
        emitter.constant(np.asarray(zero).astype(numpy_dtype(element))),
    )


def _ends(call: Call, prefix: str) -> tuple[float, int] | None:
    """The scale and the zero point of an operand; None where singles do not hold the scale."""
    scale, zero = call.real(f"{prefix}scale"), call.integer(f"{prefix}zero" if prefix else "zero_point")
    # A scale that is no normal single would be another number, or none.
    return (scale, zero) if zero is not None and 1e-37 < scale < 1e37 else None


def _to_numbers(call: Call, value: Value, prefix: str) -> Value | None:
    """The numbers that codes stand for."""
    ends = _ends(call, prefix)
    if ends is None or value.element not in CODES or not _holds(value.element, ends[1]):
        return None
    return call.emitter.add("DequantizeLinear", (value, *_parameters(call, *ends, value.element)), F32)


def _to_codes(call: Call, value: Value, prefix: str = "y_") -> list[Held] | None:
    """The codes of numbers, in the type of the result."""
    ends = _ends(call, prefix)
    if ends is None or call.element not in CODES or not _holds(call.element, ends[1]):
        return None
    return [
        call.emitter.add("QuantizeLinear", (value, *_parameters(call, *ends, call.element)), call.element)
    ]


def _holds(element: ElementType, zero: int) -> bool:
    return element.minimum <= zero <= element.maximum


# --- element by element ---------------------------------------------------------------------------------------


def _quantize(call: Call) -> list[Held] | None:
    value = call.value()
    if value.element not in (F32, F16):
        return None
    return _to_codes(call, cast(call.emitter, value, F32), "")


def _dequantize(call: Call) -> list[Held] | None:
    found = _to_numbers(call, call.value(), "")
    return None if found is None else [cast(call.emitter, found, call.element)]


def _unary(make: Callable[[Call, Value], Value]) -> Row:
    """A function of the numbers that codes stand for."""

    def emit(call: Call) -> list[Held] | None:
        value = _to_numbers(call, call.value(), "x_")
        return None if value is None else _to_codes(call, make(call, value))

    return emit


def _function(op_type: str, **names: str) -> Row:
    def make(call: Call, value: Value) -> Value:
        given: dict[str, Given] = {name: call.real(own) for name, own in names.items()}
        return call.emitter.add(op_type, (value,), F32, **given)

    return _unary(make)


def _clip(call: Call, value: Value) -> Value:
    ends = (call.emitter.number(call.real(name), F32) for name in ("low", "high"))
    return call.emitter.add("Clip", (value, *ends), F32)


def _silu(call: Call, value: Value) -> Value:
    return call.emitter.add("Mul", (value, call.emitter.add("Sigmoid", (value,), F32)), F32)


def _same(call: Call, value: Value) -> Value:
    return value


def _binary(op_type: str) -> Row:
    def emit(call: Call) -> list[Held] | None:
        left, right = _to_numbers(call, call.value(0), "a_"), _to_numbers(call, call.value(1), "b_")
        if left is None or right is None:
            return None
        return _to_codes(call, call.emitter.add(op_type, (left, right), F32))

    return emit


def _meaning(call: Call) -> list[Held] | None:
    return [call.value()]


# --- weights --------------------------------------------------------------------------------------------------


def _scaled(call: Call, value: Value, scale: Value, axis: int | None) -> Value:
    """Integers times their scales, one for each index of an axis or one for all."""
    where: dict[str, Given] = {} if axis is None else {"axis": axis}
    return call.emitter.add("DequantizeLinear", (value, scale), F32, **where)


def _scales(call: Call, place: int) -> tuple[Value, bool]:
    """The scales of a weight as singles, and whether there are several."""
    value, (count, *_) = cast(call.emitter, call.value(place), F32), call.input(place).shape
    if count == 1:
        if value.known is not None:
            return call.emitter.constant(value.known.reshape(())), False
        return call.emitter.add("Squeeze", (value, call.emitter.integers(0)), F32), False
    return value, True


def _units(call: Call, scale: Value, factor: float) -> Value:
    """What one unit of a sum of products stands for."""
    if scale.known is not None:
        return call.emitter.constant((scale.known.astype(np.float64) * factor).astype(np.float32))
    return call.emitter.add("Mul", (scale, call.emitter.number(factor, F32)), F32)


def _conv(call: Call) -> list[Held] | None:
    rank, filters = len(call.input().shape), call.value(1)
    value, (scale, several) = _to_numbers(call, call.value(), "x_"), _scales(call, 3)
    if value is None or filters.element != I8 or not 3 <= rank <= 5:
        return None
    stride, dilation, padding = (
        spatial(call, name, count)
        for name, count in (("stride", rank - 2), ("dilation", rank - 2), ("padding", 2 * rank - 4))
    )
    groups = call.integer("groups")
    if stride is None or dilation is None or padding is None or groups is None:
        return None
    weight = _scaled(call, filters, scale, 0 if several else None)
    windows: dict[str, Given] = {"pads": padding, "strides": stride, "dilations": dilation, "group": groups}
    inputs = (value, weight, _bias(call, scale, several, "x_"))
    found = call.emitter.add("Conv", inputs, F32, **windows)
    return _to_codes(call, found)


def _bias(call: Call, scale: Value, several: bool, prefix: str) -> Value | None:
    bias, ends = call.optional(2), _ends(call, prefix)
    if bias is None or ends is None:
        return None
    return _scaled(call, cast(call.emitter, bias, I32), _units(call, scale, ends[0]), 0 if several else None)


def _matmul(call: Call) -> list[Held] | None:
    left, right, (scale, several) = _to_numbers(call, call.value(), "a_"), call.value(1), _scales(call, 3)
    ranks = [len(call.input(place).shape) for place in (0, 1)]
    zero = call.integer("b_zero")
    if left is None or right.element not in CODES or zero is None or (several and zero):
        return None
    turned = [bool(call.attribute(name)) for name in ("transA", "transB")]
    axis = None if not several else ranks[1] - (2 if turned[1] else 1)
    inputs = [right, scale, *([call.emitter.number(zero, right.element)] if zero else [])]
    where: dict[str, Given] = {} if axis is None else {"axis": axis}
    weight = call.emitter.add("DequantizeLinear", inputs, F32, **where)
    if ranks == [2, 2] and turned == [False, True]:
        bias = _bias(call, scale, several, "a_")
        return _to_codes(call, call.emitter.add("Gemm", (left, weight, bias), F32, transB=1))
    sides = [
        _turned(call, item, rank, flag)
        for item, rank, flag in zip((left, weight), ranks, turned, strict=True)
    ]
    found = call.emitter.add("MatMul", sides, F32)
    bias = _bias(call, scale, several, "a_")
    if bias is not None and max(ranks) > 2:
        # onnxruntime makes one product of a bias and codes of higher rank, and then refuses its own types.
        bias = call.emitter.add("Unsqueeze", (bias, call.emitter.integers(0, 1)), F32)
    return _to_codes(call, found if bias is None else call.emitter.add("Add", (found, bias), F32))


def _turned(call: Call, value: Value, rank: int, turned: bool) -> Value:
    order = (*range(rank - 2), rank - 1, rank - 2)
    return transposed(call, value, order) if turned else value


def _decode(call: Call) -> list[Held] | None:
    value, scale = call.value(), cast(call.emitter, call.value(1), F32)
    shape = call.input(1).shape
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    if value.element not in CODES or len(axes) > 1 or scale.known is None:
        return None
    if axes and shape[axes[0]] != call.input().shape[axes[0]]:
        return None
    flat = call.emitter.constant(scale.known.reshape(-1) if axes else scale.known.reshape(()))
    return [cast(call.emitter, _scaled(call, value, flat, axes[0] if axes else None), call.element)]


# --- means ----------------------------------------------------------------------------------------------------


def _avg_pool(call: Call) -> list[Held] | None:
    rank, axes = len(call.input().shape), call.integers("axes")
    value = _to_numbers(call, call.value(), "x_")
    if axes is None or value is None or rank - len(axes) != 2 or not 1 <= len(axes) <= 3:
        return None
    named = [axis % rank for axis in axes]
    order = [*(axis for axis in range(rank) if axis not in named), *named]
    counts = {"size": len(axes), "stride": len(axes), "padding": 2 * len(axes)}
    found = [spatial(call, name, count) for name, count in counts.items()]
    size, stride, padding = found
    if size is None or stride is None or padding is None:
        return None
    given: dict[str, Sequence[int]] = {"kernel_shape": size, "strides": stride, "pads": padding}
    pooled = call.emitter.add("AveragePool", (transposed(call, value, order),), F32, **given)
    return _to_codes(call, transposed(call, pooled, inverse(order)))


def _mean(call: Call) -> list[Held] | None:
    axes, value = call.integers("axes"), _to_numbers(call, call.value(), "x_")
    if not axes or value is None:
        return None
    keep = 0 if call.attribute("squeeze") else 1
    found = call.emitter.add("ReduceMean", (value, call.emitter.integers(*axes)), F32, keepdims=keep)
    return _to_codes(call, found)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "quant.quantize": _quantize,
        "quant.dequantize": _dequantize,
        "quant.requantize": _unary(_same),
        "quant.decode": _decode,
        "quant.linear_codes": _meaning,
        "quant.conv": _conv,
        "quant.matmul": _matmul,
        "quant.avg_pool": _avg_pool,
        "quant.mean": _mean,
        "quant.relu": _function("Relu"),
        "quant.leaky_relu": _function("LeakyRelu", alpha="alpha"),
        "quant.clamp": _unary(_clip),
        "quant.sigmoid": _function("Sigmoid"),
        "quant.tanh": _function("Tanh"),
        "quant.gelu": _function("Gelu"),
        "quant.silu": _unary(_silu),
        "quant.exp": _function("Exp"),
        "quant.abs": _function("Abs"),
        "quant.neg": _function("Neg"),
        "quant.add": _binary("Add"),
        "quant.sub": _binary("Sub"),
        "quant.mul": _binary("Mul"),
        "quant.div": _binary("Div"),
        "quant.min": _binary("Min"),
        "quant.max": _binary("Max"),
    }
)
