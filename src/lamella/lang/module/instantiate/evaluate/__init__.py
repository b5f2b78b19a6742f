"""Constant expressions and their values."""

from lamella.lang.module.instantiate.evaluate.expressions import (
    PLAIN,
    Surroundings,
    evaluate,
    evaluate_bool,
    evaluate_constant,
    evaluate_int,
)
from lamella.lang.module.resolve.problem import Problem

__all__ = [
    "PLAIN",
    "Problem",
    "Surroundings",
    "evaluate",
    "evaluate_bool",
    "evaluate_constant",
    "evaluate_int",
]
