"""Two models beside each other: both run once on the same inputs, and the first tensor that parts is explained.

A divergence between several operations is refined: tensors of the left are put in place of tensors of the right. Where
the right side then agrees with the left, the two correspond and the fault is before them, whatever operators are
around. This finds the operation where both sides are written in other parts and no structure is shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

import numpy as np

from lamella.base.arrays import Array
from lamella.base.card import Card, make_table, show_html, show_line
from lamella.base.diagnostic import printable
from lamella.base.dim import Extent, bounds
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Node, Operation, Tensor
from lamella.pipeline.diff.causes import Case, Cause, Computation, find_missing, infer
from lamella.pipeline.diff.divergence import Divergence, DivergenceFinder, steepest
from lamella.pipeline.diff.flow import Dataflow, Subgraph, cut_part, listed, without_copies
from lamella.pipeline.diff.gap import Gap, measure, numbers_of
from lamella.pipeline.diff.inside import control_flow, find_body
from lamella.pipeline.diff.pairing import Pair, Pairing, SideView
from lamella.pipeline.diff.sides import Side
from lamella.pipeline.diff.values import (
    Ends,
    constant_values,
    draw_inputs,
    match_ends,
    results_of_side,
    values_of,
)
from lamella.pipeline.options import Options

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


DEFAULT_TOLERANCE = Options().tolerance
LISTED = 4
"""Variables that are listed by name where only one model has them; of more, only the number is given."""
FAINT = 0.02
"""Inputs of a divergence that differ by more than this part of the tolerance hint at errors that build up."""
UNFUSED = (None, "reference", "nacvm")
"""Backends whose numbers do not depend on which tensors are looked at."""
ONLY_FUSED = (
    "the results differ only where operations are fused, no operation alone does; --reduce cuts them out"
)
LONGEST = 120
"""Characters of a name or a type that are printed: extents may be long equations."""
MOST_STEPS = 256
"""Operations that are computed alone, to see which of them adds the error."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A divergence with the operations that compute it on both sides, and why they differ."""

    at: Divergence
    left: Subgraph
    right: Subgraph
    left_operation: Node | None
    right_operation: Node | None
    causes: tuple[Cause, ...] = ()
    builds_up: bool = False
    """Whether no single operation differs by more than the tolerance."""
    inside: InnerComparison | None = None
    """The comparison of the bodies, where a loop or a branch differs."""

    @property
    def gap(self) -> Gap:
        """How far the results are apart."""
        return self.at.pair.gap

    @property
    def operation(self) -> Node | None:
        """The operation that is named: of the left side where it has one."""
        return self.left_operation or self.right_operation


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two models have in common and what not; numbers only where both take the same inputs."""

    sides: tuple[Side, Side]
    interface: tuple[str, ...]
    weights: tuple[Gap, ...]
    pairs: tuple[Pair, ...] = ()
    only: tuple[tuple[Node, ...], tuple[Node, ...]] = ((), ())
    """Operations of one side that nothing of the other corresponds to."""
    outputs: tuple[Gap, ...] = ()
    diverging: Explained | None = None
    others: int = 0
    """Further divergences whose inputs agree."""
    unlike: str = ""
    """Why nothing was run; empty where both were."""
    values: tuple[Mapping[str, Array], Mapping[str, Array]] = ({}, {})
    flows: tuple[Dataflow, ...] = ()
    """Both graphs without operations that only copy; empty where nothing was run."""
    notes: tuple[str, ...] = ()
    tolerance: float = DEFAULT_TOLERANCE
    """What the outputs were allowed to differ by, in parts of the largest number."""

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """The outputs, how many operations were paired, and the first that diverges."""
        ways = " | ".join(side.way for side in self.sides)
        gaps = (f"{item.name} differs by {item.largest:.3g} of {item.scale:.3g}" for item in self.outputs)
        first = (
            () if self.diverging is None else (("diverges", f"first at {self.diverging.at.pair.gap.name}"),)
        )
        facts = (
            ("ways", self.unlike or ways),
            ("pairs", f"{len(self.pairs):,}"),
            ("outputs", "; ".join(gaps)),
            *first,
        )
        rows = (
            (item.gap.name, f"{item.gap.largest:.3g}", f"{item.gap.relative:.3g}", f"{item.gap.cosine:.6f}")
            for item in self.pairs
        )
        table = make_table("pairs", ("tensor", "max |Δ|", "relative", "cosine"), rows, len(self.pairs))
        return Card("comparison of", self.sides[0].model.graph.name, facts, (table,))

    @property
    def compared(self) -> bool:
        """Whether both were run."""
        return not self.unlike

    def __bool__(self) -> bool:
        """Whether the two are equivalent: both were run, and their outputs agree within the tolerance."""
        return self.agrees(self.tolerance)

    def agrees(self, tolerance: float) -> bool:
        """Whether both were run and their outputs are the same within a tolerance; other code may be in between."""
        return self.compared and all(item.relative <= tolerance for item in self.outputs)


@dataclass(frozen=True, slots=True)
class InnerComparison:
    """The body of a loop or a branch that differs, compared by itself: one step of it, on inputs of the left."""

    where: str
    comparison: Comparison


def deepest(found: Comparison) -> Comparison:
    """The comparison that names the operation: that of the innermost body where loops and branches differ."""
    while found.diverging is not None and found.diverging.inside is not None:
        found = found.diverging.inside.comparison
    return found


def compare(
    left: Side, right: Side, options: Options, given: Mapping[str, Array] | None = None
) -> Comparison:
    """The differences of two models, and of their numbers on the same inputs: given ones, or drawn from the seed."""
    graphs = left.model.graph, right.model.graph
    found = Comparison(
        (left, right),
        tuple(_compare_interfaces(*graphs)),
        tuple(_compare_weights(left.model, right.model)),
        tolerance=options.tolerance,
    )
    ends = match_ends(*graphs)
    if ends.unlike:
        return replace(found, unlike=ends.unlike)
    inputs = draw_inputs(left.model, ends, options, given)
    views = [
        _observe(side, [pair[place] for pair in ends.outputs], options, inputs[place])
        for place, side in enumerate((left, right))
    ]
    pairing = Pairing(views[0].view, views[1].view, _canonical(ends, views))
    pairs = pairing.pairs()
    finder = DivergenceFinder(pairing, pairs, options.tolerance)
    found = replace(
        found,
        pairs=tuple(pairs),
        only=_only(pairing),
        values=(views[0].view.values, views[1].view.values),
        flows=(pairing.left.flow, pairing.right.flow),
    )
    found = _with_results(found, ends.outputs, options, inputs)
    divergences = finder.all()
    if not divergences:
        return found
    explained = _look_inside(found, _explain(found, pairing, finder, divergences, options), options)
    return replace(found, diverging=explained, others=len(divergences) - 1)


@dataclass(frozen=True, slots=True)
class _Observed:
    """A side with what all its tensors hold in one run, and what stands for those that are copies."""

    view: SideView
    sources: Mapping[str, Tensor]


def _observe(side: Side, ends: Sequence[Tensor], options: Options, inputs: Mapping[str, Array]) -> _Observed:
    """A side with what all its tensors hold in one run; operations that only copy are left out of its dataflow."""
    flow = Dataflow(side.model.graph)
    made = {item.name: item for item in (*flow.made(), *ends) if item.name not in flow.inputs}
    values = values_of(side, made.values(), options, inputs)
    known = {**constant_values(flow.graph, options, inputs), **inputs, **(side.model.data or {}), **values}
    graph, sources = without_copies(side.model, known)
    return _Observed(SideView(Dataflow(graph), known), sources)


def _canonical(ends: Ends, sides: Sequence[_Observed]) -> Ends:
    """The ends with what stands for those that are copies."""
    outputs = tuple(
        (sides[0].sources.get(one.name, one), sides[1].sources.get(other.name, other))
        for one, other in ends.outputs
    )
    return replace(ends, outputs=outputs)


def _only(pairing: Pairing) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The operations of both sides none of whose results corresponds to anything."""
    left, right = pairing.left.flow, pairing.right.flow
    return (
        tuple(
            node
            for place, node in enumerate(left.nodes)
            if not any(name in pairing.partner for name in left.results(place))
        ),
        tuple(
            node
            for place, node in enumerate(right.nodes)
            if not any(name in pairing.back for name in right.results(place))
        ),
    )


