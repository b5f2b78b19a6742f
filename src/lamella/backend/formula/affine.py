"""Index expressions that are sums of multiples of loop indices, and the boxes of loop space they range over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from lamella.base.affine import Affine, Interval

Box: TypeAlias = tuple[tuple[int, int], ...]
"""For each loop, in order, the half-open range of its index."""


Form: TypeAlias = Affine[int]
"""An affine form over loops, by their number."""


def first(form: Form, box: Box) -> int:
    """The value of a form at the first corner of a box."""
    return form.constant + sum([factor * box[axis][0] for axis, factor in form.terms])


def span(form: Form, box: Box) -> Interval:
    """The smallest and the largest value of a form in a box; an axis without indices spans its two ends."""
    low = high = form.constant
    for axis, factor in form.terms:
        start, stop = box[axis]
        # Half-open and perhaps empty: which end is the smaller one depends on more than the sign of the factor.
        one, other = factor * start, factor * (stop - 1)
        low, high = (low + one, high + other) if one < other else (low + other, high + one)
    return low, high


def lengths(box: Box) -> tuple[int, ...]:
    """How many indices each loop has in a box."""
    return tuple(stop - start for start, stop in box)


def volume(box: Box, axes: Iterable[int] | None = None) -> int:
    """How many steps a box has along some axes, or along all."""
    found = 1
    for start, stop in box if axes is None else (box[axis] for axis in axes):
        found *= max(stop - start, 0)
    return found


def narrow(box: Box, form: Form, extent: int) -> Box:
    """The part of a box where a form stays in `[0, extent)`, as far as ranges of single axes can say it."""
    # With two free axes the part inside is no box but a polygon: masks cut it out then.
    free = [(axis, factor) for axis, factor in form.terms if box[axis][1] - box[axis][0] > 1]
    if len(free) > 1:
        return box
    low, high = span(form, box)
    if low >= 0 and high < extent:
        return box
    if not free:
        return tuple((start, start) for start, _ in box)
    axis, factor = free[0]
    rest = first(form, box) - factor * box[axis][0]
    return _cut(box, axis, *_whole_ends(rest, factor, extent))


def _whole_ends(rest: int, factor: int, extent: int) -> tuple[int, int]:
    """The indices `x` with `0 <= rest + factor · x < extent`, as a half-open range."""
    if factor > 0:
        return -(rest // factor), (extent - 1 - rest) // factor + 1
    return -((extent - 1 - rest) // -factor), rest // -factor + 1


def _cut(box: Box, axis: int, start: int, stop: int) -> Box:
    low, high = max(start, box[axis][0]), min(stop, box[axis][1])
    return (*box[:axis], (low, max(low, high)), *box[axis + 1 :])


def fix(box: Box, axes: Iterable[int], place: Iterable[int]) -> Box:
    """A box with some axes at single indices."""
    found = list(box)
    for axis, index in zip(axes, place, strict=True):
        found[axis] = (index, index + 1)
    return tuple(found)


def halve(box: Box, axis: int) -> tuple[Box, Box]:
    """A box in two parts along an axis, the lower part first."""
    start, stop = box[axis]
    middle = (start + stop) // 2
    return _cut(box, axis, start, middle), _cut(box, axis, middle, stop)


def parts(box: Box, axes: Sequence[int], size: int) -> Iterator[Box]:
    """A box in parts of at most so many steps along some axes, in the order of the loops."""
    waiting = [box]
    while waiting:
        part = waiting.pop()
        if volume(part, axes) <= size:
            yield part
        else:
            axis = next(axis for axis in axes if part[axis][1] - part[axis][0] > 1)
            waiting += reversed(halve(part, axis))


def is_injective(strides: Iterable[tuple[int, int]]) -> bool:
    """Whether axes of these (stride, length) surely reach different places for different indices."""
    # Sorted by stride, each axis must step over all that the shorter ones reach together: then no sums coincide.
    reach = 0
    for stride, length in sorted((abs(stride), length) for stride, length in strides if length > 1):
        if stride <= reach:
            return False
        reach += stride * (length - 1)
    return True
