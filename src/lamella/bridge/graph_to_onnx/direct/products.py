"""Products of matrices and convolutions, as ONNX has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.base.dim import Extent
from lamella.base.dtype import F16, F32, F64
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_onnx.direct.call import Call, Row
from lamella.bridge.graph_to_onnx.emitter import Value
from lamella.bridge.graph_to_onnx.scope import Held

MULTIPLIED = (F32, F64, F16)
"""Types that onnxruntime multiplies."""
CONVOLVED = (F32, F16)
DETERMINED = (F32, F16)
"""Types that onnxruntime has determinants of."""


def _linear(call: Call) -> list[Held] | None:
    if call.element not in MULTIPLIED:
        return None
    bias = call.optional(2)
    if len(call.input().shape) == 2:
        return call.alone("Gemm", call.value(), call.value(1), bias, transB=1)
    turned = call.node("Transpose", call.value(1), perm=(1, 0))
    found = call.node("MatMul", call.value(), turned)
    return [found if bias is None else call.node("Add", found, bias)]


def _matmul(call: Call) -> list[Held] | None:
    if call.element not in MULTIPLIED:
        return None
    left, right = (_turned(call, place, name) for place, name in ((0, "transA"), (1, "transB")))
    found, added = call.node("MatMul", left, right), call.optional(2)
    return [found if added is None else call.node("Add", found, added)]


def _turned(call: Call, place: int, name: str) -> Value:
    value = call.value(place)
    if not call.attribute(name):
        return value
    rank = len(call.input(place).shape)
    return call.node("Transpose", value, perm=(*range(rank - 2), rank - 1, rank - 2))


def _determinant(call: Call) -> list[Held] | None:
    if call.element not in DETERMINED:
        raise Unsupported(f"determinants of f32 and f16 are possible, not of {call.element}")
    return call.alone("Det", call.value())


# --- convolutions ---------------------------------------------------------------------------------------------


def order_of(layout: str, rank: int) -> tuple[int, ...]:
    """Where the batch, the channels and the spatial dimensions of a layout stand."""
    space = {
        "NCX": range(2, rank),
        "NXC": range(1, rank - 1),
        "XCN": range(rank - 2),
        "CXN": range(1, rank - 1),
    }
    first = {"NCX": (0, 1), "NXC": (0, rank - 1), "XCN": (rank - 1, rank - 2), "CXN": (rank - 1, 0)}
    return (*first[layout], *space[layout])


def transposed(call: Call, value: Value, order: Sequence[int]) -> Value:
    """Dimensions in another order."""
    if list(order) == list(range(len(order))):
        return value
    return call.emitter.add("Transpose", (value,), value.element, perm=tuple(order))


def inverse(order: Sequence[int]) -> list[int]:
    """The order that undoes another."""
    return [list(order).index(place) for place in range(len(order))]


def spatial(call: Call, name: str, count: int) -> tuple[int, ...] | None:
    """An attribute of each spatial dimension; one number stands for all."""
    found = call.integers(name)
    if found is None:
        return None
    return found * count if len(found) == 1 else found


def _paddings(call: Call, count: int, out: Sequence[Extent], given: Sequence[Extent]) -> list[int] | None:
    """Paddings at the start and the end of each dimension; rounding up the size needs more at the end."""
    before, both = spatial(call, "offset", count), spatial(call, "paddings", count)
    stride, reach = spatial(call, "stride", count), spatial(call, "fd", count)
    if before is None or both is None or stride is None or reach is None:
        return None
    after = [total - first for total, first in zip(both, before, strict=True)]
    if call.attribute("ceil_mode"):
        for place in range(count):
            extent, size = given[place], out[place]
            if not isinstance(extent, int) or not isinstance(size, int):
                return None
            after[place] = max(
                after[place], (size - 1) * stride[place] + reach[place] - extent - before[place]
            )
    return [*before, *after] if min((*before, *after), default=0) >= 0 else None


def _conv(call: Call) -> list[Held] | None:
    rank = len(call.input().shape)
    if call.element not in CONVOLVED or not 3 <= rank <= 5:
        return None
    order = order_of(str(call.attribute("data_format")), rank)
    extents, results = ([item.shape[place] for place in order[2:]] for item in (call.input(), call.output()))
    pads, groups = _paddings(call, rank - 2, results, extents), call.integer("g")
    stride, dilation = (spatial(call, name, rank - 2) for name in ("stride", "dilation"))
    if pads is None or groups is None or stride is None or dilation is None:
        return None
    value, weight = _in_order(call, order)
    found = call.node(
        "Conv", value, weight, call.optional(2), pads=pads, strides=stride, dilations=dilation, group=groups
    )
    return [transposed(call, found, inverse(order))]


def _in_order(call: Call, order: Sequence[int]) -> tuple[Value, Value]:
    """The input and the filter with batch and channels first."""
    filters = order_of(str(call.attribute("filter_format")), len(order))
    return transposed(call, call.value(), order), transposed(call, call.value(1), filters)


def _deconv(call: Call) -> list[Held] | None:
    rank = len(call.input().shape)
    if call.element not in CONVOLVED or not 3 <= rank <= 5:
        return None
    order = order_of(str(call.attribute("data_format")), rank)
    before, both = spatial(call, "offset", rank - 2), spatial(call, "paddings", rank - 2)
    stride, dilation, reach = (spatial(call, name, rank - 2) for name in ("stride", "dilation", "fd"))
    groups = call.integer("g")
    if (
        before is None
        or both is None
        or groups is None
        or stride is None
        or dilation is None
        or reach is None
    ):
        return None
    more = _missing(call, order, stride, reach, both)
    pads = [*before, *(total - first for total, first in zip(both, before, strict=True))]
    if more is None or min(pads) < 0:
        return None
    value, weight = _in_order(call, order)
    names = {"pads": pads, "strides": stride, "dilations": dilation, "output_padding": more}
    found = call.node("ConvTranspose", value, weight, call.optional(2), group=groups, **names)
    return [transposed(call, found, inverse(order))]


def _missing(
    call: Call, order: Sequence[int], stride: Sequence[int], reach: Sequence[int], both: Sequence[int]
) -> list[int] | None:
    """How much larger a result is than strides and paddings say; None where ONNX has no word for it."""
    found: list[int] = []
    for place, axis in enumerate(order[2:]):
        extent, size = call.input().shape[axis], call.output().shape[axis]
        if isinstance(extent, int) and isinstance(size, int):
            found.append(size - ((extent - 1) * stride[place] + reach[place] - both[place]))
        elif call.attribute("output_size") is None:
            found.append(0)
        else:
            return None
    ok = all(0 <= item < step for item, step in zip(found, stride, strict=True))
    return found if ok else None


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(("nn.linear", "aten.linear"), _linear),
        "linalg.matmul": _matmul,
        "linalg.determinant": _determinant,
        "nn.conv": _conv,
        "nn.deconv": _deconv,
    }
)