def _with_results(
    found: Comparison,
    ends: Sequence[tuple[Tensor, Tensor]],
    options: Options,
    inputs: tuple[Mapping[str, Array], Mapping[str, Array]],
) -> Comparison:
    """The comparison with its results, of backends as they run: looking at every tensor keeps operations apart."""
    seen = tuple(
        measure(one.name, found.values[0][one.name], found.values[1][other.name]) for one, other in ends
    )
    plain = [
        values if side.backend in UNFUSED else {**values, **results_of_side(side, options, given)}
        for side, values, given in zip(found.sides, found.values, inputs, strict=True)
    ]
    outputs = tuple(measure(one.name, plain[0][one.name], plain[1][other.name]) for one, other in ends)
    agree = [all(item.relative <= options.tolerance for item in items) for items in (seen, outputs)]
    note = [] if agree[1] or not agree[0] else [ONLY_FUSED]
    note += [
        f"output {printable(one.name)}: no number of it is finite on either side, so that nothing is compared"
        for one, other in ends
        if _is_lost(plain[0][one.name]) and _is_lost(plain[1][other.name])
    ]
    return replace(found, outputs=outputs, notes=(*found.notes, *note))


def _is_lost(array: Array) -> bool:
    """Whether an array has numbers and all of them are NaN or infinite."""
    return bool(array.size) and not np.isfinite(numbers_of(array)).any()


