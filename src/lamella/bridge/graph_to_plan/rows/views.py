"""Operators that move numbers without changing them: views where they can be, else tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_plan.rows.call import Row, RowCall, static
from lamella.bridge.graph_to_plan.values import Value, broadcast, natural, transposed
from lamella.graph.nodes import tensors


def _reshape(call: RowCall) -> Value:
    return call.emit.reshape(call.value(0), call.shape())


def _transpose(call: RowCall) -> Value:
    value, start, perm = call.value(0), call.integer("axis"), call.integers("perm")
    rank = len(value.shape)
    start %= rank
    # Numbers of the permutation count from the front of the tensor.
    whole = (*range(start), *(axis % rank for axis in perm))
    whole += tuple(range(len(whole), rank))
    return transposed(value, whole)


def _slice(call: RowCall) -> Value:
    value, out = call.value(0), call.shape()
    rank = len(value.shape)
    axes = call.integers("axes") or natural(value.shape)
    steps = call.integers("stride") or (1,)
    steps = steps * len(axes) if len(steps) == 1 else steps
    for axis, begin, step in zip(axes, call.integers("begin"), steps, strict=True):
        axis %= rank
        size = value.shape[axis]
        start = min(max(begin + size if begin < 0 else begin, 0), size)
        if step == 1:
            value = value if out[axis] == size else call.emit.slice(value, axis, start, out[axis])
        else:
            value = _strided(call, value, axis, start, step)
    return value


def _strided(call: RowCall, value: Value, axis: int, start: int, step: int) -> Value:
    """Every step-th element along an axis."""
    size = call.shape()[axis]
    if value.array is not None:
        taken = value.array.take(range(start, start + step * size, step), axis)
        return replace(value, shape=taken.shape, strides=natural_strides(taken.shape), array=taken)
    emit = call.emit
    emit.move("slice", value)
    order = natural(value.shape)
    source = emit.dense(value, order)
    shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    found = emit.result(shape, value.elem, order, value.quant)
    end = start + step * (size - 1) + (1 if step > 0 else -1)
    # A bound below 0 would count from the end: one below the first element is written as that far before it.
    end = end if end >= 0 else -value.shape[axis] - 1
    cut = {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (step,)}
    emit.run("slice", [emit.region(source, order)], emit.assembly.region(found, order), **cut)
    return found


def natural_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a dense array."""
    return tuple(int(np.prod(shape[axis + 1 :], initial=1)) for axis in range(len(shape)))


def _split(call: RowCall) -> list[Value | None]:
    value, axis = call.value(0), call.integer("axis") % len(call.value(0).shape)
    found: list[Value | None] = []
    start = 0
    for part in tensors(call.operation.outputs[0]):
        size = static(part)[axis]
        found.append(call.emit.slice(value, axis, start, size))
        start += size
    return found


def _unstack(call: RowCall) -> list[Value | None]:
    value, axis = call.value(0), call.integer("axis") % len(call.value(0).shape)
    parts = tensors(call.operation.outputs[0])
    cut = [call.emit.slice(value, axis, number, 1) for number in range(len(parts))]
    return [call.emit.reshape(item, static(part)) for item, part in zip(cut, parts, strict=True)]


def _concat(call: RowCall) -> Value:
    values = call.pack(0)
    floats = [item for item in values if item.array is None]
    elem = (floats or list(values))[0].elem
    return call.emit.concat([call.emit.as_elem(item, elem) for item in values], call.integer("axis"))


def _stack(call: RowCall) -> Value:
    values, axis = call.pack(0), call.integer("axis") % len(call.shape())
    lifted = [
        item if call.flag("squeeze") else call.emit.reshape(item, (*item.shape[:axis], 1, *item.shape[axis:]))
        for item in values
    ]
    elem = lifted[0].elem
    return call.emit.concat([call.emit.as_elem(item, elem) for item in lifted], axis)


def _pad(call: RowCall) -> Value:
    value, method = call.value(0), call.word("method") or "CONSTANT"
    modes = {"CONSTANT": "constant", "EDGE": "edge", "REPLICATE": "edge", "REFLECT": "reflect"}
    if method not in modes:
        raise Unsupported(f"padding by {method}")
    rank = len(value.shape)
    axes = tuple(axis % rank for axis in call.integers("axes")) or natural(value.shape)
    pads, count = call.integers("padding"), len(axes)
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + count]
    if not any(before) and not any(after):
        return value
    given = call.optional(1)
    if given is not None and given.array is None:
        raise Unsupported("padding with a number that only the run tells")
    number = 0.0 if given is None or given.array is None else float(given.array.reshape(-1)[0])
    return call.emit.pad(value, before, after, _stored(value, number), modes[method])


def _stored(value: Value, number: float) -> float:
    """A number in the range of the elements; integers stay whole."""
    if value.is_float:
        return min(max(number, -65504.0), 65504.0) if value.elem == "f16" else number
    return int(number)


def _gather(call: RowCall) -> Value:
    data, index = call.value(0), call.value(1)
    return pick(call, data, index, call.integer("axis") % len(data.shape))


