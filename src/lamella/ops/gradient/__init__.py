"""Gradients of operators, derived from their texts: SkriptND in, SkriptND out."""

from lamella.ops.gradient.module import (
    MODULE,
    STOPPING,
    DeclaredGradient,
    GradientModule,
    declared_gradients,
    derive_formulas,
    gradient_name,
    with_formulas,
)
from lamella.ops.gradient.operators import BackwardOperator, as_document, derive

__all__ = [
    "MODULE",
    "STOPPING",
    "BackwardOperator",
    "DeclaredGradient",
    "GradientModule",
    "as_document",
    "declared_gradients",
    "derive",
    "derive_formulas",
    "gradient_name",
    "with_formulas",
]
