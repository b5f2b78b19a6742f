"""Adapters of operators on images: resizing, sampling, regions of interest, deformable convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from lamella.base import dim
from lamella.base.arrays import Array
from lamella.base.dim import Extent
from lamella.base.dtype import F32, F64, I64
from lamella.bridge.onnx_to_graph.adapters.networks import windows
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.graph.nodes import Tensor

# --- resizing: for each position of an axis a few places of the original, and their weights -----------------------


LARGEST_SCALE = 1e6
MOST_TAPS = 1 << 22
"""Places that the positions of one axis read, all together."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """How an axis is resized."""

    extent: int
    size: int
    scale: float
    region: tuple[float, float]
    """The part of the axis that is shown, where the file says one."""


@dataclass(frozen=True, slots=True)
class _Filter:
    """How numbers between places are found."""

    mode: str
    transform: str
    nearest: str
    coefficient: float
    antialias: bool
    exclude_outside: bool


def _sources(axis: _Axis, transform: str) -> Array:
    """Where the positions of a resized axis lie in the original."""
    x = np.arange(axis.size, dtype=np.float64)
    width = axis.scale * axis.extent
    last = axis.extent - 1
    if transform == "align_corners":
        return np.zeros(axis.size) if width == 1 else x * last / (width - 1)
    if transform == "asymmetric":
        return np.asarray(x / axis.scale)
    if transform == "tf_crop_and_resize":
        start, end = axis.region
        inner = (
            np.full(axis.size, (end - start) * last / 2)
            if width == 1
            else x * (end - start) * last / (width - 1)
        )
        return np.asarray(inner + start * last)
    if transform == "pytorch_half_pixel" and width == 1:
        return np.full(axis.size, -0.5)
    shift = axis.extent / 2 * (1 - axis.size / width) if transform == "half_pixel_symmetric" else 0.0
    return np.asarray(shift + (x + 0.5) / axis.scale - 0.5)


def _nearest_places(x: Array, rounding: str) -> Array:
    if rounding == "floor":
        return np.floor(x)
    if rounding == "ceil":
        return np.ceil(x)
    return np.asarray(np.ceil(x - 0.5) if rounding == "round_prefer_floor" else np.floor(x + 0.5))


def _cubic(distance: Array, a: float) -> Array:
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * a - 4 * a
    return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0.0)))


def _taps(axis: _Axis, kind: _Filter) -> tuple[Array, Array]:
    """Places and weights, each [taps, positions]."""
    x = _sources(axis, kind.transform)
    if kind.mode == "nearest":
        places, weights = _nearest_places(x, kind.nearest)[None], np.ones((1, axis.size))
    else:
        reach = 1 if kind.mode == "linear" else 2
        shrink = min(axis.scale, 1.0) if kind.antialias else 1.0
        span = math.ceil(reach / shrink)
        places = np.floor(x)[None] + np.arange(1 - span, span + 1)[:, None]
        distance = (places - x[None]) * shrink
        weights = (
            np.maximum(1 - np.abs(distance), 0)
            if kind.mode == "linear"
            else _cubic(distance, kind.coefficient)
        )
        if kind.antialias:
            weights = weights / weights.sum(axis=0)
    if kind.exclude_outside:
        weights = np.where((places < 0) | (places >= axis.extent), 0.0, weights)
        total = weights.sum(axis=0)
        weights = weights / np.where(total == 0, 1.0, total)
    return np.clip(places, 0, axis.extent - 1).astype(np.int64), weights


def _resize(site: NodeSite) -> Results:
    x = site.tensor()
    rank = len(x.shape)
    first = 1 if site.version < 11 else 2
    axes = tuple(site.axis_in(item, rank) for item in site.ints("axes") or range(rank))
    region = site.numbers(1, "the region") if first == 2 and site.has(1) else ()
    transform = site.text("coordinate_transformation_mode", "half_pixel" if first == 2 else "asymmetric")
    sizes: Sequence[Extent] | None = None
    scales: Sequence[float] = ()
    if site.has(3) and (known := site.extents(3, "the sizes")):
        sizes, scales = _with_aspect(site, x, axes, known)
    else:
        scales = site.numbers(first, "the scales")
    kind = _Filter(
        site.text("mode", "nearest"),
        transform,
        site.text("nearest_mode", "round_prefer_floor" if first == 2 else "floor"),
        site.real("cubic_coeff_a", -0.75),
        site.flag("antialias"),
        site.flag("exclude_outside"),
    )
    regions = [(region[n], region[len(axes) + n]) if region else (0.0, 1.0) for n in range(len(axes))]
    return _resized(site, x, axes, sizes, scales, regions, kind)


def _with_aspect(
    site: NodeSite, x: Tensor, axes: Sequence[int], wanted: Sequence[Extent]
) -> tuple[Sequence[Extent], Sequence[float]]:
    """Sizes and scales; a policy may keep the ratio of the extents."""
    extents = [x.shape[axis] for axis in axes]
    known = [item for item in (*extents, *wanted) if isinstance(item, int)]
    policy = site.text("keep_aspect_ratio_policy", "stretch")
    if len(known) != 2 * len(axes):
        if policy != "stretch":
            site.refuse_open(
                "keeps the ratio of", next(item for item in (*extents, *wanted) if item not in known)
            )
        return wanted, ()
    half = len(axes)
    ratios = [goal / size for size, goal in zip(known[:half], known[half:], strict=True)]
    if policy == "stretch":
        return wanted, ratios
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(scale * size + 0.5) for size in known[:half]], [scale] * half


def _resized(
    site: NodeSite,
    x: Tensor,
    axes: Sequence[int],
    sizes: Sequence[Extent] | None,
    scales: Sequence[float],
    regions: Sequence[tuple[float, float]],
    kind: _Filter,
) -> Tensor:
    work = x if x.element.is_float else site.cast(x, F32)
    outside: list[tuple[int, Array]] = []
    for n, axis in enumerate(axes):
        extent = work.shape[axis]
        size = sizes[n] if sizes is not None else _scaled(extent, scales[n])
        scale = scales[n] if scales else None
        if size == extent and (scale is None or abs(scale - 1) < 1e-6) and regions[n] == (0.0, 1.0):
            continue
        if not isinstance(extent, int) or not isinstance(size, int):
            work = _resized_open(site, work, axis, size, kind)
            continue
        given = _Axis(extent, size, size / extent if scale is None else scale, regions[n])
        _require_bearable(site, given, kind)
        places, weights = _taps(given, kind)
        work = _sampled(site, work, axis, places, weights)
        if kind.transform == "tf_crop_and_resize":
            source = _sources(given, kind.transform)
            outside.append((axis, (source < 0) | (source > extent - 1)))
    return site.cast(_extrapolated(site, work, outside), x.element)


def _require_bearable(site: NodeSite, axis: _Axis, kind: _Filter) -> None:
    """Refuse tables of places that a file makes larger than any image."""
    if not (axis.extent > 0 and axis.size >= 0 and math.isfinite(axis.scale) and axis.scale > 0):
        site.refuse("has a scale or a size that nothing can be resized to")
    taps = 4 / min(axis.scale, 1.0) if kind.antialias else 4
    if axis.size * taps > MOST_TAPS:
        site.refuse(f"resizes an axis to {axis.size} positions")


def _scaled(extent: Extent, scale: float) -> Extent:
    if not math.isfinite(scale) or abs(scale) > LARGEST_SCALE:
        return -1  # refused where the axis is resized
    if isinstance(extent, int):
        return math.floor(extent * scale)
    exact = Fraction(scale).limit_denominator(1 << 12)
    return dim.floor_divide(dim.mul(extent, exact.numerator), exact.denominator)


def _sampled(site: NodeSite, x: Tensor, axis: int, places: Array, weights: Array) -> Tensor:
    if len(places) == 1:
        return site.call("layout.gather", x, site.constant(places[0]), axis=axis)
    table = site.constant(weights.astype(np.float64 if x.element == F64 else np.float32))
    return site.call("onnx.resample", x, site.constant(places), site.cast(table, x.element), axis=axis)


def _resized_open(site: NodeSite, x: Tensor, axis: int, size: Extent, kind: _Filter) -> Tensor:
    """An axis whose extents only the run tells, by the operators of module `image`."""
    transforms = {
        "half_pixel": "SYMMETRIC",
        "pytorch_half_pixel": "SYMMETRIC",
        "asymmetric": "ASYMMETRIC",
        "align_corners": "ALIGNED",
    }
    if kind.transform not in transforms or kind.antialias or kind.exclude_outside:
        site.refuse_open(f"resizes in the mode '{kind.transform}'", x.shape[axis])
    return site.call(
        "image.resize",
        x,
        axes=(axis,),
        size=(size,),
        mode=kind.mode.upper(),
        coordinate_transform=transforms[kind.transform],
        rounding_method=kind.nearest.upper(),
        antialias=False,
        cubic_coeff_a=kind.coefficient,
    )


def _extrapolated(site: NodeSite, x: Tensor, outside: list[tuple[int, Array]]) -> Tensor:
    value = site.scalar(site.real("extrapolation_value", 0.0), x.element)
    for axis, flags in outside:
        if flags.any():
            shape = [1] * len(x.shape)
            shape[axis] = len(flags)
            x = site.call("math.select", site.constant(flags.reshape(shape)), value, x)
    return x


def _upsample(site: NodeSite) -> Results:
    """The ancestor of Resize: positions are divided by the scale and rounded down."""
    x = site.tensor()
    scales = site.numbers(1, "the scales") if site.version >= 9 else site.reals("scales") or ()
    mode = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}[site.text("mode", "nearest")]
    kind = _Filter(mode, "asymmetric", "floor", -0.75, antialias=False, exclude_outside=False)
    axes = tuple(range(len(x.shape)))
    return _resized(site, x, axes, None, scales, [(0.0, 1.0)] * len(axes), kind)


# --- sampling -----------------------------------------------------------------------------------------------------


def _grid_sample(site: NodeSite) -> Results:
    mode = site.text("mode", "bilinear")
    modes = {
        "bilinear": "LINEAR",
        "linear": "LINEAR",
        "nearest": "NEAREST",
        "bicubic": "CUBIC",
        "cubic": "CUBIC",
    }
    paddings = {"zeros": "ZEROS", "border": "REPLICATE", "reflection": "REFLECT"}
    padding = site.text("padding_mode", "zeros")
    if mode not in modes or padding not in paddings:
        site.refuse(f"has the mode '{mode}' and the padding '{padding}'")
    grid, method = site.tensor(1), paddings[padding]
    if padding == "reflection" and modes[mode] != "CUBIC":
        # Mirrored points lie inside; cubic weights reach further, and mirror place by place.
        grid, method = site.call("onnx.reflect_grid", grid), "REPLICATE"
    return site.call(
        "image.grid_sample",
        site.tensor(),
        grid,
        mode=modes[mode],
        padding=method,
        aligned=site.flag("align_corners"),
    )


def _affine_grid(site: NodeSite) -> Results:
    size = site.extents(1, "the size")
    return site.call("onnx.affine_grid", site.tensor(), size=size[2:], aligned=site.flag("align_corners"))


def _roi_align(site: NodeSite) -> Results:
    x, rois, batches = site.tensor(0), site.tensor(1), site.cast(site.tensor(2), I64)
    half = site.text("coordinate_transformation_mode", "half_pixel") == "half_pixel" and site.version >= 16
    samples = site.integer("sampling_ratio", 0)
    if samples <= 0:
        site.refuse("takes as many samples as a region is large, which only the run tells")
    operator = "onnx.roi_align_max" if site.text("mode", "avg") == "max" else "onnx.roi_align"
    return site.call(
        operator,
        x,
        rois,
        batches,
        height=site.integer("output_height", 1),
        width=site.integer("output_width", 1),
        samples=samples,
        scale=site.real("spatial_scale", 1.0),
        half=half,
    )


def _max_roi_pool(site: NodeSite) -> Results:
    x, rois = site.tensor(0), site.tensor(1)
    index, boxes = site.call_all("layout.split", rois, axis=1, sizes=(1, 4))
    batches = site.cast(site.reshape(index, (rois.shape[0],)), I64)
    scaled = site.scaled(boxes, site.real("spatial_scale", 1.0))
    return site.call("image.max_roi_pool", x, scaled, batches, output_size=site.ints("pooled_shape") or ())


def _deform_conv(site: NodeSite) -> Results:
    x, weight, offset = site.tensor(0), site.tensor(1), site.tensor(2)
    bias, mask = site.optional(3), site.optional(4)
    if len(x.shape) != 4:
        site.refuse("works on images of other than two dimensions")
    strides, dilations, pads = windows(site, x.shape[2:], weight.shape[2:])
    return site.call(
        "onnx.deform_conv",
        x,
        weight,
        offset,
        mask,
        bias,
        stride=strides,
        dilation=dilations,
        padding=tuple(pads[:2]),
        groups=site.groups(),
        offset_groups=site.integer("offset_group", 1),
    )


IMAGES: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {
        "Resize": _resize,
        "Upsample": _upsample,
        "GridSample": _grid_sample,
        "AffineGrid": _affine_grid,
        "RoiAlign": _roi_align,
        "MaxRoiPool": _max_roi_pool,
        "DeformConv": _deform_conv,
    }
)
"""Adapters by the names of ONNX's operators."""
