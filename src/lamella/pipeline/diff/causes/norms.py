"""Normalisations known by their numbers: over which axes, centred or not, of which variance and epsilon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from lamella.pipeline.diff.causes.case import Case, Cause, Computation, finite
from lamella.pipeline.diff.gap import Numbers, is_close, measure, numbers_of

SAME = 1e-4
"""How well a normalisation must fit the numbers of a result."""
LARGE_EPS = 0.5
"""An epsilon beyond this, and beyond the mean square itself, is no epsilon."""


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation: what it divides by is the root of `slope` times the (centred) mean square plus `eps`."""

    axes: tuple[int, ...]
    is_centred: bool
    slope: float
    eps: float
    doubt: float
    """How far epsilon may be off."""
    gain: str = ""

    def count(self, shape: tuple[int, ...]) -> int:
        """How many numbers are normalised together."""
        return int(np.prod([shape[axis] for axis in self.axes]))


def find_norms(case: Case) -> Iterator[Cause]:
    """Two normalisations of one tensor that differ in their epsilon, variance, axes or centre."""
    for one, other in case.borders:
        left, right = _fitted(case.left, one), _fitted(case.right, other)
        if left is None or right is None:
            continue
        yield from _differences(left, right, case.left.output.shape)
        return


def _differences(left: Norm, right: Norm, shape: tuple[int, ...]) -> Iterator[Cause]:
    if left.axes != right.axes:
        yield Cause("axis", f"left normalises over axes {list(left.axes)}, right over {list(right.axes)}")
    elif left.is_centred != right.is_centred:
        words = ["subtracts the mean" if item.is_centred else "does not" for item in (left, right)]
        yield Cause("centre", f"before normalising, left {words[0]}, right {words[1]}")
    elif left.gain != right.gain:
        yield Cause(
            "gain", f"left multiplies by {left.gain or 'nothing'}, right by {right.gain or 'nothing'}"
        )
    else:
        count = left.count(shape)
        unbiased = count / max(count - 1, 1)
        near = [abs(item.slope - unbiased) < abs(item.slope - 1) for item in (left, right)]
        if near[0] != near[1] and abs(left.slope - right.slope) > 0.3 * (unbiased - 1):
            words = ["N − 1" if item else "N" for item in near]
            yield Cause(
                "variance", f"the variance divides by {words[0]} on the left, by {words[1]} on the right"
            )
        elif abs(left.eps - right.eps) > 3 * (left.doubt + right.doubt):
            yield Cause("eps", f"epsilon is {_about(left)} on the left, {_about(right)} on the right")


def _about(norm: Norm) -> str:
    return "0" if abs(norm.eps) <= 3 * norm.doubt else f"about {norm.eps:.2g}"


def _fitted(side: Computation, name: str) -> Norm | None:
    """The normalisation that a result is of an operand; None where it is none."""
    x, y = side.operands.get(name), side.output
    if x is None or x.shape != y.shape or x.ndim < 1 or x.dtype.kind not in "fV" or not finite(x, y):
        return None
    gains, shifts = _vectors(side, name)
    found = list(_by_given_statistics(numbers_of(x), numbers_of(y), [item for _, item in gains]))
    for axes, is_centred, (word, gain), shift in product(_axis_sets(x.ndim), (True, False), gains, shifts):
        norm = _fit(numbers_of(x), numbers_of(y), axes, is_centred, gain, shift)
        if norm is not None:
            found.append((norm[0], replace(norm[1], gain=word)))
    return min(found, key=lambda item: item[0])[1] if found else None


