"""Refinement of a divergence between several operations: tensors of the left are put in place of tensors of the right.

Where the right side then agrees with the left, the two correspond and the fault is before them, whatever operators are
around. This finds the operation where both sides are written in other parts and no structure is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

from lamella.base.arrays import Array
from lamella.pipeline.diff.causes import Case
from lamella.pipeline.diff.divergence import Divergence
from lamella.pipeline.diff.flow import Dataflow, cut_part
from lamella.pipeline.diff.gap import measure
from lamella.pipeline.diff.pairing import Pair

MOST_NODES = 40
"""Operations of one side up to which tensors are tried in each other's place."""
MOST_TRIED = 64
"""Combinations of tensors that are tried for one operation."""


def refine(at: Divergence, case: Case, flows: tuple[Dataflow, ...]) -> Divergence | None:
    """The divergence at the first operation of the left whose results would repair the right; None where none do."""
    left, right = flows
    if not (1 < len(at.left) <= MOST_NODES and 1 < len(at.right) <= MOST_NODES):
        return None
    for place in at.left:
        results = [name for name in left.results(place) if name in case.left.values]
        if not results or at.pair.left in results:
            continue
        for partners in islice(_candidates(results, at, case, right), MOST_TRIED):
            changed = {
                other: case.left.values[one] for one, other in zip(results, partners, strict=True) if other
            }
            if changed and case.explains(_repaired(at, case, right, changed)):
                pairs = [pair for pair in zip(results, partners, strict=True) if pair[1]]
                return _between(at, case, flows, pairs)
    return None


def _candidates(
    results: Sequence[str], at: Divergence, case: Case, right: Dataflow
) -> Iterator[tuple[str, ...]]:
    """Tensors of the right, one for each result of an operation; results that nothing can stand for have none."""
    made = [name for place in at.right for name in right.results(place) if name != at.pair.right]
    shapes = {name: case.right.values[name].shape for name in made if name in case.right.values}
    rows = [[name for name in shapes if shapes[name] == case.left.values[one].shape] for one in results]
    for row in product(*(row or [""] for row in rows)):
        named = [name for name in row if name]
        if named and len(set(named)) == len(named):
            yield row


def _repaired(at: Divergence, case: Case, right: Dataflow, changed: Mapping[str, Array]) -> Array | None:
    """What the right side gives with tensors of the left in the place of its own."""
    places = [place for place in at.right if not any(name in changed for name in right.results(place))]
    part = cut_part(case.right.part.model, right, places, at.pair.right)
    return part.run({**case.right.values, **changed})


def _between(
    at: Divergence, case: Case, flows: tuple[Dataflow, ...], pairs: Sequence[tuple[str, str]]
) -> Divergence:
    """The divergence at the first of some corresponding tensors that differs."""
    gaps = [measure(one, case.left.values[one], case.right.values[other]) for one, other in pairs]
    (one, other), gap = next(
        (item for item in zip(pairs, gaps, strict=True) if item[1].relative > case.tolerance),
        (pairs[0], gaps[0]),
    )
    stops = {name for pair in at.borders for name in pair}
    left, mine = flows[0].behind([one], stops)
    right, theirs = flows[1].behind([other], stops)
    borders = tuple(pair for pair in at.borders if pair[0] in mine or pair[1] in theirs)
    return Divergence(Pair(one, other, "intervention", gap), tuple(left), tuple(right), borders)
