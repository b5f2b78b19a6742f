"""Index expressions that are sums of multiples of loop indices, and the boxes of loop space they range over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Box: TypeAlias = tuple[tuple[int, int], ...]
"""For each loop, in order, the half-open range of its index."""


@dataclass(frozen=True, slots=True)
class Affine:
    """`constant + factor · index + …`: each axis at most once, no factor zero, in the order of the axes."""

    constant: int
    factors: tuple[tuple[int, int], ...] = ()

    @property
    def axes(self) -> frozenset[int]:
        """The axes it varies along."""
        return frozenset(axis for axis, _ in self.factors)

    def plus(self, other: Affine) -> Affine:
        """The sum."""
        sums = dict(self.factors)
        for axis, factor in other.factors:
            sums[axis] = sums.get(axis, 0) + factor
        return Affine(self.constant + other.constant, _in_order(sums.items()))

    def times(self, factor: int) -> Affine:
        """The multiple."""
        return Affine(self.constant * factor, _in_order((axis, size * factor) for axis, size in self.factors))

    def first(self, box: Box) -> int:
        """Its value at the first corner of a box."""
        return self.constant + sum(factor * box[axis][0] for axis, factor in self.factors)

    def span(self, box: Box) -> tuple[int, int]:
        """Its smallest and its largest value in a box that is not empty."""
        low = high = self.constant
        for axis, factor in self.factors:
            start, stop = box[axis]
            one, other = factor * start, factor * (stop - 1)
            low, high = low + min(one, other), high + max(one, other)
        return low, high


def _in_order(factors: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((axis, factor) for axis, factor in factors if factor))


def lengths(box: Box) -> tuple[int, ...]:
    """How many indices each loop has in a box."""
    return tuple(stop - start for start, stop in box)


def volume(box: Box, axes: Iterable[int] | None = None) -> int:
    """How many steps a box has along some axes, or along all."""
    found = 1
    for start, stop in box if axes is None else (box[axis] for axis in axes):
        found *= max(stop - start, 0)
    return found


def narrow(box: Box, form: Affine, extent: int) -> Box:
    """The part of a box where a form stays in `[0, extent)`, as far as ranges of single axes can say it."""
    # With two free axes the part inside is no box but a polygon: masks cut it out then.
    free = [(axis, factor) for axis, factor in form.factors if box[axis][1] - box[axis][0] > 1]
    if len(free) > 1:
        return box
    low, high = form.span(box)
    if low >= 0 and high < extent:
        return box
    if not free:
        return tuple((start, start) for start, _ in box)
    axis, factor = free[0]
    rest = form.first(box) - factor * box[axis][0]
    return _cut(box, axis, *_whole_ends(rest, factor, extent))


def _whole_ends(rest: int, factor: int, extent: int) -> tuple[int, int]:
    """The indices `x` with `0 <= rest + factor · x < extent`, as a half-open range."""
    if factor > 0:
        return -(rest // factor), (extent - 1 - rest) // factor + 1
    return -((extent - 1 - rest) // -factor), rest // -factor + 1


def _cut(box: Box, axis: int, start: int, stop: int) -> Box:
    first, last = max(start, box[axis][0]), min(stop, box[axis][1])
    return (*box[:axis], (first, max(first, last)), *box[axis + 1 :])


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
