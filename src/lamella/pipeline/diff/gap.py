"""How far two arrays lie apart: absolute, relative and by their angle; and whether one is the other laid out anew."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array

Numbers = npt.NDArray[np.float64]
HIDDEN = -9_999.0
"""What masks put below this is far from all scores: such numbers do not say how large the others are."""
MOST_AXES = 5
"""Axes of more than one element up to which permutations are tried: 120 of them."""


@dataclass(frozen=True, slots=True)
class Gap:
    """How far two arrays are from each other, and how large the numbers of the first are."""

    name: str
    largest: float
    scale: float
    relative: float
    """The largest difference in parts of the largest number; infinite where one is a number and the other is not."""
    cosine: float = 1.0
    unlike: str = ""
    """Why the arrays cannot be compared at all: their shapes."""
    types: str = ""
    """The element types where they differ; the numbers are compared all the same."""


def numbers_of(array: Array) -> Numbers:
    """An array as 64-bit numbers."""
    found: Numbers = np.asarray(array).astype(np.float64)
    return found


def measure(name: str, one: Array, other: Array) -> Gap:
    """The difference of two arrays; equal infinities and NaN are no difference, and neither are other types."""
    types = "" if one.dtype == other.dtype else f"{one.dtype} against {other.dtype}"
    if one.shape != other.shape:
        left, right = (f"{item.dtype}[{', '.join(map(str, item.shape))}]" for item in (one, other))
        return Gap(name, math.inf, 1.0, math.inf, 0.0, f"{left} against {right}", types)
    first, second = numbers_of(one), numbers_of(other)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where(same, 0.0, np.abs(first - second))
    gaps = np.where(np.isnan(gaps), math.inf, gaps)
    largest = float(gaps.max(initial=0.0))
    scale, relative = _relative(first, second, gaps)
    return Gap(name, largest, scale, relative, _cosine(first, second), types=types)


def _relative(first: Numbers, second: Numbers, gaps: Numbers) -> tuple[float, float]:
    """The largest number, those that a mask hides left aside, and the difference in parts of it.

    What is hidden on both sides is compared by its own size: −1e9 plus a score is −1e9 in 32 bits.
    """
    hidden = (first <= HIDDEN) & (second <= HIDDEN) & np.isfinite(first)
    shown = np.isfinite(first) & ~hidden
    scale = float(np.abs(first[shown]).max(initial=0.0))
    if not scale:
        scale = float(np.abs(first[np.isfinite(first)]).max(initial=0.0))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        apart = float(gaps[~hidden].max(initial=0.0))
        relative = apart / scale if scale else apart
        below = gaps[hidden] / np.abs(first[hidden])
    return scale, max(relative, float(below.max(initial=0.0)))


def _cosine(first: Numbers, second: Numbers) -> float:
    finite = np.isfinite(first) & np.isfinite(second)
    one, other = first[finite], second[finite]
    if np.array_equal(one, other):
        return 1.0
    size = max(float(np.abs(one).max(initial=0.0)), float(np.abs(other).max(initial=0.0)), 1e-300)
    one, other = one / size, other / size  # squares of large numbers would overflow
    norms = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / norms if norms else 0.0


def is_close(one: Array, other: Array, tolerance: float) -> bool:
    """Whether two arrays of one shape agree within a tolerance."""
    return one.shape == other.shape and measure("", one, other).relative <= tolerance


# --- one array as another one laid out anew -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """How an array becomes another one: axes permuted, then reshaped, or the other way round."""

    axes: tuple[int, ...] = ()
    is_after: bool = False
    """Whether the axes are those of the other array, after reshaping."""

    def __str__(self) -> str:
        return f"axes {', '.join(map(str, self.axes))}" if self.axes else "reshaped"

    def apply(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The array in the layout of another one of a shape."""
        if not self.axes:
            return array.reshape(shape)
        if not self.is_after:
            return array.transpose(self.axes).reshape(shape)
        turned = tuple(shape[axis] for axis in self.axes)
        return array.reshape(turned).transpose(np.argsort(self.axes))


def rearrangements(one: tuple[int, ...], other: tuple[int, ...]) -> Iterator[Rearrangement]:
    """The ways in which an array of a shape may become one of another shape: the plainest first."""
    yield Rearrangement()
    seen = {tuple(range(len(one)))}
    for axes in _orders(one):
        if axes not in seen:
            seen.add(axes)
            yield Rearrangement(axes)
    if sorted(one) != sorted(other):
        for axes in _orders(other):
            if axes != tuple(range(len(other))):
                yield Rearrangement(axes, is_after=True)


def _orders(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The orders of axes that make a difference; axes of one element stay behind."""
    long = [axis for axis, extent in enumerate(shape) if extent != 1]
    rest = [axis for axis, extent in enumerate(shape) if extent == 1]
    if len(long) <= MOST_AXES:
        for order in permutations(long):
            yield (*order, *rest)


def find_rearrangement(one: Array, other: Array, tolerance: float) -> Rearrangement | None:
    """How the first array becomes the second, within a tolerance; None where it does not."""
    if one.size != other.size:
        return None
    if one.shape == other.shape and measure("", one, other).relative <= tolerance:
        return Rearrangement()
    first, second = numbers_of(one), numbers_of(other)
    probe = _probe(second)
    for way in rearrangements(one.shape, other.shape):
        turned = way.apply(first, other.shape)
        # Most orders are seen to be wrong by few numbers.
        if is_close(turned.reshape(-1)[probe], second.reshape(-1)[probe], 10 * tolerance) and is_close(
            turned, second, tolerance
        ):
            return way
    return None


def _probe(array: Numbers) -> npt.NDArray[np.intp]:
    """Places of an array that are looked at first: the largest numbers and some more."""
    flat = np.nan_to_num(np.abs(array.reshape(-1)), posinf=0.0)
    if flat.size <= 64:
        return np.arange(flat.size)
    return np.concatenate([np.argpartition(flat, -16)[-16:], np.arange(0, flat.size, flat.size // 32)])
