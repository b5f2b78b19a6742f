"""Lowered kernels for `lamella lower`: printed, or written stage by stage, read again and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.writer import make_folder, write_text
from lamella.graph.model import Model
from lamella.kernels.nodes import KernelGraph
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Function, Memref, Program, Scalar
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.draws import draw_array
from lamella.pipeline.tensor.execution import KernelRun, compile_kernel_graph
from lamella.pipeline.tensor.lowering import Lowered, save_stages
from lamella.pipeline.tensor.program import KernelFile, read_checked

NUMBERS = {"f": 0.5, "b": 0.5, "c": 0.5, "i": 1}
"""What a scalar parameter is in a comparison, by the first letter of its type."""


def printed(model: object) -> str:
    """The text of lowered kernels."""
    if isinstance(model, Lowered):
        return model.text
    if isinstance(model, KernelGraph):
        return write(model.program)
    raise InputError("this form has no text", hint="say where to write it with -o FOLDER")


def write_into(model: object, folder: Path, stem: str) -> Path:
    """Write every stage into a folder, numbered; gives the file of the last."""
    if isinstance(model, Lowered):
        return save_stages(model, folder, stem)
    make_folder(folder)
    path = folder / f"{stem}.tensor"
    write_text(path, printed(model))
    return path


def compare(before: object, lowered: object, path: Path, options: Options) -> dict[str, tuple[Array, Array]]:
    """The numbers of a model and of what was written of it, by name; empty where nothing can be run.

    A graph runs on the reference, and by its kernels as they were written. Kernels run as they were, and after their
    last pass, as far as their arguments can be drawn.
    """
    if isinstance(before, Model) and isinstance(lowered, KernelGraph):
        again = replace(lowered, program=read_checked(path, options.limits).program)
        first = compile_model(before, seed=options.seed, limits=options.limits)()
        second = compile_kernel_graph(again, "cpu", options)()
        return {name: (first[name], second[name]) for name in first}
    if isinstance(before, KernelFile) and isinstance(lowered, Lowered):
        passes = [
            place for place in sorted(path.parent.glob("[0-9][0-9]-*.tensor")) if place.name[:2] != "00"
        ]
        return _compare_kernels(before, read_checked(passes[-1], options.limits), options) if passes else {}
    return {}


def _compare_kernels(
    before: KernelFile, after: KernelFile, options: Options
) -> dict[str, tuple[Array, Array]]:
    found: dict[str, tuple[Array, Array]] = {}
    chosen = [item for item in before.program.functions if _is_drawable(item)]
    for function in chosen:
        pair = [_run(model.program, function, options) for model in (before, after)]
        for name in pair[0]:
            found[f"{function.name}.{name}"] = (pair[0][name], pair[1][name])
    return found


def _is_drawable(function: Function) -> bool:
    """Whether all arguments can be made up: numbers, and arrays of known shape."""
    kinds = [item.type for item in function.parameters]
    return all(
        isinstance(kind, Scalar) or (isinstance(kind, Memref) and None not in kind.shape) for kind in kinds
    )


def _run(program: Program, function: Function, options: Options) -> Mapping[str, Array]:
    source = KernelFile(function.span.source, program, ())
    run = KernelRun(source, "cpu", replace(options, kernel=function.name))
    given: dict[str, Array] = {}
    for item in function.parameters:
        name, kind = item.value.name, item.type
        if isinstance(kind, Scalar):
            given[name] = np.asarray(kind.name == "bool" or NUMBERS[kind.name[0]])
        elif isinstance(kind, Memref):
            given[name] = draw_array(kind, name, options.seed)
    return run(**given)
