"""Seeded random inputs that suit the program: each byte is drawn as the type as which it is first read.

Bytes that are moved before they are read with a type are followed to where they came from.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lamella.backend.npu.access import MOVES, BufferAccess, reads_of, writes_of
from lamella.backend.npu.interface import Interface, find_interface
from lamella.backend.npu.memory import byte_places, read_tensor, write_tensor
from lamella.backend.npu.opcodes.call import element_of
from lamella.backend.npu.order import program_order
from lamella.backend.npu.ports import Ports
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nem.resolved import Plan, Task, TensorType

BIAS = 1 << 15
"""Biases are drawn from ±2^15, so that an i32 accumulator rarely overflows."""
_LINEAR = ("gemm", "matmul", "conv1d", "conv2d", "conv3d", "depthwise_conv2d")


def random_inputs(plan: Plan, seed: int = 0, limits: Limits = DEFAULT) -> dict[str, Array]:
    """An array for each input of the plan, by name; the same seed gives the same arrays."""
    interface = find_interface(plan, limits)
    drawing = _Drawing(plan, interface, seed)
    for task, iteration in program_order(plan, limits):
        if not drawing.pending:
            break
        drawing.visit(task, iteration)
    return {name: drawing.array(name) for name in interface.inputs}


class _Drawing:
    """Images of the needed bytes, and for bytes that were moved the place they came from."""

    def __init__(self, plan: Plan, interface: Interface, seed: int) -> None:
        self.ports = Ports(plan)
        self.random = np.random.default_rng(seed)
        ends = np.cumsum([0, *(buffer.size for buffer in plan.buffers)])
        self.base = {buffer.name: int(ends[number]) for number, buffer in enumerate(plan.buffers)}
        self.image = np.zeros(int(ends[-1]), np.uint8)
        self.open = np.zeros(int(ends[-1]), np.bool_)
        for buffer in plan.buffers:
            start = self.base[buffer.name]
            if buffer.imported or interface.needed[buffer.name].any():
                self.image[start : start + buffer.size] = self.random.integers(0, 256, buffer.size, np.uint8)
            self.open[start : start + buffer.size] = interface.needed[buffer.name]
        self.pending = int(self.open.sum())
        moved = {task.outputs[0].buffer for task in plan.tasks() if task.opcode in MOVES}
        # Numbers of bytes count from 1; 0 says that a byte was computed.
        self.origin = {buffer.name: self._own_numbers(buffer.name, buffer.size) for buffer in moved}

    def _own_numbers(self, buffer: str, size: int) -> Array:
        return np.arange(size, dtype=np.int64) + self.base[buffer] + 1

    def visit(self, task: Task, iteration: Mapping[int, int]) -> None:
        """Draw what a task reads with a type; follow what it moves."""
        reads, writes = reads_of(task, iteration), writes_of(task, iteration)
        if task.opcode in MOVES:
            self.origin[writes[0].buffer][self._places(writes[0])] = self._origins(reads[0])
            return
        for index, access in enumerate(reads):
            self._draw(task, index, access)
        for access in writes:
            if access.buffer in self.origin:
                self.origin[access.buffer][self._places(access)] = 0

    @staticmethod
    def _places(access: BufferAccess) -> slice | Array:
        return byte_places(access.offset, access.type)

    def _origins(self, access: BufferAccess) -> Array:
        places = self._places(access)
        if access.buffer in self.origin:
            return self.origin[access.buffer][places]
        if isinstance(places, slice):
            places = np.arange(places.start, places.stop)
        return places + self.base[access.buffer] + 1

    def _draw(self, task: Task, index: int, access: BufferAccess) -> None:
        origins = self._origins(access) - 1
        wanted = (origins >= 0) & self.open[origins]
        if not wanted.any():
            return
        values = _draw_values(self.random, task, index, access.type)
        places = byte_places(0, access.type)
        extent = places.stop if isinstance(places, slice) else int(places.max()) + 1
        part = np.zeros(extent, np.uint8)
        write_tensor(part, 0, access.type, values)
        drawn = origins[wanted]
        self.image[drawn] = part[places][wanted]
        self.open[drawn] = False
        self.pending -= np.unique(drawn).size

    def array(self, name: str) -> Array:
        """The drawn bytes as the array of an input."""
        access = self.ports.find(name)
        return arrays.to_exchange(
            read_tensor(self.image, self.base[access.buffer] + access.offset, access.type)
        )


def _draw_values(random: np.random.Generator, task: Task, index: int, type: TensorType) -> Array:
    """Floats are standard normal, integers use their whole range, indices are legal ones."""
    element = element_of(type)
    if element.is_float:
        return arrays.cast(random.standard_normal(type.shape), element)
    low, high = element.minimum, element.maximum
    if task.opcode == "gather" and index == 1:
        low, high = 0, min(high, _axis_size(task) - 1)
    elif task.opcode in _LINEAR and index == 2:
        low, high = max(low, -BIAS), min(high, BIAS)
    return arrays.cast(random.integers(low, high, type.shape, np.int64, endpoint=True), element)


def _axis_size(task: Task) -> int:
    """The size of the axis that a gather picks from."""
    type, axis = task.inputs[0].type, task.attributes.get("axis", 0)
    return type.shape[axis] if type is not None and isinstance(axis, int) else 1
