"""Drawn shapes, axes and arrays: small, of all ranks from 0 to 5, empty ones included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Array = npt.NDArray[Any]

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int64", "int32", "int8", "uint8")
ANY = (*FLOATS, *INTEGERS, "bool")


def shapes(
    least: int = 0, most: int = 5, smallest: int = 0, largest: int = 4
) -> SearchStrategy[tuple[int, ...]]:
    """Shapes of `least` to `most` dimensions with extents of `smallest` to `largest`."""
    extent = st.integers(smallest, largest)
    return st.lists(extent, min_size=least, max_size=most).map(tuple)


@st.composite
def arrays(
    draw: st.DrawFn, shape: tuple[int, ...], dtypes: Sequence[str] = FLOATS[:2], low: int = -9, high: int = 9
) -> Array:
    """An array of a drawn type: quarters for reals, so that sums are exact and equal elements are common."""
    dtype = draw(st.sampled_from(dtypes))
    return filled(shape, dtype, draw(st.integers(0, 2**32 - 1)), low, high)


def filled(shape: tuple[int, ...], dtype: str, seed: int, low: int = -9, high: int = 9) -> Array:
    """An array with values from `low` to `high`."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(random.integers(0, 2, shape), np.bool_)
    if dtype.startswith("uint"):
        low = max(low, 0)
    if dtype.startswith("float"):
        return np.asarray(random.integers(4 * low, 4 * high + 1, shape) / 4, dtype)
    return np.asarray(random.integers(low, high + 1, shape), dtype)


def axis_of(rank: int) -> SearchStrategy[int]:
    """A dimension, counted from the front or from the back."""
    return st.integers(-rank, rank - 1)


@st.composite
def axes_of(draw: st.DrawFn, rank: int, least: int = 0) -> tuple[int, ...]:
    """Some dimensions in any order, each counted from the front or from the back."""
    order = draw(st.permutations(range(rank)))
    count = draw(st.integers(min(least, rank), rank))
    backwards = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return tuple(axis - rank if back else axis for axis, back in zip(order[:count], backwards, strict=True))
