"""Attention, softmax and rotary embeddings known by their numbers.

Of attention: scale, which keys a query sees, which heads share them, axes. Of rotary embeddings: which elements turn
together, by which angles, at which positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from lamella.pipeline.diff.causes.case import Case, Cause, Computation, finite
from lamella.pipeline.diff.gap import Numbers, is_close, numbers_of

SAME_ANGLE = 1e-4
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
    if is_close(before, after, SAME_ANGLE):
        return None
    for columns in (width // 2, width // 4):
        for layout in (HALVES, NEIGHBOURS):
            found = _turned(before, after, columns, layout) if columns >= 1 else None
            if found is not None:
                return found
    return None


def _turned(before: Numbers, after: Numbers, columns: int, layout: str) -> Rotation | None:
    """Pairs of some of the first columns, where each keeps its length and the rest is as it was."""
    if not is_close(before[..., 2 * columns :], after[..., 2 * columns :], SAME_ANGLE):
        return None
    pairs = []
    for x in (before, after):
        turned = x[..., : 2 * columns]
        if layout == HALVES:
            pairs.append(turned[..., :columns] + 1j * turned[..., columns:])
        else:
            pairs.append(turned[..., 0::2] + 1j * turned[..., 1::2])
    lengths = np.abs(pairs[0])
    if not is_close(lengths, np.abs(pairs[1]), SAME_ANGLE):
        return None
    return Rotation(layout, columns, np.angle(pairs[1] * np.conj(pairs[0])), lengths)


SAME = 2e-5
MOST = 192
"""Keys up to which windows are tried."""


@dataclass(frozen=True, slots=True)
class Attention:
    """What an attention does with its scores."""

    scale: str
    causal: str
    window: int
    """How many keys a query sees at most; 0 where all."""
    heads: str


def find_attention(case: Case) -> Iterator[Cause]:
    """Two attentions over the same queries, keys and values that differ in what they do with the scores."""
    left, right = _attention(case.left), _attention(case.right)
    if left is None or right is None:
        return
    for kind, one, other, words in (
        ("scale", left.scale, right.scale, "scores are multiplied by"),
        ("causal mask", left.causal, right.causal, "a query sees"),
        ("window", _window(left), _window(right), "the window holds"),
        ("heads", left.heads, right.heads, "keys are shared by heads"),
    ):
        if one != other:
            yield Cause(kind, f"{words} {one} on the left, {other} on the right")


def _window(item: Attention) -> str:
    return f"{item.window} keys" if item.window else "all keys"


def _attention(side: Computation) -> Attention | None:
    """The attention that a result is; None where no three operands make it one."""
    y = numbers_of(side.output)
    if y.ndim != 4 or not finite(y):
        return None
    arrays = [
        numbers_of(item) for item in side.operands.values() if item.ndim == 4 and item.dtype.kind in "fV"
    ]
    found = (_fit(*some, y) for some in permutations(arrays, 3) if _can_attend(*some, y))
    return next((item for item in found if item is not None), None)


def _can_attend(query: Numbers, key: Numbers, value: Numbers, y: Numbers) -> bool:
    """Whether arrays have the shapes of queries, keys, values and what attention makes of them."""
    return (
        query.shape[:3] == y.shape[:3]
        and query.shape[0] == key.shape[0]
        and query.shape[3] == key.shape[3]
        and key.shape[:3] == value.shape[:3]
        and value.shape[3] == y.shape[3]
        and key.shape[1] > 0
        and query.shape[1] % key.shape[1] == 0
    )


def _fit(query: Numbers, key: Numbers, value: Numbers, y: Numbers) -> Attention | None:
    groups = query.shape[1] // key.shape[1]
    width = query.shape[-1]
    scales = {f"1/√{width}": width**-0.5, "1": 1.0, f"1/{width}": 1 / width, "nothing (√)": width**0.5}
    spreads: dict[str, Callable[[Numbers], Numbers]] = {
        "in blocks": lambda x: np.repeat(x, groups, 1),
        "in turn": lambda x: np.tile(x, (1, groups, 1, 1)),
    }
    for heads, spread in spreads.items():
        scores = query @ spread(key).swapaxes(-1, -2)
        for scale, factor in scales.items():
            for causal, window, seen in _masks(*scores.shape[-2:]):
                found = _softmax(np.where(seen, factor * scores, -np.inf)) @ spread(value)
                if is_close(y, found, SAME):
                    return Attention(scale, causal, window, heads)
        if groups == 1:
            return None
    return None


def _masks(
    queries: int, keys: int
) -> Iterator[tuple[str, int, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]]:
    """Which keys each query sees, by words."""
    places, at = np.arange(keys)[None, :], np.arange(queries)[:, None]
    masks = {"all keys": np.ones((queries, keys), bool)}
    for shift in (0, -1, 1):
        word = {0: "keys up to its own", -1: "keys before its own", 1: "one key beyond its own"}[shift]
        masks[word] = places <= at + keys - queries + shift
    for first in range(min(keys - queries, MOST)):
        masks[f"keys up to its own, from key {first} on"] = places <= at + first
    for word, seen in masks.items():
        if seen.any(-1).all():
            yield word, 0, seen
    if keys <= MOST:
        for window in range(1, keys):
            near = masks["keys up to its own"] & (places > at + keys - queries - window)
            if near.any(-1).all():
                yield "keys up to its own", window, near


def _softmax(scores: Numbers) -> Numbers:
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
    found: Numbers = weights / weights.sum(-1, keepdims=True)
    return found


def find_softmax(case: Case) -> Iterator[Cause]:
    """Results that sum to one along different axes."""
    axes = [_normal_axes(numbers_of(side.output)) for side in (case.left, case.right)]
    if axes[0] and axes[1] and not axes[0] & axes[1]:
        one, other = (sorted(item) for item in axes)
        yield Cause(
            "axis", f"the result sums to one along axis {one[0]} on the left, {other[0]} on the right"
        )


def _normal_axes(y: Numbers) -> set[int]:
    if not finite(y) or not y.size or (y < 0).any():
        return set()
    return {
        axis
        for axis in range(y.ndim)
        if y.shape[axis] > 1 and np.allclose(y.sum(axis), 1.0, atol=1e-4) and np.ptp(y) > 0
    }


def find_reductions(case: Case) -> Iterator[Cause]:
    """Results that are the sum, mean or extreme of an operand along different axes."""
    found = [_reduction(side) for side in (case.left, case.right)]
    one, other = found
    if one is None or other is None or one == other:
        return
    if one[0] == other[0]:
        yield Cause("axis", f"the {one[0]} is taken along axis {one[1]} on the left, {other[1]} on the right")
    else:
        yield Cause(
            "function", f"left takes the {one[0]} along axis {one[1]}, right the {other[0]} along {other[1]}"
        )


def _reduction(side: Computation) -> tuple[str, int] | None:
    y = numbers_of(side.output).reshape(-1)
    for value in side.operands.values():
        x = numbers_of(value)
        for axis in range(x.ndim):
            if x.shape[axis] < 2 or x.size // x.shape[axis] != y.size:
                continue
            for word, take in (("sum", np.sum), ("mean", np.mean), ("maximum", np.max), ("minimum", np.min)):
                if is_close(y, np.asarray(take(x, axis=axis)).reshape(-1), SAME):
                    return word, axis
    return None
