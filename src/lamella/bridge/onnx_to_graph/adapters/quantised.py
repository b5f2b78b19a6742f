"""Adapters of quantised operators: to codes and back, and products and convolutions of codes in integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from lamella.base import dim
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import Extent
from lamella.base.dtype import BF16, F32, F64, I8, I16, I32, U8, U16, ElementType
from lamella.bridge.onnx_to_graph.adapters.elementwise import overflowing
from lamella.bridge.onnx_to_graph.adapters.networks import windows
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.graph.nodes import Tensor

CODES = (I8, U8, I16, U16)
"""Types of codes that integer graphs have."""


def along(site: NodeSite, parameter: Tensor, x: Tensor, axis: int, block: int = 0) -> Tensor:
    """A scale or a zero point in a shape that broadcasts: one number, one for each item of an axis, or blocks."""
    if parameter.shape == () or parameter.shape == (1,):
        return site.reshape(parameter, ())
    rank = len(x.shape)
    place = site.axis_in(axis, rank)
    if len(parameter.shape) == 1 and not block:
        shape: list[Extent] = [1] * rank
        shape[place] = parameter.shape[0]
        return site.reshape(parameter, shape)
    if not block:
        return parameter
    spread = site.call("aten.repeat_interleave", parameter, repeats=block, dim=place)
    if spread.shape[place] != x.shape[place]:
        spread = site.call("layout.slice", spread, axes=(place,), begin=(0,), end=(x.shape[place],))
    return spread


def to_codes(site: NodeSite, quotient: Tensor, zero: Tensor | None, element: ElementType) -> Tensor:
    """Quotients of numbers and scales as codes: rounded to even, moved by the zero point, kept in the type."""
    wide = quotient if quotient.element.bits >= 32 else site.cast(quotient, F32)
    shift = site.scalar(0, wide.element) if zero is None else site.cast(zero, wide.element)
    return site.make(
        "onnx.to_codes",
        element,
        wide,
        shift,
        low=float(element.minimum),
        high=float(element.maximum),
    )


# --- known scales: what an integer graph is made of -------------------------------------------------------------


def known_scale(site: NodeSite, index: int) -> Array | None:
    """The scales of an input where they are known, positive and finite, as doubles."""
    found = site.content(index)
    if found is None or (found.dtype.kind != "f" and found.dtype != numpy_dtype(BF16)):
        return None
    wide = np.asarray(found.astype(np.float64))
    return wide if wide.size and np.isfinite(wide).all() and (wide > 0).all() else None


def known_zero(site: NodeSite, index: int) -> Array | None:
    """The zero points of an input where they are known; an input that is left out is zero."""
    found = site.content(index) if site.has(index) else np.zeros((), np.int64)
    return None if found is None or found.dtype.kind not in "iu" else np.asarray(found.astype(np.int64))


def to_numbers(site: NodeSite, codes: Tensor, scale: Array, zero: Array, axis: int | None) -> Tensor | None:
    """Codes as numbers by operators of integer graphs; None where there are scales and zero points that they lack."""
    if codes.element not in (*CODES, I32):
        return None
    if scale.size == 1 and zero.size == 1:
        attributes = {"scale": float(scale.reshape(())), "zero_point": int(zero.reshape(()))}
        return site.make("quant.dequantize", F32, codes, **attributes)
    rank = len(codes.shape)
    if axis is None or scale.ndim != 1 or zero.any() or not -rank <= axis < rank:
        return None
    shape = [scale.size if place == axis % rank else 1 for place in range(rank)]
    if codes.shape[axis] != scale.size:
        return None
    scales = site.materialise(site.known_result(scale.reshape(shape), F64))
    return site.make("quant.decode", F32, codes, scales)


def input_numbers(site: NodeSite, index: int, axis: int | None = None) -> Tensor | None:
    """The numbers of an input of codes, with its scale and zero point behind it, where these are known."""
    scale, zero = known_scale(site, index + 1), known_zero(site, index + 2)
    return None if scale is None or zero is None else to_numbers(site, site.tensor(index), scale, zero, axis)


def output_codes(site: NodeSite, numbers: Tensor, index: int, element: ElementType) -> Tensor | None:
    """Numbers as codes of a known scale and zero point, which stand at some place."""
    scale, zero = known_scale(site, index), known_zero(site, index + 1)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1 or element not in CODES:
        return None
    attributes = {"scale": float(scale.reshape(())), "zero_point": int(zero.reshape(()))}
    return site.make("quant.quantize", element, numbers, **attributes)


def _bias_numbers(site: NodeSite, index: int, units: Array) -> Tensor | None:
    """A bias that counts units of sums as numbers; None where it is left out."""
    return to_numbers(site, site.tensor(index), units, np.zeros((), np.int64), 0) if site.has(index) else None


def _quantize(site: NodeSite) -> Results:
    x, scale, zero = site.tensor(0), site.tensor(1), site.optional(2)
    axis, block = site.integer("axis", 1), site.integer("block_size", 0)
    element = zero.element if zero is not None else site.type_of("output_dtype", U8)
    precision = site.type_of("precision", x.element if x.element.is_float else F32)
    if not block and precision == x.element == F32:
        found = output_codes(site, x, 1, element)
        if found is not None:
            return found
    wide = site.cast(x, precision)
    quotient = site.call("math.div", wide, along(site, site.cast(scale, precision), x, axis, block))
    if element.is_float:
        if not site.flag("saturate", True):
            return overflowing(site, quotient, element)
        return site.cast(quotient, element)
    return to_codes(site, quotient, None if zero is None else along(site, zero, x, axis, block), element)


def _dequantize(site: NodeSite) -> Results:
    x, scale, zero = site.tensor(0), site.tensor(1), site.optional(2)
    axis, block = site.integer("axis", 1), site.integer("block_size", 0)
    if not block and site.type_of("output_dtype", scale.element) == F32:
        found = input_numbers(site, 0, axis)
        if found is not None:
            return found
    wide = site.cast(x, F32)
    if zero is not None and not zero.element.is_float:
        wide = site.call("math.sub", wide, along(site, site.cast(zero, F32), x, axis, block))
    factor = along(site, site.cast(scale, F32), x, axis, block)
    return site.cast(site.mul(wide, factor), site.type_of("output_dtype", scale.element))


def _dynamic(site: NodeSite) -> Results:
    """Codes of eight bits whose scale and zero point the numbers themselves tell."""
    x = site.tensor()
    scale, zero = site.call_all("onnx.range_of_codes", x)
    codes = to_codes(site, site.call("math.div", x, scale), zero, U8)
    return [codes, scale, site.cast(zero, U8)]


# --- integers -----------------------------------------------------------------------------------------------------


def centred(site: NodeSite, x: Tensor, zero: Tensor | None) -> Tensor:
    """Codes as integers of 32 bits around their zero point."""
    wide = site.cast(x, I32)
    return wide if zero is None else site.call("math.sub", wide, site.cast(zero, I32))


def product(site: NodeSite, left: Tensor, right: Tensor) -> Tensor:
    """A product of matrices of integers; vectors are matrices of one row or column."""
    if len(left.shape) >= 2 and len(right.shape) >= 2:
        return site.call("onnx.matmul_integers", left, right)
    first = site.reshape(left, (1, *left.shape)) if len(left.shape) == 1 else left
    second = site.reshape(right, (*right.shape, 1)) if len(right.shape) == 1 else right
    found = site.call("onnx.matmul_integers", first, second)
    shape = list(found.shape)
    if len(right.shape) == 1:
        shape.pop(-1)
    if len(left.shape) == 1:
        shape.pop(-1 if len(right.shape) == 1 else -2)
    return site.reshape(found, shape)


def _rows(site: NodeSite, zero: Tensor | None, rank: int) -> Tensor | None:
    """The zero point of the rows of a left matrix."""
    if zero is None or len(zero.shape) != 1 or zero.shape[0] == 1:
        return None if zero is None else site.reshape(zero, ()) if len(zero.shape) <= 1 else zero
    return site.reshape(zero, (*zero.shape, 1))


def _matmul_integer(site: NodeSite) -> Results:
    left, right = site.tensor(0), site.tensor(1)
    first = centred(site, left, _rows(site, site.optional(2), len(left.shape)))
    return product(site, first, centred(site, right, _columns(site, site.optional(3))))


def _columns(site: NodeSite, zero: Tensor | None) -> Tensor | None:
    """The zero point of a right matrix: one, or one for each column."""
    return site.reshape(zero, ()) if zero is not None and zero.shape == (1,) else zero


def _qlinear_matmul(site: NodeSite) -> Results:
    if min(len(site.tensor(0).shape), len(site.tensor(3).shape)) >= 2 and known_scale(site, 6) is not None:
        left, right = input_numbers(site, 0), input_numbers(site, 3, len(site.tensor(3).shape) - 1)
        if left is not None and right is not None:
            codes = output_codes(site, site.call("linalg.matmul", left, right), 6, site.element(7))
            if codes is not None:
                return codes
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = site.tensors()
    left = centred(site, a, _rows(site, a_zero, len(a.shape)))
    total = product(site, left, centred(site, b, _columns(site, b_zero)))
    row = _rows(site, site.cast(a_scale, F32), 2)
    assert row is not None  # the scale was given
    factor = site.mul(row, _single(site, site.cast(b_scale, F32)))
    scale = site.call("math.div", factor, _single(site, site.cast(y_scale, F32)))
    return to_codes(site, site.mul(site.cast(total, F32), scale), _single(site, y_zero), y_zero.element)


def _single(site: NodeSite, parameter: Tensor) -> Tensor:
    return site.reshape(parameter, ()) if parameter.shape == (1,) else parameter


def _convolved(site: NodeSite, x: Tensor, weight: Tensor) -> Tensor:
    strides, dilations, pads = windows(site, x.shape[2:], weight.shape[2:])
    rank = len(x.shape) - 2
    sizes = [
        dim.add(
            dim.floor_divide(
                dim.sub(
                    dim.add(dim.add(size, pads[axis]), pads[rank + axis]),
                    dim.add(dim.mul(dim.sub(weight.shape[2 + axis], 1), dilations[axis]), 1),
                ),
                strides[axis],
            ),
            1,
        )
        for axis, size in enumerate(x.shape[2:])
    ]
    return site.call(
        "onnx.conv_integers",
        x,
        weight,
        stride=strides,
        dilation=dilations,
        padding=tuple(pads[:rank]),
        size=tuple(sizes),
        groups=site.groups(),
    )


def _channels(site: NodeSite, parameter: Tensor | None, rank: int, axis: int = 0) -> Tensor | None:
    """A parameter of each output channel in a shape that broadcasts."""
    if parameter is None or parameter.shape in ((), (1,)):
        return None if parameter is None else site.reshape(parameter, ())
    shape: list[Extent] = [1] * rank
    shape[axis] = parameter.shape[0]
    return site.reshape(parameter, shape)


def _conv_integer(site: NodeSite) -> Results:
    x, weight = site.tensor(0), site.tensor(1)
    zero = _channels(site, site.optional(3), len(weight.shape))
    first = centred(site, x, _channels(site, site.optional(2), len(x.shape)))
    return _convolved(site, first, centred(site, weight, zero))


def _known_conv(site: NodeSite) -> Tensor | None:
    """A convolution of codes whose scales are known, as one of numbers between codes."""
    x_scale, w_scale = known_scale(site, 1), known_scale(site, 4)
    if x_scale is None or w_scale is None or x_scale.size != 1 or known_scale(site, 6) is None:
        return None
    x, weight = input_numbers(site, 0), input_numbers(site, 3, 0)
    bias = _bias_numbers(site, 8, x_scale.reshape(()) * w_scale)
    if x is None or weight is None or (bias is None) == site.has(8):
        return None
    strides, dilations, pads = windows(site, x.shape[2:], weight.shape[2:])
    groups = site.integer("group", 1)
    found = site.call(
        "nn.conv", x, weight, bias, stride=strides, dilation=dilations, padding=pads, groups=groups
    )
    return output_codes(site, found, 6, site.element(7))


def _qlinear_conv(site: NodeSite) -> Results:
    known = _known_conv(site)
    if known is not None:
        return known
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (site.tensor(index) for index in range(8))
    rank = len(x.shape)
    left = centred(site, x, _single(site, x_zero))
    total = _convolved(site, left, centred(site, w, _channels(site, w_zero, rank)))
    bias = site.optional(8)
    if bias is not None:
        column = _channels(site, site.cast(bias, I32), rank, 1)
        assert column is not None  # the bias was given
        total = site.add(total, column)
    channel = _channels(site, site.cast(w_scale, F32), rank, 1)
    assert channel is not None  # the scale was given
    factor = site.mul(_single(site, site.cast(x_scale, F32)), channel)
    scale = site.call("math.div", factor, _single(site, site.cast(y_scale, F32)))
    return to_codes(site, site.mul(site.cast(total, F32), scale), _single(site, y_zero), y_zero.element)


QUANTISED: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {
        "QuantizeLinear": _quantize,
        "DequantizeLinear": _dequantize,
        "DynamicQuantizeLinear": _dynamic,
        "MatMulInteger": _matmul_integer,
        "ConvInteger": _conv_integer,
        "QLinearMatMul": _qlinear_matmul,
        "QLinearConv": _qlinear_conv,
    }
)
"""Adapters by the names of ONNX's operators."""
