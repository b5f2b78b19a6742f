"""Reduction of two models to the fewest operations that still differ, everything before them held fixed.

A divergence is cut out where both sides agree. One between several operations is written in its parts and compared
again. One that only fused operations show is found by delta debugging: what removed operations would have made is an
input with the numbers of the run, so that any subset of operations is a model that runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lamella.base.ddmin import ddmin
from lamella.graph.passes.decompose_all import decompose_all
from lamella.graph.rewrite import results_of
from lamella.pipeline.diff.comparison import Comparison, Explained, compare
from lamella.pipeline.diff.divergence import Divergence
from lamella.pipeline.diff.flow import CANNOT_RUN, Dataflow, cut_part
from lamella.pipeline.diff.gap import measure
from lamella.pipeline.diff.pairing import Pair
from lamella.pipeline.diff.reproducer import Reproducer, make_reproducer
from lamella.pipeline.diff.values import results_of_side
from lamella.pipeline.options import Options


def reduce(found: Comparison, options: Options) -> Reproducer | None:
    """The smallest pair of models that still differs; None where nothing differs, or no part alone does."""
    if found.diverging is None:
        return _of_fused(found, options)
    made = make_reproducer(found, found.diverging, options.tolerance)
    if not differs(made, options):
        return None
    while max(made.operations) > 1:
        smaller = _in_parts(made, options)
        if smaller is None or sum(smaller.operations) >= sum(made.operations):
            break
        made = smaller
    return made


def _in_parts(made: Reproducer, options: Options) -> Reproducer | None:
    """The divergence within a divergence: both sides written in their parts, whose tensors are paired anew.

    Both may only be cut where they agree: anywhere else the difference would be among the inputs, and prove nothing.
    """
    sides = [replace(side, model=decompose_all(side.model)) for side in (made.left, made.right)]
    found = compare(sides[0], sides[1], options, made.inputs)
    if found.diverging is None:
        return None
    smaller = make_reproducer(found, found.diverging, options.tolerance)
    return smaller if differs(smaller, options) else None


def differs(made: Reproducer, options: Options) -> bool:
    """Whether two models of a reproducer still give other results."""
    try:
        one, other = (results_of_side(side, options, made.inputs) for side in (made.left, made.right))
    except CANNOT_RUN:
        return False
    pairs = zip(one.values(), other.values(), strict=True)
    return any(measure("", *pair).relative > options.tolerance for pair in pairs)


def _of_fused(found: Comparison, options: Options) -> Reproducer | None:
    """The smallest part of one model that differs on two backends only where its operations are fused."""
    one, other = found.sides
    if one.model.graph is not other.model.graph or found.agrees(options.tolerance) or not found.compared:
        return None
    flow = Dataflow(one.model.graph)
    name = next(item.name for item in found.outputs if item.relative > options.tolerance)
    pair = next((item for item in found.pairs if item.left == name), None)
    if pair is None:
        return None

    def made(places: Sequence[int]) -> Reproducer:
        last = [item.name for item in results_of(flow.nodes[places[-1]])]
        end = replace(pair, left=last[0], right=last[0])
        return _same_part(found, flow, tuple(places), end)

    places, _ = flow.behind([name], ())
    kept = ddmin(places, lambda some: differs(made(some), options))
    return made(kept) if differs(made(kept), options) else None


def _same_part(found: Comparison, flow: Dataflow, places: tuple[int, ...], end: Pair) -> Reproducer:
    parts = [cut_part(side.model, flow, places, end.left) for side in found.sides]
    borders = tuple((item.name, item.name) for item in parts[0].inputs)
    at = Divergence(end, places, places, borders)
    return make_reproducer(found, Explained(at, parts[0], parts[1], None, None), 0.0)
