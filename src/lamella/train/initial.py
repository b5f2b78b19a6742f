"""What weights begin with where a model has no numbers for them: as training from scratch needs it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.errors import InputError
from lamella.base.limits import OutOfRange, product
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.pipeline.options import Options

ADDED = ("bias", "beta")
"""Last parts of names of vectors that are added: they begin with zeros."""


def with_initial(model: Model, options: Options) -> tuple[Model, tuple[str, ...]]:
    """The model with numbers for all its variables, and the names of those that were drawn from the seed.

    Arrays of two axes and more are normal with a deviation of 1 / √(fan-in), the fan-in being all extents but the
    first. Vectors are ones, as scales of norms are, or zeros where their names say that they are biases.
    """
    data = model.data or {}
    lacking = tuple(item for item in model.graph.variables if item.name not in data)
    if not lacking:
        return model, ()
    drawn = dict(_draw(lacking, options))
    return replace(model, data={**data, **drawn}), tuple(drawn)


def _draw(lacking: tuple[Tensor, ...], options: Options) -> Iterator[tuple[str, Array]]:
    real = np.dtype(np.float64 if options.dtype == "f64" else np.float32)
    for item in lacking:
        shape = tuple(size for size in item.shape if isinstance(size, int))
        try:
            count = product(shape)
        except OutOfRange:
            count = options.limits.max_total_bytes
        if len(shape) < len(item.shape) or count * real.itemsize >= options.limits.max_total_bytes:
            raise InputError(
                f"'{item.name[:80]}' has no numbers, and its extents {item.shape} are no shape of a weight"
            )
        kind = real if item.element.is_float else np.dtype(numpy_dtype(item.element))
        yield item.name, _initial(item.name, shape, options.start_seed, item.element.is_float).astype(kind)


def _initial(name: str, shape: tuple[int, ...], seed: int, is_real: bool) -> Array:
    if not is_real:
        return np.zeros(shape)
    if len(shape) < 2:
        last = name.rpartition(".")[2].lower()
        return np.zeros(shape) if any(word in last for word in ADDED) else np.ones(shape)
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    found: Array = random.standard_normal(shape) / np.sqrt(max(1, product(shape[1:])))
    return found
