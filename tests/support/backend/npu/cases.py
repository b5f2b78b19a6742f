"""Generated calls of every opcode: small shapes, all attributes, quantised and plain operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lamella.backend.npu.opcodes import OpcodeInput
from lamella.base import arrays, dtype
from lamella.base.quant import PerTensor, Quant
from lamella.lang.nem.resolved import AttributeValue, TensorType
from tests.support.backend.npu.drawing import FLOATS, INTEGERS, Case, Draw, tensor

# --- elementwise --------------------------------------------------------------------------------------------

UNARY = ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs", "neg", "gelu", "silu", "leaky_relu", "clamp")
BINARY = ("add", "sub", "mul", "div", "min", "max", "pow")
REAL_ONLY = ("sigmoid", "tanh", "exp", "log", "sqrt", "gelu", "silu")


def _element_attributes(draw: Draw, opcode: str) -> dict[str, AttributeValue]:
    if opcode == "leaky_relu":
        return {"alpha": draw.one_of(0.5, 0.1, -0.25, 2.0)}
    if opcode == "clamp":
        low = draw.integer(-20, 5)
        return {"min_val": low, "max_val": low + draw.integer(0, 20) + draw.one_of(0.0, 0.5)}
    return {}


def float_elements(draw: Draw, opcode: str) -> Case:
    """An elementwise opcode on floats; log, sqrt and pow stay where they are real."""
    type = tensor(draw.one_of(*FLOATS), draw.shape())
    inputs = [draw.operand(type) for _ in range(2 if opcode in BINARY else 1)]
    if opcode in ("log", "sqrt", "pow"):
        inputs[0] = OpcodeInput(np.abs(inputs[0].array), type)
    return Case(opcode, inputs, [type], _element_attributes(draw, opcode))


def plain_elements(draw: Draw, opcode: str) -> Case:
    """An elementwise opcode on plain integers."""
    type = tensor(draw.one_of(*INTEGERS), draw.shape())
    inputs = [draw.operand(type) for _ in range(2 if opcode in BINARY else 1)]
    if opcode == "div":
        inputs[1] = OpcodeInput(
            np.where(inputs[1].array == 0, inputs[1].array.dtype.type(3), inputs[1].array), type
        )
    if opcode == "pow":
        inputs[0] = draw.operand(type, 1, 100) if draw.integer(0, 1) else draw.operand(type, -3, -1)
        inputs[1] = draw.operand(type, -3, 20)
    return Case(opcode, inputs, [type], _element_attributes(draw, opcode))


def quantised_elements(draw: Draw, opcode: str) -> Case:
    """An elementwise opcode on quantised integers; sometimes all share one descriptor."""
    elem, shape = draw.one_of("i8", "i16"), draw.shape()
    every = tuple(range(len(shape)))
    shared = draw.quant(shape, every) if draw.integer(0, 1) else None
    types = [tensor(elem, shape, shared or draw.quant(shape, every)) for _ in range(3)]
    count = 2 if opcode in BINARY else 1
    inputs = [draw.operand(type, -128, 127) for type in types[:count]]
    return Case(opcode, inputs, [types[2]], _element_attributes(draw, opcode))


# --- products -----------------------------------------------------------------------------------------------


def _matrices(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    m, k, n, batch = draw.integer(1, 4), draw.integer(1, 7), draw.integer(1, 4), draw.integer(1, 3)
    a = draw.one_of((m, k), (batch, m, k), (2, batch, m, k))
    b = draw.one_of((k, n), (batch, k, n), (1, k, n))
    return a, b, (*np.broadcast_shapes(a[:-2], b[:-2]), m, n)


def _bias_shape(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    return draw.one_of((shape[-1],), (shape[-2], 1), shape)


def float_product(draw: Draw, opcode: str) -> Case:
    """A float matrix product, gemm with or without C."""
    elem = draw.one_of(*FLOATS)
    a, b, y = _matrices(draw)
    inputs = [draw.operand(tensor(elem, a)), draw.operand(tensor(elem, b))]
    if opcode == "gemm" and draw.integer(0, 1):
        inputs.append(draw.operand(tensor(elem, _bias_shape(draw, y))))
    return Case(opcode, inputs, [tensor(elem, y)], {"accum_type": "f32"})


def integer_product(draw: Draw, opcode: str) -> Case:
    """A quantised matrix product with any descriptors, also along the reduction."""
    a, b, y = _matrices(draw)
    weights = draw.one_of("i8", "i4")
    left = tensor("i8", a, draw.quant(a, range(len(a))) if draw.integer(0, 1) else draw.per_tensor())
    right = tensor(weights, b, draw.quant(b, range(len(b))))
    inputs = [draw.operand(left), draw.operand(right)]
    if opcode == "gemm" and draw.integer(0, 1):
        shape = _bias_shape(draw, y)
        inputs.append(draw.operand(tensor("i32", shape, _bias_quant(draw)), -1000, 1000))
    return Case(opcode, inputs, [_output(draw, y, weights)], {"accum_type": "i32"})


def _bias_quant(draw: Draw) -> Quant | None:
    return PerTensor(draw.scale(), 0) if draw.integer(0, 1) else None


def _output(draw: Draw, shape: tuple[int, ...], weights: str) -> TensorType:
    elem = "i8" if weights == "i4" else draw.one_of("i8", "i16")
    quant = draw.one_of(None, draw.per_tensor(), draw.quant(shape, (len(shape) - 1,)))
    return tensor(elem, shape, quant)


RANKS = {"conv1d": 1, "conv2d": 2, "conv3d": 3, "depthwise_conv2d": 2}


@dataclass
class Sliding:
    """The shapes and attributes of a window operation."""

    x: tuple[int, ...]
    kernel: tuple[int, ...]
    out: tuple[int, ...]
    attributes: dict[str, AttributeValue]


def _sliding(draw: Draw, rank: int, dilated: bool) -> Sliding:
    most = 5 if rank < 3 else 3
    kernel = tuple(draw.integer(1, 3 if rank < 3 else 2) for _ in range(rank))
    strides = tuple(draw.integer(1, 3) for _ in range(rank))
    dilations = tuple(draw.integer(1, 2) if dilated else 1 for _ in range(rank))
    pads = tuple(draw.integer(0, 2) for _ in range(2 * rank))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = tuple(max(draw.integer(1, most), reach[i] - pads[i] - pads[rank + i]) for i in range(rank))
    out = tuple((sizes[i] + pads[i] + pads[rank + i] - reach[i]) // strides[i] + 1 for i in range(rank))
    attributes: dict[str, AttributeValue] = {"pads": pads, "strides": strides}
    if dilated:
        attributes["dilations"] = dilations
    return Sliding((draw.integer(1, 2), *sizes), kernel, out, attributes)


def convolution(draw: Draw, opcode: str, elem: str) -> Case:
    """A convolution of floats, or of i8 with i8 or i4 weights."""
    sliding = _sliding(draw, RANKS[opcode], dilated=True)
    groups, depth, width = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 2)
    if opcode == "depthwise_conv2d":
        groups, depth = draw.integer(1, 3), 1
    else:
        sliding.attributes["groups"] = groups
    x, w = (*sliding.x, groups * depth), (*sliding.kernel, depth, groups * width)
    y = (x[0], *sliding.out, w[-1])
    attributes = {**sliding.attributes, "accum_type": "f32" if elem in FLOATS else "i32"}
    if elem in FLOATS:
        inputs = [draw.operand(tensor(elem, shape)) for shape in (x, w, w[-1:])]
        return Case(opcode, inputs[: draw.integer(2, 3)], [tensor(elem, y)], attributes)
    x_quant = draw.quant(x, range(len(x))) if draw.integer(0, 2) == 0 else draw.per_tensor()
    types = [tensor("i8", x, x_quant), tensor(elem, w, draw.quant(w, range(len(w))))]
    bias = draw.operand(tensor("i32", w[-1:], _bias_quant(draw)), -1000, 1000)
    inputs = [*(draw.operand(type) for type in types), bias]
    return Case(opcode, inputs[: draw.integer(2, 3)], [_output(draw, y, elem)], attributes)


def pool(draw: Draw, opcode: str, elem: str) -> Case:
    """A pooling; integers with one descriptor, two or none."""
    sliding = _sliding(draw, 2, dilated=False)
    channels = draw.integer(1, 3)
    x, y = (*sliding.x, channels), (sliding.x[0], *sliding.out, channels)
    quants: tuple[Quant | None, Quant | None] = (None, None)
    if elem not in FLOATS and draw.integer(0, 2):
        shared = draw.one_of(draw.per_tensor(), draw.quant(x, (3,)))
        quants = draw.one_of((shared, shared), (draw.quant(x, (1, 2, 3)), draw.quant(y, (3,))))
    types = tensor(elem, x, quants[0]), tensor(elem, y, quants[1])
    attributes = {**sliding.attributes, "kernel_shape": sliding.kernel}
    return Case(opcode, [draw.operand(types[0])], [types[1]], attributes)


# --- reductions and norms -----------------------------------------------------------------------------------


def _reduced(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    gone = {axis % len(shape) for axis in axes}
    kept = [1 if index in gone else size for index, size in enumerate(shape)]
    return tuple(size for index, size in enumerate(kept) if keep or index not in gone)


def _flag(draw: Draw) -> bool:
    return bool(draw.integer(0, 1))


def reduction(draw: Draw, opcode: str, elem: str) -> Case:
    """A reduction along some axes."""
    shape = draw.shape()
    order = [int(item) for item in draw.random.permutation(len(shape))[: draw.integer(1, len(shape))]]
    axes, keep = tuple(axis - len(shape) * draw.integer(0, 1) for axis in order), _flag(draw)
    out = _reduced(shape, axes, keep)
    quants: tuple[Quant | None, Quant | None] = (None, None)
    if elem not in FLOATS and draw.integer(0, 1):
        quants = (draw.quant(shape, range(len(shape))), draw.per_tensor())
    types = tensor(elem, shape, quants[0]), tensor(elem, out, quants[1])
    return Case(opcode, [draw.operand(types[0])], [types[1]], {"axes": axes, "keepdims": keep})


def extreme_place(draw: Draw, opcode: str, elem: str) -> Case:
    """An argmax or argmin with many ties."""
    shape = draw.shape()
    axis, keep = draw.integer(-len(shape), len(shape) - 1), _flag(draw)
    operand = draw.operand(tensor(elem, shape), -2, 2)
    out = tensor(draw.one_of("i32", "u32"), _reduced(shape, [axis], keep))
    return Case(opcode, [operand], [out], {"axis": axis, "keepdims": keep})


def along_axis(draw: Draw, opcode: str) -> Case:
    """A softmax or a norm."""
    type = tensor(draw.one_of(*FLOATS), draw.shape())
    axis = draw.integer(-len(type.shape), len(type.shape) - 1)
    attributes: dict[str, AttributeValue] = {"axis": axis}
    inputs = [draw.operand(type)]
    if opcode.endswith("norm"):
        attributes["epsilon"] = draw.one_of(0.00001, 0.1, 1)
        affine = tensor(type.elem, type.shape[axis : axis + 1 or None])
        most = 2 if opcode == "layernorm" else 1
        inputs += [draw.operand(affine) for _ in range(draw.integer(0, most))]
    return Case(opcode, inputs, [type], attributes)


# --- views and conversions ----------------------------------------------------------------------------------


def view(draw: Draw, opcode: str) -> Case:
    """An opcode that moves elements."""
    return _VIEWS[opcode](draw, draw.one_of("i4", "u8", *INTEGERS, *FLOATS), draw.shape())


def moved_bytes(draw: Draw, opcode: str) -> Case:
    """A transfer or store."""
    type = tensor("u8", (draw.integer(1, 40),))
    return Case(opcode, [draw.operand(type)], [type])


def _transpose(draw: Draw, elem: str, shape: tuple[int, ...]) -> Case:
    perm = tuple(int(item) for item in draw.random.permutation(len(shape)))
    out = tensor(elem, [shape[axis] for axis in perm])
    return Case("transpose", [draw.operand(tensor(elem, shape))], [out], {"perm": perm})


def _reshape(draw: Draw, elem: str, shape: tuple[int, ...]) -> Case:
    out = draw.one_of((int(np.prod(shape)),), shape[::-1], (1, *shape))
    return Case("reshape", [draw.operand(tensor(elem, shape))], [tensor(elem, out)], {"target_shape": out})


def _slice(draw: Draw, elem: str, shape: tuple[int, ...]) -> Case:
    axes = tuple(int(item) for item in draw.random.permutation(len(shape))[: draw.integer(1, len(shape))])
    bounds = [_bounds(draw, shape[axis]) for axis in axes]
    out = list(shape)
    for axis, bound in zip(axes, bounds, strict=True):
        out[axis] = len(range(shape[axis])[slice(*bound)])
    starts, ends, steps = zip(*bounds, strict=True)
    attributes: dict[str, AttributeValue] = {
        **{"starts": starts, "ends": ends, "steps": steps},
        "axes": tuple(axis - len(shape) * draw.integer(0, 1) for axis in axes),
    }
    return Case("slice", [draw.operand(tensor(elem, shape))], [tensor(elem, out)], attributes)


def _bounds(draw: Draw, size: int) -> tuple[int, int, int]:
    """Start, end and step that leave at least one element."""
    bounds = draw.integer(-9, 9), draw.integer(-9, 9), draw.one_of(1, 2, 3, -1, -2)
    return bounds if range(size)[slice(*bounds)] else (0, 99, 1)


def _sizes(draw: Draw, shape: tuple[int, ...]) -> tuple[int, list[tuple[int, ...]], tuple[int, ...]]:
    """An axis, the shapes of some pieces along it, and the shape of all together."""
    axis = draw.integer(0, len(shape) - 1)
    sizes = [draw.integer(1, 3) for _ in range(draw.integer(1, 3))]
    pieces = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    return axis, pieces, (*shape[:axis], sum(sizes), *shape[axis + 1 :])


def _concat(draw: Draw, elem: str, shape: tuple[int, ...]) -> Case:
    axis, pieces, whole = _sizes(draw, shape)
    inputs = [draw.operand(tensor(elem, piece)) for piece in pieces]
    return Case("concat", inputs, [tensor(elem, whole)], {"axis": axis - len(shape) * draw.integer(0, 1)})


def _split(draw: Draw, elem: str, shape: tuple[int, ...]) -> Case:
    axis, pieces, whole = _sizes(draw, shape)
    sizes = tuple(piece[axis] for piece in pieces)
    attributes: dict[str, AttributeValue] = {"axis": axis, "split_sizes": sizes}
    return Case("split", [draw.operand(tensor(elem, whole))], [tensor(elem, p) for p in pieces], attributes)


def _pad(draw: Draw, elem: str, shape: tuple[int, ...]) -> Case:
    mode = draw.one_of("constant", "edge", "reflect")
    pads = [max(draw.integer(-1, 3), 1 - size) for size in shape]
    ends = [draw.integer(0, 3) for _ in shape]
    if mode == "reflect":
        pads = [min(abs(pad), size - 1) for pad, size in zip(pads, shape, strict=True)]
        ends = [min(pad, size - 1) for pad, size in zip(ends, shape, strict=True)]
    out = [pads[i] + size + ends[i] for i, size in enumerate(shape)]
    quant = draw.per_tensor() if elem == "i8" and draw.integer(0, 1) else None
    attributes: dict[str, AttributeValue] = {"pads": (*pads, *ends), "mode": mode}
    if draw.integer(0, 1):
        attributes["constant_value"] = draw.one_of(1.5, -3, 2)
    return Case("pad", [draw.operand(tensor(elem, shape, quant))], [tensor(elem, out, quant)], attributes)


def _gather(draw: Draw, elem: str, shape: tuple[int, ...]) -> Case:
    axis = draw.integer(0, len(shape) - 1)
    places = tensor(draw.one_of("i8", "i32", "u32", "i4"), draw.shape(1, 2))
    indices = draw.operand(places, 0, shape[axis] - 1)
    out = (*shape[:axis], *places.shape, *shape[axis + 1 :])
    attributes: dict[str, AttributeValue] = {"axis": axis - len(shape) * draw.integer(0, 1)}
    return Case("gather", [draw.operand(tensor(elem, shape)), indices], [tensor(elem, out)], attributes)


_VIEWS: Mapping[str, Callable[[Draw, str, tuple[int, ...]], Case]] = {
    **{"transpose": _transpose, "reshape": _reshape, "slice": _slice, "concat": _concat},
    **{"split": _split, "pad": _pad, "gather": _gather},
}


def conversion(draw: Draw, opcode: str) -> Case:
    """A cast between any two types, a quantize or a dequantize."""
    shape = draw.shape()
    every = range(len(shape))
    if opcode == "quantize":
        source, target = tensor(draw.one_of(*FLOATS), shape), tensor("i8", shape, draw.quant(shape, every))
    elif opcode == "dequantize":
        source, target = tensor("i8", shape, draw.quant(shape, every)), tensor(draw.one_of(*FLOATS), shape)
    else:
        names = sorted(dtype.LANGUAGES["nem"])
        source, target = tensor(draw.one_of(*names), shape), tensor(draw.one_of(*names), shape)
    operand = draw.operand(source)
    if source.elem in FLOATS:
        factor = draw.one_of(1.0, 100.0, 50000.0)
        element = dtype.LANGUAGES["nem"][source.elem]
        operand = OpcodeInput(arrays.cast(operand.array.astype(np.float32) * factor, element), source)
    return Case(opcode, [operand], [target])
