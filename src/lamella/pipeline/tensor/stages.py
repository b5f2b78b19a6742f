"""Kernels for `lamella lower`: printed, or written stage by stage, read again and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from lamella.backend.cpu.run.proof import find_open
from lamella.base.arrays import Array
from lamella.lang.tensor.nodes import Function, Memref, Program, Scalar
from lamella.lang.tensor.nodes.types import INTEGERS
from lamella.pipeline.backends.kernels import KernelRun, draw_array
from lamella.pipeline.languages import Compared
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.execution import read_checked
from lamella.pipeline.tensor.lower import Lowered, save_stages
from lamella.pipeline.tensor.program import KernelFile

Pairs: TypeAlias = "dict[str, tuple[Array, Array]]"
"""What two runs gave, by name."""
NUMBER = 0.5
"""What a scalar parameter is in a comparison."""


def printed(model: Lowered) -> str:
    """The text of lowered kernels."""
    return model.text


def write_into(model: Lowered, folder: Path, stem: str) -> Path:
    """Write every stage into a folder, numbered; gives the file of the last."""
    return save_stages(model, folder, stem)


def compare(before: object, lowered: Lowered, path: Path, options: Options) -> Compared:
    """The numbers of kernels as they were, and after their last pass, as far as their arguments can be drawn."""
    passes = [place for place in sorted(path.parent.glob("[0-9][0-9]-*.tensor")) if place.name[:2] != "00"]
    if not passes or not isinstance(before, KernelFile):
        return Compared({})
    return Compared(_compare_kernels(before, read_checked(passes[-1], options.limits), options))


def _compare_kernels(before: KernelFile, after: KernelFile, options: Options) -> Pairs:
    found: dict[str, tuple[Array, Array]] = {}
    chosen = [item for item in before.program.functions if _is_drawable(item) and not find_open(item)]
    for function in chosen:
        pair = [_run(model.program, function, options) for model in (before, after)]
        for name in pair[0]:
            found[f"{function.name}.{name}"] = (pair[0][name], pair[1][name])
    return found


def _is_drawable(function: Function) -> bool:
    """Whether all arguments can be made up: real numbers and arrays of them; integers may be positions."""
    kinds = [item.type for item in function.parameters]
    return all(
        (isinstance(kind, Scalar) and kind.name not in INTEGERS)
        or (isinstance(kind, Memref) and kind.element not in INTEGERS and None not in kind.shape)
        for kind in kinds
    )


def _run(program: Program, function: Function, options: Options) -> Mapping[str, Array]:
    source = KernelFile(function.span.source, program, ())
    run = KernelRun(source, "cpu", replace(options, kernel=function.name))
    given: dict[str, Array] = {}
    for item in function.parameters:
        name, kind = item.value.name, item.type
        if isinstance(kind, Scalar):
            given[name] = np.asarray(True if kind.name == "bool" else NUMBER)
        elif isinstance(kind, Memref):
            given[name] = draw_array(kind, name, options.start_seed)
    return run(**given)
