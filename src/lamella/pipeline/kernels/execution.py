"""Graphs with their kernels for the API: made from a graph, lowered, saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Found
from lamella.base.origin import with_origin
from lamella.base.placement import REFERENCE
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_kernels import KernelOptions, graph_to_kernels
from lamella.graph.model import Model
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.lang.skriptnd.rules.graphs import NO_KERNEL
from lamella.pipeline.languages import TENSOR
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.program import KernelFile

if TYPE_CHECKING:
    from lamella.pipeline.tensor.stages import Lowered


def from_graph(model: Model, path: Path, options: Options) -> KernelGraph:
    """The kernels of a graph whose extents are known."""
    return to_kernels(model, options)


def to_kernels(
    model: Model, options: Options, extents: Mapping[str, int] | None = None, layouts: bool = True
) -> KernelGraph:
    """The kernels of a graph; LamellaError holds each operation that has none where the options are strict.

    Without `layouts` every tensor lies row by row.
    """
    wide, quantized = options.dtype == "f64", options.quantized
    try:
        target = KernelOptions().target if options.target is None else find_target(options.target)
        chosen = KernelOptions(wide, extents or {}, quantized, target, layouts)
        found = graph_to_kernels(model, limits=options.limits, options=chosen)
    except Found as problem:
        raise LamellaError(problem.findings) from None
    missing = list(_missing(found)) if options.strict_backend else []
    if missing:
        raise LamellaError(missing)
    return found


def _missing(kernels: KernelGraph) -> Iterator[Diagnostic]:
    """A finding for each operation that no kernel computes."""
    for node, place in kernels.placed():
        if place.where == REFERENCE:
            span = NOWHERE if node.origin is None else node.origin.span or NOWHERE
            finding = NO_KERNEL.at(span, operator=place.operation, reason=place.reason)
            yield with_origin(finding, node.origin)


def lower(model: KernelGraph, to: str, options: Options) -> Lowered:
    """The kernels after their passes, as text for LLVM, or as the code of a processor."""
    lowered = cast("Lowered", TENSOR.lower(_file_of(model), to, options))
    return replace(lowered, placement=tuple(model.placement))


def _file_of(model: KernelGraph) -> KernelFile:
    return KernelFile(model.program.span.source, model.program, ())


def save(model: KernelGraph, path: Path) -> None:
    """Write the text of the kernels."""
    TENSOR.save(_file_of(model), path)
