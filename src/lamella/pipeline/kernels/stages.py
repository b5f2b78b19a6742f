"""The kernels of a graph for `lamella lower`: printed, or written, read again and compared with the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from lamella.backend.reference import compile_model
from lamella.base.writer import make_folder, write_text
from lamella.graph.model import Model
from lamella.graph.passes.reduce_precision import FULL
from lamella.kernels.nodes import KernelGraph
from lamella.lang.tensor import write
from lamella.pipeline.backends.kernels import compile_kernel_graph
from lamella.pipeline.languages import Compared
from lamella.pipeline.options import Options, drawing
from lamella.pipeline.tensor.execution import read_checked

ROUNDED = MappingProxyType({"bf16": 0.02, "int8": 0.02})
"""How far apart numbers may lie, in parts of the largest, where factors that kernels make are rounded."""


def printed(model: KernelGraph) -> str:
    """The text of the kernels."""
    return write(model.program)


def write_into(model: KernelGraph, folder: Path, stem: str) -> Path:
    """Write the kernels into a folder; gives their file."""
    make_folder(folder)
    path = folder / f"{stem}.tensor"
    write_text(path, printed(model))
    return path


def compare(before: object, lowered: KernelGraph, path: Path, options: Options) -> Compared:
    """The numbers of the graph on the reference, and by its kernels as they were written, whatever they are for.

    In a reduced precision it is the graph that says what is rounded; sums in another order round some of it otherwise.
    """
    graph = before if isinstance(before, Model) and options.precision == FULL else lowered.model
    again = replace(lowered, program=read_checked(path, options.limits).program)
    first = compile_model(graph, seed=options.start_seed, limits=options.limits)()
    executable = compile_kernel_graph(again, "cpu", drawing(replace(options, target=None)))
    second = executable()
    numbers = {name: (first[name], second[name]) for name in first}
    return Compared(numbers, tuple(executable.placement), ROUNDED.get(options.precision))
