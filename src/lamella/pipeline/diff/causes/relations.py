"""How one array is made from another: transposed, permuted by blocks, shifted, scaled, rounded to a narrower type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import ml_dtypes
import numpy as np

from lamella.pipeline.diff.gap import Numbers, is_close

SAME = 1e-5
GATES = (2, 3, 4)
"""Into how many blocks weights are cut that hold several gates or projections."""
BLOCKS = {2: "halves", 3: "thirds", 4: "quarters"}
NARROW = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
}
STEPS = {"bf16": 2.0**-7, "f16": 2.0**-10, "f8_e4m3": 2.0**-3, "f8_e5m2": 2.0**-2}
"""How far numbers of a narrow type are apart, in parts of them."""
ROUNDINGS: dict[str, Callable[[Numbers], Numbers]] = {
    "rounded to even": np.rint,
    "rounded away from zero": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "rounded down": np.floor,
    "rounded up": np.ceil,
    "cut off": np.trunc,
    "rounded half up": lambda x: np.floor(x + 0.5),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the order of numbers, with its kind and words."""

    kind: str
    words: str
    apply: Callable[[Numbers], Numbers]


def rearrangements(shape: tuple[int, ...]) -> Iterator[Change]:
    """The ways in which numbers of a shape are put in a wrong order and keep that shape."""
    rank = len(shape)
    for axes in permutations(range(rank)) if rank <= 4 else ():
        if axes != tuple(range(rank)) and tuple(shape[axis] for axis in axes) == shape:
            yield Change("transposed", _transposed(axes), partial(np.transpose, axes=axes))
    for axis in range(rank):
        if shape[axis] > 1:
            yield from _along(axis, shape[axis])


def _transposed(axes: tuple[int, ...]) -> str:
    return "transposed" if axes == (1, 0) else f"permuted by axes {list(axes)}"


def _along(axis: int, extent: int) -> Iterator[Change]:
    for count in GATES:
        if extent % count == 0 and extent > count:
            for order in permutations(range(count)):
                if order != tuple(range(count)):
                    yield Change(
                        "block order",
                        f"has its {BLOCKS[count]} along axis {axis} in the order {list(order)}",
                        _taking(axis, blocks(extent, order)),
                    )
    for width in (item for item in range(extent, 3, -1) if extent % item == 0 and item % 2 == 0):
        where = "" if width == extent else f" of every {width}"
        paired = pairs_first(extent, width)
        words = f"has its halves{where} along axis {axis}"
        yield Change("interleaved", f"{words} interleaved", _taking(axis, paired))
        yield Change(
            "interleaved", f"{words} apart where they were interleaved", _taking(axis, np.argsort(paired))
        )
    yield Change("flipped", f"is reversed along axis {axis}", lambda x: np.flip(x, axis))
    for step in (1, -1):
        yield Change(
            "shifted", f"is shifted by {step} along axis {axis}", partial(np.roll, shift=step, axis=axis)
        )


