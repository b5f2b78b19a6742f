"""Transposed convolutions, and what makes images larger or smaller along an axis, as products of the NMU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_plan.emitter import Emitter
from lamella.bridge.graph_to_plan.rows.call import Row, RowCall
from lamella.bridge.graph_to_plan.rows.products import FILTER, planes
from lamella.bridge.graph_to_plan.rows.views import pick
from lamella.bridge.graph_to_plan.values import Value, known, natural, transposed

DENSE = 128
"""Items along an axis for each that a sum needs: up to so many, an NMU is sooner done with zeros than a VPU without."""


@dataclass(frozen=True, slots=True)
class _Phases:
    """One axis of a transposed convolution of stride s: s convolutions, whose results lie in turn beside each other.

    Tap j of the filter reaches place s·i + d·j − p from input i. Counted from `begin` places before the first result,
    that is place r of the s at q, where s·k + r = d·j − p + begin and q = i + k: so the convolution of phase r has j as
    its tap k.
    """

    stride: int
    taps: tuple[tuple[int, int], ...]
    """For each tap of the filter its phase and its tap there."""
    begin: int
    size: int
    extent: int

    @staticmethod
    def of(extent: int, taps: int, stride: int, dilation: int, padding: int, size: int) -> _Phases:
        """The phases of an axis of so many inputs and results, counted such that they have the fewest taps."""
        ways = []
        for begin in {0: None, padding % stride: None}:
            found = [divmod(dilation * tap - padding + begin, stride) for tap in range(taps)]
            ways.append(_Phases(stride, tuple((phase, tap) for tap, phase in found), begin, size, extent))
        return min(ways, key=lambda item: item.most - item.least)

    @property
    def count(self) -> int:
        """Results of a phase; those of the first and the last place may be more than there are."""
        return -(-(self.begin + self.size) // self.stride)

    @property
    def least(self) -> int:
        """The first tap of any phase."""
        return min(tap for _, tap in self.taps)

    @property
    def most(self) -> int:
        """The last tap of any phase."""
        return max(tap for _, tap in self.taps)

    @property
    def reach(self) -> tuple[int, int]:
        """Inputs before the first one, and behind the last one, that the first and the last result ask for."""
        return self.most, self.count - self.least - self.extent


def _deconv(call: RowCall) -> Value:
    """A transposed convolution: one convolution with the channels of all phases, then those put beside each other."""
    weight, bias = call.value(1), call.optional(2)
    if weight.array is None or (bias is not None and bias.array is None):
        raise Unsupported("a transposed convolution whose weights the run tells")
    if call.word("filter_format") not in ("", "NCX") or call.word("data_format") not in ("", "NCX"):
        raise Unsupported("a transposed convolution in another format")
    image = planes(call, call.value(0))
    groups = call.integer("groups", 1) or image.shape[1]
    array = weight.array.reshape(
        *weight.array.shape[:2], *(1,) * (4 - weight.array.ndim), *weight.array.shape[2:]
    )
    rows, columns = phases = _axes(call, image, array)
    each = rows.stride * columns.stride
    filters = _filters(array, groups, rows, columns)
    addends = None
    if bias is not None and bias.array is not None:
        addends = np.repeat(bias.array.reshape(groups, 1, -1), each, axis=1).reshape(-1)
    for axis, item in enumerate(phases, start=2):
        before, behind = (min(side, 0) for side in item.reach)
        if before or behind:
            image = call.emit.slice(image, axis, -before, item.extent + before + behind)
    found = _convolved(call.emit, image, filters, addends, phases, groups)
    return call.emit.reshape(_interleaved(call.emit, found, groups, rows, columns), call.shape())


def _axes(call: RowCall, image: Value, weight: Array) -> tuple[_Phases, _Phases]:
    """The phases of both axes; a sequence is an image of one row."""
    count = len(call.shape()) - 2
    strides, dilations = (_each(call.integers(name), count) for name in ("stride", "dilation"))
    pads, size = call.integers("padding")[:count], call.shape()[2:]
    if not pads:
        raise Unsupported("a transposed convolution that does not say its padding")
    lead = 2 - count
    numbers = zip(
        image.shape[2:],
        weight.shape[2:],
        (*(1,) * lead, *strides),
        (*(1,) * lead, *dilations),
        (*(0,) * lead, *pads),
        (*(1,) * lead, *size),
        strict=True,
    )
    rows, columns = (_Phases.of(*item) for item in numbers)
    return rows, columns


def _each(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values * count if len(values) == 1 else values


def _filters(weight: Array, groups: int, rows: _Phases, columns: _Phases) -> Array:
    """The filters [out, in, height, width] of all phases, group by group: a convolution has its taps backwards."""
    inputs, channels = weight.shape[0] // groups, weight.shape[1]
    sizes = (rows.most - rows.least + 1, columns.most - columns.least + 1)
    found = np.zeros((groups, rows.stride, columns.stride, channels, inputs, *sizes), weight.dtype)
    parts = weight.reshape(groups, inputs, *weight.shape[1:]).swapaxes(1, 2)
    for y, (down, low) in enumerate(rows.taps):
        for x, (right, left) in enumerate(columns.taps):
            found[:, down, right, :, :, rows.most - low, columns.most - left] = parts[..., y, x]
    return found.reshape(-1, inputs, *sizes)


def _convolved(
    emit: Emitter, image: Value, filters: Array, bias: Array | None, phases: Sequence[_Phases], groups: int
) -> Value:
    elem = emit.offers.float_for(
        "conv2d", image.elem if image.is_float else emit.real, "no_bias" if bias is None else "with_bias"
    )
    others = [(known(filters, elem, f"{emit.label}_phases"), FILTER, "HWIO")]
    if bias is not None:
        others.append((known(bias, elem, f"{emit.label}_bias"), (0,), "C"))
    pads = [[max(side, 0) for side in item.reach] for item in phases]
    shape = (image.shape[0], filters.shape[0], *(item.count for item in phases))
    return emit.window(
        "conv2d",
        emit.as_elem(image, elem),
        others,
        shape,
        elem,
        None,
        pads=(pads[0][0], pads[1][0], pads[0][1], pads[1][1]),
        strides=(1, 1),
        dilations=(1, 1),
        groups=groups,
        accum_type="f32",
    )


def _interleaved(emit: Emitter, found: Value, groups: int, rows: _Phases, columns: _Phases) -> Value:
    """The results of all phases in turn, with channels innermost as images have them."""
    batch, channels = found.shape[0], found.shape[1] // (rows.stride * columns.stride)
    parts = (batch, groups, rows.stride, columns.stride, channels // groups, rows.count, columns.count)
    turned = transposed(emit.reshape(found, parts), (0, 5, 2, 6, 3, 1, 4))
    whole = (batch, rows.count * rows.stride, columns.count * columns.stride, channels)
    image = emit.reshape(turned, whole)
    for axis, item in ((1, rows), (2, columns)):
        if image.shape[axis] != item.size:
            image = emit.slice(image, axis, item.begin, item.size)
    return transposed(image, (0, 3, 1, 2))


def _resample(call: RowCall) -> Value:
    """Sums of a few items along an axis with known places and weights: a product with a matrix, or items picked."""
    x, places, weights = (call.value(number) for number in range(3))
    if places.array is None or weights.array is None:
        raise Unsupported("places or weights that only the run tells")
    axis = call.integer("axis") % len(x.shape)
    return resampled(call, x, axis, places.array, weights.array)


def resampled(call: RowCall, x: Value, axis: int, places: Array, weights: Array) -> Value:
    """Along an axis, for each result the items at its places (a column of them) times its weights."""
    size, count = x.shape[axis], places.shape[1]
    if places.shape[0] == 1 and bool((weights == 1).all()):
        return pick(call, x, known(places[0].astype(np.int32), "i32", f"places_{size}_{count}"), axis)
    if size > DENSE * places.shape[0]:
        raise Unsupported(f"{places.shape[0]} of {size} items for each place: a product would be of zeros")
    matrix = np.zeros((size, count), np.float32)
    np.add.at(matrix, (places.astype(np.int64), np.arange(count)[None]), weights)
    rest = [other for other in natural(x.shape) if other != axis]
    rows = transposed(call.emit.as_real(x), (*rest, axis))
    product = call.emit.matmul(rows, call.emit.constant(matrix, label=f"resample_{size}_{count}"))
    back = [*range(axis), len(rest), *range(axis, len(rest))]
    return transposed(product, back)


def _uneven_means(call: RowCall) -> Value:
    """Means of windows of sizes as equal as can be: a pool to a size that does not divide the image."""
    x, size = call.value(0), call.integer("size")
    axis = call.integer("dim") % len(x.shape)
    extent, numbers = x.shape[axis], np.arange(size)
    first, last = numbers * extent // size, -(-(numbers + 1) * extent // size)
    places = first + np.arange((last - first).max())[:, None]
    weights = (places < last) / (last - first)
    return resampled(call, x, axis, places.clip(0, extent - 1), weights)


def _resize(method: Callable[[RowCall, int, int], tuple[Array, Array]]) -> Row:
    """A resize axis by axis, each of which has its places and weights."""

    def row(call: RowCall) -> Value:
        found, rank = call.value(0), len(call.shape())
        axes = tuple(axis % rank for axis in call.integers("axes")) or natural(found.shape)
        for axis, size in zip(axes, call.integers("size"), strict=True):
            if size != found.shape[axis]:
                found = resampled(call, found, axis, *method(call, found.shape[axis], size))
        return found

    return row


def _positions(call: RowCall, extent: int, size: int) -> tuple[Array, int]:
    """Where results lie between the items of an axis: numerators for each, and the denominator."""
    transform, numbers = call.word("coordinate_transform") or "SYMMETRIC", np.arange(size)
    if transform == "SYMMETRIC":
        return (2 * numbers + 1) * extent - size, 2 * size
    return (
        (numbers * extent, size) if transform == "ASYMMETRIC" else (numbers * (extent - 1), max(size - 1, 1))
    )


def _nearest(call: RowCall, extent: int, size: int) -> tuple[Array, Array]:
    above, below = _positions(call, extent, size)
    near = {
        "FLOOR": above // below,
        "CEIL": -(-above // below),
        "ROUND_PREFER_FLOOR": -((below - 2 * above) // (2 * below)),
        "ROUND_PREFER_CEIL": (2 * above + below) // (2 * below),
    }[call.word("rounding_method") or "ROUND_PREFER_FLOOR"]
    return near.clip(0, extent - 1)[None], np.ones((1, size), np.float32)


def _linear(call: RowCall, extent: int, size: int) -> tuple[Array, Array]:
    """A tent over the items around each place; one that shrinks is as wide as what it stands for."""
    above, below = _positions(call, extent, size)
    slope = min(size, extent) if call.attributes.get("antialias") is not False else extent
    reach = -(-extent // slope)
    steps = np.arange(2 * reach)[:, None] - reach + 1
    weights = (below * extent - np.abs(steps * below - above % below) * slope).clip(0)
    return (above // below + steps).clip(0, extent - 1), weights / weights.sum(0)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        **{"nn.deconv": _deconv, "onnx.conv_transpose": _deconv, "onnx.resample": _resample},
        "aten._uneven_means": _uneven_means,
        **{"image.nearest_resize": _resize(_nearest), "image.linear_resize": _resize(_linear)},
    }
)
"""The rows of what changes the size of images."""
