"""The operators that have no formula, written in NumPy.

Each takes the inputs in the order of their declaration, the attributes by name with all defaults filled in, the types
of the outputs, and a generator of random numbers. Narrow floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.backend.reference.factorisations import FACTORISATIONS, Factorisation, factorise
from lamella.base.arrays import Array, DType
from lamella.lang.skriptnd.rules.graphs import INDEX_OUTSIDE, NO_MEANING
from lamella.ops.fault import Fault
from lamella.ops.instance import Value

# --- which items an interpolation reads, and how much each of them counts -----------------------------------


def cubic(distance: Array, coefficient: float) -> Array:
    """The cubic convolution kernel at some distances."""
    t = np.abs(distance)
    near = ((coefficient + 2) * t - (coefficient + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * coefficient - 4 * coefficient
    weights: Array = np.where(t <= 1, near, np.where(t < 2, far, 0.0))
    return weights


def reflect(index: Array, extent: int, aligned: bool) -> Array:
    """Positions mirrored into a range, about the centres of its ends or about their outer edges."""
    turn = 2 * (extent - 1) if aligned else 2 * extent - 1
    place = index % max(turn if aligned else 2 * extent, 1)
    mirrored: Array = np.where(place < extent, place, turn - place)
    return mirrored


Input: TypeAlias = Array | tuple[Array, ...] | None
Attributes: TypeAlias = Mapping[str, Value]
Intrinsic: TypeAlias = Callable[
    [tuple[Input, ...], Attributes, tuple[DType, ...], np.random.Generator], tuple[Array, ...]
]
_FAR = 2.0**40
"""Further out than any tensor reaches: where coordinates are cut off before they become integers."""


def _tensors(inputs: tuple[Input, ...]) -> list[Array]:
    return [item for item in inputs if isinstance(item, np.ndarray)]


def _number(attributes: Attributes, name: str) -> int | float:
    value = attributes[name]
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"attribute '{name}' is {value!r}, not a number")


def _numbers(attributes: Attributes, name: str) -> list[int]:
    value = attributes[name]
    items = value if isinstance(value, tuple) else (value,)
    return [int(item) for item in items if isinstance(item, (int, float))]


def _computed(values: Array) -> Array:
    """Reals in the type they are computed in."""
    wide: Array = values.astype(np.result_type(values.dtype, np.float32), copy=False)
    return wide if wide.dtype == np.float64 else wide.astype(np.float32, copy=False)


def nonzero(
    inputs: tuple[Input, ...], _: Attributes, dtypes: tuple[DType, ...], __: np.random.Generator
) -> tuple[Array, ...]:
    """The coordinates of non-zero elements, one column each in row-major order; none for each of a scalar."""
    return (np.argwhere(_tensors(inputs)[0]).T.astype(dtypes[0]),)


def dynamic_range(
    inputs: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], _: np.random.Generator
) -> tuple[Array, ...]:
    """The numbers below the one that a tensor holds."""
    count, limit = int(_tensors(inputs)[0]), int(_number(attributes, "limit"))
    if not 0 <= count <= limit:
        raise Fault(NO_MEANING, reason=f"it counts to {count}; numbers from 0 to {limit} are possible")
    return (np.arange(count, dtype=dtypes[0]),)


def sort_rows(
    inputs: tuple[Input, ...], _: Attributes, dtypes: tuple[DType, ...], __: np.random.Generator
) -> tuple[Array, ...]:
    """The order of rows by their first element, of equals by their second, and so on; equal rows keep theirs."""
    rows = _tensors(inputs)[0]
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(len(rows))
    return (order.astype(dtypes[0]),)


def top_k(
    inputs: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], _: np.random.Generator
) -> tuple[Array, ...]:
    """The best items along an axis, best first and equal ones in their order; nan counts as the worst."""
    values = _tensors(inputs)[0]
    axis = int(_number(attributes, "axis"))
    keys = -_computed(values) if attributes["largest"] else _computed(values)
    count = min(int(_number(attributes, "k")), values.shape[axis])
    indices = _first_of_order(keys, axis, count, bool(attributes["sorted"]))
    found = np.take_along_axis(values, indices, axis)
    return found.astype(dtypes[0], copy=False), indices.astype(dtypes[1], copy=False)


AT_ONCE = 1 << 15
"""Items that are ordered at once: what is made of them stays in a cache."""


def _first_of_order(keys: Array, axis: int, count: int, ordered: bool = True) -> Array:
    """Where the smallest items along an axis stand, if asked for in their order; equal ones in that of their places."""
    if keys.dtype != np.float32 or not 0 < keys.shape[axis] < 1 << 31:
        return np.take(np.argsort(keys, axis=axis, kind="stable"), np.arange(count), axis=axis)
    lines = np.moveaxis(keys, axis, -1)
    rows = lines.reshape(-1, lines.shape[-1])
    found = np.empty((len(rows), count), np.int64)
    step = max(1, AT_ONCE // lines.shape[-1])
    for start in range(0, len(rows), step):
        found[start : start + step] = _first_of_rows(rows[start : start + step], count, ordered)
    return np.moveaxis(found.reshape(*lines.shape[:-1], count), -1, axis)


def _first_of_rows(rows: Array, count: int, ordered: bool) -> Array:
    """The same for numbers of 32 bits, row by row.

    A 32-bit key and its place are one 64-bit integer, which NumPy sorts several times as fast as it finds an order.
    """
    bits = (rows + np.float32(0.0)).view(np.int32)  # zeros of both signs are equal
    ranks = bits >> 31
    ranks &= np.int32(0x7FFFFFFF)
    ranks ^= bits  # the bits of negative numbers count backwards
    ranks[np.isnan(rows)] = 0x7FFFFFFF  # NaN of either sign comes last
    packed = np.left_shift(ranks, 32, dtype=np.int64)
    packed |= np.arange(rows.shape[-1], dtype=np.int64)
    if count and (not ordered or 4 * count < rows.shape[-1]):
        packed.partition(count - 1, axis=-1)
        packed = packed[:, :count]
    if ordered:
        packed.sort(axis=-1)
    found: Array = packed[:, :count] & 0xFFFFFFFF
    return found


def nonmax_suppress(
    inputs: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], _: np.random.Generator
) -> tuple[Array, ...]:
    """The boxes that overlap no better one, as rows (batch, class, box)."""
    boxes, scores = (_computed(item) for item in _tensors(inputs))
    corners = _corners(boxes, attributes["box_format"] == "CENTER")
    least = attributes["score_threshold"]
    most, overlap = (
        int(_number(attributes, "max_outputs_per_class")),
        float(_number(attributes, "iou_threshold")),
    )
    rows: list[Array] = [np.empty((0, 3), np.int64)]
    for batch, kind in np.ndindex(*scores.shape[:2]):
        score = scores[batch, kind]
        order = np.argsort(-score, kind="stable")
        if isinstance(least, (int, float)):
            order = order[score[order] > least]
        kept = list(_survivors(corners[batch], order, overlap, most))
        rows.append(np.array([(batch, kind, box) for box in kept], np.int64).reshape(-1, 3))
    return (np.concatenate(rows).astype(dtypes[0]),)


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as [low, low, high, high], whichever two corners or centre and size they were given by."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        first, second = first - second / 2, first + second / 2
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _survivors(boxes: Array, order: Array, overlap: float, most: int) -> Iterator[int]:
    """Boxes in the order of their scores, without those that overlap an earlier one too much."""
    for _ in range(most):
        if not order.size:
            return
        best, order = order[0], order[1:]
        yield int(best)
        order = order[~(_overlaps(boxes[best], boxes[order]) > overlap)]


def _overlaps(box: Array, others: Array) -> Array:
    """The area that two boxes share over the area that they cover together; 0 where they share none."""
    shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    both = np.prod(np.maximum(shared, 0), axis=-1)
    together = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=-1) - both
    ratios: Array = np.divide(both, together, out=np.zeros_like(both), where=(both > 0) & (together > 0))
    return ratios


def max_roi_pool(
    inputs: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], _: np.random.Generator
) -> tuple[Array, ...]:
    """The maximum of each cell of each region."""
    pooled = [_pool_cells(region, cells, np.max) for region, cells in _regions(inputs, attributes)]
    return (_stacked(pooled, inputs, attributes, dtypes[0]),)


def avg_roi_pool(
    inputs: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], _: np.random.Generator
) -> tuple[Array, ...]:
    """The mean of each cell of each region: the mean along one axis after the other, as the cells are boxes."""
    pooled = [_pool_cells(region, cells, np.mean) for region, cells in _regions(inputs, attributes)]
    return (_stacked(pooled, inputs, attributes, dtypes[0]),)


def _stacked(pooled: list[Array], inputs: tuple[Input, ...], attributes: Attributes, dtype: DType) -> Array:
    shape = (len(pooled), _tensors(inputs)[0].shape[1], *_numbers(attributes, "output_size"))
    return np.array(pooled, dtype).reshape(shape)


def _regions(inputs: tuple[Input, ...], attributes: Attributes) -> Iterator[tuple[Array, list[list[slice]]]]:
    """For each region the batch item it lies in and the cells along each axis."""
    values, rois, index = _tensors(inputs)
    values, counts = _computed(values), _numbers(attributes, "output_size")
    nearest = np.trunc(rois.astype(np.float64) + np.copysign(0.5, rois.astype(np.float64)))
    whole = np.clip(np.nan_to_num(nearest), -_FAR, _FAR).astype(np.int64)
    for row, item in zip(whole.tolist(), index.tolist(), strict=True):
        if not 0 <= item < len(values):
            raise Fault(INDEX_OUTSIDE, index=item, tensor="input", dimension=0, extent=len(values))
        starts, ends = row[: len(counts)][::-1], row[len(counts) :][::-1]
        bounds = zip(starts, ends, counts, values.shape[2:], strict=True)
        yield values[item], [list(_cells(*bound)) for bound in bounds]


def _cells(start: int, end: int, count: int, extent: int) -> Iterator[slice]:
    """The parts of a region along one axis, as far as they lie inside the input."""
    length = max(end - start + 1, 1)
    for cell in range(count):
        low, high = start + cell * length // count, start - (-(cell + 1) * length // count)
        yield slice(min(max(low, 0), extent), min(max(high, 0), extent))


def _pool_cells(region: Array, cells: list[list[slice]], reduce: Callable[..., Array]) -> Array:
    """A reduction over every cell of one region; 0 where a cell is empty."""
    for axis, parts in enumerate(cells, start=1):
        before = (slice(None),) * axis
        empty = np.zeros_like(region.take(0, axis=axis))
        found = [
            reduce(region[(*before, part)], axis=axis) if part.start < part.stop else empty for part in parts
        ]
        region = np.stack(found, axis=axis)
    return region


def cubic_grid_sample(
    inputs: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], _: np.random.Generator
) -> tuple[Array, ...]:
    """Cubic interpolation at the points of a grid."""
    values, grid = (_computed(item) for item in _tensors(inputs))
    aligned, padding = bool(attributes["aligned"]), str(attributes["padding"])
    batch = np.arange(len(values)).reshape(-1, *(1,) * (grid.ndim - 2))
    axes = [
        _grid_taps(grid[..., -1 - axis], extent, aligned, padding)
        for axis, extent in enumerate(values.shape[2:])
    ]
    moved = np.moveaxis(values, 1, -1)
    total = np.zeros((*grid.shape[:-1], values.shape[1]), values.dtype)
    for taps in product(*axes):
        weight: Array = np.prod(np.array([item[1] for item in taps]), axis=0, dtype=values.dtype)
        total += weight[..., None] * moved[(batch, *(item[0] for item in taps))]
    return (np.moveaxis(total, -1, 1).astype(dtypes[0]),)


def _grid_taps(points: Array, extent: int, aligned: bool, padding: str) -> list[tuple[Array, Array]]:
    """Four positions along one axis for each point, and their weights."""
    unit = (points.astype(np.float64) + 1) / 2
    place = np.clip(np.nan_to_num(unit * (extent - 1) if aligned else unit * extent - 0.5), -_FAR, _FAR)
    floor = np.floor(place)
    found = []
    for step in range(-1, 3):
        index = floor.astype(np.int64) + step
        weight = cubic(place - floor - step, -0.75)
        inside = np.clip(index, 0, extent - 1)
        if padding == "ZEROS":
            weight = np.where(inside == index, weight, 0)
        found.append((reflect(index, extent, aligned) if padding == "REFLECT" else inside, weight))
    return found


def _shape(attributes: Attributes) -> tuple[int, ...]:
    return tuple(_numbers(attributes, "shape"))


def uniform(
    _: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], generator: np.random.Generator
) -> tuple[Array, ...]:
    """Equally likely numbers from `min` up to, but not including, `max`."""
    low, high, shape = _number(attributes, "min"), _number(attributes, "max"), _shape(attributes)
    if not low < high:
        return (np.full(shape, low, dtypes[0]),)
    if np.issubdtype(dtypes[0], np.integer):
        return (generator.integers(int(low), int(high), shape).astype(dtypes[0]),)
    drawn = (low + (high - low) * generator.random(shape)).astype(dtypes[0])
    last = np.nextafter(np.array(high, dtypes[0]), np.array(low, dtypes[0]))
    return (np.minimum(drawn, last),)


def normal(
    _: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], generator: np.random.Generator
) -> tuple[Array, ...]:
    """Normally distributed numbers."""
    mean, deviation = _number(attributes, "mean"), _number(attributes, "std")
    return ((mean + deviation * generator.standard_normal(_shape(attributes))).astype(dtypes[0]),)


def bernoulli(
    _: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], generator: np.random.Generator
) -> tuple[Array, ...]:
    """True with a given probability."""
    return ((generator.random(_shape(attributes)) < _number(attributes, "prob")).astype(dtypes[0]),)


def _factorisation(work: Factorisation) -> Intrinsic:
    def run(
        inputs: tuple[Input, ...], attributes: Attributes, dtypes: tuple[DType, ...], _: np.random.Generator
    ) -> tuple[Array, ...]:
        return factorise(work, [_computed(item) for item in _tensors(inputs)], attributes, dtypes)

    return run


INTRINSICS: Mapping[str, Intrinsic] = MappingProxyType(
    {
        "algo.nonmax_suppress": nonmax_suppress,
        "algo.sort_rows": sort_rows,
        "algo.top_k": top_k,
        "image._cubic_grid_sample": cubic_grid_sample,
        "image.avg_roi_pool": avg_roi_pool,
        "image.max_roi_pool": max_roi_pool,
        "layout.dynamic_range": dynamic_range,
        "layout.nonzero": nonzero,
        "rand.bernoulli": bernoulli,
        "rand.normal": normal,
        "rand.uniform": uniform,
        **{name: _factorisation(work) for name, work in FACTORISATIONS.items()},
    }
)
