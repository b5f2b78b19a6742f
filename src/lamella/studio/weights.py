"""Weights in numbers: the least, the largest, mean, deviation, zeros, and how values are distributed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, printable

BINS = 32
MOST_TENSORS = 3000
MOST_VALUES = 1 << 18
"""Values of one tensor that are looked at; of more, evenly spread ones."""
MOST_BYTES = 4 << 30
"""Bytes that are read; tensors beyond are left out."""


def weight_rows(data: Mapping[str, Array], things: Mapping[str, list[int]]) -> list[dict[str, object]]:
    """A row for each tensor, with the operations that read it."""
    return [{**row, "things": things.get(name, [])} for name, row in _rows(data, list(data)[:MOST_TENSORS])]


def _rows(data: Mapping[str, Array], names: list[str]) -> Iterator[tuple[str, dict[str, object]]]:
    room = MOST_BYTES
    for name in names:
        if room <= 0:
            return
        try:
            array = np.asarray(data[name])
        except LamellaError:
            continue
        room -= array.nbytes
        facts = {"name": printable(name, 300), "shape": list(array.shape), "type": str(array.dtype)}
        yield name, {**facts, "bytes": int(array.nbytes), **statistics(array)}


def sample_of(array: Array) -> Array:
    """The values of a tensor in one row; of many, evenly spread ones."""
    found: Array = array.reshape(-1)[:: max(1, -(-array.size // MOST_VALUES))]
    return found if array.size > MOST_VALUES else found.reshape(array.shape)


def statistics(array: Array) -> dict[str, object]:
    """What values a tensor holds; those that are no numbers are counted apart."""
    values = sample_of(array)
    if values.dtype == bool or values.dtype.kind not in "fiu":
        values = values.astype(np.float32)
    sample = values.astype(np.float64)
    numbers = sample[np.isfinite(sample)]
    found: dict[str, object] = {
        "sampled": sample.size < array.size,
        "odd": int(sample.size - numbers.size),
        "zeros": float(np.mean(sample == 0)) if sample.size else 0.0,
    }
    if not numbers.size:
        return found
    low, high = float(numbers.min()), float(numbers.max())
    heights = np.histogram(numbers, BINS, (low, high) if high > low else (low - 0.5, low + 0.5))[0]
    return {
        **found,
        "low": low,
        "high": high,
        "mean": float(numbers.mean()),
        "deviation": float(numbers.std()),
        "histogram": heights.tolist(),
    }
