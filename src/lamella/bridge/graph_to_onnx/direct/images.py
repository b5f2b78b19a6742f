"""Operators on images that have no formula, and resizing: as ONNX has them, or as products with weights."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import BOOL, F32, F64, I64, ElementType
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_onnx.arithmetic import apply, cast
from lamella.bridge.graph_to_onnx.direct.call import Call, Row
from lamella.bridge.graph_to_onnx.emitter import Value
from lamella.bridge.graph_to_onnx.scope import Held

TRANSFORMS = MappingProxyType(
    {"SYMMETRIC": "half_pixel", "ASYMMETRIC": "asymmetric", "ALIGNED": "align_corners"}
)
BORDERS = MappingProxyType({"ZEROS": "zeros", "REPLICATE": "border", "REFLECT": "reflection"})


def _linear_resize(call: Call) -> list[Held] | None:
    """Linear interpolation of the last dimensions; what shrinks with a filter is computed by the formula."""
    given, wanted = call.input().shape, call.output().shape
    known = [item for item in (*given, *wanted) if isinstance(item, int)]
    if len(known) != 2 * len(given) or len(given) not in (3, 4) or given[:2] != wanted[:2]:
        return None
    shrinks = any(after < before for before, after in zip(known, known[len(given) :], strict=False))
    if call.element != F32 or (shrinks and call.attribute("antialias")):
        return None
    transform = TRANSFORMS[str(call.attribute("coordinate_transform"))]
    return call.alone(
        "Resize",
        *(call.value(), None, None, call.vector(wanted)),
        mode="linear",
        coordinate_transformation_mode=transform,
    )


def _cubic_resize(call: Call) -> list[Held] | None:
    """Cubic interpolation as one product with a matrix of weights for each axis: exact in all its variants."""
    axes, sizes = call.integers("axes"), call.integers("size")
    if axes is None or sizes is None:
        raise Unsupported("cubic interpolation to an open size")
    shape = list(call.input().shape)
    work = F64 if call.element == F64 else F32
    value = cast(call.emitter, call.value(), work)
    for axis, size in zip(axes, sizes * (len(axes) if len(sizes) == 1 else 1), strict=True):
        place = axis % len(shape)
        extent = shape[place]
        if not isinstance(extent, int):
            raise Unsupported("cubic interpolation of an open extent")
        weights = _cubic_matrix(call, extent, size).astype(numpy_dtype(work))
        value = _product(call, value, place, len(shape), call.emitter.constant(weights))
        shape[place] = size
    return [cast(call.emitter, value, call.element)]


def _product(call: Call, value: Value, axis: int, rank: int, weights: Value) -> Value:
    letters, new = string.ascii_lowercase[:rank], "z"
    result = letters.replace(letters[axis], new)
    equation = f"{letters},{new}{letters[axis]}->{result}"
    return call.emitter.add("Einsum", (value, weights), value.element, equation=equation)


def _cubic_matrix(call: Call, extent: int, size: int) -> Array:
    """How much each item counts for each position of an axis that is resized."""
    transform, coefficient = call.attribute("coordinate_transform"), call.real("coeff_a")
    place = np.arange(size)
    if transform == "SYMMETRIC":
        above, below = (2 * place + 1) * extent - size, 2 * size
    elif transform == "ASYMMETRIC":
        above, below = place * extent, size
    else:
        above, below = place * (extent - 1), max(size - 1, 1)
    scale = min(size / extent, 1.0) if call.attribute("antialias") else 1.0
    reach = 2 if scale == 1.0 else -(-2 * extent // size)
    found = np.zeros((size, extent))
    steps = np.arange(1 - reach, reach + 1)
    weights = _cubic((steps[:, None] - above % below / below) * scale, coefficient)
    if scale < 1.0:
        weights = weights / weights.sum(axis=0)
    for step, row in zip(steps, weights, strict=True):
        np.add.at(found, (place, np.clip(above // below + step, 0, extent - 1)), row)
    return found


def _cubic(distance: Array, coefficient: float) -> Array:
    """The cubic convolution kernel."""
    t = np.abs(distance)
    near = ((coefficient + 2) * t - (coefficient + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * coefficient - 4 * coefficient
    return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0.0)))


def _grid_sample(call: Call) -> list[Held] | None:
    if len(call.input().shape) != 4:
        raise Unsupported("ONNX interpolates cubically at the points of a grid in two dimensions only")
    value, grid = (cast(call.emitter, call.value(place), F32) for place in (0, 1))
    found = call.emitter.add(
        "GridSample",
        (value, grid),
        F32,
        mode="cubic",
        padding_mode=BORDERS[str(call.attribute("padding"))],
        align_corners=int(bool(call.attribute("aligned"))),
    )
    return [cast(call.emitter, found, call.element)]


# --- regions of interest --------------------------------------------------------------------------------------


def _roi_pool(reduce: Callable[[Call, Value, int, Value], Value]) -> Row:
    """Pooling of regions, one axis after the other: the cells of a region are boxes."""

    def emit(call: Call) -> list[Held]:
        work = F64 if call.element == F64 else F32
        emitter = call.emitter
        index = cast(emitter, call.value(2), I64)
        value = emitter.add("Gather", (cast(emitter, call.value(), work), index), work, axis=0)
        for axis in range(len(call.input().shape) - 2):
            value = reduce(call, value, axis, _cells(call, axis))
        return [cast(emitter, value, call.element)]

    return emit


def _cells(call: Call, axis: int) -> Value:
    """Which positions along an axis lie in which cell of which region: a truth value for each."""
    emitter, shape = call.emitter, call.input().shape[2:]
    sizes = call.integers("output_size")
    if sizes is None:
        raise Unsupported("regions are pooled to an open size")
    count = (sizes * (len(shape) if len(sizes) == 1 else 1))[axis]
    places = [len(shape) - 1 - axis, 2 * len(shape) - 1 - axis]
    # Halves go away from zero.
    whole = apply(emitter, "round", (cast(emitter, call.value(1), F64),), F64)
    start, end = (
        emitter.add("Gather", (cast(emitter, whole, I64), emitter.integers(place)), I64, axis=1)
        for place in places
    )
    one = emitter.number(1, I64)
    length = _do(call, ">>", _do(call, "+", _do(call, "-", end, start), one), one)
    cells = np.arange(count)[None, :]
    low = _do(call, "/", _do(call, "*", length, emitter.constant(cells)), emitter.number(count, I64))
    high = _do(call, "\\", _do(call, "*", length, emitter.constant(cells + 1)), emitter.number(count, I64))
    grid = call.scope.extent(shape[axis])
    position = emitter.add("Range", (emitter.number(0, I64), grid, one), I64)
    low, high = (
        emitter.add("Unsqueeze", (_do(call, "+", start, item), emitter.integers(2)), I64)
        for item in (low, high)
    )
    behind = _do(call, ">=", position, low, BOOL)
    return _do(call, "&&", behind, _do(call, "<", position, high, BOOL), BOOL)


def _do(call: Call, function: str, left: Value, right: Value, element: ElementType = I64) -> Value:
    return apply(call.emitter, function, (left, right), element)


def _mean_of_cells(call: Call, value: Value, axis: int, cells: Value) -> Value:
    emitter = call.emitter
    weights = cast(emitter, cells, value.element)
    count = emitter.add("ReduceSum", (weights, emitter.integers(2)), value.element, keepdims=1)
    least = emitter.add("Max", (count, emitter.number(1, value.element)), value.element)
    share = emitter.add("Div", (weights, least), value.element)
    letters = string.ascii_lowercase[: len(call.input().shape)]
    place = letters[axis + 2]
    equation = f"{letters},{letters[0]}z{place}->{letters.replace(place, 'z')}"
    return emitter.add("Einsum", (value, share), value.element, equation=equation)


def _largest_of_cells(call: Call, value: Value, axis: int, cells: Value) -> Value:
    emitter, rank = call.emitter, len(call.input().shape)
    place = axis + 2
    # [region, cell, position] against [region, channel, …, position, …]: the cells stand before the positions.
    wide = emitter.add("Unsqueeze", (value, emitter.integers(place)), value.element)
    around = [*range(1, place), *range(place + 2, rank + 1)]
    mask = emitter.add("Unsqueeze", (cells, emitter.integers(*around)), BOOL)
    least = emitter.number(-np.inf, value.element)
    kept = emitter.add("Where", (mask, wide, least), value.element)
    found = emitter.add("ReduceMax", (kept, emitter.integers(place + 1)), value.element, keepdims=0)
    full = emitter.add("ReduceMax", (cast(emitter, mask, I64), emitter.integers(place + 1)), I64, keepdims=0)
    some = emitter.add("Cast", (full,), BOOL, to=9)
    return emitter.add("Where", (some, found, emitter.number(0, value.element)), value.element)


ROWS: Mapping[str, Row] = MappingProxyType(
    {
        "image.linear_resize": _linear_resize,
        "image.cubic_resize": _cubic_resize,
        "image._cubic_grid_sample": _grid_sample,
        "image.max_roi_pool": _roi_pool(_largest_of_cells),
        "image.avg_roi_pool": _roi_pool(_mean_of_cells),
    }
)
