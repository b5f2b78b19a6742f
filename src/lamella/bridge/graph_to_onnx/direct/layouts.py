"""Operators that move elements, as ONNX has them: reshapes, slices, joins, gathers, scatters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import numpy_dtype
from lamella.base.dtype import BOOL, F16, F32, F64, I8, I32, I64, U8, U32, U64
from lamella.bridge.graph_to_onnx.arithmetic import apply, cast
from lamella.bridge.graph_to_onnx.direct.call import Call, Row
from lamella.bridge.graph_to_onnx.emitter import Value
from lamella.bridge.graph_to_onnx.scope import Held
from lamella.graph.nodes import Pack

LARGEST = 1 << 16
"""Elements of a tensor whose numbers are written out."""


def _reshape(call: Call) -> list[Held]:
    if call.input().shape == call.output().shape:
        return [call.value()]
    return [call.scope.reshape(call.value(), call.output().shape)]


def _squeeze(call: Call) -> list[Held] | None:
    axes = call.integers("axes")
    if not axes:
        # An empty list would take away every dimension of extent 1.
        return None if axes is None else [call.value()]
    return call.alone("Squeeze", call.value(), call.emitter.integers(*axes))


def _unsqueeze(call: Call) -> list[Held] | None:
    axes = call.integers("axes")
    return None if axes is None else call.alone("Unsqueeze", call.value(), call.emitter.integers(*axes))


def _concat(call: Call) -> list[Held] | None:
    items, axis = call.held(0), call.axis()
    if not isinstance(items, tuple) or axis is None:
        return None
    return call.alone("Concat", *items, axis=axis)


def _split(call: Call) -> list[Held] | None:
    sizes, axis = call.extents("sizes"), call.axis()
    outputs = call.operation.outputs[0]
    if axis is None or not isinstance(outputs, tuple) or not outputs:
        return None
    if any(isinstance(item, int) and item == 0 for item in sizes):
        return None
    lengths = [item.shape[axis] for item in outputs]
    elements = [call.element] * len(outputs)
    found = call.emitter.add_all("Split", (call.value(), call.vector(lengths)), elements, axis=axis)
    return [found]


def _stack(call: Call) -> list[Held] | None:
    items, given = call.held(0), call.operation.inputs[0]
    if isinstance(given, Pack) and isinstance(items, Value):
        return _stack_open(call, given, items)
    axis = call.axis(rank=len(call.output().shape))
    if axis is None or not isinstance(items, tuple):
        return None
    if call.attribute("squeeze"):
        return call.alone("Concat", *items, axis=axis)
    place = call.emitter.integers(axis)
    rows = [call.node("Unsqueeze", item, place) for item in items]
    return call.alone("Concat", *rows, axis=axis)


def _stack_open(call: Call, given: Pack, value: Value) -> list[Held] | None:
    """The items of a pack of open length stand below each other already."""
    rank = len(given.shape)
    axis = call.integer("axis") or 0
    axis = axis + rank + (0 if call.attribute("squeeze") else 1) if axis < 0 else axis
    if call.attribute("squeeze"):
        value = call.node("Squeeze", value, call.emitter.integers(axis + 1))
        rank -= 1
    if axis == 0:
        return [value]
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
    return call.alone("Transpose", value, perm=order)


def _unstack(call: Call) -> list[Held] | None:
    axis, output = call.axis(), call.operation.outputs[0]
    if axis is None:
        return None
    rank = len(call.input().shape)
    element = call.input().element
    if isinstance(output, Pack):
        order = [axis, *(place for place in range(rank) if place != axis)]
        value = call.value()
        if axis:
            value = call.emitter.add("Transpose", (value,), element, perm=order)
        if not call.attribute("squeeze"):
            value = call.emitter.add("Unsqueeze", (value, call.emitter.integers(axis + 1)), element)
        return [value]
    if not isinstance(output, tuple) or not output:
        return None
    parts: Sequence[Value] = (call.value(),)
    if len(output) > 1:
        parts = call.emitter.add_all(
            "Split", (call.value(),), [call.element] * len(output), axis=axis, num_outputs=len(output)
        )
    if call.attribute("squeeze"):
        parts = [call.node("Squeeze", item, call.emitter.integers(axis)) for item in parts]
    return [tuple(parts)]


def _tile(call: Call) -> list[Held] | None:
    axes, rank = call.integers("axes"), len(call.input().shape)
    repeats = call.extents("repeats")
    if axes is None or len(repeats) != len(axes):
        return None
    times = dict(zip((axis % rank for axis in axes), repeats, strict=True))
    return _widened(call, "Tile", call.vector([times.get(axis, 1) for axis in range(rank)]))


def _broadcast(call: Call) -> list[Held]:
    return _widened(call, "Expand", call.vector(call.output().shape))


MOVED = (F32, F64, F16, BOOL, I8, I32, I64, U8, U32, U64)
"""Types whose elements onnxruntime repeats and pads."""


def _widened(call: Call, op_type: str, *others: Value | None, **attributes: str) -> list[Held]:
    """A node that moves elements, in a type that it takes."""
    value = call.value()
    if value.element in MOVED:
        return call.alone(op_type, value, *others, **attributes)
    wide = F32 if value.element.is_float else I64
    given = [cast(call.emitter, value, wide), *others]
    return [cast(call.emitter, call.emitter.add(op_type, given, wide, **attributes), call.element)]


def _slice(call: Call) -> list[Held] | None:
    axes, steps = call.integers("axes"), call.integers("stride")
    begin, end = call.extents("begin"), call.extents("end")
    if axes is None or steps is None or len(begin) != len(axes) or len(end) != len(axes):
        return None
    if 0 in call.output().shape:
        return None
    rank = len(call.input().shape)
    ends = []
    for axis, last, step in zip(axes, end, steps * (len(axes) if len(steps) == 1 else 1), strict=True):
        extent = call.input().shape[axis % rank]
        # Before the first element: an end of -1 would mean the last one, so what lies further before is written.
        before = (
            step < 0 and isinstance(last, int) and last < 0 and isinstance(extent, int) and last + extent < 0
        )
        ends.append(-(1 << 62) if before else last)
    values = [call.vector(begin), call.vector(ends), call.emitter.integers(*axes)]
    if any(step != 1 for step in steps):
        values.append(call.emitter.integers(*(steps * (len(axes) if len(steps) == 1 else 1))))
    return call.alone("Slice", call.value(), *values)


PADDED = (F32, F64, F16, I32, I64)
_PADDINGS = {"CONSTANT": "constant", "REFLECT": "reflect", "REPLICATE": "edge"}


def _pad(call: Call) -> list[Held] | None:
    mode = _PADDINGS.get(str(call.attribute("method")))
    before, after = call.extents("before"), call.extents("after")
    if mode is None or len(before) != len(call.input().shape) or 0 in call.input().shape:
        return None
    if not any(item != 0 for item in (*before, *after)):
        return [call.value()]
    value = call.value()
    work = value.element if value.element in PADDED else F32 if value.element.is_float else I64
    wide = cast(call.emitter, value, work)
    fill = call.optional(1)
    fill = None if fill is None else cast(call.emitter, fill, work)
    found = call.emitter.add("Pad", (wide, call.vector([*before, *after]), fill), wide.element, mode=mode)
    return [cast(call.emitter, found, call.element)]


def _gather(call: Call) -> list[Held] | None:
    axis = call.axis()
    return None if axis is None else call.alone("Gather", call.value(), call.value(1), axis=axis)


def _gather_nd(call: Call) -> list[Held] | None:
    count = call.integer("batch_dims") or 0
    index = cast(call.emitter, call.value(1), I64)
    if call.input(1).shape[-1] == 0:
        return None
    return call.alone("GatherND", call.value(), index, batch_dims=count)


def _scatter(call: Call) -> list[Held] | None:
    axis = call.axis()
    if axis is None or 0 in call.input(1).shape:
        return None
    return call.alone("ScatterElements", call.value(), call.value(1), call.value(2), axis=axis)


def _scatter_nd(call: Call) -> list[Held] | None:
    if call.integer("batch_dims") or call.input(1).shape[-1] == 0:
        return None
    index = cast(call.emitter, call.value(1), I64)
    return call.alone("ScatterND", call.value(), index, call.value(2))


def _nonzero(call: Call) -> list[Held] | None:
    if not call.input().shape:
        return None
    value = call.value()
    if value.element not in (F32, I32, I64, U8, BOOL):
        wide = cast(call.emitter, value, F64 if value.element.is_float else I64)
        value = apply(call.emitter, "!=", (wide, call.emitter.number(0, wide.element)), BOOL)
    return [call.emitter.add("NonZero", (value,), I64)]


def _places(call: Call) -> list[Held] | None:
    """Positions of what is not zero, a row for each: ONNX has a column for each."""
    found = _nonzero(call)
    if found is None or not isinstance(found[0], Value):
        return None
    return [call.emitter.add("Transpose", (found[0],), I64, perm=(1, 0))]


def _dynamic_range(call: Call) -> list[Held]:
    first, step = (call.emitter.number(item, I64) for item in (0, 1))
    return [call.emitter.add("Range", (first, cast(call.emitter, call.value(), I64), step), I64)]


def _constant(call: Call) -> list[Held] | None:
    items, shape = call.attribute("value"), call.integers("shape") if call.output().shape else ()
    singles = items if isinstance(items, tuple) else (items,)
    if shape is None or not all(isinstance(item, int | float) for item in singles):
        return None
    array = np.asarray(singles).astype(numpy_dtype(call.element))
    size = int(np.prod(shape, dtype=np.int64))
    if len(singles) == 1 and size > 1:
        return call.alone("Expand", call.emitter.constant(array.reshape(())), call.vector(shape))
    return [call.emitter.constant(array.reshape(shape))] if len(singles) == size else None


def _range(call: Call) -> list[Held] | None:
    first, last, stride = (call.attribute(name) for name in ("first", "last", "stride"))
    (size,) = call.output().shape
    items = [item for item in (first, last, stride) if isinstance(item, int | float)]
    if len(items) != 3 or not isinstance(size, int) or size > LARGEST:
        return None
    dtype = numpy_dtype(call.element)
    kind = np.float64 if call.element.is_float and call.element != F32 else dtype
    steps = np.arange(size).astype(kind) * np.asarray(items[2], kind) + np.asarray(items[0], kind)
    return [call.emitter.constant(steps.astype(dtype))]


def _shape(call: Call) -> list[Held]:
    return [call.scope.shape(call.input().shape)]


def _identity(call: Call) -> list[Held]:
    return [call.value()]


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(("layout.reshape", "layout.flatten", "layout.unflatten"), _reshape),
        "layout.squeeze": _squeeze,
        "layout.unsqueeze": _unsqueeze,
        "layout.concat": _concat,
        "layout.split": _split,
        "layout.stack": _stack,
        "layout.unstack": _unstack,
        "layout.tile": _tile,
        "layout.broadcast": _broadcast,
        "layout.slice": _slice,
        "layout.pad": _pad,
        "layout.gather": _gather,
        "layout.gather_nd": _gather_nd,
        "layout.scatter": _scatter,
        "layout.scatter_nd": _scatter_nd,
        "layout.nonzero": _nonzero,
        "aten.nonzero": _places,
        "layout.dynamic_range": _dynamic_range,
        **dict.fromkeys(("layout.constant", "layout.tensor"), _constant),
        "layout.uniform": _broadcast,
        "layout.range": _range,
        "layout.shape": _shape,
        "math.iden": _identity,
    }
)