def _by_given_statistics(x: Numbers, y: Numbers, vectors: list[Numbers]) -> Iterator[tuple[float, Norm]]:
    """Normalisations by a variance that is an operand: each channel is scaled by a gain over its root."""
    for variance in (item for item in vectors if item.size > 2 and (item > 0).all()):
        axis = int(np.argmax(variance.shape))
        rest = tuple(item for item in range(x.ndim) if item != axis)
        away = x - x.mean(axis=rest, keepdims=True)
        below = np.maximum((away * away).sum(axis=rest, keepdims=True), 1e-30)
        factor = (away * y).sum(axis=rest, keepdims=True) / below
        shift = (y - factor * x).mean(axis=rest, keepdims=True)
        left = measure("", y, factor * x + shift).relative
        if left > SAME or not (factor != 0).all():
            continue
        for gain in (item for item in vectors if item is not variance and item.size in (1, variance.size)):
            eps = (np.broadcast_to(gain, factor.shape) / factor) ** 2 - variance
            doubt = float(np.std(eps))
            if doubt < 1e-4 * float(variance.mean()):
                yield (
                    left,
                    Norm(
                        (axis,), True, 1.0, float(np.median(eps)), max(doubt, 4e-7 * float(variance.mean()))
                    ),
                )


def _axis_sets(rank: int) -> Iterator[tuple[int, ...]]:
    yield from ((axis,) for axis in reversed(range(rank)))
    yield from (tuple(range(first, rank)) for first in range(max(0, rank - 3), rank - 1))


def _vectors(side: Computation, name: str) -> tuple[list[tuple[str, Numbers]], list[Numbers]]:
    """What a result may be multiplied by and what may be added: operands that broadcast to it."""
    shape = side.output.shape
    one = np.ones((1,) * len(shape))
    gains: list[tuple[str, Numbers]] = [("", one)]
    shifts = [0 * one]
    for other, value in side.operands.items():
        if other == name or value.ndim != 1 or value.dtype.kind not in "fV" or not finite(value):
            continue
        for axis in (axis for axis in range(len(shape)) if shape[axis] == value.size):
            spread = numbers_of(value).reshape([-1 if item == axis else 1 for item in range(len(shape))])
            gains += [("a gain", spread), ("one plus a gain", 1 + spread)]
            shifts.append(spread)
    return gains, shifts


def _fit(
    x: Numbers, y: Numbers, axes: tuple[int, ...], is_centred: bool, gain: Numbers, shift: Numbers
) -> tuple[float, Norm] | None:
    """A normalisation by least squares, with what is left; None where it does not fit."""
    centred = x - x.mean(axis=axes, keepdims=True) if is_centred else x
    square = (centred * centred).mean(axis=axes, keepdims=True)
    if not (square > 0).all() or int(np.prod([x.shape[axis] for axis in axes])) < 2:
        return None
    scaled = centred * gain
    below = (scaled * scaled).sum(axis=axes, keepdims=True)
    factor = ((y - shift) * scaled).sum(axis=axes, keepdims=True) / np.where(below == 0, 1, below)
    if not (factor > 0).all() or not is_close(y, scaled * factor + shift, SAME):
        return None
    wanted = (1 / factor**2).reshape(-1)
    slope, eps = _line(square.reshape(-1), wanted)
    if not 0.5 < slope < 2.5 or abs(eps) > max(float(square.mean()), LARGE_EPS):
        return None  # what is proportional to its operand is no normalisation
    if is_close(np.ones_like(wanted), wanted, 0.01):
        return None  # what is normal already cannot tell
    again = scaled / np.sqrt(np.maximum(slope * square + eps, 1e-300)) + shift
    left = measure("", y, again).relative
    return (left, Norm(axes, is_centred, slope, eps, 4e-7 * float(wanted.mean()))) if left < SAME else None


def _line(x: Numbers, y: Numbers) -> tuple[float, float]:
    """The slope and the start of a line through points; a slope near 1 that the points hardly tell is 1."""
    if len(x) >= 3 and np.ptp(x) > 1e-3 * x.mean():
        slope, start = (float(item) for item in np.polyfit(x, y, 1))
        if abs(slope - 1) > 1e-4:
            return slope, start
    return 1.0, float(np.median(y - x))
