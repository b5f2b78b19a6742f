"""What a caller passes to a kernel, held beside the types, attributes and promises of its parameters."""

from __future__ import annotations

from lamella.backend.arguments.elements import dtype_of
from lamella.backend.arguments.overlap import Block, find_overlap, overlap_finding
from lamella.backend.arguments.verify import (
    Arrays,
    group_items,
    layout_strides,
    miscounted,
    promised,
    verify_argument,
    verify_arguments,
)
from lamella.backend.arguments.written import written_parameters

__all__ = [
    "Arrays",
    "Block",
    "dtype_of",
    "find_overlap",
    "group_items",
    "layout_strides",
    "miscounted",
    "overlap_finding",
    "promised",
    "verify_argument",
    "verify_arguments",
    "written_parameters",
]
