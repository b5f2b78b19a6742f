"""Which items an interpolation reads, and how much each of them counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array


class Taps(NamedTuple):
    """Items and their weights; both are [items, positions]."""

    indices: Array
    weights: Array


def cubic(distance: Array, coefficient: float) -> Array:
    """The cubic convolution kernel at some distances."""
    t = np.abs(distance)
    near = ((coefficient + 2) * t - (coefficient + 3)) * t * t + 1
    far = ((t - 5) * t + 8) * t * coefficient - 4 * coefficient
    weights: Array = np.where(t <= 1, near, np.where(t < 2, far, 0.0))
    return weights


def reflect(index: Array, extent: int, aligned: bool) -> Array:
    """Positions mirrored into a range, about the centres of its ends or about their outer edges."""
    turn = 2 * (extent - 1) if aligned else 2 * extent - 1
    place = index % max(turn if aligned else 2 * extent, 1)
    mirrored: Array = np.where(place < extent, place, turn - place)
    return mirrored


def cubic_taps(extent: int, size: int, transform: str, coefficient: float, antialias: bool) -> Taps:
    """Taps that resize an axis; where it shrinks, antialiasing widens the kernel and evens out its weights."""
    floor, part = _source(extent, size, transform)
    scale = min(size / extent, 1.0) if antialias else 1.0
    reach = 2 if scale == 1.0 else -(-2 * extent // size)
    steps = np.arange(1 - reach, reach + 1)[:, None]
    weights = cubic((steps - part) * scale, coefficient)
    if scale < 1.0:
        weights = weights / weights.sum(axis=0)
    return Taps(np.clip(floor + steps, 0, extent - 1), weights)


def _source(extent: int, size: int, transform: str) -> tuple[Array, Array]:
    """Where each position of a resized axis lies in the original: the item before it, and how far behind that."""
    place = np.arange(size)
    if transform == "SYMMETRIC":
        above, below = (2 * place + 1) * extent - size, 2 * size
    elif transform == "ASYMMETRIC":
        above, below = place * extent, size
    else:
        above, below = place * (extent - 1), max(size - 1, 1)
    return above // below, above % below / below
