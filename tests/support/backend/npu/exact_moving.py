"""Naive judges of views, pools, reductions and conversions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from tests.support.backend.npu.drawing import Case
from tests.support.backend.npu.exact import (
    PRECISION,
    Place,
    Results,
    centred_at,
    clamp_to,
    group_at,
    integer_at,
    nearest,
    places,
    quant_at,
    real_at,
    store,
    wrap_to,
)

Value = Callable[[Place], float]


def integers(case: Case, name: str) -> tuple[int, ...]:
    """A list attribute."""
    value = case.attributes[name]
    assert isinstance(value, tuple)
    return value


def _axis(case: Case) -> int:
    axis = case.attributes["axis"]
    assert isinstance(axis, int)
    return axis % len(case.inputs[0].type.shape)


def _by_source(case: Case, source: Callable[[Place], Place]) -> Results:
    x = case.inputs[0]
    return [{place: float(x.array[source(place)]) for place in places(case.outputs[0].shape)}]


def copy(case: Case) -> Results:
    """The same bytes."""
    return _by_source(case, lambda place: place)


def transpose(case: Case) -> Results:
    """Index i of the output is index perm[i] of the input."""
    perm = integers(case, "perm")

    def source(place: Place) -> Place:
        at = dict(zip(perm, place, strict=True))
        return tuple(at[axis] for axis in range(len(perm)))

    return _by_source(case, source)


def reshape(case: Case) -> Results:
    """The same elements in the same order."""
    pairs = zip(places(case.outputs[0].shape), places(case.inputs[0].type.shape), strict=True)
    origin = dict(pairs)
    return _by_source(case, lambda place: origin[place])


def slice_axes(case: Case) -> Results:
    """ONNX: add the size to negative bounds, clamp, then walk."""
    shape = case.inputs[0].type.shape
    walks = [list(range(size)) for size in shape]
    names = ("starts", "ends", "axes", "steps")
    for start, end, axis, step in zip(*(integers(case, name) for name in names), strict=True):
        size = shape[axis]
        first, last = (bound + size if bound < 0 else bound for bound in (start, end))
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first = min(max(first, 0 if step > 0 else -1), size if step > 0 else size - 1)
        last = min(max(last, low), high)
        walks[axis] = list(range(first, last, step))
    return _by_source(case, lambda place: tuple(walk[i] for walk, i in zip(walks, place, strict=True)))


def concat(case: Case) -> Results:
    """One piece after the other along the axis."""
    axis = _axis(case)
    found: dict[Place, float] = {}
    before = 0
    for item in case.inputs:
        for place in places(item.type.shape):
            at = (*place[:axis], place[axis] + before, *place[axis + 1 :])
            found[at] = float(item.array[place])
        before += item.type.shape[axis]
    return [found]


def split(case: Case) -> Results:
    """The inverse of concat."""
    axis, x = _axis(case), case.inputs[0]
    results: Results = []
    before = 0
    for type in case.outputs:
        shift = before
        results.append(
            {
                place: float(x.array[(*place[:axis], place[axis] + shift, *place[axis + 1 :])])
                for place in places(type.shape)
            }
        )
        before += type.shape[axis]
    return results


def pad(case: Case) -> Results:
    """Walk outside and come back: by a constant, the nearest element or a mirror without the edge."""
    x, y = case.inputs[0], case.outputs[0]
    begins, shape = integers(case, "pads")[: len(y.shape)], x.type.shape
    constant = case.attributes.get("constant_value", 0)
    assert isinstance(constant, int | float)

    def back(at: int, size: int) -> int:
        if case.attributes["mode"] == "edge":
            return min(max(at, 0), size - 1)
        return -at if at < 0 else (2 * (size - 1) - at if at >= size else at)

    found: dict[Place, float] = {}
    for place in places(y.shape):
        at = tuple(index - begin for index, begin in zip(place, begins, strict=True))
        inside = all(0 <= index < size for index, size in zip(at, shape, strict=True))
        if inside or case.attributes["mode"] != "constant":
            found[place] = float(x.array[tuple(back(i, size) for i, size in zip(at, shape, strict=True))])
        elif y.elem in PRECISION:
            found[place] = constant
        else:
            found[place] = store(constant, y, place) if y.quant else clamp_to(y.elem, math.trunc(constant))
    return [found]


def gather(case: Case) -> Results:
    """Replace one index by another tensor's element."""
    axis, indices = _axis(case), case.inputs[1]
    rank = len(indices.type.shape)

    def source(place: Place) -> Place:
        at = place[axis : axis + rank]
        return (*place[:axis], integer_at(indices, at), *place[axis + rank :])

    return _by_source(case, source)