# --- the first divergence -----------------------------------------------------------------------------------


def _explain(
    found: Comparison,
    pairing: Pairing,
    finder: DivergenceFinder,
    divergences: Sequence[Divergence],
    options: Options,
) -> Explained:
    """The first divergence and its causes; where errors build up, the operation that adds most."""
    first = divergences[0]
    steep = _steepest(found, pairing, finder, first, options)
    chosen = first if steep is None else steep
    case = _case(found, pairing, chosen, options)
    causes = tuple(find_missing(case))
    finer = None if causes else refine(chosen, case, found.flows)
    if finer is not None:
        chosen, case = finer, _case(found, pairing, finer, options)
    causes = infer(case)
    parts = case.left.part, case.right.part
    named = [_named(part, causes) for part in parts]
    builds_up = steep is not None and chosen.pair.gap.relative <= options.tolerance
    return Explained(chosen, parts[0], parts[1], named[0], named[1], causes, builds_up)


def _look_inside(found: Comparison, at: Explained, options: Options) -> Explained:
    """A divergence of a loop or a branch with what differs inside of it."""
    flows = [
        control_flow(side, part, values)
        for side, part, values in zip(found.sides, (at.left, at.right), found.values, strict=True)
    ]
    body = None if flows[0] is None or flows[1] is None else find_body(flows[0], flows[1], options)
    if body is None:
        return at
    if isinstance(body, str):
        return replace(at, causes=(Cause("control flow", body),))
    inner = compare(*body.sides, replace(options, shape={}), body.inputs)
    if inner.diverging is not None:
        return replace(at, inside=InnerComparison(body.where, inner))
    note = f"no step differs by itself; beyond the tolerance since {body.where}"
    return at if at.causes else replace(at, causes=(Cause("builds up", note),))


def _case(found: Comparison, pairing: Pairing, at: Divergence, options: Options) -> Case:
    """Both computations of a divergence."""
    parts = _parts(found, pairing, at)
    left, right = (Computation(part, values) for part, values in zip(parts, found.values, strict=True))
    return Case(left, right, at.borders, options.tolerance)


def _parts(found: Comparison, pairing: Pairing, at: Divergence) -> tuple[Subgraph, Subgraph]:
    left, right = found.sides
    one = cut_part(left.model, pairing.left.flow, at.left, at.pair.left)
    other = cut_part(right.model, pairing.right.flow, at.right, at.pair.right)
    return one, other


