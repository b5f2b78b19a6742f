"""Gradients of operators, derived from their texts: SkriptND in, SkriptND out."""

from lamella.ops.gradient.module import (
    MODULE,
    DeclaredGradient,
    GradientModule,
    declared_gradients,
    derive_formulas,
    gradient_name,
)
from lamella.ops.gradient.operators import BackwardOperator, derive

__all__ = [
    "MODULE",
    "BackwardOperator",
    "DeclaredGradient",
    "GradientModule",
    "declared_gradients",
    "derive",
    "derive_formulas",
    "gradient_name",
]
