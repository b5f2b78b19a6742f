"""Graphs with their kernels for the API: compile, lower, save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from lamella.backend.cpu.graphs import KernelExecutable, Specialise, Specialised
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Found, InputError
from lamella.base.origin import tell_origin
from lamella.base.placement import REFERENCE
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_kernels import flatten, graph_to_kernels
from lamella.graph.model import Model
from lamella.kernels.nodes import KernelGraph
from lamella.lang.skriptnd.rules.graphs import NO_KERNEL
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
) -> KernelExecutable:
    """Make the graph callable with arrays by name; its operations run by their kernels."""
    return _executable(model.model, lambda extents: _specialised(model, backend, options), options)


def compile_open(model: Model, backend: str, options: Options) -> KernelExecutable:
    """Make a graph callable whose open extents each call tells: its kernels are made for those of the call."""
    flat = flatten(model, options.limits)

    def specialise(extents: Mapping[str, int]) -> Specialised:
        return _specialised(to_kernels(flat, options, extents), backend, options)

    return _executable(flat, specialise, options)


def to_kernels(model: Model, options: Options, extents: Mapping[str, int] | None = None) -> KernelGraph:
    """The kernels of a graph; LamellaError tells each operation that has none where the options are strict."""
    wide, quantized = options.dtype == "f64", options.quantized
    try:
        found = graph_to_kernels(
            model, wide=wide, limits=options.limits, extents=extents, quantized=quantized
        )
    except Found as problem:
        raise LamellaError(problem.findings) from None
    missing = list(_missing(found)) if options.strict_backend else []
    if missing:
        raise LamellaError(missing)
    return found


def _missing(kernels: KernelGraph) -> Iterator[Diagnostic]:
    """What is told of each operation that no kernel computes."""
    for node, place in kernels.placed():
        if place.where == REFERENCE:
            span = NOWHERE if node.origin is None else node.origin.span or NOWHERE
            finding = NO_KERNEL.at(span, operator=place.operation, reason=place.reason)
            yield tell_origin(finding, node.origin)


def _specialised(program: KernelGraph, backend: str | None, options: Options) -> Specialised:
    kernels = execution.compile_kernels(program.program, backend, options)
    return Specialised(program, kernels.call, options.strict_backend)


def _executable(model: Model, specialise: Specialise, options: Options) -> KernelExecutable:
    executable = KernelExecutable(
        model, specialise, options.start_seed, options.dtype or "f32", options.quantized, options.limits
    )
    executable.draws = options.draws
    return executable


def lower(model: KernelGraph, to: str, options: Options) -> Lowered:
    """The kernels after their passes, as text for LLVM, or as the code of a processor."""
    return replace(lower_program(model.program, to, options), placement=tuple(model.placement))


def save(model: KernelGraph, path: Path) -> None:
    """Write the text of the kernels."""
    execution.save(KernelFile(model.program.span.source, model.program, ()), path)
