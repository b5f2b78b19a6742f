"""The exact numbers of every opcode, on plain arrays: no memory, no regions, no tasks.

`apply` is the one entry: the interpreter of plans and the executor of task-control streams both call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from lamella.backend.npu.opcodes import elementwise, linear
from lamella.backend.npu.opcodes.call import OpcodeCall, OpcodeInput, OpcodeReport, element_of
from lamella.backend.npu.opcodes.linear import (
    IntegerFactor,
    accumulate,
    finish_float,
    finish_integer,
    group_numbers,
    sum_products,
)
from lamella.backend.npu.opcodes.quantised import (
    add_in_order,
    centre,
    is_float,
    real_values,
    runs_along,
    scales_of_type,
    singles,
    store_float,
    store_real,
    wrap_integers,
)
from lamella.backend.npu.opcodes.windows import OutputBlock, SlidingWindow, blocks, real_elements
from lamella.backend.npu.opcodes.windows import gather as windows_gather
from lamella.base import arrays
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.quant import PerTensor, axis_of
from lamella.lang.nem.resolved import AttributeValue, TensorType
from lamella.lang.nem.rules import GATHER_INDEX, UNSUPPORTED

# --- convolutions of channels-last tensors: X[N, spatial…, C] with W[kernel…, C / groups, Cout] -------------


def convolve(call: OpcodeCall) -> list[Array]:
    """Run conv1d, conv2d, conv3d or depthwise_conv2d."""
    shape = call.inputs[1].type.shape
    groups = shape_groups(call)
    problem = _OpcodeProblem(call, _window(call, shape[:-2]), groups)
    return [problem.floats() if is_float(call.outputs[0]) else problem.integers()]


def shape_groups(call: OpcodeCall) -> int:
    """The number of groups: as many as channels for a depthwise convolution."""
    return call.inputs[0].type.shape[-1] if call.opcode == "depthwise_conv2d" else call.integer("groups", 1)


def _window(call: OpcodeCall, kernel: tuple[int, ...]) -> SlidingWindow:
    rank = len(kernel)
    return SlidingWindow(
        kernel, call.integers("strides"), call.integers("dilations"), call.integers("pads")[:rank]
    )


@dataclass(frozen=True, slots=True)
class _OpcodeProblem:
    """A convolution, cut into blocks of outputs and groups of channels."""

    call: OpcodeCall
    window: SlidingWindow
    groups: int

    def floats(self) -> Array:
        x, w = (singles(item) for item in self.call.inputs[:2])

        def multiply(block: OutputBlock, group: int) -> Array:
            return sum_products(self.columns(x, block, group, 0.0), self.rows(w, group))

        y = self.call.outputs[0]
        return finish_float(self.assemble(multiply, np.float32), self.call.operand(2), y)

    def integers(self) -> Array:
        x, w, y = self.call.inputs[0], self.call.inputs[1], self.call.outputs[0]
        rank = len(x.type.shape)
        x_inner = runs_along(x.type.quant, rank, range(1, rank))
        w_inner = runs_along(w.type.quant, rank, range(rank - 1))
        sides = _centred(x), _centred(w)

        def multiply(block: OutputBlock, group: int) -> Array:
            columns = self.columns(sides[0], block, group, 0.0)
            left = self.scaled_columns(columns, block, group) if x_inner else IntegerFactor(columns)
            right = (
                self.scaled_rows(sides[1], group) if w_inner else IntegerFactor(self.rows(sides[1], group))
            )
            return accumulate(left, right, self.call.report)

        sums = self.assemble(multiply, np.float64 if x_inner or w_inner else np.int64)
        x_scale = np.ones(1) if x_inner else scales_of_type(x.type)[0]
        w_scale = np.ones(1) if w_inner else scales_of_type(w.type)[0]
        return finish_integer(sums, x_scale * w_scale, self.call.operand(2), y, self.call.report)

    def assemble(self, multiply: Callable[[OutputBlock, int], Array], dtype: type[np.generic]) -> Array:
        """The sums of all blocks and groups in the shape of the output."""
        x_shape, y_shape = self.call.inputs[0].type.shape, self.call.outputs[0].shape
        sums = np.zeros(y_shape, dtype)
        width = y_shape[-1] // self.groups
        for block in blocks(self.window, x_shape, y_shape[1:-1]):
            target = sums[block.image, block.rows]
            for group in range(self.groups):
                part = target[..., group * width : (group + 1) * width]
                part[...] = multiply(block, group).reshape(part.shape)
        return sums

    def columns(self, values: Array, block: OutputBlock, group: int, padding: float | None) -> Array:
        """The windows of a block as [outputs, K]."""
        depth = values.shape[-1] // self.groups
        found = windows_gather(values[..., group * depth : (group + 1) * depth], block, padding)
        outputs = int(np.prod(found.shape[: len(block.taps)], dtype=np.int64))
        return found.reshape(outputs, -1)

    def rows(self, values: Array, group: int) -> Array:
        """The weights of a group as [K, outputs]."""
        width = values.shape[-1] // self.groups
        return values[..., group * width : (group + 1) * width].reshape(-1, width)

    def scaled_rows(self, values: Array, group: int) -> IntegerFactor:
        """Weights whose scales run along a kernel axis or the input channels."""
        w = self.call.inputs[1]
        shape = w.type.shape[:-1]
        axis = _quant_axis(w)
        inner = np.broadcast_to(scales_of_type(w.type)[0][..., 0], shape).reshape(1, -1)
        return IntegerFactor(
            self.rows(values, group), _spread(group_numbers(w.type.quant, shape[axis]), axis, shape), inner
        )

    def scaled_columns(self, columns: Array, block: OutputBlock, group: int) -> IntegerFactor:
        """Windows whose scales run along the channels or a spatial axis (then a group is a kernel position)."""
        x = self.call.inputs[0]
        axis = _quant_axis(x)
        depth = x.type.shape[-1] // self.groups
        shape = (*self.window.kernel, depth)
        numbers = np.arange(shape[axis - 1])
        if axis == len(shape):
            numbers = group_numbers(x.type.quant, x.type.shape[-1])[group * depth : (group + 1) * depth]
        scales = np.broadcast_to(scales_of_type(x.type)[0], x.type.shape)
        return IntegerFactor(
            columns, _spread(numbers, axis - 1, shape), self.columns(scales, block, group, None)
        )


def _centred(operand: OpcodeInput) -> Array:
    return operand.array.astype(np.int64) - scales_of_type(operand.type)[1]


def _quant_axis(operand: OpcodeInput) -> int:
    quant, rank = operand.type.quant, len(operand.type.shape)
    found = None if quant is None or isinstance(quant, PerTensor) else axis_of(quant, rank)
    return found or 0


def _spread(numbers: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """Numbers along one axis of the reduction, given for every reduction index."""
    along = numbers.reshape([-1 if index == axis else 1 for index in range(len(shape))])
    return np.broadcast_to(along, shape).reshape(-1)


# --- opcodes that move elements without changing them; they follow ONNX -------------------------------------


def copy(call: OpcodeCall) -> list[Array]:
    """Run transfer and store: the bytes of the source, which are read as u8."""
    return [call.inputs[0].array.copy()]


def transpose(call: OpcodeCall) -> list[Array]:
    """Reorder the axes: axis i of the output is axis perm[i] of the input."""
    return [call.inputs[0].array.transpose(call.integers("perm"))]


def reshape(call: OpcodeCall) -> list[Array]:
    """Give the same elements, in row-major order, another shape."""
    return [call.inputs[0].array.reshape(call.outputs[0].shape)]


def slice_axes(call: OpcodeCall) -> list[Array]:
    """Take from starts to ends (exclusive, clamped to the axis, negative from the back) in steps."""
    x = call.inputs[0].array
    cuts = [slice(None)] * x.ndim
    names = ("starts", "ends", "axes", "steps")
    for start, end, axis, step in zip(*(call.integers(name) for name in names), strict=False):
        cuts[axis % x.ndim] = _cut(x.shape[axis], start, end, step)
    return [x[tuple(cuts)]]


def _cut(size: int, start: int, end: int, step: int) -> slice:
    """A slice with resolved bounds; -1 as a resolved end means before the first element."""
    first, stop, step = slice(start, end, step).indices(size)
    return slice(first, None if stop < 0 else stop, step)


def concat(call: OpcodeCall) -> list[Array]:
    """Join along an axis."""
    return [np.concatenate([item.array for item in call.inputs], axis=call.axis())]


def split(call: OpcodeCall) -> list[Array]:
    """Cut along an axis into pieces of the given sizes."""
    ends = np.cumsum(call.integers("split_sizes"))
    pieces: list[Array] = np.split(call.inputs[0].array, ends[:-1], axis=call.axis())
    return pieces


def pad(call: OpcodeCall) -> list[Array]:
    """Surround with a constant, the edge or the reflection; negative pads cut off."""
    (x,), (y,) = call.inputs, call.outputs
    found, mode = x.array, call.word("mode")
    begins = call.integers("pads")[: found.ndim]
    constant = _constant(call.number("constant_value"), y)
    for axis, begin in enumerate(begins):
        at = np.arange(y.shape[axis]) - begin
        found = _extend(found, axis, at, constant if mode == "constant" else None, mode)
    return [found]


def _constant(value: float, y: TensorType) -> Array:
    """A real number as one stored element; without a descriptor integers truncate it like a cast."""
    if is_float(y) or y.quant is not None:
        return store_real(np.full(y.shape, value), y)
    return arrays.cast(np.full(y.shape, value), element_of(y))


def _extend(values: Array, axis: int, at: Array, constant: Array | None, mode: str) -> Array:
    """Elements at positions along an axis, some of which lie outside."""
    size = values.shape[axis]
    inside = np.clip(at, 0, size - 1)
    if mode == "reflect":
        period = max(2 * size - 2, 1)
        inside = np.minimum(at % period, (-at) % period) if size > 1 else np.zeros_like(at)
    found = np.take(values, inside, axis=axis)
    if constant is None:
        return found
    outside = (at != inside).reshape([-1 if index == axis else 1 for index in range(values.ndim)])
    return np.where(outside, constant.reshape(-1)[0], found)


def gather(call: OpcodeCall) -> list[Array]:
    """Take slices along an axis; an index outside is an error (the nearest slice is then taken)."""
    x, indices = call.inputs[0].array, call.inputs[1].array.astype(np.int64)
    size = x.shape[call.axis()]
    outside = (indices < 0) | (indices >= size)
    if outside.any():
        call.report(GATHER_INDEX, index=int(indices[outside].reshape(-1)[0]), size=size)
    return [np.take(x, np.clip(indices, 0, size - 1), axis=call.axis())]


# --- pooling of [N, H, W, C]: padding takes no part, an average divides by the number of real ---------------


_SPATIAL = (1, 2)


def maxpool(call: OpcodeCall) -> list[Array]:
    """Take the maximum of each window."""
    (x,), (y,) = call.inputs, call.outputs
    kept = _is_kept(call)
    values, scale = (x.array.astype(np.float64), np.ones(1)) if kept else centre(x, _SPATIAL)
    found = np.empty(y.shape)
    for block in _blocks(call):
        found[block.image, block.rows] = windows_gather(values, block, -np.inf).max(axis=(2, 3))
    return [arrays.cast(found, element_of(y)) if kept else store_real(found * scale, y)]


def avgpool(call: OpcodeCall) -> list[Array]:
    """Take the mean of each window."""
    (x,), (y,) = call.inputs, call.outputs
    real = _counts(call)
    counts = np.maximum(real, 1)
    if is_float(y):
        return [store_float(_sums(call, singles(x)) / counts.astype(np.float32), y)]
    if _is_kept(call):
        means = divide_half_even(_sums(call, x.array.astype(np.int64)), counts)
        return [arrays.cast(np.where(real > 0, means, scales_of_type(x.type)[1]), element_of(y))]
    values, scale = centre(x, _SPATIAL)
    return [store_real(scale * (_sums(call, values) / counts), y)]


def divide_half_even(sums: Array, counts: Array) -> Array:
    """Integer quotients, rounded to the nearest and halves to even, exactly."""
    whole = sums // counts
    twice = 2 * (sums - whole * counts)
    rounded: Array = whole + ((twice > counts) | ((twice == counts) & (whole % 2 != 0)))
    return rounded


def _is_kept(call: OpcodeCall) -> bool:
    """Whether stored elements can be pooled as they are: one descriptor for both, the same in a whole window."""
    x, y = call.inputs[0].type, call.outputs[0]
    return is_float(x) or (x.quant == y.quant and not runs_along(x.quant, 4, _SPATIAL))


def _blocks(call: OpcodeCall) -> list[OutputBlock]:
    kernel, strides, pads = (call.integers(name) for name in ("kernel_shape", "strides", "pads"))
    window = SlidingWindow(kernel, strides, (1, 1), pads[:2], dense=True)
    return list(blocks(window, call.inputs[0].type.shape, call.outputs[0].shape[1:-1]))


def _sums(call: OpcodeCall, values: Array) -> Array:
    """The sum of each window in ascending order, in the type of the values."""
    sums = np.zeros(call.outputs[0].shape, values.dtype)
    for block in _blocks(call):
        windows = windows_gather(values, block, 0.0)
        flat = windows.reshape(*windows.shape[:2], -1, windows.shape[-1])
        sums[block.image, block.rows] = add_in_order(flat, 2)[:, :, 0]
    return sums


def _counts(call: OpcodeCall) -> Array:
    """The number of real elements of each window, to be broadcast against the output."""
    shape = call.outputs[0].shape
    counts = np.zeros((1, *shape[1:-1], 1), np.int64)
    for block in _blocks(call):
        counts[0, block.rows] = real_elements(block)
    return counts


# --- reductions: floats are summed in f32 in ascending order, plain integers wrap, quantised ----------------


_EXTREME = {"reduce_max": np.max, "reduce_min": np.min}


def reduce_sum(call: OpcodeCall) -> list[Array]:
    """Add up along axes."""
    (x,), (y,) = call.inputs, call.outputs
    axes = _axes(call)
    if is_float(y):
        return [store_float(_add(singles(x), axes).reshape(y.shape), y)]
    if x.type.quant is None and y.quant is None:
        total = x.array.astype(np.int64).sum(axis=axes)
        return [wrap_integers(total.reshape(y.shape), element_of(y), call.report)]
    values, scale = centre(x, axes)
    return [store_real((_add(values, axes) * scale).reshape(y.shape), y)]


def reduce_extreme(call: OpcodeCall) -> list[Array]:
    """Run reduce_max and reduce_min."""
    (x,), (y,) = call.inputs, call.outputs
    values, scale = centre(x, _axes(call))
    found = _EXTREME[call.opcode](values, axis=_axes(call), keepdims=True)
    return [store_real((found * scale).reshape(y.shape), y)]


def find_extreme(call: OpcodeCall) -> list[Array]:
    """Run argmax and argmin: the first place of the extreme."""
    (x,), (y,) = call.inputs, call.outputs
    values = real_values(x)
    found = np.argmax(values, call.axis()) if call.opcode == "argmax" else np.argmin(values, call.axis())
    return [arrays.cast(np.asarray(found, np.int64).reshape(y.shape), element_of(y))]


def _axes(call: OpcodeCall) -> tuple[int, ...]:
    """The axes in ascending order; an empty list means none."""
    rank = len(call.inputs[0].type.shape)
    return tuple(sorted({axis % rank for axis in call.integers("axes")}))


def _add(values: Array, axes: tuple[int, ...]) -> Array:
    """Sums in ascending row-major order of the reduced axes, which stay with size 1."""
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    shape = tuple(values.shape[axis] for axis in kept)
    flat = values.transpose([*axes, *kept]).reshape(-1, *shape)
    final = tuple(1 if axis in axes else size for axis, size in enumerate(values.shape))
    return add_in_order(flat, 0).reshape(final)


# --- softmax and norms along one axis: every step is rounded to f32, sums run in ascending order ------------


def softmax(call: OpcodeCall) -> list[Array]:
    """Exponentials less the maximum, divided by their sum."""
    powers = _exponentials(_less_maximum(call))
    return [store_float(powers / add_in_order(powers, call.axis()), call.outputs[0])]


def log_softmax(call: OpcodeCall) -> list[Array]:
    """Compute x - max - log(sum)."""
    shifted = _less_maximum(call)
    total = add_in_order(_exponentials(shifted), call.axis())
    logarithm = np.log(total.astype(np.float64)).astype(np.float32)
    return [store_float(shifted - logarithm, call.outputs[0])]


def layernorm(call: OpcodeCall) -> list[Array]:
    """Compute (x - mean) / sqrt(variance + epsilon) * scale + bias, the variance being biased."""
    x, axis = singles(call.inputs[0]), call.axis()
    centred = x - _mean(x, axis)
    found = _divide_by_root(centred, _mean(centred * centred, axis), call)
    return [store_float(_affine(found, call.operand(1), call.operand(2), axis), call.outputs[0])]


def rmsnorm(call: OpcodeCall) -> list[Array]:
    """Compute x / sqrt(mean(x²) + epsilon) * scale."""
    x, axis = singles(call.inputs[0]), call.axis()
    found = _divide_by_root(x, _mean(x * x, axis), call)
    return [store_float(_affine(found, call.operand(1), None, axis), call.outputs[0])]


def _less_maximum(call: OpcodeCall) -> Array:
    x = singles(call.inputs[0])
    largest: Array = x.max(axis=call.axis(), keepdims=True)
    return x - largest


def _exponentials(values: Array) -> Array:
    """The nearest f32 of each exponential, the same on every machine."""
    return np.exp(values.astype(np.float64)).astype(np.float32)


def _mean(values: Array, axis: int) -> Array:
    return add_in_order(values, axis) / np.float32(values.shape[axis])


def _divide_by_root(values: Array, square: Array, call: OpcodeCall) -> Array:
    return values / np.sqrt(square + np.float32(call.number("epsilon")))


def _affine(values: Array, scale: OpcodeInput | None, bias: OpcodeInput | None, axis: int) -> Array:
    along = [-1 if index == axis else 1 for index in range(values.ndim)]
    if scale is not None:
        values = values * singles(scale).reshape(along)
    return values if bias is None else values + singles(bias).reshape(along)


# --- explicit conversions between element types -------------------------------------------------------------


def cast(call: OpcodeCall) -> list[Array]:
    """Float to integer truncates to zero then saturates, integers saturate, floats round to nearest even."""
    return [arrays.cast(call.inputs[0].array, element_of(call.outputs[0]))]


def quantize(call: OpcodeCall) -> list[Array]:
    """Compute clamp(rint(x / scale) + zero_point) with the descriptor of the output."""
    return [store_real(call.inputs[0].array.astype(np.float64), call.outputs[0])]


def dequantize(call: OpcodeCall) -> list[Array]:
    """Compute scale * (q - zero_point) in f32, then the type of the output."""
    return [store_float(real_values(call.inputs[0]), call.outputs[0])]


__all__ = ["OPCODES", "OpcodeCall", "OpcodeInput", "OpcodeReport", "apply"]


def refuse(call: OpcodeCall) -> list[Array]:
    """Run the escape hatch: no operation behind it is known here; the results are zero."""
    call.report(UNSUPPORTED, name=call.word("op") or call.opcode)
    return [np.zeros(type.shape, numpy_dtype(element_of(type))) for type in call.outputs]


OPCODES: Mapping[str, Callable[[OpcodeCall], list[Array]]] = MappingProxyType(
    {
        **dict.fromkeys(("transfer", "store"), copy),
        **dict.fromkeys(("gemm", "matmul"), linear.gemm),
        **dict.fromkeys(("conv1d", "conv2d", "conv3d", "depthwise_conv2d"), convolve),
        **dict.fromkeys(elementwise.REAL, elementwise.map_elements),
        **{"relu": elementwise.relu, "div": elementwise.div, "pow": elementwise.power},
        **{"leaky_relu": elementwise.leaky_relu, "clamp": elementwise.clamp},
        **{"maxpool": maxpool, "avgpool": avgpool},
        **{"transpose": transpose, "reshape": reshape, "slice": slice_axes},
        **{"concat": concat, "split": split, "pad": pad, "gather": gather},
        **{"reduce_sum": reduce_sum},
        **dict.fromkeys(("reduce_max", "reduce_min"), reduce_extreme),
        **dict.fromkeys(("argmax", "argmin"), find_extreme),
        **{"layernorm": layernorm, "rmsnorm": rmsnorm},
        **{"softmax": softmax, "log_softmax": log_softmax},
        **{"cast": cast, "quantize": quantize, "dequantize": dequantize},
        "compute": refuse,
    }
)
"""What runs each opcode."""


def apply(
    opcode: str,
    inputs: Sequence[OpcodeInput],
    outputs: Sequence[TensorType],
    attributes: Mapping[str, AttributeValue],
    report: OpcodeReport,
) -> list[Array]:
    """The results of an opcode, one array per output, of the shape and NumPy type of that output.

    Operands have passed the checker. Arrays of i4 have one element per item; `transfer` and `store` take and give u8.
    What goes wrong is reported and the results are then defined all the same: an accumulator wraps, x / 0 is 0,
    an index is moved to the nearest legal one, an unknown operation gives zero.
    """
    with np.errstate(all="ignore"):
        return OPCODES.get(opcode, refuse)(OpcodeCall(opcode, inputs, outputs, attributes, report))
