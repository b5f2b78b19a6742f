"""How a task divides into tiles: along which rows, which bytes of each operand a tile needs, and by which attributes.

A task has `units`, rows of its output that can be computed apart from each other. An operand follows them in one of
three ways: *rows* (as many as the output), a *window* (the rows under a kernel: halos overlap, pads stand only at the
edges) or *whole* (weights, tables). Transfers copy contiguous bytes, so the rows are those of the outermost axis that
is not 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from lamella.base import dtype
from lamella.base.quant import PerChannel, PerTensor, Quant
from lamella.base.shape import bytes_for, row_major_strides, span_of
from lamella.lang.nem.registry import opcode as find_opcode
from lamella.lang.nem.resolved import AttributeValue, Region, Task, TensorType

Attributes: TypeAlias = Mapping[str, AttributeValue]
Tile: TypeAlias = tuple[int, int]
"""A tile: its first unit and how many."""
LONG_ROW, ROW_PIECE = 1 << 14, 1 << 10
"""Elements of a row from which on element-wise tasks divide it, and of the pieces at most."""
ROWS_LAYOUT = "ROWS"
"""The layout word of tiles whose leading axes were joined: row-major as written."""


def bits_of(elem: str) -> int:
    """Bits of an element."""
    found = dtype.find(elem)
    return 8 if found is None else found.bits


def dense(type: TensorType) -> bool:
    """Whether elements lie in row-major order without gaps."""
    wanted = row_major_strides(type.shape)
    return all(
        size == 1 or one == two for size, one, two in zip(type.shape, type.strides, wanted, strict=True)
    )


def extent_of(type: TensorType) -> int:
    """Bytes from the first to the last element of a tensor."""
    return bytes_for(span_of(type.shape, type.strides)[1] + 1, bits_of(type.elem))


def typed(elem: str, shape: tuple[int, ...], layout: str | None, quant: Quant | None) -> TensorType:
    """A dense tensor."""
    return TensorType(elem, shape, layout or ROWS_LAYOUT, row_major_strides(shape), quant)


@dataclass(frozen=True, slots=True)
class OperandRange:
    """The bytes of an operand that a tile needs, counted from the start of the operand."""

    offset: int
    type: TensorType

    @property
    def extent(self) -> int:
        """Bytes from the first to the last element."""
        return extent_of(self.type)


def planar(part: OperandRange, first: int, count: int) -> OperandRange:
    """Some channels of a tensor that lies channel by channel: contiguous, whatever the other axes are."""
    type = part.type
    lead = type.shape[:-1]
    strides = (*row_major_strides(lead), prod(lead))
    quant = cut_quant(type.quant, len(type.shape), first, count)
    layout = type.layout if prod(lead) == 1 else None
    if prod(lead) == 1:
        strides = row_major_strides((*lead, count))
    found = TensorType(type.elem, (*lead, count), layout, strides, quant)
    return OperandRange(part.offset + first * prod(lead) * bits_of(type.elem) // 8, found)


@dataclass(frozen=True, slots=True)
class Whole:
    """An operand that every tile needs whole."""

    region: Region

    def part(self, first: int, count: int) -> OperandRange:
        """The whole operand."""
        assert self.region.type is not None
        return OperandRange(0, self.region.type)


@dataclass(frozen=True, slots=True)
class Rows:
    """An operand with one row for each unit: `lead` axes of extent 1, the rows, then `inner` axes."""

    region: Region
    lead: tuple[int, ...]
    inner: tuple[int, ...]
    layout: str | None = None
    quant: Quant | None = None

    def part(self, first: int, count: int) -> OperandRange:
        """The rows of a tile."""
        assert self.region.type is not None
        elem = self.region.type.elem
        pitch = bytes_for(prod(self.inner), bits_of(elem))
        return OperandRange(
            first * pitch, typed(elem, (*self.lead, count, *self.inner), self.layout, self.quant)
        )


@dataclass(frozen=True, slots=True)
class RowWindow:
    """The image under a kernel that moves over rows; `period` rows of output belong to one image."""

    region: Region
    period: int
    stride: int
    reach: int
    pad: int
    end_pad: int
    halo: bool = False
    """Whether rows of padding lie before and behind the image, so that all its tiles are alike."""

    @property
    def below(self) -> int:
        """Rows of padding that the last window reaches into."""
        assert self.region.type is not None
        return max(0, (self.period - 1) * self.stride - self.pad + self.reach - self.region.type.shape[1])

    def bounds(self, first: int, count: int) -> tuple[int, int, int, int, int]:
        """Image, first row, end row, and the pads above and below of the rows under a tile."""
        assert self.region.type is not None
        height = self.region.type.shape[1]
        image, row = divmod(first, self.period)
        if count == self.period:
            # All rows of the output take all rows of the image, also those that the last window does not reach.
            return image, 0, height, self.pad, self.end_pad
        low = row * self.stride - self.pad
        high = (row + count - 1) * self.stride - self.pad + self.reach
        if self.halo:
            return image, low, high, 0, 0
        return image, max(0, low), min(height, high), max(0, -low), max(0, high - height)

    def part(self, first: int, count: int) -> OperandRange:
        """The rows under a tile, halo included."""
        type = self.region.type
        assert type is not None
        _, height, width, channels = type.shape
        image, low, high, _, _ = self.bounds(first, count)
        pitch = bytes_for(width * channels, bits_of(type.elem))
        shape = (1, high - low, width, channels)
        return OperandRange((image * height + low) * pitch, typed(type.elem, shape, type.layout, type.quant))


@dataclass(frozen=True, slots=True)
class StridedRows:
    """An operand whose rows are the outermost in memory, though not in its shape: as many bytes for each row."""

    region: Region
    axis: int
    pitch: int
    """Bytes of a row."""

    def part(self, first: int, count: int) -> OperandRange:
        """The rows of a tile."""
        type = _type(self.region)
        shape = (*type.shape[: self.axis], count, *type.shape[self.axis + 1 :])
        return OperandRange(first * self.pitch, replace(type, shape=shape, layout=None))


OperandSplit: TypeAlias = Whole | Rows | RowWindow | StridedRows


@dataclass(frozen=True, slots=True)
class Chunks:
    """Output channels that can be computed apart: those of the last axis of W (or B), number 1 of the inputs."""

    channels: int
    depth: int

    def weight(self, type: TensorType, first: int, count: int) -> OperandRange:
        """A chunk of weights that lie channel by channel."""
        kernel = type.shape[:-1]
        strides = (*row_major_strides(kernel), self.depth)
        offset = bytes_for(first * self.depth, bits_of(type.elem))
        quant = cut_quant(type.quant, len(type.shape), first, count)
        return OperandRange(offset, TensorType(type.elem, (*kernel, count), None, strides, quant))

    @staticmethod
    def table(type: TensorType, first: int, count: int) -> OperandRange:
        """A chunk of a bias."""
        quant = cut_quant(type.quant, len(type.shape), first, count)
        offset = first * bits_of(type.elem) // 8
        return OperandRange(offset, typed(type.elem, (*type.shape[:-1], count), type.layout, quant))

    @staticmethod
    def output(type: TensorType, first: int, count: int) -> OperandRange:
        """The channels of a tile that a chunk writes, in place between the others."""
        shape = (*type.shape[:-1], count)
        quant = cut_quant(type.quant, len(type.shape), first, count)
        offset = first * bits_of(type.elem) // 8
        return OperandRange(offset, TensorType(type.elem, shape, None, type.strides, quant))


def cut_quant(quant: Quant | None, rank: int, first: int, count: int, axis: int = -1) -> Quant | None:
    """The descriptor of a part of an axis, the last one where none is named."""
    if isinstance(quant, PerChannel) and quant.axis % rank == axis % rank:
        end = first + count
        return PerChannel(quant.axis, quant.scales[first:end], quant.zero_points[first:end])
    return quant


@dataclass(frozen=True, slots=True)
class Split:
    """How a task divides; a tile never reaches over a multiple of `period`."""

    task: Task
    units: int
    period: int
    inputs: tuple[OperandSplit, ...]
    outputs: tuple[OperandSplit, ...]
    attributes: Attributes
    chunks: Chunks | None = None

    @property
    def window(self) -> RowWindow | None:
        """The image under a kernel, where there is one."""
        return next((item for item in self.inputs if isinstance(item, RowWindow)), None)

    def rows_under(self, first: int, count: int) -> Tile:
        """The rows of the first operand that a tile needs."""
        source = self.inputs[0]
        if not isinstance(source, RowWindow):
            return first, count
        image, low, high, _, _ = source.bounds(first, count)
        return image * _type(source.region).shape[1] + low, high - low

    def attributes_of(self, first: int, count: int) -> Attributes:
        """The attributes of a tile: the pads of its own edges."""
        window = self.window
        if window is None:
            return self.attributes
        _, _, _, top, bottom = window.bounds(first, count)
        _, left, _, right = _integers(self.task, "pads")
        return {**self.attributes, "pads": (top, left, bottom, right)}


def split_of(task: Task, longest: int = LONG_ROW) -> Split:
    """How a task divides; what cannot be divided is one unit. Element-wise tasks divide rows of more elements."""
    known = find_opcode(task.opcode)
    if task.opcode in ("conv2d", "depthwise_conv2d", "maxpool", "avgpool"):
        found = _windowed(task)
    elif task.opcode in ("gemm", "matmul"):
        found = _product(task)
    elif is_elementwise(task):
        found = _elementwise(task, longest)
    elif task.opcode in ("softmax", "log_softmax", "layernorm", "rmsnorm"):
        found = _normalised(task)
    elif known is not None and task.opcode in _VIEWS:
        found = _view(task)
    elif task.opcode == "gather":
        found = _gathered(task)
    elif any(task.by_rows):
        found = _computed(task)
    else:
        found = None
    return found or undivided(task)


def undivided(task: Task) -> Split:
    """A task as one unit."""
    inputs = tuple(Whole(region) for region in task.inputs)
    outputs = tuple(Whole(region) for region in task.outputs)
    return Split(task, 1, 1, inputs, outputs, task.attributes)


def is_elementwise(task: Task) -> bool:
    """Whether each element of the output depends on the elements at its own place alone."""
    known = find_opcode(task.opcode)
    return task.opcode in ("cast", "quantize", "dequantize") or (
        known is not None and "eltwise" in known.families
    )


def _type(region: Region) -> TensorType:
    assert region.type is not None
    return region.type


def _types(task: Task) -> list[TensorType]:
    return [_type(region) for region in (*task.inputs, *task.outputs)]


def _integers(task: Task, name: str) -> tuple[int, ...]:
    found = task.attributes[name]
    assert isinstance(found, tuple)
    return found


def _whole_bytes(type: TensorType, inner: tuple[int, ...]) -> bool:
    return prod(inner) * bits_of(type.elem) % 8 == 0


def _per_tensor(type: TensorType) -> bool:
    return type.quant is None or isinstance(type.quant, PerTensor)


# --- convolutions and pools ---------------------------------------------------------------------------------------


def _windowed(task: Task) -> Split | None:
    image, output = _type(task.inputs[0]), _type(task.outputs[0])
    if not (dense(image) and dense(output) and _per_tensor(image) and _per_tensor(output)):
        return None
    if not (_whole_bytes(image, image.shape[2:]) and _whole_bytes(output, output.shape[2:])):
        return None
    pads, strides = _integers(task, "pads"), _integers(task, "strides")
    if "kernel_shape" in task.attributes:
        reach = _integers(task, "kernel_shape")[0]
    else:
        reach = (_type(task.inputs[1]).shape[0] - 1) * _integers(task, "dilations")[0] + 1
    period = output.shape[1]
    if period == 1 and output.shape[0] > 1:
        return _by_images(task, image, output)
    window = RowWindow(task.inputs[0], period, strides[0], reach, pads[0], pads[2])
    rest = tuple(Whole(region) for region in task.inputs[1:])
    rows = Rows(task.outputs[0], (1,), output.shape[2:], output.layout, output.quant)
    units = output.shape[0] * period
    split = Split(task, units, period, (window, *rest), (rows,), task.attributes)
    # A tile whose rows all lie in the padding has nothing to read: such a task stays whole.
    if any(window.bounds(row, 1)[1] >= window.bounds(row, 1)[2] for row in range(min(units, period))):
        return None
    if task.opcode == "conv2d" and task.attributes.get("groups", 1) == 1:
        return replace(split, chunks=_chunks(task))
    return split


def _by_images(task: Task, image: TensorType, output: TensorType) -> Split:
    """Images of which each gives one row, means and maxima above all: several of them are one tile."""
    source = Rows(task.inputs[0], (), image.shape[1:], image.layout, image.quant)
    rows = Rows(task.outputs[0], (), output.shape[1:], output.layout, output.quant)
    inputs: list[OperandSplit] = [source, *(Whole(region) for region in task.inputs[1:])]
    return Split(task, output.shape[0], output.shape[0], tuple(inputs), (rows,), task.attributes)


def _chunks(task: Task) -> Chunks | None:
    """The channels of an imported weight that lies dense; anything else is needed whole."""
    region = task.inputs[1]
    weight, output = _type(region), _type(task.outputs[0])
    depth = prod(weight.shape[:-1])
    bias = _type(task.inputs[2]) if len(task.inputs) > 2 else None
    if not region.buffer.imported or not dense(weight) or not dense(output):
        return None
    if bits_of(output.elem) % 8 or depth * bits_of(weight.elem) % 8:
        return None
    if bias is not None and (prod(bias.shape) != weight.shape[-1] or bits_of(bias.elem) % 8):
        return None
    return Chunks(weight.shape[-1], depth)


# --- products -------------------------------------------------------------------------------------------------------


def _product(task: Task) -> Split | None:
    a, b, y = _type(task.inputs[0]), _type(task.inputs[1]), _type(task.outputs[0])
    if len(b.shape) > 2 and prod(b.shape[:-2]) > 1:
        return _batched_product(task, a, b, y)
    if not (dense(a) and dense(y) and _per_tensor(a) and _per_tensor(y)):
        return None
    units = prod(a.shape[:-1])
    if not (_whole_bytes(a, a.shape[-1:]) and _whole_bytes(y, y.shape[-1:])):
        return None
    kernel = task.inputs[1]
    if len(b.shape) > 2:
        kernel = replace(
            kernel, type=replace(b, shape=b.shape[-2:], strides=b.strides[-2:], layout=ROWS_LAYOUT)
        )
        if not _per_tensor(b):
            return None
    inputs: list[OperandSplit] = [Rows(task.inputs[0], (), a.shape[-1:], None, a.quant), Whole(kernel)]
    for region in task.inputs[2:]:
        c = _type(region)
        if prod(c.shape) == c.shape[-1]:
            flat = replace(c, shape=c.shape[-1:], strides=c.strides[-1:], layout=ROWS_LAYOUT)
            inputs.append(
                Whole(replace(region, type=flat)) if _per_tensor(c) or len(c.shape) == 1 else Whole(region)
            )
        elif prod(c.shape) == prod(y.shape) and dense(c) and _per_tensor(c):
            inputs.append(Rows(region, (), c.shape[-1:], None, c.quant))
        else:
            return None
    rows = Rows(task.outputs[0], (), y.shape[-1:], None, y.quant)
    split = Split(task, units, units, tuple(inputs), (rows,), task.attributes)
    plain = len(b.shape) == 2 and (len(inputs) < 3 or isinstance(inputs[2], Whole))
    return replace(split, chunks=_chunks(task) if plain else None)


def _by_strided_rows(task: Task) -> Split | None:
    """Products of several batches whose rows lie outermost, the heads of a token beside each other: cut by rows."""
    rank = len(_type(task.inputs[0]).shape)
    regions = (task.inputs[0], task.outputs[0])
    pitches = [_row_pitch(_type(region), rank - 2) for region in regions]
    if len(task.inputs) > 2 or not all(pitches):
        return None
    x, y = (StridedRows(region, rank - 2, pitch or 0) for region, pitch in zip(regions, pitches, strict=True))
    units = _type(task.inputs[0]).shape[-2]
    return Split(task, units, units, (x, Whole(task.inputs[1])), (y,), task.attributes)


def _row_pitch(type: TensorType, axis: int) -> int | None:
    """The bytes of all that shares an index of an axis, where that lies without gaps; None where it does not."""
    others = [
        (stride, size)
        for place, (size, stride) in enumerate(zip(type.shape, type.strides, strict=True))
        if place != axis and size > 1
    ]
    expected = 1
    for stride, size in sorted(others):
        if stride != expected:
            return None
        expected *= size
    pitch = expected * bits_of(type.elem)
    lies = type.shape[axis] > 1 and type.strides[axis] == expected
    return pitch // 8 if lies and pitch % 8 == 0 and _per_tensor(type) else None


def _row_distance(type: TensorType, axis: int) -> int | None:
    """The bytes from one index of an axis to the next, where rows do not reach into each other; else None."""
    strides = type.strides
    reach = sum(
        (size - 1) * strides[place] for place, size in enumerate(type.shape) if place != axis and size > 1
    )
    distance = strides[axis] * bits_of(type.elem)
    apart = type.shape[axis] > 1 and 0 <= reach < strides[axis] and min(strides) >= 0
    return distance // 8 if apart and distance % 8 == 0 and _per_tensor(type) else None


def _batched_product(task: Task, a: TensorType, b: TensorType, y: TensorType) -> Split | None:
    """Products of one batch each; the right sides differ."""
    if not (dense(a) and dense(y) and _per_tensor(a) and _per_tensor(y)):
        return _by_strided_rows(task)
    if a.shape[:-2] != b.shape[:-2] or len(task.inputs) > 2 or not dense(b) or not _per_tensor(b):
        return None
    if not all(_whole_bytes(item, item.shape[-2:]) for item in (a, b, y)):
        return None
    units = prod(a.shape[:-2])
    inputs = tuple(
        Rows(region, (), _type(region).shape[-2:], None, _type(region).quant) for region in task.inputs
    )
    outputs = (Rows(task.outputs[0], (), y.shape[-2:], None, y.quant),)
    return Split(task, units, units, inputs, outputs, task.attributes)


# --- what goes by rows ----------------------------------------------------------------------------------------------


def _elementwise(task: Task, longest: int) -> Split | None:
    types = _types(task)
    shape = types[-1].shape
    if not all(dense(item) and item.shape == shape and _last_axis_quant(item) for item in types):
        return _by_strides(task, types)
    inner = shape[-1:]
    if not all(_whole_bytes(item, inner) for item in types):
        return None
    if inner[0] > longest and all(map(_per_tensor, types)):
        return _by_pieces(task, types, min(longest, ROW_PIECE))
    return _by_rows(task, prod(shape[:-1]), len(shape) - 1, {})


def _by_strides(task: Task, types: list[TensorType]) -> Split | None:
    """Operands that lie in an order of axes of their own, the same axis outermost in all: cut along that.

    Gaps in the rows of an input are loaded with them; those of an output belong to others.
    """
    shape = types[0].shape
    if any(item.shape != shape for item in types):
        return None
    for axis in range(len(shape)):
        pitches = [
            *(_row_distance(_type(region), axis) for region in task.inputs),
            *(_row_pitch(_type(region), axis) for region in task.outputs),
        ]
        if all(pitches):
            regions = (*task.inputs, *task.outputs)
            parts = [
                StridedRows(region, axis, pitch or 0) for region, pitch in zip(regions, pitches, strict=True)
            ]
            count, units = len(task.inputs), shape[axis]
            return Split(task, units, units, tuple(parts[:count]), tuple(parts[count:]), task.attributes)
    return None


def _by_pieces(task: Task, types: list[TensorType], most: int) -> Split:
    """Rows that are much longer than others: pieces of them are as good."""
    length, total = types[0].shape[-1], prod(types[0].shape)
    able = (size for size in range(most, 0, -1) if length % size == 0)
    size = next((size for size in able if all(_whole_bytes(item, (size,)) for item in types)), length)
    regions = (*task.inputs, *task.outputs)
    parts = [Rows(region, (), (size,), None, _type(region).quant) for region in regions]
    count = len(task.inputs)
    return Split(
        task, total // size, total // size, tuple(parts[:count]), tuple(parts[count:]), task.attributes
    )


def _last_axis_quant(type: TensorType) -> bool:
    """Whether joined leading axes leave the descriptor as it is."""
    rank = len(type.shape)
    return _per_tensor(type) or (isinstance(type.quant, PerChannel) and type.quant.axis in (rank - 1, -1))


def _moved_quant(type: TensorType) -> Quant | None:
    return replace(type.quant, axis=-1) if isinstance(type.quant, PerChannel) else type.quant


def _by_rows(task: Task, units: int, kept: int, changed: Attributes) -> Split:
    """Tasks whose operands all have `units` rows once their first `kept` axes are one."""
    parts = [
        Rows(region, (), _type(region).shape[kept:], None, _moved_quant(_type(region)))
        for region in (*task.inputs, *task.outputs)
    ]
    count = len(task.inputs)
    attributes = {**task.attributes, **changed}
    return Split(task, units, units, tuple(parts[:count]), tuple(parts[count:]), attributes)


def _normalised(task: Task) -> Split | None:
    """Norms and softmax over their axis; scale and bias are needed whole."""
    x, y = _type(task.inputs[0]), _type(task.outputs[0])
    axis = task.attributes["axis"]
    assert isinstance(axis, int)
    axis %= len(x.shape)
    if axis == 0 or not (dense(x) and dense(y)):
        return None
    if not all(_whole_bytes(item, item.shape[axis:]) for item in (x, y)):
        return None
    inputs: list[OperandSplit] = [Rows(task.inputs[0], (), x.shape[axis:])]
    inputs += [Whole(region) for region in task.inputs[1:]]
    outputs = (Rows(task.outputs[0], (), y.shape[axis:]),)
    units = prod(x.shape[:axis])
    return Split(task, units, units, tuple(inputs), outputs, {**task.attributes, "axis": 1})


_VIEWS = frozenset({"transpose", "slice", "concat", "split", "pad", "reshape"})
VIEWS = _VIEWS | {"gather"}
"""Opcodes that move elements and compute nothing."""


def _view(task: Task) -> Split | None:
    """Views that leave their first axes alone."""
    types = _types(task)
    if not all(dense(item) and _per_tensor(item) for item in types):
        return None
    if task.opcode == "reshape":
        return _reshaped(task, types)
    kept = _untouched_axes(task, len(types[0].shape))
    units = prod(types[0].shape[:kept])
    if kept == 0 or not all(_whole_bytes(item, item.shape[kept:]) for item in types):
        return None
    return _by_rows(task, units, kept, _shifted(task, kept, len(types[0].shape)))


def _reshaped(task: Task, types: list[TensorType]) -> Split | None:
    """A copy: any common number of rows will do."""
    size = prod(types[0].shape)
    inner = max((item for item in (types[0].shape[-1], types[1].shape[-1]) if size % item == 0), default=size)
    if not all(_whole_bytes(item, (inner,)) for item in types):
        return None
    parts = [
        Rows(region, (), (inner,), None, _type(region).quant) for region in (*task.inputs, *task.outputs)
    ]
    attributes = {**task.attributes, "target_shape": (-1, inner)}
    return Split(task, size // inner, size // inner, (parts[0],), (parts[1],), attributes)


def _gathered(task: Task) -> Split | None:
    """Rows of the table before its axis or, where there is one, rows of indices; the other operand is whole."""
    table, indices, output = _types(task)
    axis = task.attributes["axis"]
    assert isinstance(axis, int)
    axis %= len(table.shape)
    before, inner = table.shape[:axis], table.shape[axis + 1 :]
    if not all(dense(item) and _per_tensor(item) for item in (table, indices, output)):
        return None
    if prod(before) > 1:
        parts = (Rows(task.inputs[0], (), table.shape[axis:], None, table.quant), Whole(task.inputs[1]))
        units, shape, changed = prod(before), (*indices.shape, *inner), {"axis": 1}
    else:
        flat = replace(table, shape=table.shape[axis:], strides=table.strides[axis:], layout=ROWS_LAYOUT)
        whole = Whole(replace(task.inputs[0], type=flat))
        units, shape, changed = prod(indices.shape), inner, {"axis": 0}
        return Split(
            task,
            units,
            units,
            (whole, Rows(task.inputs[1], (), (), None, indices.quant)),
            (Rows(task.outputs[0], (), shape, None, output.quant),),
            {**task.attributes, **changed},
        )
    rows = Rows(task.outputs[0], (), shape, None, output.quant)
    return Split(task, units, units, parts, (rows,), {**task.attributes, **changed})


def _computed(task: Task) -> Split | None:
    """A kernel that computes rows apart: operands have as many rows as the outputs, or are needed whole."""
    regions = (*task.inputs, *task.outputs)
    if not all(task.by_rows[len(task.inputs) :]):
        # What has no rows would be stored by every tile.
        return None
    cut = [_type(region) for region, rows in zip(regions, task.by_rows, strict=True) if rows]
    units = cut[0].shape[0]
    if any(item.shape[0] != units or not dense(item) or not _per_tensor(item) for item in cut):
        return None
    if not all(_whole_bytes(item, item.shape[1:]) for item in cut):
        return None
    parts: list[OperandSplit] = [
        Rows(region, (), _type(region).shape[1:], None, _type(region).quant) if rows else Whole(region)
        for region, rows in zip(regions, task.by_rows, strict=True)
    ]
    count = len(task.inputs)
    return Split(task, units, units, tuple(parts[:count]), tuple(parts[count:]), task.attributes)


def _untouched_axes(task: Task, rank: int) -> int:
    """How many leading axes a view keeps as they are."""
    if task.opcode in ("concat", "split"):
        axis = task.attributes["axis"]
        assert isinstance(axis, int)
        return axis % rank
    if task.opcode == "transpose":
        perm = _integers(task, "perm")
        return next((axis for axis in range(rank) if perm[axis] != axis), rank - 1)
    if task.opcode == "pad":
        pads = _integers(task, "pads")
        return next((axis for axis in range(rank) if pads[axis] or pads[axis + rank]), rank - 1)
    return min(axis % rank for axis in _integers(task, "axes"))


def _shifted(task: Task, kept: int, rank: int) -> Attributes:
    """The attributes of a view once its first `kept` axes are one."""
    if task.opcode in ("concat", "split"):
        return {"axis": 1}
    if task.opcode == "transpose":
        return {"perm": (0, *(axis - kept + 1 for axis in _integers(task, "perm")[kept:]))}
    if task.opcode == "pad":
        pads = _integers(task, "pads")
        return {"pads": (0, *pads[kept:rank], 0, *pads[rank + kept :])}
    return {"axes": tuple(axis % rank - kept + 1 for axis in _integers(task, "axes"))}
