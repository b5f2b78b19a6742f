"""Random arrays that threads fill while something else is done, each from a generator of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from lamella.base.arrays import Array
from lamella.base.background import Background

LARGE = 1 << 18
"""Numbers that are worth a thread."""
PIECE = 1 << 20
"""Numbers that are drawn at once: few enough that they need no new memory, so many that Python is asked seldom."""


def draw_normal(
    random: np.random.Generator,
    found: Array,
    divisor: float,
    convert: Callable[[Array], Array],
    filling: Background | None = None,
) -> None:
    """Fill a dense array with normal numbers, each divided and converted; by a thread where they are many.

    They are the numbers that `random.standard_normal(shape) / divisor` would be.
    """
    job = partial(_draw, random, found.reshape(-1), divisor, convert)
    if filling is None or found.size < LARGE:
        job()
    else:
        filling.begin(job)


def _draw(
    random: np.random.Generator, found: Array, divisor: float, convert: Callable[[Array], Array]
) -> None:
    room = np.empty(min(PIECE, found.size))
    for start in range(0, found.size, PIECE):
        piece = room[: min(PIECE, found.size - start)]
        random.standard_normal(out=piece)
        np.divide(piece, divisor, out=piece)
        found[start : start + piece.size] = convert(piece)
