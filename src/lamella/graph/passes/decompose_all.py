"""Decomposition: every compound operator replaced by its components, down to operators with formulas.

    softmax(x) = exp(x - max(x)) / sum(exp(x - max(x)))

Groups that fusion made stay whole.
"""

from __future__ import annotations

from lamella.graph.compose.decompose import decompose
from lamella.graph.model import Model
from lamella.ops.library import is_group


def decompose_all(model: Model) -> Model:
    """The model made of operators with formulas, of intrinsic ones, and of fused groups."""
    return decompose(model, is_group)