def _named(part: Subgraph, causes: Sequence[Cause]) -> Node | None:
    """The operation of a part that a cause is about, else the one that makes the tensor."""
    for cause in causes:
        if cause.operation is not None and any(cause.operation is node for node in part.nodes):
            return cause.operation
    if any(cause.operation is not None for cause in causes):
        return None
    return part.nodes[-1] if part.nodes else None


def _steepest(
    found: Comparison, pairing: Pairing, finder: DivergenceFinder, first: Divergence, options: Options
) -> Divergence | None:
    """Where inputs of a divergence differ faintly, the earlier operation that by itself differs most.

    Each is computed on the right with the numbers of the left; one run of every operation before the divergence.
    """
    by_left = {pair.left: pair for pair in found.pairs}
    faint = max((by_left[one].gap.relative for one, _ in first.borders if one in by_left), default=0.0)
    if faint <= FAINT * options.tolerance:
        return None
    left, right = pairing.left.flow, pairing.right.flow
    places, _ = left.behind([first.pair.left], ())
    pairs = [by_left[name] for place in places for name in left.results(place) if name in by_left][
        -MOST_STEPS:
    ]
    steps: dict[str, float] = {}
    for pair in pairs:
        place = right.maker.get(pair.right)
        if place is None or pair.gap.relative == 0.0:
            continue
        part = cut_part(found.sides[1].model, right, [place], pair.right)
        got = part.run({**found.values[1], **_from_left(pairing, found, part)})
        if got is not None and got.shape == found.values[0][pair.left].shape:
            steps[pair.left] = measure("", found.values[0][pair.left], got).relative
    chosen = steepest(pairs, steps)
    if chosen is None or chosen.left == first.pair.left:
        return None
    return finder.region(chosen)


def _from_left(pairing: Pairing, found: Comparison, part: Subgraph) -> dict[str, Array]:
    """The operands of a part of the right side as the left computed them, where their layout is the same."""
    values: dict[str, Array] = {}
    for item in part.inputs:
        partner = pairing.back.get(item.name)
        mine = found.values[0].get(partner) if partner is not None else None
        theirs = found.values[1].get(item.name)
        if (
            mine is not None
            and theirs is not None
            and mine.shape == theirs.shape
            and mine.dtype == theirs.dtype
        ):
            values[item.name] = mine
    return values


# --- interfaces and weights ---------------------------------------------------------------------------------


def _compare_interfaces(left: Graph, right: Graph) -> Iterator[str]:
    for what in ("inputs", "outputs", "variables"):
        one, other = (_types(getattr(graph, what)) for graph in (left, right))
        differing = [name for name in one | other if one.get(name) != other.get(name)]
        absent = [name for name in differing if name not in one or name not in other]
        if what == "variables" and len(absent) > LISTED:
            yield f"variables: {len(one.keys() - other)} only left, {len(other.keys() - one)} only right"
            differing = [name for name in differing if name in one and name in other]
        for name in differing:
            sides = (one.get(name, "absent"), other.get(name, "absent"))
            yield f"{what[:-1]} {printable(name, LONGEST)}: " + " | ".join(
                printable(item, LONGEST) for item in sides
            )


def _types(arguments: tuple[Argument, ...]) -> dict[str, str]:
    return {item.name: f"{item.element}[{', '.join(map(_extent, item.shape))}]" for item in listed(arguments)}


def _extent(extent: Extent) -> str:
    """An extent with its range where it is open: two of one name may differ in that alone."""
    low, high = bounds(extent)
    return str(extent) if low == high else f"{extent} of {low} to {high}"


def _compare_weights(left: Model, right: Model) -> Iterator[Gap]:
    """Variables of both models whose numbers differ."""
    one, other = left.data or {}, right.data or {}
    for name in one:
        if name in other and one[name] is not other[name]:
            gap = measure(name, np.asarray(one[name]), np.asarray(other[name]))
            if gap.largest or gap.types:
                yield gap


def operations_of(found: Comparison) -> tuple[int, int, int]:
    """How many operations both sides have, and how many only the left and the right."""
    left, right = found.only
    total = sum(isinstance(node, Operation) for node in found.sides[0].model.graph.nodes)
    counts = [sum(isinstance(node, Operation) for node in side) for side in (left, right)]
    return total - counts[0], counts[0], counts[1]
