"""Matrix products and convolutions as NMU opcodes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_plan.rows.call import Row, RowCall
from lamella.bridge.graph_to_plan.values import Order, Value, known, natural, reshaped, transposed

FILTER: Order = (2, 3, 1, 0)
"""How a filter [out, in, height, width] lies as HWIO."""


def _linear(call: RowCall) -> Value:
    weight = transposed(call.value(1), (1, 0))
    return call.emit.matmul(call.value(0), weight, call.optional(2))


def _matmul(call: RowCall) -> Value:
    a, b = call.value(0), call.value(1)
    return call.emit.matmul(
        turned(a) if call.flag("transA") else a, turned(b) if call.flag("transB") else b, call.optional(2)
    )


def turned(value: Value) -> Value:
    """The last two axes exchanged."""
    order = natural(value.shape)
    return transposed(value, (*order[:-2], order[-1], order[-2]))


def _matvec(call: RowCall) -> Value:
    a, x = call.value(0), call.value(1)
    column = call.emit.reshape(x, (*x.shape, 1))
    bias = call.optional(2)
    addend = None if bias is None else call.emit.reshape(bias, (*bias.shape, 1))
    found = call.emit.matmul(turned(a) if call.flag("transA") else a, column, addend)
    return call.emit.reshape(found, call.shape())


def _conv(call: RowCall) -> Value:
    emit = call.emit
    window = window_of(call, call.value(0))
    image, weight, bias = window.image, window.weight, call.optional(2)
    elem = emit.offers.float_for(
        "conv2d", image.elem if image.is_float else emit.real, "no_bias" if bias is None else "with_bias"
    )
    others = [(emit.as_elem(weight, elem), FILTER, "HWIO")]
    if bias is not None:
        others.append((emit.as_elem(bias, elem), (0,), "C"))
    found = emit.window(
        "conv2d",
        emit.as_elem(image, elem),
        others,
        window.shape,
        elem,
        None,
        **window.attributes,
        accum_type="f32",
    )
    return from_planes(call, found)


class Sliding(NamedTuple):
    """A convolution as NEM has it: over two spatial axes."""

    image: Value
    weight: Value
    shape: tuple[int, ...]
    attributes: dict[str, int | tuple[int, ...]]


def window_of(call: RowCall, value: Value, zero: int = 0) -> Sliding:
    """A convolution over one, two or three spatial axes as one over two; `zero` is what pads codes."""
    if len(value.shape) == 5:
        return _volume(call, value, zero)
    return Sliding(
        planes(call, value), filter_of(call, call.value(1)), plane_shape(call), window_attributes(call)
    )


def _volume(call: RowCall, value: Value, zero: int) -> Sliding:
    """Each depth of the result as an image of its own, whose channels are those of all depths under the kernel."""
    emit, weight, out = call.emit, call.value(1), call.shape()
    batch, channels, depth = value.shape[:3]
    attributes = window_attributes(call)
    pads, strides, dilations = (attributes[name] for name in ("pads", "strides", "dilations"))
    assert isinstance(pads, tuple)
    assert isinstance(strides, tuple)
    assert isinstance(dilations, tuple)
    if attributes["groups"] != 1 or call.word("data_format") not in ("", "NCX") or weight.array is None:
        raise Unsupported(
            "a window over 3 spatial axes in groups, in another format, or whose weights the run tells"
        )
    if pads[0] or pads[3]:
        value = emit.pad(value, (0, 0, pads[0], 0, 0), (0, 0, pads[3], 0, 0), zero, "constant")
    taps = []
    for tap in range(weight.shape[2]):
        places = np.arange(out[2], dtype=np.int32) * strides[0] + tap * dilations[0]
        if strides[0] == 1:
            taps.append(emit.slice(value, 2, int(places[0]), out[2]))
        else:
            taps.append(emit.gather(value, known(places, "i32", f"depths_{depth}_{tap}"), 2))
    whole = transposed(emit.concat(taps, 1), (0, 2, 1, 3, 4))
    image = emit.reshape(whole, (batch * out[2], channels * len(taps), *value.shape[3:]))
    kernel = emit.reshape(
        transposed(weight, (0, 2, 1, 3, 4)), (out[1], channels * len(taps), *weight.shape[3:])
    )
    flat: dict[str, int | tuple[int, ...]] = {
        "pads": (*pads[1:3], *pads[4:]),
        "strides": strides[1:],
        "dilations": dilations[1:],
        "groups": 1,
    }
    return Sliding(image, kernel, (batch * out[2], out[1], *out[3:]), flat)


def from_planes(call: RowCall, found: Value) -> Value:
    """The result of a convolution in its own shape."""
    out = call.shape()
    if len(out) != 5:
        return call.emit.reshape(found, out)
    return transposed(call.emit.reshape(found, (out[0], out[2], out[1], *out[3:])), (0, 2, 1, 3, 4))


def planes(call: RowCall, value: Value) -> Value:
    """An image with its channels second and two spatial axes; a sequence is an image of one row."""
    order = call.word("data_format")
    if order == "NXC":
        axes = natural(value.shape)
        value = transposed(value, (0, axes[-1], *axes[1:-1]))
    elif order not in ("", "NCX"):
        raise Unsupported(f"data in the format {order}")
    return _two_dimensions(value)


def filter_of(call: RowCall, value: Value) -> Value:
    """A filter [out, in, height, width]."""
    order, axes = call.word("filter_format"), natural(value.shape)
    perms = {
        "NXC": (0, axes[-1], *axes[1:-1]),
        "XCN": (axes[-1], axes[-2], *axes[:-2]),
        "CXN": (axes[-1], 0, *axes[1:-1]),
    }
    return _two_dimensions(transposed(value, perms[order]) if order in perms else value)


def _two_dimensions(value: Value) -> Value:
    if len(value.shape) == 4:
        return value
    if len(value.shape) != 3:
        raise Unsupported(f"a window over {len(value.shape) - 2} spatial axes; NEM has one over two")
    found = reshaped(value, (*value.shape[:2], 1, value.shape[2]))
    if found is None:
        raise Unsupported("a sequence that does not lie as an image")
    return found


def plane_shape(call: RowCall) -> tuple[int, ...]:
    """The result with its channels second and two spatial axes."""
    shape = call.shape()
    if call.word("data_format") == "NXC":
        raise Unsupported("a result in the format NXC")
    return shape if len(shape) == 4 else (*shape[:2], 1, shape[2])


def window_attributes(call: RowCall) -> dict[str, int | tuple[int, ...]]:
    """Strides, dilations, groups and pads of a convolution, in the words of NEM."""
    image, weight = call.tensor(0).shape, call.tensor(1).shape
    if call.word("filter_format") not in ("", "NCX"):
        raise Unsupported("pads of a filter in another format")
    kernel = [item for item in weight[2:] if isinstance(item, int)]
    sizes = [item for item in image[2:] if isinstance(item, int)]
    count = len(sizes)
    strides = _each(call.integers("stride"), count)
    dilations = _each(call.integers("dilation"), count)
    pads = padding(call, sizes, kernel, strides, dilations)
    groups = call.integer("groups", 1)
    if groups == 0:
        groups = image[1] if isinstance(image[1], int) else 1
    lead = max(0, 2 - count)
    return {
        "pads": (*(0,) * lead, *pads[:count], *(0,) * lead, *pads[count:]),
        "strides": (*(1,) * lead, *strides),
        "dilations": (*(1,) * lead, *dilations),
        "groups": groups,
    }


def padding(
    call: RowCall, sizes: list[int], kernel: list[int], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[int, ...]:
    """All begins, then all ends, such that just the windows of the result fit."""
    count, out = len(sizes), _spatial(call, len(sizes))
    given = call.integers("padding")
    begins, ends = [], []
    for axis in range(count):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        needed = (out[axis] - 1) * strides[axis] + reach - sizes[axis]
        if given:
            begin = given[axis]
        else:
            total = needed
            begin = total // 2 if call.word("padding_align") != "LOWER" else -(-total // 2)
        begins.append(begin)
        # What the last window does not reach is left out; what it reaches beyond the input is padding.
        ends.append(max(needed - begin, 0))
    if any(item < 0 for item in begins):
        raise Unsupported("a window whose padding is negative")
    return (*begins, *ends)


def _spatial(call: RowCall, count: int) -> tuple[int, ...]:
    return call.shape()[2 : 2 + count]


def _each(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values * count if len(values) == 1 else values


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **{"nn.linear": _linear, "linalg.matmul": _matmul, "linalg.matvec": _matvec, "nn.conv": _conv},
    }
)
"""The rows of products."""
