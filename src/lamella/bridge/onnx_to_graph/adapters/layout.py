"""Adapters of operators that move elements: shapes, slices, gathers, scatters, pads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import F32, F64, I64
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.graph.nodes import Tensor

# --- shapes -------------------------------------------------------------------------------------------------------


def _reshape(site: NodeSite) -> Results:
    x = site.tensor()
    if site.version < 5:
        wanted: tuple[Extent, ...] = site.ints("shape") or ()
    else:
        wanted = site.extents(1, "the shape")
    if not site.flag("allowzero"):
        wanted = tuple(x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted))
    elif 0 in wanted:
        return site.call("onnx.reshape_empty", x, shape=wanted)
    return site.reshape(x, _without_open(x.shape, wanted) if 0 in x.shape and -1 in wanted else wanted)


def _without_open(shape: Sequence[Extent], wanted: Sequence[Extent]) -> tuple[Extent, ...]:
    """The shape of an empty tensor that has a -1: as if the extents that are 0 on both sides were some number."""
    if 0 not in wanted:
        return tuple(0 if size == -1 else size for size in wanted)
    whole = math.prod(size for size in shape if isinstance(size, int) and size > 0)
    rest = math.prod(size for size in wanted if isinstance(size, int) and size > 0)
    return tuple(whole // rest if size == -1 else size for size in wanted)


def _flatten(site: NodeSite) -> Results:
    x = site.tensor()
    axis = site.integer("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    one: Extent = 1
    shape = (reduce(dim.mul, x.shape[:axis], one), reduce(dim.mul, x.shape[axis:], one))
    return site.reshape(x, shape)


def _squeeze(site: NodeSite) -> Results:
    x = site.tensor()
    axes = site.axes(len(x.shape))
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    return site.call("layout.squeeze", x, axes=axes) if axes else x


def _unsqueeze(site: NodeSite) -> Results:
    x = site.tensor()
    count = len(site.ints("axes") or ()) if site.ints("axes") else len(site.extents(1, "axes"))
    axes = site.axes(len(x.shape) + count)
    return site.call("layout.unsqueeze", x, axes=tuple(sorted(axes or ())))


def _transpose(site: NodeSite) -> Results:
    x = site.tensor()
    perm = site.ints("perm") or tuple(range(len(x.shape)))[::-1]
    return site.call("layout.transpose", x, perm=perm)


def _expand(site: NodeSite) -> Results:
    x, wanted = site.tensor(), site.extents(1, "the shape")
    rank = max(len(x.shape), len(wanted))
    old = (1,) * (rank - len(x.shape)) + x.shape
    new = (1,) * (rank - len(wanted)) + wanted
    shape = tuple(left if right == 1 else right for left, right in zip(old, new, strict=True))
    return site.expand(x, shape)


def _tile(site: NodeSite) -> Results:
    return site.call("layout.tile", site.tensor(), repeats=site.extents(1, "the repeats"))


def _concat(site: NodeSite) -> Results:
    tensors = site.tensors()
    axis = site.integer("axis", 1 if site.version < 4 else None)
    return site.call("layout.concat", tensors, axis=site.axis_in(axis, len(tensors[0].shape)))


def _split(site: NodeSite) -> Results:
    x, axis = site.tensor(), site.integer("axis", 0)
    axis = site.axis_in(axis, len(x.shape))
    if site.version >= 13 and site.has(1):
        sizes: Sequence[Extent] = site.extents(1, "the sizes")
    elif site.ints("split") is not None:
        sizes = site.ints("split") or ()
    else:
        sizes = _even_parts(site, x.shape[axis])
    return list(site.call_all("layout.split", x, axis=axis, sizes=tuple(sizes)))


def _even_parts(site: NodeSite, whole: Extent) -> list[Extent]:
    """Equal parts; the last one is smaller where they do not divide."""
    count = site.integer("num_outputs", len(site.node.outputs))
    if count != len(site.node.outputs):
        site.refuse(f"has num_outputs {count} and {len(site.node.outputs)} outputs")
    if isinstance(whole, Dim):
        return [dim.floor_divide(whole, count)] * count
    size = -(-whole // count)
    return [*[size] * (count - 1), whole - size * (count - 1)]


# --- slices and pads ----------------------------------------------------------------------------------------------


def _slice(site: NodeSite) -> Results:
    x = site.tensor()
    rank = len(x.shape)
    if site.version < 10:
        starts, ends = site.ints("starts") or (), site.ints("ends") or ()
        axes, steps = site.ints("axes") or tuple(range(len(starts))), (1,) * len(starts)
        return _sliced(site, x, [site.axis_in(item, rank) for item in axes], starts, ends, steps)
    first, last = site.extents(1, "the starts"), site.extents(2, "the ends")
    axes = site.integers(3, "axes") if site.has(3) else tuple(range(len(first)))
    strides = site.integers(4, "the steps") if site.has(4) else (1,) * len(first)
    return _sliced(site, x, [site.axis_in(item, rank) for item in axes], first, last, strides)


def _sliced(
    site: NodeSite,
    x: Tensor,
    axes: Sequence[int],
    starts: Sequence[Extent],
    ends: Sequence[Extent],
    steps: Sequence[int],
) -> Tensor:
    """A slice; ends are clamped into the tensor as ONNX does it."""
    begin: list[Extent] = []
    end: list[Extent] = []
    for axis, start, stop, step in zip(axes, starts, ends, steps, strict=True):
        size = x.shape[axis]
        low, high = (0, size) if step > 0 else (-1, dim.sub(size, 1))
        begin.append(_clamped(start, size, 0, high))
        end.append(_clamped(stop, size, low, size if step > 0 else high))
    # Where nothing is left the end lies before the start.
    kept = [_not_before(b, e, step) for b, e, step in zip(begin, end, steps, strict=True)]
    # An end before the first element is said by a number that counts from the end.
    shown = [
        dim.sub(-1, x.shape[axis]) if item == -1 else item for axis, item in zip(axes, kept, strict=True)
    ]
    return site.call(
        "layout.slice", x, axes=tuple(axes), begin=tuple(begin), end=tuple(shown), stride=tuple(steps)
    )


def _clamped(place: Extent, size: Extent, low: Extent, high: Extent) -> Extent:
    if isinstance(place, int):
        if place < 0:
            place = dim.add(place, size) if place > -(1 << 40) else -1
        elif place > 1 << 40:
            return high
    return dim.larger(dim.smaller(place, high), low)


def _not_before(begin: Extent, end: Extent, step: int) -> Extent:
    return dim.larger(begin, end) if step > 0 else dim.smaller(begin, end)


def _pad(site: NodeSite) -> Results:
    x = site.tensor()
    rank = len(x.shape)
    if site.version < 11:
        pads: Sequence[Extent] = site.ints("pads") or ()
        value = site.scalar(site.real("value", 0.0), x.element)
    else:
        pads = site.extents(1, "the pads")
        given = site.optional(2)
        value = site.scalar(0, x.element) if given is None else site.reshape(given, ())
    axes = site.axes(rank, 3, since=18) or tuple(range(rank))
    half = len(axes)
    before: list[Extent] = [0] * rank
    after: list[Extent] = [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[half + place]
    return _padded(site, x, before, after, site.text("mode", "constant"), value)


def _padded(
    site: NodeSite, x: Tensor, before: list[Extent], after: list[Extent], mode: str, value: Tensor
) -> Tensor:
    """Negative pads take elements away first."""
    if any(dim.bounds(item)[0] < 0 for item in (*before, *after)):
        begin = [dim.larger(dim.sub(0, item), 0) for item in before]
        end = [
            dim.sub(size, dim.larger(dim.sub(0, item), 0)) for size, item in zip(x.shape, after, strict=True)
        ]
        x = site.call("layout.slice", x, begin=tuple(begin), end=tuple(end))
        before = [dim.larger(item, 0) for item in before]
        after = [dim.larger(item, 0) for item in after]
    if mode == "wrap":
        return site.call("onnx.pad_around", x, before=tuple(before), after=tuple(after))
    methods = {"constant": "CONSTANT", "reflect": "REFLECT", "edge": "REPLICATE"}
    if mode not in methods:
        site.refuse(f"has the mode '{mode}'")
    given = (value,) if mode == "constant" else ()
    return site.call("layout.pad", x, *given, padding=(*before, *after), method=methods[mode])


# --- gathers and scatters -----------------------------------------------------------------------------------------


def _indices(site: NodeSite, index: int) -> Tensor:
    return site.cast(site.tensor(index), I64)


def _counts_from_start(site: NodeSite, index: int) -> bool:
    content = site.content(index)
    return content is not None and content.dtype != object and bool((content >= 0).all())


def _gather(site: NodeSite) -> Results:
    """Indices may count from the end, which is only asked where it is not known."""
    x = site.tensor()
    axis = site.axis_in(site.integer("axis", 0), len(x.shape))
    operator = "layout.gather" if _counts_from_start(site, 1) else "onnx.gather"
    return site.call(operator, x, _indices(site, 1), axis=axis)


def _gather_elements(site: NodeSite) -> Results:
    x = site.tensor()
    axis = site.axis_in(site.integer("axis", 0), len(x.shape))
    return site.call("onnx.gather_elements", x, _indices(site, 1), axis=axis)


def _gather_nd(site: NodeSite) -> Results:
    return site.call(
        "onnx.gather_nd", site.tensor(), _indices(site, 1), batch_dims=site.integer("batch_dims", 0)
    )


def _scatter_elements(site: NodeSite) -> Results:
    x = site.tensor()
    axis = site.axis_in(site.integer("axis", 0), len(x.shape))
    indices, updates = _indices(site, 1), site.tensor(2)
    operator = f"onnx.scatter_{site.text('reduction', 'none')}"
    return site.call(operator, x, indices, updates, axis=axis)


def _scatter_nd(site: NodeSite) -> Results:
    operator = f"onnx.scatter_nd_{site.text('reduction', 'none')}"
    return site.call(operator, site.tensor(0), _indices(site, 1), site.tensor(2))


def _tensor_scatter(site: NodeSite) -> Results:
    x, updates = site.tensor(0), site.tensor(1)
    rank = len(x.shape)
    axis = site.axis_in(site.integer("axis", -2), rank)
    starts = site.optional(2)
    if starts is None:
        starts = site.make("layout.uniform", I64, site.scalar(0, I64), shape=(x.shape[0],))
    circular = site.text("mode", "linear") == "circular"
    starts = site.cast(starts, I64)
    return site.call("onnx.tensor_scatter", x, updates, starts, axis=axis, circular=circular)


def _one_hot(site: NodeSite) -> Results:
    indices, values = site.tensor(0), site.tensor(2)
    (depth,) = site.extents(1, "the depth")
    rank = len(indices.shape) + 1
    axis = site.axis_in(site.integer("axis", -1), rank)
    return site.call("onnx.one_hot", site.cast(indices, I64), values, axis=axis, depth=depth)


def _trilu(site: NodeSite) -> Results:
    k = site.integers(1, "the diagonal")[0] if site.has(1) else 0
    operator = "aten.triu" if site.flag("upper", True) else "aten.tril"
    return site.call(operator, site.tensor(), diagonal=k)


def _depth_to_space(site: NodeSite) -> Results:
    size = site.integer("blocksize")
    first = site.text("mode", "DCR") == "DCR"
    return site.call("layout.depth_to_space", site.tensor(), block_size=(size, size), blocks_first=first)


def _space_to_depth(site: NodeSite) -> Results:
    size = site.integer("blocksize")
    first = site.text("mode", "DCR") == "DCR"
    return site.call("layout.space_to_depth", site.tensor(), block_size=(size, size), blocks_first=first)


def _nonzero(site: NodeSite) -> Results:
    return site.call("layout.nonzero", site.tensor())


def _compress(site: NodeSite) -> Results:
    """The slices along an axis whose flag is set; the run tells how many."""
    x, flags = site.tensor(0), site.tensor(1)
    axis = site.attributes.get("axis")
    if not isinstance(axis, int):
        one: Extent = 1
        x, axis = site.reshape(x, (reduce(dim.mul, x.shape, one),)), 0
    places = site.call("layout.nonzero", flags)
    index = site.reshape(places, (places.shape[1],))
    return site.call("layout.gather", x, index, axis=site.axis_in(axis, len(x.shape)))


def _reverse_sequence(site: NodeSite) -> Results:
    lengths = site.cast(site.tensor(1), I64)
    batch, time = site.integer("batch_axis", 1), site.integer("time_axis", 0)
    return site.call("onnx.reverse_sequence", site.tensor(0), lengths, batch_axis=batch, time_axis=time)


def _center_crop_pad(site: NodeSite) -> Results:
    x, wanted = site.tensor(), site.extents(1, "the shape")
    rank = len(x.shape)
    axes = tuple(site.axis_in(item, rank) for item in site.ints("axes") or range(rank))
    for axis, size in zip(axes, wanted, strict=True):
        x = _centred(site, x, axis, size)
    return x


def _centred(site: NodeSite, x: Tensor, axis: int, size: Extent) -> Tensor:
    have = x.shape[axis]
    if not isinstance(have, int) or not isinstance(size, int):
        site.refuse_open("crops or pads", f"{have} to {size}")
    if size < have:
        start = (have - size) // 2
        return site.call("layout.slice", x, axes=(axis,), begin=(start,), end=(start + size,))
    if size > have:
        before = (size - have) // 2
        zero = site.scalar(0, x.element)
        return site.call("layout.pad", x, zero, axes=(axis,), padding=(before, size - have - before))
    return x


# --- orders -------------------------------------------------------------------------------------------------------


def _top_k(site: NodeSite) -> Results:
    x = site.tensor()
    (k,) = site.extents(1, "k") if site.version >= 10 else (site.integer("k"),)
    axis = site.axis_in(site.integer("axis", -1), len(x.shape))
    if dim.bounds(k)[0] > dim.bounds(x.shape[axis])[1]:
        site.refuse(f"wants {k} of {x.shape[axis]} items")
    reals = x if x.element.is_float else site.cast(x, F64)
    values, places = site.call_all(
        "algo.top_k", reals, k=k, axis=axis, largest=site.flag("largest", True), sorted=True
    )
    return [site.cast(values, x.element), places]


def _unique(site: NodeSite) -> Results:
    x = site.tensor()
    axis = site.attributes.get("axis")
    one: Extent = 1
    if isinstance(axis, int):
        axis = site.axis_in(axis, len(x.shape))
        order = (axis, *(item for item in range(len(x.shape)) if item != axis))
        moved = site.transpose(x, order)
        rows = site.reshape(moved, (moved.shape[0], reduce(dim.mul, moved.shape[1:], one)))
    else:
        rows = site.reshape(x, (reduce(dim.mul, x.shape, one), 1))
    found = _unique_rows(site, rows, site.flag("sorted", True))
    values = site.call("layout.gather", rows, found[0], axis=0)
    if isinstance(axis, int):
        shaped = site.reshape(values, (values.shape[0], *moved.shape[1:]))
        values = site.transpose(shaped, tuple(int(item) for item in np.argsort(order)))
    else:
        values = site.reshape(values, (values.shape[0],))
    return [values, *found]


def _unique_rows(site: NodeSite, rows: Tensor, ordered: bool) -> list[Tensor]:
    """The first place of each different row, the number of each row's group, and how many rows each group has."""
    first = site.call("onnx.first_equal_row", rows)
    fresh = site.call("onnx.is_own_place", first)
    rank = site.call("onnx.rank_of_rows", rows, fresh, ordered=ordered)
    places = site.call("layout.nonzero", fresh)
    places = site.reshape(places, (places.shape[1],))
    groups = site.call("layout.gather", rank, places, axis=0)
    firsts = site.call("onnx.invert", groups, places)
    inverse = site.call("layout.gather", rank, first, axis=0)
    counts = site.call("onnx.count_places", inverse, firsts)
    return [firsts, inverse, counts]


