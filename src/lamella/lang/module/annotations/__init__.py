"""Annotations: the table of all of them, and what those of a program say."""

from lamella.lang.module.annotations.nodes import ArgumentValue, Kind, Parameter, Reading
from lamella.lang.module.annotations.reading import read_annotation
from lamella.lang.module.annotations.table import HOOK_POINTS, KINDS, POLICIES
from lamella.lang.module.annotations.training import gradient_mode, is_frozen

__all__ = [
    "HOOK_POINTS",
    "KINDS",
    "POLICIES",
    "ArgumentValue",
    "Kind",
    "Parameter",
    "Reading",
    "gradient_mode",
    "is_frozen",
    "read_annotation",
]
