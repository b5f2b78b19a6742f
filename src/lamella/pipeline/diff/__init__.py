"""`lamella diff`: where the numbers of two models part, and why.

`load_sides` reads the models, `compare` runs both once and finds the first divergence with its cause, the rest says or
writes what was found.
"""

from __future__ import annotations

from pathlib import Path

from lamella.pipeline.diff.comparison import Comparison, Explained, compare
from lamella.pipeline.diff.gap import Gap, measure
from lamella.pipeline.diff.page import page_of
from lamella.pipeline.diff.reduce import reduce
from lamella.pipeline.diff.report import comparison_lines, comparison_to_json, divergence_lines
from lamella.pipeline.diff.reproducer import make_reproducer, write_reproducer
from lamella.pipeline.diff.sides import Side, load_sides, make_sides
from lamella.pipeline.options import Options


def reproduce(found: Comparison, options: Options) -> tuple[Path, tuple[int, int]] | None:
    """Write the divergence alone into the folder that the options name; gives a model and the operations of both."""
    if options.output is None:
        return None
    made = reduce(found, options) if options.reduce else None
    if made is None and found.diverging is not None:
        made = make_reproducer(found, found.diverging, options.tolerance)
    if made is None:
        return None
    return write_reproducer(made, options.output, options.tolerance), made.operations


__all__ = [
    "Comparison",
    "Explained",
    "Gap",
    "Side",
    "compare",
    "comparison_lines",
    "comparison_to_json",
    "divergence_lines",
    "load_sides",
    "make_sides",
    "measure",
    "page_of",
    "reproduce",
]