def _cumulative(operator: str) -> Callable[[NodeSite], Results]:
    def run(site: NodeSite) -> Results:
        x = site.tensor()
        axis = site.axis_in(site.integers(1, "the axis")[0], len(x.shape))
        given = {"exclusive": site.flag("exclusive"), "reverse": site.flag("reverse")}
        return site.call(operator, x, axis=axis, **given)

    return run


def _nonmax(site: NodeSite) -> Results:
    boxes, scores = site.tensor(0), site.tensor(1)
    most = site.extents(2, "max_output_boxes_per_class")[0] if site.has(2) else 0
    overlap = site.numbers(3, "iou_threshold")[0] if site.has(3) else 0.0
    least = site.numbers(4, "score_threshold")[0] if site.has(4) else None
    return site.call(
        "algo.nonmax_suppress",
        site.cast(boxes, F32),
        site.cast(scores, F32),
        box_format="CENTER" if site.flag("center_point_box") else "CORNERS",
        max_outputs_per_class=most,
        iou_threshold=overlap,
        score_threshold=least,
    )


def _col2im(site: NodeSite) -> Results:
    image, block = site.integers(1, "the image's shape"), site.integers(2, "the block's shape")
    rank = len(image)
    pads = site.ints("pads") or (0,) * (2 * rank)
    return site.call(
        "onnx.col2im",
        site.tensor(),
        image=image,
        block=block,
        dilation=site.ints("dilations") or (1,) * rank,
        padding=pads[:rank],
        after=pads[rank:],
        stride=site.ints("strides") or (1,) * rank,
    )


LAYOUT: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {
        "Reshape": _reshape,
        "Flatten": _flatten,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Transpose": _transpose,
        "Expand": _expand,
        "Tile": _tile,
        "Concat": _concat,
        "Split": _split,
        "Slice": _slice,
        "Pad": _pad,
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "GatherND": _gather_nd,
        "Scatter": _scatter_elements,
        "ScatterElements": _scatter_elements,
        "ScatterND": _scatter_nd,
        "TensorScatter": _tensor_scatter,
        "OneHot": _one_hot,
        "Trilu": _trilu,
        "DepthToSpace": _depth_to_space,
        "SpaceToDepth": _space_to_depth,
        "NonZero": _nonzero,
        "Compress": _compress,
        "ReverseSequence": _reverse_sequence,
        "CenterCropPad": _center_crop_pad,
        "TopK": _top_k,
        "Unique": _unique,
        "CumSum": _cumulative("onnx.cumulative_sum"),
        "CumProd": _cumulative("onnx.cumulative_product"),
        "NonMaxSuppression": _nonmax,
        "Col2Im": _col2im,
    }
)
"""Adapters by the names of ONNX's operators."""
