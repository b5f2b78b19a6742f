"""Pools and reductions as CSTL opcodes: what slides over an image, and what runs over whole axes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from lamella.base.errors import Unsupported
from lamella.base.quant import Quant
from lamella.bridge.graph_to_plan.rows.call import Row, RowCall
from lamella.bridge.graph_to_plan.rows.elementwise import LOWEST
from lamella.bridge.graph_to_plan.rows.products import FILTER, padding
from lamella.bridge.graph_to_plan.values import Value, known, reshaped, transposed


def _pool(opcode: str) -> Row:
    def row(call: RowCall) -> Value:
        return pool(call, opcode, call.value(0))

    return row


def pool(call: RowCall, opcode: str, value: Value, quant: Quant | None = None) -> Value:
    """A pool over one or two axes; those that lie elsewhere are moved to the end first."""
    rank = len(value.shape)
    axes = tuple(axis % rank for axis in call.integers("axes")) or tuple(range(2, rank))
    sizes, strides, dilations = (call.integers(name) for name in ("size", "stride", "dilation"))
    size, stride = _each(sizes, len(axes)), _each(strides, len(axes))
    moving = [axis for axis, extent in zip(axes, size, strict=True) if extent != 1]
    if any(step != 1 for step in dilations) or rank > 4 or rank < 3:
        raise Unsupported("a pool with dilation, or of other than three or four axes")
    if axes != tuple(range(2, rank)):
        raise Unsupported(f"a pool over the axes {moving}")
    extents = [value.shape[axis] for axis in axes]
    pads = padding(call, extents, list(size), stride, (1,) * len(axes))
    if opcode == "avgpool" and any(pads) and call.attributes.get("ignore_border") is False:
        raise Unsupported("an average that counts its padding")
    image = value if rank == 4 else _as_image(value)
    lead, count = 4 - rank, len(axes)
    out = call.shape() if rank == 4 else (*call.shape()[:2], 1, *call.shape()[2:])
    found = call.emit.window(
        opcode,
        image,
        (),
        out,
        value.elem,
        quant or value.quant,
        kernel_shape=(*(1,) * lead, *size),
        pads=(*(0,) * lead, *pads[:count], *(0,) * lead, *pads[count:]),
        strides=(*(1,) * lead, *stride),
    )
    return call.emit.reshape(found, call.shape())


def _sum_pool(call: RowCall) -> Value:
    """Sums of windows: a convolution of each channel with ones."""
    emit, value = call.emit, call.emit.as_real(call.value(0))
    rank, channels = len(value.shape), value.shape[1]
    axes = tuple(axis % rank for axis in call.integers("axes")) or tuple(range(2, rank))
    if rank not in (3, 4) or axes != tuple(range(2, rank)):
        raise Unsupported(f"sums of windows over the axes {list(axes)}")
    count, lead = rank - 2, 4 - rank
    size, stride, dilation = (_each(call.integers(name), count) for name in ("size", "stride", "dilation"))
    pads = padding(call, [value.shape[axis] for axis in axes], list(size), stride, dilation)
    elem = emit.offers.float_for("conv2d", value.elem, "no_bias")
    ones = known(np.ones((channels, 1, *(1,) * lead, *size), np.float32), elem, "ones")
    out = call.shape()
    found = emit.window(
        "conv2d",
        emit.as_elem(value if rank == 4 else _as_image(value), elem),
        [(ones, FILTER, "HWIO")],
        (*out[:2], *(1,) * lead, *out[2:]),
        elem,
        None,
        pads=(*(0,) * lead, *pads[:count], *(0,) * lead, *pads[count:]),
        strides=(*(1,) * lead, *stride),
        dilations=(*(1,) * lead, *dilation),
        groups=channels,
        accum_type="f32",
    )
    return emit.reshape(found, out)


def _as_image(value: Value) -> Value:
    found = reshaped(value, (*value.shape[:2], 1, value.shape[2]))
    if found is None:
        raise Unsupported("a sequence that does not lie as an image")
    return found


def _each(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values * count if len(values) == 1 else values


def _reduce(opcode: str) -> Row:
    def row(call: RowCall) -> Value:
        value = call.value(0)
        if opcode == "avgpool":
            value = call.emit.as_real(value)
        axes = call.integers("axes") or call.integers("dim") or tuple(range(len(value.shape)))
        found = call.emit.pool_axis(opcode, value, axes)
        return call.emit.reshape(found, call.shape())

    return row


def _least(call: RowCall) -> Value:
    """The minimum as the largest of what is turned around."""
    emit, value = call.emit, call.emit.as_real(call.value(0))
    axes = call.integers("axes") or tuple(range(len(value.shape)))
    found = emit.pool_axis("maxpool", emit.elementwise("neg", [value]), axes)
    return emit.reshape(emit.elementwise("neg", [found]), call.shape())


def _sum(call: RowCall) -> Value:
    """Rows of the summed axes times a column of ones, whose sums are f32."""
    emit, value = call.emit, call.emit.as_real(call.value(0))
    rank = len(value.shape)
    axes = sorted(axis % rank for axis in call.integers("axes") or range(rank))
    kept = [axis for axis in range(rank) if axis not in axes]
    turned = transposed(value, (*kept, *axes))
    width = int(np.prod([value.shape[axis] for axis in axes]))
    rows = emit.reshape(turned, (int(np.prod([value.shape[axis] for axis in kept], initial=1)), width))
    ones = emit.constant(np.ones((width, 1), np.float32), label=f"ones_{width}")
    return emit.reshape(emit.matmul(rows, ones), call.shape())


def _softmax(name: str, opcode: str = "softmax") -> Row:
    def row(call: RowCall) -> Value:
        axes = call.integers(name) or (-1,)
        if len(axes) != 1:
            raise Unsupported(f"a softmax over {len(axes)} axes")
        return call.emit.along(opcode, call.value(0), axes[0])

    return row


def _safe_softmax(call: RowCall) -> Value:
    """A softmax that is 0 in rows where everything is hidden.

    What is hidden lies far below all scores, at −inf or as far as a selection puts it. In a row with anything else its
    share is 0 anyway; in a row without, equal shares are taken away by a factor of 0.
    """
    emit, x = call.emit, call.emit.as_real(call.value(0))
    held = emit.elementwise("clamp", [x], min_val=LOWEST, max_val=-LOWEST)
    lifted = emit.elementwise("add", [held, emit.constant(-LOWEST / 2)])
    seen = emit.elementwise("clamp", [lifted], min_val=0.0, max_val=1.0)
    return emit.elementwise("mul", [emit.along("softmax", held, -1), seen])


def _layer_norm(call: RowCall) -> list[Value | None]:
    """A norm of the last axis; mean and deviation, which other outputs would be, are not there."""
    value, scale, bias = call.value(0), call.optional(1), call.optional(2)
    count = len(call.integers("normalized_shape")) or 1
    width = int(np.prod(value.shape[-count:]))
    flat = call.emit.reshape(value, (*value.shape[:-count], width))
    vectors = [_flat(call, item, width) for item in (scale, bias) if item is not None]
    if scale is None and bias is not None:
        vectors = [call.emit.constant(np.ones(width, np.float32), label="ones"), *vectors]
    found = call.emit.along("layernorm", flat, -1, vectors, epsilon=call.real("eps", 1e-5))
    return [call.emit.reshape(found, value.shape), *_absent(call)]


def _rms_norm(call: RowCall) -> list[Value | None]:
    value, scale = call.value(0), call.optional(1)
    count = len(call.integers("normalized_shape")) or 1
    width = int(np.prod(value.shape[-count:]))
    flat = call.emit.reshape(value, (*value.shape[:-count], width))
    vectors = [] if scale is None else [_flat(call, scale, width)]
    # torch takes the epsilon of the type where none is given; the graph is in f32.
    epsilon = call.real("eps", float(np.finfo(np.float32).eps))
    found = call.emit.along("rmsnorm", flat, -1, vectors, epsilon=epsilon)
    return [call.emit.reshape(found, value.shape), *_absent(call)]


def _flat(call: RowCall, value: Value, width: int) -> Value:
    return call.emit.reshape(value, (width,))


def _absent(call: RowCall) -> list[None]:
    """Results that the opcode does not give; whoever reads one makes the row unfit."""
    return [None] * (len(call.operation.outputs) - 1)


def _group_norm(call: RowCall) -> Value:
    """Each group of channels normalised as one row, then scaled by channel."""
    emit, value = call.emit, call.value(0)
    groups, channels = call.integer("num_groups", 1), value.shape[1]
    flat = emit.reshape(
        emit.row_major(value), (value.shape[0], groups, value.count // value.shape[0] // groups)
    )
    found = emit.along("layernorm", flat, -1, epsilon=call.real("eps", 1e-5))
    found = emit.reshape(found, value.shape)
    for opcode, vector in (("mul", call.optional(1)), ("add", call.optional(2))):
        if vector is not None:
            column = emit.reshape(vector, (channels, *(1,) * (len(value.shape) - 2)))
            found = emit.elementwise(opcode, [found, column])
    return found


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **{"nn.max_pool": _pool("maxpool"), "nn.avg_pool": _pool("avgpool"), "nn.sum_pool": _sum_pool},
        **{"math.max_reduce": _reduce("maxpool"), "math.mean_reduce": _reduce("avgpool")},
        "math.min_reduce": _least,
        **{"math.sum_reduce": _sum, "nn.softmax": _softmax("axes"), "aten.softmax": _softmax("dim")},
        "aten.safe_softmax": _safe_softmax,
        **{"llm.softmax": _softmax("dim"), "aten.log_softmax": _softmax("dim", "log_softmax")},
        **{"aten.layer_norm": _layer_norm, "llm.layernorm": _layer_norm},
        **{"aten.rms_norm": _rms_norm, "llm.rmsnorm": _rms_norm, "aten.group_norm": _group_norm},
    }
)
"""The rows of pools, reductions and norms."""
