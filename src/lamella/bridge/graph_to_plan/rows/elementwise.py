"""Elementwise operators as CSTL opcodes: functions of one number, of two, activations, selections."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_plan.emitter import Emitter
from lamella.bridge.graph_to_plan.rows.call import Row, RowCall
from lamella.bridge.graph_to_plan.values import Value, known

UNARY = MappingProxyType(
    {
        **{"math.neg": "neg", "math.abs": "abs", "math.exp": "exp", "math.log": "log", "math.sqrt": "sqrt"},
        **{"math.tanh": "tanh", "nn.sigmoid": "sigmoid", "nn.silu": "silu", "aten.silu": "silu"},
        **{"aten.sigmoid": "sigmoid"},
    }
)
BINARY = MappingProxyType(
    {
        **{"math.add": "add", "math.sub": "sub", "math.mul": "mul", "math.div": "div"},
        **{"math.min": "min", "math.max": "max", "math.pow": "pow"},
    }
)
FAR = 12.0
"""From here on log(1 + exp(x)) is x in f16."""
LOWEST = -65504.0
"""The most negative number of f16: what a mask adds where it is finite."""


def _unary(opcode: str) -> Row:
    def row(call: RowCall) -> Value:
        return _real(call.emit, opcode, call.value(0))

    return row


def _real(emit: Emitter, opcode: str, value: Value) -> Value:
    return emit.elementwise(opcode, [emit.as_real(value)])


def _binary(opcode: str) -> Row:
    def row(call: RowCall) -> Value:
        return binary(call, opcode, call.aligned(0, "lhs_align"), call.aligned(1, "rhs_align"))

    return row


def binary(call: RowCall, opcode: str, a: Value, b: Value) -> Value:
    """An opcode of two operands; what is added to a product goes into it, adding 0 and multiplying by 1 is nothing."""
    if opcode == "add":
        for value, other, place in ((a, b, 0), (b, a, 1)):
            if _is_everywhere(other, 0.0) and value.shape == call.shape():
                return value
            if call.is_single(call.tensor(place)) and value.shape == call.shape():
                joined = call.emit.add_bias(value, other)
                if joined is not None:
                    return joined
    if opcode in ("mul", "div") and _is_everywhere(b, 1.0) and a.shape == call.shape():
        return a
    return call.emit.elementwise(opcode, [a, b])


def _is_everywhere(value: Value, number: float) -> bool:
    return value.array is not None and bool((value.array == number).all())


def _with_constant(opcode: str, number: float, first: bool = False) -> Row:
    """An opcode of an operand and a number."""

    def row(call: RowCall) -> Value:
        value, other = call.emit.as_real(call.value(0)), call.emit.constant(number)
        return call.emit.elementwise(opcode, [other, value] if first else [value, other])

    return row


def _square(call: RowCall) -> Value:
    return call.emit.elementwise("mul", [call.value(0), call.value(0)])


def _root_reciprocal(call: RowCall) -> Value:
    root = _real(call.emit, "sqrt", call.value(0))
    return call.emit.elementwise("div", [call.emit.constant(1.0), root])


def _square_reciprocal(call: RowCall) -> Value:
    square = call.emit.elementwise("mul", [call.value(0), call.value(0)])
    return call.emit.elementwise("div", [call.emit.constant(1.0), square])


def _log2(call: RowCall) -> Value:
    natural = _real(call.emit, "log", call.value(0))
    return call.emit.elementwise("mul", [natural, call.emit.constant(1.0 / math.log(2.0))])


def _relu(call: RowCall) -> Value:
    value = call.value(0)
    if call.given("max"):
        if call.given("alpha"):
            raise Unsupported("a leaky relu with a largest value")
        return call.emit.elementwise("clamp", [value], min_val=0.0, max_val=call.real("max"))
    if call.given("alpha"):
        return call.emit.elementwise("leaky_relu", [value], alpha=call.real("alpha"))
    return call.emit.elementwise("relu", [value])


def _leaky(call: RowCall) -> Value:
    return call.emit.elementwise("leaky_relu", [call.value(0)], alpha=call.real("negative_slope", 0.01))


def _relu6(call: RowCall) -> Value:
    return call.emit.elementwise("clamp", [call.value(0)], min_val=0.0, max_val=6.0)


def _clamp(call: RowCall) -> Value:
    value = call.aligned(0, "val_align")
    low, high = call.aligned(1, "min_align"), call.aligned(2, "max_align")
    ends = [_uniform(item) for item in (low, high)]
    if ends[0] is not None and ends[1] is not None and math.isfinite(ends[0]) and math.isfinite(ends[1]):
        return call.emit.elementwise("clamp", [value], min_val=ends[0], max_val=ends[1])
    raised = call.emit.elementwise("max", [value, low])
    return call.emit.elementwise("min", [raised, high])


def _uniform(value: Value) -> float | None:
    """The number that a known tensor holds everywhere."""
    if value.array is None or value.array.size == 0:
        return None
    first = value.array.reshape(-1)[0]
    return float(first) if bool((value.array == first).all()) else None


def _gelu(call: RowCall) -> Value:
    approximate = call.attributes.get("approximate")
    if approximate in (None, False, "none", "NONE"):
        return _real(call.emit, "gelu", call.value(0))
    if approximate in (True, "tanh", "TANH"):
        return gelu_tanh(call.emit, call.emit.as_real(call.value(0)))
    raise Unsupported(f"a gelu approximated by {approximate}")


def gelu_tanh(emit: Emitter, x: Value) -> Value:
    """X · sigmoid(2·sqrt(2/π)·(x + 0.044715·x³)): the approximation by tanh, with one function less."""
    cube = emit.elementwise("mul", [emit.elementwise("mul", [x, x]), emit.constant(0.044715)])
    inner = emit.elementwise("add", [cube, emit.constant(1.0)])
    scaled = emit.elementwise(
        "mul", [emit.elementwise("mul", [inner, x]), emit.constant(2.0 * math.sqrt(2.0 / math.pi))]
    )
    return emit.elementwise("mul", [x, emit.elementwise("sigmoid", [scaled])])


def _hard_sigmoid(call: RowCall) -> Value:
    return hard_sigmoid(call.emit, call.emit.as_real(call.value(0)))


def hard_sigmoid(emit: Emitter, x: Value) -> Value:
    """clamp(x / 6 + 1/2, 0, 1) as torch has it: clamp(x + 3, 0, 6) / 6."""
    raised = emit.elementwise("add", [x, emit.constant(3.0)])
    held = emit.elementwise("clamp", [raised], min_val=0.0, max_val=6.0)
    return emit.elementwise("div", [held, emit.constant(6.0)])


def _hard_swish(call: RowCall) -> Value:
    x = call.emit.as_real(call.value(0))
    return call.emit.elementwise("mul", [x, hard_sigmoid(call.emit, x)])


def _prelu(call: RowCall) -> Value:
    """max(x, 0) + slope·min(x, 0)."""
    emit, x, slope = call.emit, call.emit.as_real(call.value(0)), call.value(1)
    if not call.operation.operator.startswith("onnx."):
        axis = call.integer("axis", 1) % len(x.shape)
        shape = slope.shape if slope.count == 1 else (*slope.shape, *(1,) * (len(x.shape) - axis - 1))
        slope = emit.reshape(slope, shape)
    below = emit.elementwise("min", [x, emit.constant(0.0)])
    return emit.elementwise("add", [emit.elementwise("relu", [x]), emit.elementwise("mul", [below, slope])])


def _elu(call: RowCall) -> Value:
    """max(x, 0) + alpha·(exp(min(x, 0)) − 1)."""
    if call.real("scale", 1.0) != 1.0 or call.real("input_scale", 1.0) != 1.0:
        return _scaled_elu(call)
    emit, x = call.emit, call.emit.as_real(call.value(0))
    zero = emit.constant(0.0)
    powers = emit.elementwise("exp", [emit.elementwise("min", [x, zero])])
    below = emit.elementwise("sub", [powers, emit.constant(1.0)])
    alpha = call.real("alpha", 1.0)
    if alpha != 1.0:
        below = emit.elementwise("mul", [below, emit.constant(alpha)])
    return emit.elementwise("add", [emit.elementwise("relu", [x]), below])


def _scaled_elu(call: RowCall) -> Value:
    scale, alpha, inner = call.real("scale", 1.0), call.real("alpha", 1.0), call.real("input_scale", 1.0)
    return bent(call, scale, alpha, inner)


def _celu(call: RowCall) -> Value:
    alpha = call.real("alpha", 1.0)
    return bent(call, 1.0, alpha, 1.0 / alpha)


def _selu(call: RowCall) -> Value:
    return bent(call, call.real("lambda"), call.real("alpha"), 1.0)


def bent(call: RowCall, scale: float, alpha: float, inner: float) -> Value:
    """Scale·max(x, 0) + scale·alpha·(exp(inner·min(x, 0)) − 1): the relatives of elu."""
    emit, x = call.emit, call.emit.as_real(call.value(0))
    below = emit.elementwise("min", [x, emit.constant(0.0)])
    powers = emit.elementwise("exp", [emit.elementwise("mul", [below, emit.constant(inner)])])
    curved = emit.elementwise("sub", [powers, emit.constant(1.0)])
    parts = [(emit.elementwise("relu", [x]), scale), (curved, scale * alpha)]
    return emit.elementwise("add", [emit.elementwise("mul", [item, emit.constant(by)]) for item, by in parts])


def _hardtanh(call: RowCall) -> Value:
    low, high = call.real("min_val", -1.0), call.real("max_val", 1.0)
    return call.emit.elementwise("clamp", [call.value(0)], min_val=low, max_val=high)


def _softplus(call: RowCall) -> Value:
    """log(1 + exp(beta·x)) / beta; what torch leaves as it is above its threshold differs by less than f16 tells."""
    emit, x, beta = call.emit, call.emit.as_real(call.value(0)), call.real("beta", 1.0)
    if call.real("threshold", 20.0) < FAR:
        raise Unsupported(f"a softplus that ends at {call.real('threshold')}")
    if beta == 1.0:
        return softplus(emit, x)
    found = softplus(emit, emit.elementwise("mul", [x, emit.constant(beta)]))
    return emit.elementwise("mul", [found, emit.constant(1.0 / beta)])


def _mish(call: RowCall) -> Value:
    emit, x = call.emit, call.emit.as_real(call.value(0))
    return emit.elementwise("mul", [x, emit.elementwise("tanh", [softplus(emit, x)])])


def _log_sigmoid(call: RowCall) -> Value:
    """−softplus(−x)."""
    emit, x = call.emit, call.emit.as_real(call.value(0))
    return emit.elementwise("neg", [softplus(emit, emit.elementwise("neg", [x]))])


def softplus(emit: Emitter, x: Value) -> Value:
    """max(x, 0) + log(1 + exp(−|x|)), which no input overflows."""
    powers = emit.elementwise("exp", [emit.elementwise("neg", [emit.elementwise("abs", [x])])])
    logs = emit.elementwise("log", [emit.elementwise("add", [powers, emit.constant(1.0)])])
    return emit.elementwise("add", [emit.elementwise("relu", [x]), logs])


def _select(call: RowCall) -> Value:
    """C ? x : y as c·x + (1 − c)·y; where one side is −inf, or as good as that, it is added as a mask."""
    emit, chosen = call.emit, call.aligned(0, "cond_align")
    x, y = call.aligned(1, "lhs_align"), call.aligned(2, "rhs_align")
    if not (x.is_float or y.is_float):
        raise Unsupported("a selection of integers")
    yes, no = _masks(emit, chosen)
    for value, mask, other in ((x, yes, y), (y, no, x)):
        lowest = _uniform(value)
        if lowest is not None and lowest <= LOWEST:
            return emit.elementwise("add", [other, emit.elementwise("mul", [mask, emit.constant(LOWEST)])])
    kept = [emit.elementwise("mul", [yes, x]), emit.elementwise("mul", [no, y])]
    return emit.elementwise("add", kept)


def _masks(emit: Emitter, chosen: Value) -> tuple[Value, Value]:
    """1 where a condition holds and 0 elsewhere, and the other way round."""
    if chosen.array is not None:
        held = chosen.array.astype(np.float32)
        return known(held, emit.real, "mask"), known(1.0 - held, emit.real, "mask")
    yes = emit.as_real(chosen)
    return yes, emit.elementwise("sub", [emit.constant(1.0), yes])


def _bias_add(call: RowCall) -> Value:
    return binary(call, "add", call.value(0), call.value(1))


def _add_kind(call: RowCall) -> Value:
    """The row of the kind of each token; all are of the first where nothing else is said."""
    emit, kinds = call.emit, call.optional(2)
    table = emit.as_real(call.value(1))
    if kinds is None:
        added = emit.reshape(emit.slice(table, 0, 0, 1), table.shape[1:])
    else:
        added = emit.gather(table, kinds, 0)
    return binary(call, "add", call.value(0), added)


def _swiglu(call: RowCall) -> Value:
    emit = call.emit
    return emit.elementwise("mul", [emit.elementwise("silu", [call.value(0)]), call.value(1)])


def _cast(call: RowCall) -> Value:
    kept = call.tensor(0).element, call.output().element
    if kept[0].is_float and kept[1].is_float:
        return call.value(0)
    if kept[1].is_float:
        return call.emit.as_real(call.value(0))
    raise Unsupported(f"a cast from {kept[0]} to {kept[1]}")


def _same(call: RowCall) -> Value:
    return call.value(0)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **{name: _unary(opcode) for name, opcode in UNARY.items()},
        **{name: _binary(opcode) for name, opcode in BINARY.items()},
        **{"math.iden": _same, "layout.cast": _cast, "math.sqr": _square, "math.rsqrt": _root_reciprocal},
        **{"math.rcp": _with_constant("div", 1.0, first=True), "math.rsqr": _square_reciprocal},
        **{"math.log2": _log2, "nn.relu": _relu, "aten.relu6": _relu6, "aten.leaky_relu": _leaky},
        **{"math.clamp": _clamp, "nn.gelu": _gelu, "aten.gelu": _gelu, "llm.gelu": _gelu},
        **{"aten.hardsigmoid": _hard_sigmoid, "aten.hardswish": _hard_swish, "onnx.hard_swish": _hard_swish},
        **{"nn.prelu": _prelu, "onnx.prelu": _prelu, "aten.prelu": _prelu},
        **{"nn.elu": _elu, "aten.elu": _elu, "aten.celu": _celu, "nn.selu": _selu, "math.select": _select},
        **{"nn.softplus": _softplus, "aten.softplus": _softplus, "aten.mish": _mish},
        **{"aten.log_sigmoid": _log_sigmoid, "aten.hardtanh": _hardtanh},
        **{"llm.bias_add": _bias_add, "llm.add_kind": _add_kind, "llm.swiglu": _swiglu},
    }
)
"""The rows of elementwise operators."""
