"""Two programs of kernels beside each other, such as two stages of `lamella lower`, on drawn arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lamella.base.errors import InputError
from lamella.pipeline.diff.gap import Gap, measure
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
