"""`lamella diff`: where the numbers of two models part, and why.

`load_sides` reads the models, `compare` runs both once and finds the first divergence with its cause, the rest says or
writes what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lamella.base.errors import InputError
from lamella.pipeline import languages
from lamella.pipeline.diff.comparison import Comparison, Explained, compare, deepest
from lamella.pipeline.diff.flow import CANNOT_RUN
from lamella.pipeline.diff.gap import Gap, measure
from lamella.pipeline.diff.page import page_of
from lamella.pipeline.diff.plans import PlanComparison, compare_plan, is_plan
from lamella.pipeline.diff.reduction import reduce
from lamella.pipeline.diff.report import (
    comparison_lines,
    comparison_to_json,
    divergence_lines,
    gap_to_json,
    gap_words,
)
from lamella.pipeline.diff.reproducer import make_reproducer, write_reproducer
from lamella.pipeline.diff.sides import CPU, Side, as_graph, load_sides, make_sides
from lamella.pipeline.languages import TENSOR, language_of
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.execution import read_checked
from lamella.pipeline.tensor.stages import run_drawable


@dataclass(frozen=True, slots=True)
class KernelComparison:
    """How far the arguments of kernels are apart after both ran."""

    gaps: tuple[Gap, ...]

    def first(self, tolerance: float) -> Gap | None:
        """The first argument that differs by more than a tolerance."""
        return next((item for item in self.gaps if item.relative > tolerance), None)


def are_kernels(paths: Sequence[Path], options: Options) -> bool:
    """Whether all files are of the tensor language."""
    return len(paths) == 2 and all(language_of(path, options.language) is TENSOR for path in paths)


def compare_kernels(paths: Sequence[Path], options: Options) -> KernelComparison:
    """Kernels that two files have under one name, each run on the same arguments."""
    one, other = (run_drawable(read_checked(path, options.limits).program, options) for path in paths)
    both = [name for name in one if name in other and one[name].keys() == other[name].keys()]
    if not both:
        hint = "arguments are drawn for kernels of known shapes that take real numbers"
        raise InputError("the files have no kernel in common that can be run on drawn arguments", hint=hint)
    return KernelComparison(
        tuple(
            measure(f"{name}.{argument}", one[name][argument], other[name][argument])
            for name in both
            for argument in one[name]
        )
    )


def reproduce(found: Comparison, options: Options) -> tuple[Path, tuple[int, int]] | None:
    """Write the divergence alone into the folder that the options name; gives a model and the operations of both."""
    if options.output is None:
        return None
    found = deepest(found)
    made = reduce(found, options) if options.reduce else None
    if made is None and found.diverging is not None:
        made = make_reproducer(found, found.diverging, options.tolerance)
    if made is None:
        return None
    causes = () if found.diverging is None else found.diverging.causes
    return write_reproducer(made, options.output, options.tolerance, causes), made.operations


def first_divergence(
    before: languages.Model, options: Options, after: languages.Model | None = None
) -> list[str]:
    """Where the numbers of a model and of what was lowered from it part, in lines; nothing where no graph shows it.

    Without a second model the kernels of the first are meant.
    """
    left, right = as_graph(before, options), as_graph(after or before, options)
    if left is None or right is None:
        return []
    kernels = Side(right, CPU) if after is None else Side(right)
    chosen = replace(options, backends=(), precisions=(), shape={})
    try:
        found = compare(*make_sides([Side(left), kernels], chosen), chosen)
    except CANNOT_RUN:
        return []
    return [] if found.diverging is None else list(divergence_lines(found.diverging))


__all__ = [
    "Comparison",
    "Explained",
    "Gap",
    "KernelComparison",
    "PlanComparison",
    "Side",
    "are_kernels",
    "as_graph",
    "compare",
    "compare_kernels",
    "compare_plan",
    "comparison_lines",
    "comparison_to_json",
    "divergence_lines",
    "first_divergence",
    "gap_to_json",
    "gap_words",
    "is_plan",
    "load_sides",
    "make_sides",
    "measure",
    "page_of",
    "reproduce",
]
