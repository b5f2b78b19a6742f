"""Columns: convolutions and pools of images whose rows are too wide for L1, as several of narrower ones.

    y = conv2d(x)    becomes    x1 = slice(x), y1 = conv2d(x1), x2 = slice(x), y2 = conv2d(x2), y = concat(y1, y2)

Transfers copy contiguous bytes, so a tile is a number of whole rows; where not even one fits, the image is cut into
strips first. Each strip takes the columns under its kernels along, halo included, and has pads at the edges of the
image alone. That is a selected plan like any other, and the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lamella.base.arena import aligned
from lamella.base.shape import bytes_for
from lamella.lang.nem.resolved import Buffer, Index, Item, Plan, Region, Task, TensorType
from lamella.plan.tiling.split import bits_of, dense, typed

ALIGN = 64
WINDOWED = frozenset({"conv2d", "depthwise_conv2d", "maxpool", "avgpool"})


class ColumnCut(NamedTuple):
    """A plan whose wide images are cut, and for each of its tasks the number of the one that it was before."""

    plan: Plan
    origins: list[int]


def cut_columns(plan: Plan, room: int) -> ColumnCut | None:
    """The plan with strips for images of which no tile fits into so many bytes of L1; None where there are none."""
    cutter = _Cutter(plan, room)
    body = tuple(new for item in plan.body for new in cutter.items(item))
    if not cutter.buffers:
        return None
    return ColumnCut(replace(plan, buffers=(*plan.buffers, *cutter.buffers), body=body), cutter.origins)


class _Kernel(NamedTuple):
    """A kernel as it moves: rows and columns that it reaches over, its stride along columns, pads on the left."""

    rows: int
    reach: int
    stride: int
    pad: int


@dataclass(slots=True)
class _Cutter:
    plan: Plan
    room: int
    buffers: list[Buffer] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)

    def items(self, item: Item) -> Iterator[Item]:
        """The tasks in the place of one."""
        if not isinstance(item, Task):
            yield item
            return
        strips = self._strips(item) if item.opcode in WINDOWED else 1
        for task in self._cut(item, strips) if strips > 1 else [item]:
            number = len(self.origins)
            self.origins.append(item.number)
            yield replace(task, number=number)

    def _strips(self, task: Task) -> int:
        """Strips into which an image must be cut for one row of the output to fit, with what it needs; 1: none."""
        image, output = _type(task.inputs[0]), _type(task.outputs[0])
        if not (dense(image) and dense(output)):
            return 1
        kernel = _kernel(task, output)
        for count in range(1, output.shape[2] + 1):
            columns = -(-output.shape[2] // count)
            width = min(image.shape[2], (columns - 1) * kernel.stride + kernel.reach)
            needed = aligned(kernel.rows * _row_bytes(image, width), ALIGN)
            needed += aligned(_row_bytes(output, columns), ALIGN) + _least_weights(task)
            if needed <= self.room:
                return count
        return 1

    def _cut(self, task: Task, count: int) -> Iterator[Task]:
        source, target = task.inputs[0], task.outputs[0]
        image, output = _type(source), _type(target)
        kernel = _kernel(task, output)
        columns = -(-output.shape[2] // count)
        parts: list[Region] = []
        for first in range(0, output.shape[2], columns):
            last = min(output.shape[2], first + columns)
            low = first * kernel.stride - kernel.pad
            high = (last - 1) * kernel.stride - kernel.pad + kernel.reach
            begin, end = max(0, low), min(image.shape[2], high)
            strip = self._region(task, "x", image, end - begin)
            attributes = {"starts": (begin,), "ends": (end,), "axes": (2,), "steps": (1,)}
            yield self._task(task, "slice", (source,), strip, attributes)
            part = self._region(task, "y", output, last - first)
            pads = task.attributes["pads"]
            assert isinstance(pads, tuple)
            own = {**task.attributes, "pads": (pads[0], max(0, -low), pads[2], max(0, high - image.shape[2]))}
            yield self._task(task, task.opcode, (strip, *task.inputs[1:]), part, own)
            parts.append(part)
        yield self._task(task, "concat", tuple(parts), target, {"axis": 2})

    def _task(
        self, task: Task, opcode: str, inputs: tuple[Region, ...], output: Region, attributes: object
    ) -> Task:
        name = f"{task.token or task.debug or task.opcode}_{opcode}"
        assert isinstance(attributes, dict)
        return replace(
            task, token="", debug=name, opcode=opcode, inputs=inputs, outputs=(output,), attributes=attributes
        )

    def _region(self, task: Task, word: str, whole: TensorType, columns: int) -> Region:
        """A new image of some columns."""
        shape = (*whole.shape[:2], columns, whole.shape[3])
        type = typed(whole.elem, shape, whole.layout, whole.quant)
        size = bytes_for(shape[0] * shape[1] * columns * shape[3], bits_of(whole.elem))
        taken = {item.name for item in (*self.plan.buffers, *self.buffers)} | set(self.plan.regions)
        name = next(
            name
            for number in range(len(taken) + 1)
            if (name := f"{task.outputs[0].buffer.name}_{word}{number}") not in taken
        )
        like = task.outputs[0].buffer
        buffer = replace(like, name=name, memory="DDR", engine=0, size=size, imported=False)
        self.buffers.append(buffer)
        return Region("", buffer, Index(0), size, type)


def _type(region: Region) -> TensorType:
    assert region.type is not None
    return region.type


def _row_bytes(type: TensorType, columns: int) -> int:
    return bytes_for(columns * type.shape[3], bits_of(type.elem))


def _kernel(task: Task, output: TensorType) -> _Kernel:
    strides, pads = task.attributes["strides"], task.attributes["pads"]
    assert isinstance(strides, tuple)
    assert isinstance(pads, tuple)
    shape = task.attributes.get("kernel_shape")
    if isinstance(shape, tuple):
        return _Kernel(shape[0], shape[1], strides[1], pads[1])
    weight, dilations = _type(task.inputs[1]), task.attributes["dilations"]
    assert isinstance(dilations, tuple)
    rows, reach = ((weight.shape[axis] - 1) * dilations[axis] + 1 for axis in (0, 1))
    return _Kernel(rows, reach, strides[1], pads[1])


def _least_weights(task: Task) -> int:
    """Bytes of the fewest weights that a tile needs: one channel where those can be taken apart."""
    if task.opcode not in ("conv2d", "depthwise_conv2d"):
        return 0
    weight = _type(task.inputs[1])
    chunked = task.attributes.get("groups", 1) == 1 and task.inputs[1].buffer.imported
    size = bytes_for(_elements(weight), bits_of(weight.elem))
    return aligned(-(-size // weight.shape[-1]), ALIGN) if chunked else aligned(size, ALIGN)


def _elements(type: TensorType) -> int:
    found = 1
    for size in type.shape:
        found *= size
    return found
