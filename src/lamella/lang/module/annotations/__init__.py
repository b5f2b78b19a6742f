"""Annotations: the table of all of them, and what those of a program say."""

from __future__ import annotations

from collections.abc import Iterable

from lamella.lang.module.annotations.arguments import read_annotation
from lamella.lang.module.annotations.table import (
    HOOK_POINTS,
    KINDS,
    POLICIES,
    AnnotationArguments,
    AnnotationKind,
    AnnotationParameter,
    ArgumentValue,
)
from lamella.lang.module.nodes import Annotation, Name, Text

# --- what annotations say about training, before any of their values is needed ------------------------------


FROZEN, TRAINABLE, GRADIENT, SKIP = "frozen", "trainable", "gradient", "skip"


def is_frozen(annotations: Iterable[Annotation]) -> bool:
    """Whether a parameter is not trained; what a declaration further out says comes last and counts."""
    said = [item.name for item in annotations if item.name in (FROZEN, TRAINABLE)]
    return bool(said) and said[-1] == FROZEN


def gradient_mode(annotations: Iterable[Annotation]) -> str | None:
    """The mode that the last `@gradient` names; None where there is none."""
    found = [item for item in annotations if item.name == GRADIENT]
    if not found:
        return None
    modes = [item.value for item in found[-1].arguments if item.name in (None, "mode")]
    first = modes[0] if modes else None
    if isinstance(first, Name):
        return first.id
    return first.value if isinstance(first, Text) else "compute"


__all__ = [
    "GRADIENT",
    "HOOK_POINTS",
    "KINDS",
    "POLICIES",
    "SKIP",
    "AnnotationArguments",
    "AnnotationKind",
    "AnnotationParameter",
    "ArgumentValue",
    "gradient_mode",
    "is_frozen",
    "read_annotation",
]
