"""Convolutions of channels-last tensors: X[N, spatial…, C] with W[kernel…, C / groups, Cout].

Pads are all begins then all ends and stand for real zero. Terms are summed in ascending (kernel…, c).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lamella.backend.npu.opcodes.call import Call, Operand
from lamella.backend.npu.opcodes.linear import (
    Factor,
    accumulate,
    finish_float,
    finish_integer,
    group_numbers,
    sum_products,
)
from lamella.backend.npu.opcodes.quantised import is_float, runs_along, scales_of_type, singles
from lamella.backend.npu.opcodes.windows import Block, Window, blocks, gather
from lamella.base.arrays import Array
from lamella.base.quant import PerTensor, axis_of


def convolve(call: Call) -> list[Array]:
    """Run conv1d, conv2d, conv3d or depthwise_conv2d."""
    shape = call.inputs[1].type.shape
    groups = shape_groups(call)
    problem = _Problem(call, _window(call, shape[:-2]), groups)
    return [problem.floats() if is_float(call.outputs[0]) else problem.integers()]


def shape_groups(call: Call) -> int:
    """The number of groups: as many as channels for a depthwise convolution."""
    return call.inputs[0].type.shape[-1] if call.opcode == "depthwise_conv2d" else call.integer("groups", 1)


def _window(call: Call, kernel: tuple[int, ...]) -> Window:
    rank = len(kernel)
    return Window(kernel, call.integers("strides"), call.integers("dilations"), call.integers("pads")[:rank])


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution, cut into blocks of outputs and groups of channels."""

    call: Call
    window: Window
    groups: int

    def floats(self) -> Array:
        x, w = (singles(item) for item in self.call.inputs[:2])

        def multiply(block: Block, group: int) -> Array:
            return sum_products(self.columns(x, block, group, 0.0), self.rows(w, group))

        y = self.call.outputs[0]
        return finish_float(self.assemble(multiply, np.float32), self.call.operand(2), y)

    def integers(self) -> Array:
        x, w, y = self.call.inputs[0], self.call.inputs[1], self.call.outputs[0]
        rank = len(x.type.shape)
        x_inner = runs_along(x.type.quant, rank, range(1, rank))
        w_inner = runs_along(w.type.quant, rank, range(rank - 1))
        sides = _centred(x), _centred(w)

        def multiply(block: Block, group: int) -> Array:
            columns = self.columns(sides[0], block, group, 0.0)
            left = self.scaled_columns(columns, block, group) if x_inner else Factor(columns)
            right = self.scaled_rows(sides[1], group) if w_inner else Factor(self.rows(sides[1], group))
            return accumulate(left, right, self.call.report)

        sums = self.assemble(multiply, np.float64 if x_inner or w_inner else np.int64)
        x_scale = np.ones(1) if x_inner else scales_of_type(x.type)[0]
        w_scale = np.ones(1) if w_inner else scales_of_type(w.type)[0]
        return finish_integer(sums, x_scale * w_scale, self.call.operand(2), y, self.call.report)

    def assemble(self, multiply: Callable[[Block, int], Array], dtype: type[np.generic]) -> Array:
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

    def columns(self, values: Array, block: Block, group: int, padding: float | None) -> Array:
        """The windows of a block as [outputs, K]."""
        depth = values.shape[-1] // self.groups
        found = gather(values[..., group * depth : (group + 1) * depth], block, padding)
        outputs = int(np.prod(found.shape[: len(block.taps)], dtype=np.int64))
        return found.reshape(outputs, -1)

    def rows(self, values: Array, group: int) -> Array:
        """The weights of a group as [K, outputs]."""
        width = values.shape[-1] // self.groups
        return values[..., group * width : (group + 1) * width].reshape(-1, width)

    def scaled_rows(self, values: Array, group: int) -> Factor:
        """Weights whose scales run along a kernel axis or the input channels."""
        w = self.call.inputs[1]
        shape = w.type.shape[:-1]
        axis = _quant_axis(w)
        inner = np.broadcast_to(scales_of_type(w.type)[0][..., 0], shape).reshape(1, -1)
        return Factor(
            self.rows(values, group), _spread(group_numbers(w.type.quant, shape[axis]), axis, shape), inner
        )

    def scaled_columns(self, columns: Array, block: Block, group: int) -> Factor:
        """Windows whose scales run along the channels or a spatial axis (then a group is a kernel position)."""
        x = self.call.inputs[0]
        axis = _quant_axis(x)
        depth = x.type.shape[-1] // self.groups
        shape = (*self.window.kernel, depth)
        numbers = np.arange(shape[axis - 1])
        if axis == len(shape):
            numbers = group_numbers(x.type.quant, x.type.shape[-1])[group * depth : (group + 1) * depth]
        scales = np.broadcast_to(scales_of_type(x.type)[0], x.type.shape)
        return Factor(columns, _spread(numbers, axis - 1, shape), self.columns(scales, block, group, None))


def _centred(operand: Operand) -> Array:
    return operand.array.astype(np.int64) - scales_of_type(operand.type)[1]


def _quant_axis(operand: Operand) -> int:
    quant, rank = operand.type.quant, len(operand.type.shape)
    found = None if quant is None or isinstance(quant, PerTensor) else axis_of(quant, rank)
    return found or 0


def _spread(numbers: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """Numbers along one axis of the reduction, told for every reduction index."""
    along = numbers.reshape([-1 if index == axis else 1 for index in range(len(shape))])
    return np.broadcast_to(along, shape).reshape(-1)
