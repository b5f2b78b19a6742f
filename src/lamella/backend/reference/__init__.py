"""The reference backend: runs a graph with NumPy straight from the formulas of its operators."""

from __future__ import annotations

from lamella.backend.executor import GraphExecutable
from lamella.backend.reference.operators import FormulaRunner
from lamella.base.limits import DEFAULT, Limits
from lamella.graph.model import Model

__all__ = ["compile_model"]


def compile_model(
    model: Model,
    *,
    seed: int = 0,
    dtype: str = "f32",
    quantized: bool = False,
    limits: Limits = DEFAULT,
) -> GraphExecutable:
    """Make a composed model callable.

    The seed picks random inputs, variables without data and what `rand` operators give; `dtype` "f64" holds and
    computes every real tensor in 64 bits; `quantized` applies the quantisation of tensors as they are produced.
    """
    return GraphExecutable(model, FormulaRunner, seed, dtype, quantized, limits)