def _slice_one(call: RowCall) -> Value:
    """A slice along one axis, as torch has it."""
    value, step = call.value(0), call.integer("step", 1)
    axis, size = call.integer("dim") % len(value.shape), call.shape()[call.integer("dim")]
    extent, start = value.shape[axis], call.integer("start")
    start = min(max(start + extent if start < 0 else start, 0), extent)
    if step != 1 and size > 1:
        return _strided(call, value, axis, start, step)
    return value if size == extent else call.emit.slice(value, axis, start, size)


def _roll(call: RowCall) -> Value:
    """What leaves at one end comes in at the other: two slices in the other order."""
    value = call.value(0)
    for shift, axis in zip(call.integers("shifts"), call.integers("dims"), strict=True):
        size = value.shape[axis]
        if first := -shift % size:
            ends = call.emit.slice(value, axis, first, size - first), call.emit.slice(value, axis, 0, first)
            value = call.emit.concat(ends, axis % len(value.shape))
    return value


def _repeat_each(call: RowCall) -> Value:
    """Each item several times, one behind the other: an axis of stride 0 inside of it."""
    value, rank = call.value(0), len(call.shape())
    axis = call.integer("dim") % rank
    thin = call.emit.reshape(value, (*value.shape[: axis + 1], 1, *value.shape[axis + 1 :]))
    wide = (*value.shape[: axis + 1], call.integer("repeats"), *value.shape[axis + 1 :])
    return call.emit.reshape(broadcast(thin, wide), call.shape())


def _flip(call: RowCall) -> Value:
    value, rank = call.value(0), len(call.shape())
    for axis in call.integers("dims"):
        size = value.shape[axis % rank]
        value = value if size == 1 else _strided(call, value, axis % rank, size - 1, -1)
    return value


def pick(call: RowCall, data: Value, index: Value, axis: int) -> Value:
    """Slices along an axis by their numbers; numbers that are known are cut out or re-laid at once."""
    if index.array is not None:
        numbers = index.array.astype(np.int64)
        numbers = np.where(numbers < 0, numbers + data.shape[axis], numbers)
        index = replace(index, array=numbers, elem="i32")
        if data.array is not None:
            taken = data.array.take(numbers, axis)
            return replace(data, shape=taken.shape, strides=natural_strides(taken.shape), array=taken)
        if numbers.size == 1:
            part = call.emit.slice(data, axis, int(numbers.reshape(-1)[0]), 1)
            return call.emit.reshape(part, (*data.shape[:axis], *numbers.shape, *data.shape[axis + 1 :]))
    if index.is_float:
        raise Unsupported("indices that are no integers")
    return call.emit.gather(data, index, axis)


def _embedding(weight: int, index: int) -> Row:
    def row(call: RowCall) -> Value:
        return pick(call, call.emit.as_real(call.value(weight)), call.value(index), 0)

    return row


def _tile(call: RowCall) -> Value:
    """Copies along axes: each axis is split into repeats and itself, the repeats of stride 0."""
    value = call.value(0)
    rank = len(value.shape)
    axes = tuple(axis % rank for axis in call.integers("axes")) or natural(value.shape)
    repeats = dict(zip(axes, call.integers("repeats"), strict=False))
    thin = [item for size in value.shape for item in (1, size)]
    wide = [item for axis, size in enumerate(value.shape) for item in (repeats.get(axis, 1), size)]
    spread = broadcast(call.emit.reshape(value, tuple(thin)), tuple(wide))
    return call.emit.reshape(spread, call.shape())


def _broadcast(call: RowCall) -> Value:
    value, shape = call.value(0), call.shape()
    return value if value.shape == shape else broadcast(value, shape)


def _uniform(call: RowCall) -> Value:
    return broadcast(call.value(0), call.shape())


def _take_heads(call: RowCall) -> Value:
    """Some heads of [batch, places, heads, width] as [batch, heads, places, width]."""
    part = call.emit.slice(call.value(0), 2, call.integer("first"), call.integer("count"))
    return transposed(part, (0, 2, 1, 3))


def _first_rows(call: RowCall) -> Value:
    return call.emit.slice(call.value(0), 0, 0, call.integer("count"))


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(
            ("layout.reshape", "layout.flatten", "layout.unflatten", "layout.squeeze", "layout.unsqueeze"),
            _reshape,
        ),
        **{"layout.transpose": _transpose, "layout.slice": _slice, "layout.split": _split},
        **{"layout.unstack": _unstack, "layout.concat": _concat, "layout.stack": _stack, "layout.pad": _pad},
        **{"layout.gather": _gather, "layout.tile": _tile, "layout.broadcast": _broadcast},
        **{"aten.slice": _slice_one, "aten.expand": _broadcast, "aten.roll": _roll, "aten.flip": _flip},
        "aten.repeat_interleave": _repeat_each,
        **{"layout.uniform": _uniform, "aten.embedding": _embedding(0, 1), "llm.embedding": _embedding(1, 0)},
        **{"llm._take_heads": _take_heads, "llm._first_rows": _first_rows},
    }
)
"""The rows of views and moves."""
