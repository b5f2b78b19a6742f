"""Graphs with their kernels for the API: compile, lower, save."""

from __future__ import annotations

from pathlib import Path

from lamella.backend.cpu.graphs import compile_graph
from lamella.backend.reference import Executable
from lamella.base.errors import InputError
from lamella.kernels.nodes import KernelGraph
from lamella.pipeline.options import Options
from lamella.pipeline.tensor import execution
from lamella.pipeline.tensor.lowering import Lowered, lower_program
from lamella.pipeline.tensor.program import KernelFile


def load(path: Path, options: Options) -> KernelGraph:
    """There is no file that holds both: the graph and its kernels are two texts."""
    raise InputError(
        "a graph with kernels is made from a graph", hint="load the graph, then lower it to tensor"
    )


def compile(  # the API's word: lamella.compile
    model: KernelGraph, backend: str | None, options: Options
) -> Executable:
    """Make the graph callable with arrays by name; its operations run by their kernels."""
    kernels = execution.compile_kernels(model.program, backend, options)
    return compile_graph(
        model,
        kernels.call,
        seed=options.seed,
        dtype=options.dtype or "f32",
        quantized=options.quantized,
        limits=options.limits,
    )


def lower(model: KernelGraph, to: str, options: Options) -> Lowered:
    """The kernels after their passes, as text for LLVM, or as the code of a processor."""
    return lower_program(model.program, to, options)


def save(model: KernelGraph, path: Path) -> None:
    """Write the text of the kernels."""
    execution.save(KernelFile(model.program.span.source, model.program, ()), path)
