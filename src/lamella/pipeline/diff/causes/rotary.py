"""Rotary embeddings known by their numbers: which elements turn together, by which angles, at which positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lamella.pipeline.diff.causes.case import Case, Cause, Computation, finite
from lamella.pipeline.diff.gap import Numbers, is_close, numbers_of

SAME = 1e-4
HALVES, NEIGHBOURS = "half-split (i and i + d/2)", "interleaved (2i and 2i + 1)"


@dataclass(frozen=True, slots=True)
class Rotation:
    """Pairs of elements of the last axis that turn, and the angle of each."""

    layout: str
    columns: int
    angles: Numbers
    weights: Numbers
    """How long each pair is: angles of short ones are not known well."""


def find_rotary(case: Case) -> Iterator[Cause]:
    """Two rotations of one tensor that differ in their pairs, positions, frequencies or direction."""
    for one, other in case.borders:
        left, right = _rotation(case.left, one), _rotation(case.right, other)
        if left is None or right is None:
            continue
        if left.layout != right.layout:
            yield Cause(
                "rope layout", f"pairs that turn are {left.layout} on the left, {right.layout} on the right"
            )
        elif left.columns != right.columns:
            yield Cause("rope layout", f"{left.columns} pairs turn on the left, {right.columns} on the right")
        else:
            yield from _angles(left, right)
        return


def _angles(left: Rotation, right: Rotation) -> Iterator[Cause]:
    known = left.weights > 0.05 * left.weights.max()
    if _is_zero(left.angles + right.angles, known) and not _is_zero(left.angles, known):
        yield Cause("rope direction", "pairs turn one way on the left, the other way on the right")
        return
    apart = _wrapped(right.angles - left.angles)
    first, sure = apart[..., 0], known[..., 0]
    # The first pair turns by one radian for each position, whatever the base is.
    step = float(np.median(first[sure])) if sure.any() else math.nan
    if abs(step - round(step)) < 0.02 and round(step) and bool((np.abs(first[sure] - step) < 0.02).all()):
        yield Cause("rope position", f"positions are {abs(round(step))} {_later(step)} on the right")
    elif _is_zero(first, sure):
        yield Cause("rope base", "the slower pairs turn by other angles: another base, or other scaling")
    else:
        yield Cause("rope angles", "pairs turn by other angles")


def _later(step: float) -> str:
    return "too far on" if step > 0 else "too far back"


def _wrapped(angles: Numbers) -> Numbers:
    found: Numbers = (angles + math.pi) % (2 * math.pi) - math.pi
    return found


def _is_zero(angles: Numbers, known: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> bool:
    return bool((np.abs(_wrapped(angles))[known] < 0.01).all())


def _rotation(side: Computation, name: str) -> Rotation | None:
    """The rotation that a result is of an operand; None where its pairs do not keep their lengths."""
    x, y = side.operands.get(name), side.output
    if x is None or x.shape != y.shape or x.ndim < 2 or x.dtype.kind not in "fV" or not finite(x, y):
        return None
    before, after = numbers_of(x), numbers_of(y)
    width = before.shape[-1]
    if is_close(before, after, SAME):
        return None
    for columns in (width // 2, width // 4):
        for layout in (HALVES, NEIGHBOURS):
            found = _turned(before, after, columns, layout) if columns >= 1 else None
            if found is not None:
                return found
    return None


def _turned(before: Numbers, after: Numbers, columns: int, layout: str) -> Rotation | None:
    """Pairs of some of the first columns, where each keeps its length and the rest is as it was."""
    if not is_close(before[..., 2 * columns :], after[..., 2 * columns :], SAME):
        return None
    pairs = []
    for x in (before, after):
        turned = x[..., : 2 * columns]
        if layout == HALVES:
            pairs.append(turned[..., :columns] + 1j * turned[..., columns:])
        else:
            pairs.append(turned[..., 0::2] + 1j * turned[..., 1::2])
    lengths = np.abs(pairs[0])
    if not is_close(lengths, np.abs(pairs[1]), SAME):
        return None
    return Rotation(layout, columns, np.angle(pairs[1] * np.conj(pairs[0])), lengths)
