"""Graphs with NumPy, straight from the formulas of their operators."""

from __future__ import annotations

from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.base.errors import InputError
from lamella.graph.binding import describes_quantization
from lamella.graph.model import Model
from lamella.pipeline.options import Options


def missing(backend: str) -> str | None:
    """NumPy is always there."""
    return None


def compile(model: Model, backend: str, options: Options) -> GraphExecutable:
    """Make a graph executable."""
    executable = compile_model(
        model,
        seed=options.start_seed,
        dtype=options.dtype or "f32",
        quantized=options.quantized,
        limits=options.limits,
    )
    executable.draws = options.draws
    return executable


def require_quantization(model: Model) -> None:
    """A graph that is to run quantised says how; InputError where it does not."""
    if not describes_quantization(model.graph):
        hint = "leave --quantized out (quantized=), or describe it in @quantize"
        raise InputError(f"graph '{model.graph.name}' describes no quantisation", hint=hint)