def _taking(axis: int, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Callable[[Numbers], Numbers]:
    return lambda x: np.take(x, places, axis)


def blocks(extent: int, order: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The places of numbers whose equal blocks are taken in an order."""
    parts = np.arange(extent).reshape(len(order), -1)
    return parts[list(order)].reshape(-1)


def pairs_first(extent: int, width: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The places of numbers whose halves, of every so many, are interleaved."""
    rows = np.arange(extent).reshape(-1, 2, width // 2)
    return rows.transpose(0, 2, 1).reshape(-1)


@dataclass(frozen=True, slots=True)
class Relation:
    """How the second of two arrays is made from the first."""

    kind: str
    words: str


def relate(one: Numbers, other: Numbers) -> Relation | None:
    """How an array is made from another one of its shape; None where no way is known."""
    if one.shape != other.shape or not one.size or not np.isfinite(one).all() or not np.isfinite(other).all():
        return None
    for find in (_by_order, _by_type, _by_rounding, _by_arithmetic, _by_place):
        found = find(one, other)
        if found is not None:
            return found
    return None


def _by_order(one: Numbers, other: Numbers) -> Relation | None:
    if one.size < 2 or not is_close(np.sort(one, axis=None), np.sort(other, axis=None), SAME):
        return None
    for change in rearrangements(one.shape):
        if is_close(change.apply(one), other, SAME):
            return Relation(change.kind, change.words)
    return Relation("order", "holds the same numbers in another order")


def _by_type(one: Numbers, other: Numbers) -> Relation | None:
    with np.errstate(over="ignore"):
        for word, kind in NARROW.items():
            if np.array_equal(one.astype(kind).astype(np.float64), other):
                return Relation("precision", f"is rounded to {word}")
            if np.array_equal(other.astype(kind).astype(np.float64), one):
                return Relation("precision", f"is not rounded to {word}")
    return None


def _by_rounding(one: Numbers, other: Numbers) -> Relation | None:
    for word, change in ROUNDINGS.items():
        if np.array_equal(change(one), other):
            return Relation("rounding", f"is {word}")
    return None


def _by_arithmetic(one: Numbers, other: Numbers) -> Relation | None:
    if one.size == 1:
        return Relation("value", f"is {other.item():.6g}, not {one.item():.6g}")
    if is_close(-one, other, SAME):
        return Relation("sign", "has the other sign")
    norm = float((one * one).sum())
    factor = float((one * other).sum()) / norm if norm else 0.0
    if factor and is_close(factor * one, other, SAME):
        return Relation("scale", f"is {factor:.6g} times as large{_known_factor(factor, one.shape)}")
    delta = other - one
    if is_close(one + delta.mean(), other, SAME):
        return Relation("offset", f"is larger by {float(delta.mean()):.6g}")
    for axis in range(one.ndim):
        rest = tuple(item for item in range(one.ndim) if item != axis)
        if not rest or one.shape[axis] == one.size:
            continue
        step = delta.mean(axis=rest, keepdims=True)
        if is_close(one + step, other, SAME):
            return Relation("bias", f"differs by one number for each place of axis {axis}: a bias")
        top = (one * other).sum(axis=rest, keepdims=True)
        below = (one * one).sum(axis=rest, keepdims=True)
        ratio = np.divide(top, below, out=np.ones_like(top), where=below != 0)
        if is_close(one * ratio, other, SAME):
            return Relation("scale", f"differs by one factor for each place of axis {axis}")
    return None


def _known_factor(factor: float, shape: tuple[int, ...]) -> str:
    """Where a factor comes from, as far as extents tell."""
    for extent in sorted({item for item in shape if item > 1}):
        for word, value in ((f"√{extent}", extent**0.5), (f"1/√{extent}", extent**-0.5)):
            if abs(factor / value - 1) < 1e-4:
                return f" ({word})"
    return ""


def _by_place(one: Numbers, other: Numbers) -> Relation | None:
    """Arrays that are one shifted against the other, or that differ in few places."""
    for axis in range(one.ndim):
        extent = one.shape[axis]
        for step in (1, 2, -1, -2):
            if extent > abs(step) + 1:
                kept = np.take(one, np.arange(max(0, -step), extent - max(0, step)), axis)
                moved = np.take(other, np.arange(max(0, step), extent - max(0, -step)), axis)
                if kept.size > 1 and np.ptp(kept) > 0 and is_close(kept, moved, SAME):
                    return Relation("shifted", f"is shifted by {step} along axis {axis}")
    wrong = np.abs(one - other) > SAME * max(float(np.abs(one).max()), 1e-300)
    for axis in range(one.ndim):
        rest = tuple(item for item in range(one.ndim) if item != axis)
        places = np.flatnonzero(wrong.any(axis=rest))
        if 0 < 2 * len(places) <= one.shape[axis] and one.shape[axis] > 2:
            return Relation("place", f"differs only at {_listed(places)} of axis {axis}")
    return None


def _listed(places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> str:
    shown = ", ".join(map(str, places[:4]))
    return f"{shown} and {len(places) - 4} more" if len(places) > 4 else shown
