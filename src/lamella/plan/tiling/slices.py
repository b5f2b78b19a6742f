"""Slices: tasks of which no tile fits into L1, as several tasks on parts of their operands.

    y = conv2d(x, w)    becomes    x1 = slice(x), y1 = conv2d(x1, w1), …, y = concat(y1, y2, …)

Transfers copy contiguous bytes, so a tile is a number of whole rows; where not even one fits, the task is cut along
another axis of its output first: columns of an image, with the columns under its kernels; channels, or groups of them;
columns and batches of a product; any axis of an element-wise task, and those along which a norm does not sum up. What
is summed up stays whole. Parts that lie contiguous are not copied, and known weights are cut before the run. That is a
selected plan like any other, and the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import Unsupported
from lamella.base.quant import PerGroup
from lamella.base.shape import bytes_for
from lamella.lang.nem.resolved import (
    AttributeValue,
    Buffer,
    Index,
    Item,
    Plan,
    Region,
    Task,
    TensorType,
)
from lamella.plan.operands import elements_of, packed_elements
from lamella.plan.tiling.search import can_stay, least_bytes
from lamella.plan.tiling.shape import Machine, StageShape
from lamella.plan.tiling.split import bits_of, cut_quant, dense, is_elementwise, split_of, typed
from lamella.plan.tiling.stages import ROW_WISE, Stage, task_name, unchunked

POOLS = frozenset({"maxpool", "avgpool"})
PRODUCTS = frozenset({"gemm", "matmul"})


@dataclass(frozen=True, slots=True)
class WeightSlice:
    """Known numbers that are a part of others: some indices of an axis."""

    source: Region
    axis: int
    first: int
    count: int

    def bytes_of(self, source: Array) -> Array:
        """Its bytes, dense, from those of the buffer it is a part of."""
        elements = elements_of(self.source, source)
        part = np.take(elements, range(self.first, self.first + self.count), axis=self.axis)
        return packed_elements(part, bits_of(_type(self.source).elem))


@dataclass(frozen=True, slots=True)
class SlicedPlan:
    """A plan whose large tasks are cut, where its parts come from, and what its new weights are."""

    plan: Plan
    origins: tuple[int, ...]
    """For each task the number of the one that it was before."""
    weights: Mapping[str, WeightSlice]
    """What imported buffers hold that the plan did not have before, those first that others are parts of."""


def sliced_arrays(slices: Mapping[str, WeightSlice], known: Mapping[str, Array]) -> dict[str, Array]:
    """The bytes of all imported buffers from those of the plan before."""
    found = dict(known)
    for name, item in slices.items():
        found[name] = item.bytes_of(found[item.source.buffer.name])
    return found


def slice_tasks(plan: Plan, weights: Collection[str], machine: Machine) -> SlicedPlan | None:
    """The plan with parts for tasks of which no tile fits into L1; None where there are none.

    Raises Unsupported where not even the part for one element of the output fits, with the bytes it needs.
    """
    slicer = _Slicer(plan, frozenset(weights), machine)
    body = tuple(new for item in plan.body for new in slicer.items(item))
    if len(slicer.origins) == sum(1 for _ in plan.tasks()):
        return None
    buffers = (*plan.buffers, *slicer.buffers.values())
    return SlicedPlan(replace(plan, buffers=buffers, body=body), tuple(slicer.origins), slicer.weights)


class Along(NamedTuple):
    """How an operand follows a cut: its axis, and elements of that for each position."""

    axis: int
    each: int = 1


class Kernel(NamedTuple):
    """A kernel that moves over columns: how far it reaches, its stride, pads on the left."""

    reach: int
    stride: int
    pad: int


@dataclass(frozen=True, slots=True)
class CutAxis:
    """Positions along which the output of a task can be computed in parts; an operand of None is needed whole."""

    size: int
    inputs: tuple[Along | None, ...]
    output: Along
    kernel: Kernel | None = None
    """Where positions are columns under a kernel, which reaches over those of its neighbours."""
    grouped: bool = False
    """Whether positions are groups of channels."""


def cut_axes(task: Task) -> list[CutAxis]:
    """The axes along which a task can be cut."""
    return [item for item in _axes(task) if not _is_grouped(task, item)]


def _is_grouped(task: Task, axis: CutAxis) -> bool:
    """Whether an operand has a scale for several neighbours along the axis."""
    for region, along in [*zip(task.inputs, axis.inputs, strict=True), (task.outputs[0], axis.output)]:
        quant, rank = _type(region).quant, len(_type(region).shape)
        if along is not None and isinstance(quant, PerGroup) and quant.axis % rank == along.axis:
            return True
    return False


def _axes(task: Task) -> list[CutAxis]:
    output = _type(task.outputs[0])
    if task.opcode == "conv2d" or task.opcode in POOLS:
        return [_channels(task), _columns(task)]
    if task.opcode in PRODUCTS:
        return [_product_axis(task, axis) for axis in range(-len(output.shape), 0)]
    alike = [region for region in task.inputs if _type(region).shape == output.shape]
    able = list(range(len(output.shape)))
    if is_elementwise(task) and len(alike) == len(task.inputs):
        pass
    elif task.opcode in ROW_WISE:
        axis, alike = task.attributes["axis"], alike[:1]
        assert isinstance(axis, int)
        able.remove(axis % len(able))
    else:
        return []
    rest: list[Along | None] = [None] * (len(task.inputs) - len(alike))
    return [CutAxis(output.shape[axis], (*(Along(axis) for _ in alike), *rest), Along(axis)) for axis in able]


def _channels(task: Task) -> CutAxis:
    """Channels of a pool, output channels of a convolution, or its groups."""
    count = _type(task.outputs[0]).shape[3]
    if task.opcode in POOLS:
        return CutAxis(count, (Along(3),), Along(3))
    groups = task.attributes.get("groups", 1)
    assert isinstance(groups, int)
    bias: list[Along | None] = [Along(0, count // groups if groups > 1 else 1) for _ in task.inputs[2:]]
    if groups == 1:
        return CutAxis(count, (None, Along(3), *bias), Along(3))
    own, each = _type(task.inputs[0]).shape[3] // groups, count // groups
    return CutAxis(groups, (Along(3, own), Along(3, each), *bias), Along(3, each), grouped=True)


def _columns(task: Task) -> CutAxis:
    strides, pads = _integers(task, "strides"), _integers(task, "pads")
    if task.opcode in POOLS:
        reach = _integers(task, "kernel_shape")[1]
    else:
        reach = (_type(task.inputs[1]).shape[1] - 1) * _integers(task, "dilations")[1] + 1
    rest: list[Along | None] = [None] * (len(task.inputs) - 1)
    size = _type(task.outputs[0]).shape[2]
    return CutAxis(size, (Along(2), *rest), Along(2), Kernel(reach, strides[1], pads[1]))


def _product_axis(task: Task, axis: int) -> CutAxis:
    """An axis of a product, counted from the end: columns (-1), rows (-2), batches; operands of 1 are repeated."""
    size = _type(task.outputs[0]).shape[axis]
    found: list[Along | None] = []
    for index, region in enumerate(task.inputs):
        shape = _type(region).shape
        summed = index < 2 and axis == -1 - index
        repeated = len(shape) < -axis or (shape[axis] == 1 and size > 1)
        found.append(None if summed or repeated else Along(len(shape) + axis))
    return CutAxis(size, tuple(found), Along(len(_type(task.outputs[0]).shape) + axis))


@dataclass(frozen=True, slots=True)
class _Part:
    """A task on parts of its operands, and for each operand that is another than before what it is a part of."""

    task: Task
    slices: tuple[tuple[Region, Region, Along, int], ...]


@dataclass(slots=True)
class _Slicer:
    plan: Plan
    known: frozenset[str]
    """Weights of the plan."""
    machine: Machine
    buffers: dict[str, Buffer] = field(default_factory=dict)
    origins: list[int] = field(default_factory=list)
    weights: dict[str, WeightSlice] = field(default_factory=dict)
    cuts: dict[object, tuple[int, int]] = field(default_factory=dict)
    """For tasks that were cut the number of the axis and the positions of a part, by what they look like."""
    taken: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.taken = frozenset(item.name for item in self.plan.buffers) | frozenset(self.plan.regions)

    def items(self, item: Item) -> Iterator[Item]:
        """The tasks in the place of one."""
        if not isinstance(item, Task):
            yield item
            return
        for task in self._cut(item):
            number = len(self.origins)
            self.origins.append(item.number)
            yield replace(task, number=number)

    def _cut(self, task: Task) -> Iterator[Task]:
        if self._fits(task):
            yield task
            return
        index, size = self._decide(task)
        axis = cut_axes(task)[index]
        made: list[Region] = []
        for first in range(0, axis.size, size):
            part = self._part(task, axis, first, min(size, axis.size - first))
            for source, region, along, begin in part.slices:
                count = _type(region).shape[along.axis]
                if region.buffer.imported:
                    self.weights[region.buffer.name] = WeightSlice(source, along.axis, begin, count)
                else:
                    words = {
                        "starts": (begin,),
                        "ends": (begin + count,),
                        "axes": (along.axis,),
                        "steps": (1,),
                    }
                    yield _view(task, "slice", (source,), region, words)
                self.buffers[region.buffer.name] = region.buffer
            made.append(part.task.outputs[0])
            if made[-1].buffer is not task.outputs[0].buffer:
                self.buffers[made[-1].buffer.name] = made[-1].buffer
            yield from self._cut(part.task)
        if made[0].buffer is not task.outputs[0].buffer:
            yield _view(task, "concat", tuple(made), task.outputs[0], {"axis": axis.output.axis})

    def _decide(self, task: Task) -> tuple[int, int]:
        """The axis to cut along, and the positions of a part: those that give the fewest parts."""
        key = _looks(task)
        if key not in self.cuts:
            found = list(self._ways(task))
            if not found:
                needed = least_bytes(self._shape(self._smallest(task)))
                raise Unsupported(
                    f"{task_name(task)} needs {needed} bytes of L1 for the smallest part of its output; "
                    f"the device has {self.machine.l1}"
                )
            self.cuts[key] = min(found)[1:]
        return self.cuts[key]

    def _ways(self, task: Task) -> Iterator[tuple[int, int, int]]:
        """For each axis: tasks in the end, the number of the axis, and the most positions of a part that may do.

        Where no part fits by a cut along this axis alone, others are cut as well, each to one position at last.
        """
        for index, axis in enumerate(cut_axes(task)):
            least = _grain(task, axis)
            for others, most in (
                (False, -(-axis.size // least) - 1),
                (True, max(1, axis.size // least // 2)),
            ):
                size = least * self._most(task, axis, most, others)
                if 0 < size < axis.size:
                    part = self._middle(task, axis, size)
                    yield -(-axis.size // size) * self._count(part), index, size
                    break

    def _most(self, task: Task, axis: CutAxis, most: int, others: bool) -> int:
        """The most positions, in grains, of a part that fits; 0 where none does."""
        low, least = 0, _grain(task, axis)
        while low < most:
            middle = -(-(low + most) // 2)
            part = self._middle(task, axis, middle * least)
            if self._fits(self._smallest(part, axis) if others else part):
                low = middle
            else:
                most = middle - 1
        return low

    def _count(self, task: Task) -> int:
        """The tasks that a part becomes."""
        if self._fits(task):
            return 1
        return min((count for count, _, _ in self._ways(task)), default=1 << 60)

    @staticmethod
    def _able(task: Task, without: CutAxis | None) -> Iterator[CutAxis]:
        """The axes of a task that can be cut further, without one."""
        for axis in cut_axes(task):
            same = without is not None and (axis.output.axis, axis.grouped) == (
                without.output.axis,
                without.grouped,
            )
            if not same and axis.size > _grain(task, axis):
                yield axis

    def _smallest(self, task: Task, without: CutAxis | None = None) -> Task:
        """A task on what one element of its output needs, as far as axes can be cut; one of them is not."""
        while (axis := next(self._able(task, without), None)) is not None:
            task = self._middle(task, axis, _grain(task, axis))
        return task

    def _fits(self, task: Task) -> bool:
        """Whether a task has a tile, and what all its tiles need fits into half of L2."""
        shape = self._shape(task)
        if can_stay(shape):
            return True
        whole = 0 if shape.streamed else shape.whole_bytes
        vectors = sum(task.inputs[index].extent for index in shape.vectors)
        return least_bytes(shape) <= self.machine.l1 and 2 * (whole + vectors) <= self.machine.l2

    def _shape(self, task: Task) -> StageShape:
        names = self.known | {region.buffer.name for region in task.inputs if region.buffer.imported}
        stage = Stage(0, task_name(task), split_of(task, self.machine.piece))
        return StageShape(unchunked(stage, names), self.machine)

    def _middle(self, task: Task, axis: CutAxis, count: int) -> Task:
        """A part as large as any: those at the edges of an image may need less."""
        return self._part(task, axis, (axis.size - count) // 2 // count * count, count).task

    def _part(self, task: Task, axis: CutAxis, first: int, count: int) -> _Part:
        """A task on some positions of an axis."""
        inputs, slices = [], []
        attributes = dict(task.attributes)
        for index, (region, along) in enumerate(zip(task.inputs, axis.inputs, strict=True)):
            if along is None:
                inputs.append(region)
                continue
            begin, end = first * along.each, (first + count) * along.each
            if axis.kernel is not None:
                begin, end = _columns_under(task, axis.kernel, first, count, attributes)
            part = self._slice(task, f"x{index}", region, along.axis, begin, end - begin)
            inputs.append(part)
            if part.buffer is not region.buffer:
                slices.append((region, part, along, begin))
        if axis.grouped:
            attributes["groups"] = count
        each = axis.output.each
        output = self._slice(task, "y", task.outputs[0], axis.output.axis, first * each, count * each)
        name = task_name(task)
        part_task = replace(
            task, token="", debug=name, inputs=tuple(inputs), outputs=(output,), attributes=attributes
        )
        return _Part(part_task, tuple(slices))

    def _slice(self, task: Task, word: str, whole: Region, axis: int, first: int, count: int) -> Region:
        """Some indices of an axis: where they lie, or in a buffer of their own."""
        type = _type(whole)
        shape = (*type.shape[:axis], count, *type.shape[axis + 1 :])
        if shape == type.shape:
            return whole
        quant = cut_quant(type.quant, len(shape), first, count, axis)
        part = typed(type.elem, shape, type.layout, quant)
        size = bytes_for(prod(shape), bits_of(type.elem))
        start = first * prod(type.shape[axis + 1 :]) * bits_of(type.elem)
        if dense(type) and prod(type.shape[:axis]) == 1 and start % 8 == 0:
            return Region("", whole.buffer, Index(whole.offset.constant + start // 8), size, part)
        number, name = len(self.buffers), f"{task.outputs[0].buffer.name}_{word}"
        while f"{name}{number}" in self.taken:
            name += "_"
        imported = whole.buffer.name in self.known or whole.buffer.name in self.weights
        like = task.outputs[0].buffer
        buffer = replace(
            like,
            name=f"{name}{number}",
            memory="DDR",
            engine=0,
            size=size,
            imported=imported,
            codec="",
            stored=0,
        )
        return Region("", buffer, Index(0), size, part)


def _view(
    task: Task,
    opcode: str,
    inputs: tuple[Region, ...],
    output: Region,
    attributes: Mapping[str, AttributeValue],
) -> Task:
    """A task that moves the elements of parts."""
    return replace(
        task,
        token="",
        debug=f"{task_name(task)}_{opcode}",
        opcode=opcode,
        inputs=inputs,
        outputs=(output,),
        attributes=attributes,
    )


def _columns_under(
    task: Task, kernel: Kernel, first: int, count: int, attributes: dict[str, AttributeValue]
) -> tuple[int, int]:
    """The columns of an image under some of the output; pads stand at the edges of the image alone."""
    width = _type(task.inputs[0]).shape[2]
    low = first * kernel.stride - kernel.pad
    high = (first + count - 1) * kernel.stride - kernel.pad + kernel.reach
    top, _, bottom, _ = _integers(task, "pads")
    attributes["pads"] = (top, max(0, -low), bottom, max(0, high - width))
    return max(0, low), min(width, high)


def _grain(task: Task, axis: CutAxis) -> int:
    """The fewest positions of a part: elements of four bits come in pairs."""
    operands = [*zip(task.inputs, axis.inputs, strict=True), (task.outputs[0], axis.output)]
    for region, along in operands:
        type = _type(region)
        if along is not None and prod(type.shape[along.axis + 1 :]) * along.each * bits_of(type.elem) % 8:
            return min(2, axis.size)
    return 1


def _looks(task: Task) -> object:
    """What a cut depends on."""
    operands = (*task.inputs, *task.outputs)
    types = tuple(
        (region.buffer.imported, _type(region).elem, _type(region).shape, _type(region).strides)
        for region in operands
    )
    return task.opcode, types, tuple(sorted(task.attributes.items()))


def _type(region: Region) -> TensorType:
    assert region.type is not None
    return region.type


def _integers(task: Task, name: str) -> tuple[int, ...]:
    found = task.attributes[name]
    assert isinstance(found, tuple)
    return found
