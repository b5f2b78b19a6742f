"""Attention and softmax known by their numbers: scale, which keys a query sees, which heads share them, axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from lamella.pipeline.diff.causes.case import Case, Cause, Computation, finite
from lamella.pipeline.diff.gap import Numbers, is_close, numbers_of

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
