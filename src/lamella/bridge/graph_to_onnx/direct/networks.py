"""Parts of networks as ONNX has them: pooling, normalisation, activations."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import numpy_dtype
from lamella.base.dtype import BOOL, F16, F32, F64, I8, I32, I64, U8
from lamella.bridge.graph_to_onnx.direct.call import Call, Row
from lamella.bridge.graph_to_onnx.direct.products import inverse, spatial, transposed
from lamella.bridge.graph_to_onnx.emitter import Given, Value
from lamella.bridge.graph_to_onnx.scope import Held

SINGLE = (F32, F16)
REALS = (F32, F64, F16)
POOLED = {"MaxPool": (*SINGLE, I8, U8), "AveragePool": SINGLE}

# --- pooling --------------------------------------------------------------------------------------------------


def _pool(call: Call, op_type: str, **attributes: Given) -> Value | None:
    """Pooling of the dimensions that are named; the two others are batch and channels for ONNX."""
    rank, axes = len(call.input().shape), call.integers("axes")
    if (
        axes is None
        or call.element not in POOLED[op_type]
        or rank - len(axes) != 2
        or not 1 <= len(axes) <= 3
    ):
        return None
    named = [axis % rank for axis in axes]
    order = [*(axis for axis in range(rank) if axis not in named), *named]
    found = _windows(call, named)
    if found is None:
        return None
    value = call.node(op_type, transposed(call, call.value(), order), **found, **attributes)
    return transposed(call, value, inverse(order))


def _windows(call: Call, axes: list[int]) -> dict[str, list[int]] | None:
    """The windows of a pooling; None where they are open, or reach further out than ONNX allows."""
    count = len(axes)
    names = ("size", "stride", "dilation", "fd", "paddings")
    known = [item for item in (spatial(call, name, count) for name in names) if item is not None]
    if len(known) != len(names):
        return None
    size, stride, dilation, reach, both = known
    before = spatial(call, "offset", count) or _halves(call, both, count)
    after = [total - first for total, first in zip(both, before, strict=True)]
    for place, axis in enumerate(axes):
        extent, result = call.input().shape[axis], call.output().shape[axis]
        if isinstance(extent, int) and isinstance(result, int):
            needed = (result - 1) * stride[place] + reach[place] - extent - before[place]
            after[place] = max(after[place], needed)
        elif call.attribute("ceil_mode"):
            return None
    if any(not 0 <= item < size[place % count] for place, item in enumerate((*before, *after))):
        return None
    found = {"kernel_shape": size, "strides": stride, "dilations": dilation, "pads": (*before, *after)}
    return {name: list(items) for name, items in found.items()}


def _halves(call: Call, both: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The paddings at the start where the operator does not say them itself."""
    given = spatial(call, "padding", count) if call.attribute("padding") is not None else None
    if given is not None:
        return given[:count]
    upper = call.attribute("padding_align") == "UPPER"
    return tuple(item // 2 if upper else -(-item // 2) for item in both)


def _max_pool(call: Call) -> list[Held] | None:
    found = _pool(call, "MaxPool")
    return None if found is None else [found]


def _avg_pool(call: Call) -> list[Held] | None:
    found = _pool(call, "AveragePool", count_include_pad=int(not call.attribute("ignore_border")))
    return None if found is None else [found]


def _sum_pool(call: Call) -> list[Held] | None:
    count = len(call.integers("axes") or ())
    size = spatial(call, "size", count)
    found = None if size is None else _pool(call, "AveragePool", count_include_pad=1)
    if found is None or size is None:
        return None
    return [call.node("Mul", found, call.emitter.number(float(prod(size)), call.element))]


# --- normalisation --------------------------------------------------------------------------------------------


def _softmax(name: str, op_type: str) -> Row:
    def emit(call: Call) -> list[Held] | None:
        axes = call.integers(name)
        if axes is None or len(axes) != 1 or call.element not in REALS:
            return None
        return call.alone(op_type, call.value(), axis=axes[0])

    return emit


def _batch_norm(call: Call) -> list[Held] | None:
    rank = len(call.input().shape)
    if call.element not in SINGLE or rank < 2 or call.axis("channel_axis") != 1:
        return None
    mean, variance = call.value(1), call.value(2)
    size = call.input(1).shape
    bias = call.optional(3) or call.scope.filled(0.0, call.element, size)
    scale = call.optional(4) or call.scope.filled(1.0, call.element, size)
    given = (call.value(), scale, bias, mean, variance)
    return call.alone("BatchNormalization", *given, epsilon=call.real("epsilon"))


def _layer_norm(count: int, with_statistics: bool) -> Row:
    """Rows less their mean over their deviation; `count` dimensions, or as many as the shape that is named."""

    def emit(call: Call) -> list[Held] | None:
        shape = call.extents("normalized_shape") if not count else call.input().shape[-1:]
        known = [item for item in shape if isinstance(item, int)]
        if call.element not in (F32, F64) or len(known) != len(shape) or not shape:
            return None
        ones = call.emitter.constant(np.ones(known, numpy_dtype(call.element)))
        given = (call.value(), call.optional(1) or ones, call.optional(2))
        attributes = {"axis": -len(shape), "epsilon": call.real("eps")}
        if not with_statistics:
            return call.alone("LayerNormalization", *given, **attributes)
        found = call.emitter.add_all("LayerNormalization", given, [call.element] * 3, **attributes)
        if not count:
            return list(found)
        axes = call.emitter.integers(-1)
        return [found[0], *(call.node("Squeeze", item, axes) for item in found[1:])]

    return emit


def _mean(call: Call) -> list[Held] | None:
    axes = call.integers("axes")
    if not axes or call.element not in REALS:
        return None
    keep = 0 if call.attribute("squeeze") else 1
    return call.alone("ReduceMean", call.value(), call.emitter.integers(*axes), keepdims=keep)


# --- activations ----------------------------------------------------------------------------------------------


def _unary(op_type: str, types: tuple[object, ...] = SINGLE, **names: str) -> Row:
    """A function of each element; attributes of ONNX by the names of ours."""

    def emit(call: Call) -> list[Held] | None:
        if call.element not in types:
            return None
        given = {name: call.real(own) for name, own in names.items()}
        return call.alone(op_type, call.value(), **given)

    return emit


def _relu(call: Call) -> list[Held] | None:
    slope, most = call.attribute("alpha"), call.attribute("max")
    if call.element not in SINGLE or (slope is not None and most is not None):
        return None
    if most is not None:
        ends = (call.emitter.number(0.0, call.element), call.emitter.number(call.real("max"), call.element))
        return call.alone("Clip", call.value(), *ends)
    if slope is not None:
        return call.alone("LeakyRelu", call.value(), alpha=call.real("alpha"))
    return call.alone("Relu", call.value())


def _gelu(call: Call) -> list[Held] | None:
    way = {None: "none", "none": "none", "TANH": "tanh", "tanh": "tanh"}.get(
        _word(call.attribute("approximate"))
    )
    if way is None or call.element not in SINGLE:
        return None
    return call.alone("Gelu", call.value(), approximate=way)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _silu(call: Call) -> list[Held] | None:
    if call.element not in REALS:
        return None
    return call.alone("Mul", call.value(), call.node("Sigmoid", call.value()))


def _along(op_type: str, count: int, types: tuple[object, ...], **attributes: Given) -> Row:
    """Elements at places along a dimension."""

    def emit(call: Call) -> list[Held] | None:
        axis = call.axis("dim")
        if axis is None or call.element not in types or not call.input().shape:
            return None
        if count == 3 and call.input(1).shape != call.input(2).shape:
            return None
        return call.alone(op_type, *(call.value(place) for place in range(count)), axis=axis, **attributes)

    return emit


def _test(op_type: str) -> Row:
    def emit(call: Call) -> list[Held] | None:
        value = call.value()
        return None if value.element not in REALS else [call.emitter.add(op_type, (value,), BOOL)]

    return emit


MOVED = (F32, F64, F16, I32, I64, BOOL)
ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "nn.max_pool": _max_pool,
        "nn.avg_pool": _avg_pool,
        "nn.sum_pool": _sum_pool,
        "nn.softmax": _softmax("axes", "Softmax"),
        "aten.softmax": _softmax("dim", "Softmax"),
        "aten.log_softmax": _softmax("dim", "LogSoftmax"),
        "nn.batch_norm": _batch_norm,
        "aten.layer_norm": _layer_norm(0, with_statistics=False),
        "aten.native_layer_norm": _layer_norm(0, with_statistics=True),
        "llm.layernorm": _layer_norm(1, with_statistics=True),
        "math.mean_reduce": _mean,
        "math.abs": _unary("Abs", (*REALS, I32, I64)),
        "nn.relu": _relu,
        **dict.fromkeys(("nn.gelu", "aten.gelu"), _gelu),
        **dict.fromkeys(("nn.silu", "aten.silu"), _silu),
        "nn.sigmoid": _unary("Sigmoid", REALS),
        "nn.softplus": _unary("Softplus"),
        "nn.elu": _unary("Elu", alpha="alpha"),
        "nn.selu": _unary("Selu", alpha="alpha", gamma="lambda"),
        "aten.leaky_relu": _unary("LeakyRelu", alpha="negative_slope"),
        "aten.hardswish": _unary("HardSwish"),
        "aten.mish": _unary("Mish"),
        "aten.isnan": _test("IsNaN"),
        "aten.isinf": _test("IsInf"),
        "aten.gather": _along("GatherElements", 2, MOVED),
        "aten.scatter": _along("ScatterElements", 3, MOVED),
        "aten.scatter_add": _along("ScatterElements", 3, (F32, F64, I32, I64), reduction="add"),
    }
)
