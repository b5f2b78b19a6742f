"""What weights begin with where a model has no numbers for them: as training from scratch needs it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.background import Background
from lamella.base.errors import InputError
from lamella.base.filling import draw_normal
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
    filling = Background()
    drawn = dict(_draw(lacking, options, filling))
    filling.wait()
    for array in drawn.values():
        array.flags.writeable = False  # so nobody needs a copy to be sure of it
    return replace(model, data={**data, **drawn}), tuple(drawn)


def _draw(lacking: tuple[Tensor, ...], options: Options, filling: Background) -> Iterator[tuple[str, Array]]:
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
        found = np.zeros(shape, kind)
        if item.element.is_float:
            _fill(item.name, found, options.start_seed, filling)
        yield item.name, found


def _fill(name: str, found: Array, seed: int, filling: Background) -> None:
    """Give a weight what it begins with; a large one is full when the filling has been waited for."""
    shape = found.shape
    if len(shape) < 2:
        last = name.rpartition(".")[2].lower()
        found[...] = 0 if any(word in last for word in ADDED) else 1
        return
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    draw_normal(random, found, np.sqrt(max(1, product(shape[1:]))), found.dtype.type, filling)
