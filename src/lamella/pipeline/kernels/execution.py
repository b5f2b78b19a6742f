"""Graphs with their kernels for the API: made from a graph, lowered, saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import Found
from lamella.base.gc import gc_paused
from lamella.base.origin import with_origin
from lamella.base.placement import REFERENCE
from lamella.base.source import NOWHERE
from lamella.base.watching import timed_pass
from lamella.bridge.graph_to_kernels import KernelOptions, flatten, graph_to_kernels
from lamella.graph.model import Model
from lamella.graph.passes import BEFORE_KERNELS, INEXACT
from lamella.graph.passes.chunk_scores import chunk_scores, has_losses
from lamella.graph.passes.dce import dce
from lamella.graph.passes.fuse import find_kernels, fuse_model
from lamella.graph.passes.fuse.machine import DEFAULT_MACHINE, GPU
from lamella.graph.passes.hoist_scales import hoist_scales
from lamella.graph.passes.reduce_precision import FULL, reduce_precision
from lamella.graph.passes.sink_casts import sink_casts
from lamella.graph.passes.slice_parts import slice_parts
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import Target, find_target
from lamella.lang.skriptnd.rules.graphs import NO_KERNEL
from lamella.pipeline.kernels.tuning import Tuner, open_tuner
from lamella.pipeline.languages import TENSOR
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.run_passes import ALL_PASSES
from lamella.pipeline.tensor.program import KernelFile

if TYPE_CHECKING:
    from lamella.pipeline.tensor.stages import Lowered

NARROW = "bf16"
"""The precision in which tensor cores multiply."""
NARROW_PRODUCTS = (NARROW, "w8", "w4", "fp8")
"""Precisions whose products of many columns are those of halves on a GPU."""


def from_graph(model: Model, path: Path, options: Options) -> KernelGraph:
    """The kernels of a graph whose extents are known, fused as it runs on them."""
    target = None if options.target is None else find_target(options.target)
    on_gpu = target is not None and target.has_threads
    return to_kernels(prepare(model, options, on_gpu), options, tuner=open_tuner(options, target))


def prepare(model: Model, options: Options, all_products: bool = False) -> Model:
    """The graph after the passes on the way to kernels, the last of which fuses; what LamellaError says it refuses.

    With `all_products`, for a GPU, a reduced precision is that of products of two activations too; those of an
    attention that is one kernel are rounded there. Quantised numbers are rounded where the graph says, so nothing is
    moved there that rounds elsewhere.
    """
    try:
        with gc_paused():
            return _run_passes(model, options, all_products)
    except Found as problem:
        raise LamellaError(problem.findings) from None


def _run_passes(model: Model, options: Options, all_products: bool) -> Model:
    kept = [name for name in BEFORE_KERNELS[1:] if not (options.quantized and name in INEXACT)]
    flat = flatten(model if options.quantized else chunk_scores(model), options.limits)
    for name in kept[:-1]:
        with timed_pass(name):
            flat = ALL_PASSES[name](flat)
    machine = GPU if all_products else DEFAULT_MACHINE
    if all_products and not options.quantized:
        flat = slice_parts(flat)
        flat = sink_casts(hoist_scales(flat) if options.precision == NARROW else flat)
    if options.precision != FULL:
        flat = dce(_reduced(flat, options.precision, all_products))
    with timed_pass(kept[-1]):
        return fuse_model(flat, machine).model


def with_chunks(model: Model, extents: Mapping[str, int], options: Options) -> Model | None:
    """A graph for some extents, where they decide that scores are made in chunks; None where they do not."""
    if options.quantized or not extents or not has_losses(model.graph):
        return None
    known = specialise_shapes(model, extents)
    found = chunk_scores(known)
    return None if found is known else found


def _reduced(model: Model, precision: str, all_products: bool) -> Model:
    """The model in a precision; attentions of a GPU round what they make themselves."""
    if not all_products:
        return reduce_precision(model, precision)
    fused = find_kernels(model, replace(DEFAULT_MACHINE, joins_gradients=True))
    return reduce_precision(model, precision, True, fused.attentions(), fused.streams())


def to_kernels(
    model: Model,
    options: Options,
    extents: Mapping[str, int] | None = None,
    layouts: bool = True,
    host: Target | None = None,
    tuner: Tuner | None = None,
) -> KernelGraph:
    """The kernels of a graph; LamellaError holds each operation that has none where the options are strict.

    Without `layouts` every tensor lies row by row. Where the options name no target it is the host, if that is given.
    A tuner chooses between the ways to compute products.
    """
    wide, quantized = options.dtype == "f64", options.quantized
    target = host or KernelOptions().target
    try:
        chosen = KernelOptions(
            wide,
            extents or {},
            quantized,
            target if options.target is None else find_target(options.target),
            layouts,
            narrow=options.precision in NARROW_PRODUCTS,
            choose=None if tuner is None else tuner.choose,
        )
        write = partial(_write, model, options, chosen)
        found = write() if tuner is None else tuner.tune(write)
    except Found as problem:
        raise LamellaError(problem.findings) from None
    missing = list(_missing(found)) if options.strict_backend else []
    if missing:
        raise LamellaError(missing)
    return found


def _write(model: Model, options: Options, chosen: KernelOptions) -> KernelGraph:
    with timed_pass("graph_to_kernels"), gc_paused():
        return graph_to_kernels(model, limits=options.limits, options=chosen)


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
