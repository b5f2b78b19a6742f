"""Operators on codes as integer opcodes: the scales of an operation become the descriptors of its regions.

The formulas of `quant.*` are those of the opcodes, so a plan gives the codes of the graph bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from lamella.base.dtype import ElementType, name_in
from lamella.base.errors import Unsupported
from lamella.base.quant import PerChannel, PerTensor, Quant
from lamella.bridge.graph_to_plan.rows.call import Row, RowCall
from lamella.bridge.graph_to_plan.rows.products import FILTER, from_planes, turned, window_of
from lamella.bridge.graph_to_plan.rows.windows import pool
from lamella.bridge.graph_to_plan.values import Value, known

UNARY = ("relu", "sigmoid", "tanh", "gelu", "silu", "exp", "log", "sqrt", "abs", "neg")
BINARY = ("add", "sub", "mul", "div", "min", "max")
FARTHEST = 1.0e30
"""A bound that no number reaches."""


def codes_of(call: RowCall, number: int, prefix: str) -> Value:
    """An operand with what its codes mean to this operation."""
    return replace(call.value(number), quant=meaning(call, prefix))


def meaning(call: RowCall, prefix: str) -> PerTensor:
    """The descriptor that two attributes of an operation are."""
    return PerTensor(call.real(f"{prefix}scale"), call.integer(f"{prefix}zero"))


def element_of(call: RowCall) -> str:
    """The element type of the codes that an operation gives."""
    element: ElementType = call.output().element
    found = name_in("nem", element)
    if found is None:
        raise Unsupported(f"codes of type {element}")
    return found


# --- at the borders of integers ------------------------------------------------------------------------------


def _quantize(call: RowCall) -> Value:
    quant, value = boundary_quant(call.attributes), call.value(0)
    elem = element_of(call)
    if not value.is_float:
        # An input whose port holds codes already.
        if value.quant == quant and value.elem == elem:
            return value
        raise Unsupported("codes that are quantised once more")
    emit = call.emit
    source = next(
        (item for item in (value.elem, "f16", "f32") if emit.offers.has("quantize", (item, elem))), None
    )
    if source is None:
        raise Unsupported(f"the device has no quantize<{value.elem},{elem}>")
    return emit.convert("quantize", emit.as_elem(value, source), elem, quant)


def boundary_quant(attributes: Mapping[str, object]) -> PerTensor:
    """The descriptor of `quant.quantize` and `quant.dequantize`."""
    scale, zero = attributes.get("scale"), attributes.get("zero_point")
    return PerTensor(
        float(scale) if isinstance(scale, int | float) else 1.0, zero if isinstance(zero, int) else 0
    )


def _dequantize(call: RowCall) -> Value:
    emit, value = call.emit, replace(call.value(0), quant=boundary_quant(call.attributes))
    wanted = name_in("nem", call.output().element) or emit.real
    wanted = emit.real if wanted == "f32" else wanted
    target = next(
        (item for item in (wanted, "f16", "f32") if emit.offers.has("dequantize", (value.elem, item))), None
    )
    if target is None:
        raise Unsupported(f"the device has no dequantize<{value.elem},{wanted}>")
    return emit.as_elem(emit.convert("dequantize", value, target, None), wanted)


def _decode(call: RowCall) -> Value:
    """Codes times scales that only the run tells, as those of the rows of a table: as real numbers of the plan."""
    emit, codes, scale = call.emit, replace(call.value(0), quant=PerTensor(1.0, 0)), call.value(1)
    if any(blocks not in (1, extent) for blocks, extent in zip(scale.shape, codes.shape, strict=True)):
        raise Unsupported("scales of blocks that only the run tells")
    if not emit.offers.has("dequantize", (codes.elem, "f16")):
        raise Unsupported(f"the device has no dequantize<{codes.elem},f16>")
    numbers = emit.as_real(emit.convert("dequantize", codes, "f16", None), emit.real)
    return emit.elementwise("mul", [numbers, emit.as_real(scale)])


def _requantize(call: RowCall) -> Value:
    """The same numbers in other codes: a clamp that no number reaches."""
    value, quant, elem = codes_of(call, 0, "x_"), meaning(call, "y_"), element_of(call)
    if value.quant == quant and value.elem == elem:
        return value
    return _elementwise(call, "clamp", [value], min_val=-FARTHEST, max_val=FARTHEST)


# --- elementwise ---------------------------------------------------------------------------------------------


def _elementwise(call: RowCall, opcode: str, values: Sequence[Value], **attributes: float) -> Value:
    elem = element_of(call)
    if any(item.elem != elem for item in values):
        raise Unsupported(f"{opcode} from {values[0].elem} to {elem}")
    call.emit.offers.moved(opcode, elem)
    return call.emit.elementwise(opcode, values, meaning(call, "y_"), elem, **attributes)


def _unary(opcode: str) -> Row:
    def row(call: RowCall) -> Value:
        return _elementwise(call, opcode, [codes_of(call, 0, "x_")])

    return row


def _leaky(call: RowCall) -> Value:
    return _elementwise(call, "leaky_relu", [codes_of(call, 0, "x_")], alpha=call.real("alpha", 0.01))


def _clamp(call: RowCall) -> Value:
    low, high = call.real("low"), call.real("high")
    return _elementwise(call, "clamp", [codes_of(call, 0, "x_")], min_val=low, max_val=high)


def _binary(opcode: str) -> Row:
    def row(call: RowCall) -> Value:
        return _elementwise(call, opcode, [codes_of(call, 0, "a_"), codes_of(call, 1, "b_")])

    return row


# --- products ------------------------------------------------------------------------------------------------


def _weights(call: RowCall, value: Value, bits: int, family: str, has_bias: bool) -> Value:
    """Codes of four bits where the device multiplies such, else widened: the numbers are the same."""
    word = "with_bias" if has_bias else "no_bias"
    if bits == 4 and value.array is not None and call.emit.offers.has(f"{family}.int4", (), word):
        return replace(value, elem="i4")
    return value if value.elem == "i8" else call.emit.as_elem(value, "i8")


def _scales(scale: Value, count: int, axis: int, zero: int = 0) -> Quant:
    """One scale for all channels, or one for each."""
    if scale.array is None:
        raise Unsupported("scales that only the run tells")
    numbers = tuple(float(item) for item in scale.array.reshape(-1).astype(np.float64))
    if len(numbers) == 1 or len(set(numbers)) == 1:
        return PerTensor(numbers[0], zero)
    if len(numbers) != count:
        raise Unsupported(f"{len(numbers)} scales for {count} channels")
    return PerChannel(axis, numbers, (zero,) * count)


def _bias(call: RowCall, bias: Value | None, count: int, elem: str, family: str, wide: bool) -> Value | None:
    """The addend, of zeros where the device has no variant without one."""
    offers = call.emit.offers
    name, elems = (f"{family}.int8", (elem,)) if wide else (f"{family}.int4", ())
    if bias is None and not offers.has(name, elems, "no_bias") and offers.has(name, elems, "with_bias"):
        return known(np.zeros(count, np.int32), "i32", f"zeros_{count}")
    if not offers.has(name, elems, "no_bias" if bias is None else "with_bias"):
        raise Unsupported(f"the device has no {name}<{elem}>{'' if bias is None else ' with a bias'}")
    return None if bias is None else call.emit.as_elem(bias, "i32")


def _conv(call: RowCall) -> Value:
    emit, elem = call.emit, element_of(call)
    window = window_of(call, codes_of(call, 0, "x_"), call.integer("x_zero"))
    given = call.optional(2)
    weight = _weights(call, window.weight, call.integer("w_bits", 8), "conv2d", given is not None)
    bias = _bias(call, given, weight.shape[0], elem, "conv2d", weight.elem == "i8")
    weight = replace(weight, quant=_scales(call.value(3), weight.shape[0], 0))
    others = [(weight, FILTER, "HWIO")]
    if bias is not None:
        others.append((bias, (0,), "C"))
    found = emit.window(
        "conv2d",
        window.image,
        others,
        window.shape,
        elem,
        meaning(call, "y_"),
        **window.attributes,
        accum_type="i32",
    )
    return from_planes(call, found)


def _matmul(call: RowCall) -> Value:
    emit, elem, given = call.emit, element_of(call), call.optional(2)
    a, b = codes_of(call, 0, "a_"), call.value(1)
    a, b = (turned(item) if call.flag(flag) else item for item, flag in ((a, "transA"), (b, "transB")))
    b = _weights(call, b, call.integer("b_bits", 8), "gemm", given is not None)
    columns = b.shape[-1]
    bias = _bias(call, given, columns, elem, "gemm", b.elem == "i8")
    b = replace(b, quant=_scales(call.value(3), columns, -1, call.integer("b_zero")))
    operands = [a, b] if bias is None else [a, b, bias]
    found = emit.product(operands, elem, "i32", meaning(call, "y_"))
    return emit.reshape(found, call.shape())


# --- pools ---------------------------------------------------------------------------------------------------


def _average(call: RowCall) -> Value:
    return pool(call, "avgpool", codes_of(call, 0, "x_"), meaning(call, "y_"))


def _mean(call: RowCall) -> Value:
    value = codes_of(call, 0, "x_")
    axes = call.integers("axes") or tuple(range(len(value.shape)))
    found = call.emit.pool_axis("avgpool", value, axes, meaning(call, "y_"))
    return call.emit.reshape(found, call.shape())


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **{"quant.quantize": _quantize, "quant.dequantize": _dequantize, "quant.requantize": _requantize},
        "quant.decode": _decode,
        **{f"quant.{name}": _unary(name) for name in UNARY},
        **{f"quant.{name}": _binary(name) for name in BINARY},
        **{"quant.leaky_relu": _leaky, "quant.clamp": _clamp, "quant.conv": _conv, "quant.matmul": _matmul},
        **{"quant.avg_pool": _average, "quant.mean": _mean},
    }
)
"""The rows of operators on codes."""
