"""Delta debugging of two models: the fewest operations that still differ, everything before them held fixed.

Operations are units of both sides: those that compute a corresponding tensor. What a removed unit would have made is an
input with the numbers of the first run, so that any subset of units is a model that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from lamella.graph.rewrite import results_of
from lamella.pipeline.diff.comparison import Comparison, Explained
from lamella.pipeline.diff.divergence import Divergence
from lamella.pipeline.diff.flow import CANNOT_RUN, Dataflow, part_of
from lamella.pipeline.diff.gap import measure
from lamella.pipeline.diff.pairing import Pair
from lamella.pipeline.diff.reproducer import Reproducer, make_reproducer
from lamella.pipeline.diff.values import results_of_side
from lamella.pipeline.options import Options

Item = TypeVar("Item")
MOST_RUNS = 200
"""Subsets that are tried."""


def reduce(found: Comparison, options: Options) -> Reproducer | None:
    """The smallest pair of models that still differs; None where nothing differs, or no part alone does."""
    if found.diverging is None:
        return _of_fused(found, options)
    whole = make_reproducer(found, found.diverging, options.tolerance)
    if not differs(whole, options):
        return None
    smallest = whole
    if max(whole.operations) > 1:
        smallest = _Shrink(found, found.diverging, options).run() or whole
    return smallest


def differs(made: Reproducer, options: Options) -> bool:
    """Whether two models of a reproducer still give other results."""
    try:
        one, other = (results_of_side(side, options, made.inputs) for side in (made.left, made.right))
    except CANNOT_RUN:
        return False
    pairs = zip(one.values(), other.values(), strict=True)
    return any(measure("", *pair).relative > options.tolerance for pair in pairs)


def ddmin(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A subset of items that fails, and that no part of is known to: complements of ever smaller chunks are tried."""
    left = list(items)
    chunks, runs = 2, 0
    while len(left) > 1 and runs < MOST_RUNS:
        size = max(1, len(left) // chunks)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            runs += 1
            if rest and fails(rest):
                left, chunks = rest, max(chunks - 1, 2)
                break
        else:
            if size == 1:
                break
            chunks = min(chunks * 2, len(left))
    return left


@dataclass(frozen=True, slots=True)
class _Unit:
    """Nodes of one or both sides that stay or go together."""

    left: tuple[int, ...]
    right: tuple[int, ...]


class _Shrink:
    """Removes operations from the parts of a divergence while the difference persists."""

    def __init__(self, found: Comparison, at: Explained, options: Options) -> None:
        self._found, self._at, self._options = found, at, options
        self._flows = found.flows

    def run(self) -> Reproducer | None:
        """The smallest parts that still differ; None where no smaller ones do."""
        at = self._at.at
        units = [_Unit((place,), ()) for place in at.left] + [_Unit((), (place,)) for place in at.right]
        kept = ddmin(units, lambda some: differs(self._made(some), self._options))
        return self._made(kept) if len(kept) < len(units) else None

    def _made(self, units: Sequence[_Unit]) -> Reproducer:
        left = tuple(place for unit in units for place in unit.left)
        right = tuple(place for unit in units for place in unit.right)
        at = replace(self._at.at, left=left, right=right)
        parts = [
            part_of(side.model, flow, places, name)
            for side, flow, places, name in zip(
                self._found.sides, self._flows, (left, right), (at.pair.left, at.pair.right), strict=True
            )
        ]
        return make_reproducer(
            self._found, replace(self._at, at=at, left=parts[0], right=parts[1]), self._options.tolerance
        )


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
    parts = [part_of(side.model, flow, places, end.left) for side in found.sides]
    borders = tuple((item.name, item.name) for item in parts[0].inputs)
    at = Divergence(end, places, places, borders)
    return make_reproducer(found, Explained(at, parts[0], parts[1], None, None), 0.0)
