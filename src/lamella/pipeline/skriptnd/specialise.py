"""Open extents of a graph that was not composed with them."""

from __future__ import annotations

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Found
from lamella.graph.model import Model
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.pipeline.options import Options


def with_extents(model: Model, options: Options) -> Model:
    """The model with the extents that the user gives; LamellaError holds those that do not fit."""
    if not options.shape:
        return model
    try:
        return specialise_shapes(model, options.shape)
    except Found as problem:
        raise LamellaError(problem.findings) from None