# --- pools --------------------------------------------------------------------------------------------------


def window(case: Case, place: Place) -> Iterator[Place]:
    """The real elements of one window."""
    shape = case.inputs[0].type.shape
    kernel, strides, pads = (integers(case, name) for name in ("kernel_shape", "strides", "pads"))
    for tap in itertools.product(*(range(size) for size in kernel)):
        at = [place[1 + i] * strides[i] + tap[i] - pads[i] for i in range(2)]
        if all(0 <= at[i] < shape[1 + i] for i in range(2)):
            yield (place[0], *at, place[3])


def pool(case: Case) -> Results:
    """Integer pools, with one descriptor exactly and else through real numbers."""
    (x,), (y,) = case.inputs, case.outputs
    axis = group_at(x.type.quant, 4, (0, 0, 0, 0))[0]
    kept = x.type.quant == y.quant and axis not in (1, 2)
    found: dict[Place, float] = {}
    for place in places(y.shape):
        members = list(window(case, place))
        if not members:
            found[place] = _empty(case, place)
        elif case.opcode == "maxpool":
            largest = max(members, key=lambda at: real_at(x, at))
            found[place] = integer_at(x, largest) if kept else store(real_at(x, largest), y, place)
        elif kept:
            found[place] = round(Fraction(sum(integer_at(x, at) for at in members), len(members)))
        elif axis in (1, 2):
            found[place] = store(sum(real_at(x, at) for at in members) / len(members), y, place)
        else:
            mean = sum(centred_at(x, at) for at in members) / len(members)
            found[place] = store(quant_at(x.type, members[0])[0] * mean, y, place)
    return [found]


def _empty(case: Case, place: Place) -> int:
    """A window of padding alone."""
    y = case.outputs[0]
    return store(-math.inf if case.opcode == "maxpool" else 0.0, y, place)


# --- reductions ---------------------------------------------------------------------------------------------


def _parts(case: Case, axes: set[int]) -> dict[Place, list[Place]]:
    """The input places of each output place, ascending."""
    shape = case.inputs[0].type.shape
    keep = bool(case.attributes["keepdims"])
    found: dict[Place, list[Place]] = {}
    for place in places(shape):
        kept = tuple(0 if i in axes else at for i, at in enumerate(place) if keep or i not in axes)
        found.setdefault(kept, []).append(place)
    return found


def reduce_axes(case: Case) -> Results:
    """Integer reductions: plain ones wrap, quantised ones go through real numbers."""
    (x,), (y,) = case.inputs, case.outputs
    axes = {axis % len(x.type.shape) for axis in integers(case, "axes")}
    along = group_at(x.type.quant, len(x.type.shape), (0,) * len(x.type.shape))[0] in axes
    found: dict[Place, float] = {}
    for place, members in _parts(case, axes).items():
        if case.opcode != "reduce_sum":
            pick = max if case.opcode == "reduce_max" else min
            found[place] = store(pick(real_at(x, at) for at in members), y, place)
        elif x.type.quant is None:
            found[place] = wrap_to(y.elem, sum(integer_at(x, at) for at in members))
        elif along:
            found[place] = store(math.fsum(real_at(x, at) for at in members), y, place)
        else:
            scale = quant_at(x.type, members[0])[0]
            found[place] = store(scale * sum(centred_at(x, at) for at in members), y, place)
    return [found]


def find_extreme(case: Case) -> Results:
    """The first place of the extreme."""
    x, axis = case.inputs[0], _axis(case)
    pick = max if case.opcode == "argmax" else min
    found: dict[Place, float] = {}
    for place, members in _parts(case, {axis}).items():
        values = [real_at(x, at) for at in members]
        found[place] = values.index(pick(values))
    return [found]


# --- conversions --------------------------------------------------------------------------------------------


def cast(case: Case) -> Results:
    """Truncate and saturate, or round to the nearest."""
    (x,), (y,) = case.inputs, case.outputs

    def convert(value: float) -> float:
        if y.elem in PRECISION:
            return nearest(value, y.elem)
        return clamp_to(y.elem, math.trunc(min(max(value, -(2**40)), 2**40)))

    return [{place: convert(float(x.array[place])) for place in places(y.shape)}]


def quantize(case: Case) -> Results:
    """Divide, round half to even, add the zero point, saturate."""
    (x,), (y,) = case.inputs, case.outputs
    return [{place: store(float(x.array[place]), y, place) for place in places(y.shape)}]


def dequantize(case: Case) -> Results:
    """A product in double, rounded to f32 and then to the type."""
    (x,), (y,) = case.inputs, case.outputs
    return [{place: nearest(nearest(real_at(x, place), "f32"), y.elem) for place in places(y.shape)}]
