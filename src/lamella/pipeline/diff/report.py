"""A comparison as people read it, and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from lamella.base.diagnostic import printable
from lamella.graph.nodes import Node
from lamella.pipeline.diff.comparison import LONGEST, Comparison, Explained, InnerComparison, operations_of
from lamella.pipeline.diff.flow import Subgraph, origin_words, word_of
from lamella.pipeline.diff.gap import Gap
from lamella.pipeline.diff.pairing import Pair

ROWS = 24
"""Pairs that are printed; of more, those that differ most, and those at the divergence."""
WIDEST = 36


def comparison_lines(found: Comparison, tolerance: float) -> Iterator[str]:
    """A comparison as people read it; the first model is the left one."""
    yield from found.interface
    ways = [side.way for side in found.sides]
    if any(side.backend or side.precision for side in found.sides):
        yield f"backends: {ways[0]} | {ways[1]}"
    for item in found.weights:
        yield f"weights {printable(item.name, LONGEST)}: {gap_words(item)}"
    if not found.compared:
        yield f"numbers: not compared, because {found.unlike}"
        return
    both, left, right = operations_of(found)
    yield f"operations: {both} in both, {left} only left, {right} only right"
    for word, operations in (("left", found.only[0]), ("right", found.only[1])):
        if operations:
            yield f"  only {word}: {printable(_count_operators(operations), 200)}"
    yield from _table(found, tolerance)
    for item in found.outputs:
        yield f"output {printable(item.name, LONGEST)}: {gap_words(item)}"
    yield from found.notes
    if found.diverging is not None:
        yield from divergence_lines(found.diverging)
        if found.others:
            yield f"  and {found.others} more, whose inputs agree too"


def gap_words(item: Gap) -> str:
    """How far two arrays are apart, in words."""
    if item.unlike:
        return item.unlike
    types = f" ({item.types})" if item.types else ""
    return f"max abs {item.largest:.3g}, of numbers up to {item.scale:.3g}{types}"


def _count_operators(operations: Sequence[Node]) -> str:
    """`2 × aten.add, 1 × aten.mul`: the most frequent ones first."""
    counts = Counter(map(word_of, operations)).most_common()
    return ", ".join(f"{number} × {name}" for name, number in counts)


def _table(found: Comparison, tolerance: float) -> Iterator[str]:
    """The pairs that differ at all, in order; of many those that differ most and the first that diverges."""
    made = {name: word_of(node) for node in found.sides[0].model.graph.nodes for name in _results(node)}
    pairs = [pair for pair in found.pairs if pair.left in made]
    differing = [pair for pair in pairs if pair.gap.relative > 0]
    if not differing:
        return
    shown = differing
    if len(differing) > ROWS:
        chosen = sorted(differing, key=lambda pair: -pair.gap.relative)[:ROWS]
        first = None if found.diverging is None else found.diverging.at.pair.left
        kept = {pair.left for pair in chosen} | {first}
        shown = [pair for pair in differing if pair.left in kept]
    yield f"{'tensor':<{WIDEST}} {'operator':<24} {'max |Δ|':>9} {'relative':>9} {'cosine':>9}  paired by"
    for pair in shown:
        yield _row(pair, made[pair.left], tolerance)
    rest = len(pairs) - len(shown)
    if rest:
        yield f"  and {rest} more that {'are equal' if len(shown) == len(differing) else 'differ less'}"


def _results(node: Node) -> Iterator[str]:
    for argument in node.outputs:
        items = argument if isinstance(argument, tuple) else (argument,)
        yield from (item.name for item in items if item is not None)


def _row(pair: Pair, operator: str, tolerance: float) -> str:
    gap = pair.gap
    name = printable(pair.left, WIDEST - 2)
    mark = " " if pair.agrees(tolerance) else "*"
    how = pair.evidence if not pair.layout.axes else f"{pair.evidence}, {pair.layout}"
    if pair.right != pair.left:
        how += f", as {printable(pair.right, WIDEST)}"
    numbers = f"{gap.largest:>9.2g} {gap.relative:>9.2g} {gap.cosine:>9.6f}"
    return f"{mark}{name:<{WIDEST - 1}} {printable(operator, 24):<24} {numbers}  {how}"


def divergence_lines(found: Explained) -> Iterator[str]:
    """The first divergence as people read it; inside of a loop or a branch, where it is one that differs."""
    place = ""
    while found.inside is not None and found.inside.comparison.diverging is not None:
        outer = "control flow" if found.operation is None else word_of(found.operation)
        place = f", in {found.inside.where} of {outer} -> {printable(found.gap.name, WIDEST)}{place}"
        found = found.inside.comparison.diverging
    gap, node = found.gap, found.operation
    what = "nothing" if node is None else word_of(node)
    how = gap.unlike or f"max abs {gap.largest:.3g}, relative {gap.relative:.3g}"
    yield f"first diverging operation: {what} -> {printable(gap.name, LONGEST)}{place}: {how}"
    if found.builds_up:
        yield "  no operation alone differs by more than the tolerance; this one adds most"
    for side, part, operation in (
        ("left", found.left, found.left_operation),
        ("right", found.right, found.right_operation),
    ):
        yield f"  {side}: {_part(part)}"
        words = () if operation is None else origin_words(operation.origin)
        yield from (f"  {side} from {printable(word, LONGEST)}" for word in words)
    for cause in found.causes:
        yield f"  cause: {cause.kind}: {printable(cause.sentence, 300)}"


def _part(part: Subgraph) -> str:
    """The operations of a part, the last ones of many."""
    words = [word_of(node) for node in part.nodes]
    text = ", ".join(words[-6:]) or "nothing"
    more = f"{len(words) - 6} operations, then " if len(words) > 6 else ""
    return f"{more}{text} -> {printable(part.output.name, LONGEST)}"


# --- data ---------------------------------------------------------------------------------------------------


def comparison_to_json(found: Comparison) -> dict[str, object]:
    """A comparison as data."""
    both, left, right = operations_of(found) if found.compared else (0, 0, 0)
    return {
        "interface": list(found.interface),
        "backends": [side.backend or "reference" for side in found.sides],
        "precisions": [side.precision or "f32" for side in found.sides],
        "weights": [gap_to_json(item) for item in found.weights],
        "operations": {"both": both, "left": left, "right": right},
        "pairs": [_pair_to_json(item) for item in found.pairs],
        "outputs": [gap_to_json(item) for item in found.outputs],
        "compared": found.compared,
        "notes": [*([found.unlike] if found.unlike else []), *found.notes],
        "first_diverging": None if found.diverging is None else explained_to_json(found.diverging),
    }


def _pair_to_json(pair: Pair) -> dict[str, object]:
    layout = {"layout": str(pair.layout)} if pair.layout.axes else {}
    return {**gap_to_json(pair.gap), "right": pair.right, "paired_by": pair.evidence, **layout}


def gap_to_json(item: Gap) -> dict[str, object]:
    """A gap as data; infinities, which JSON has not, are null."""
    found: dict[str, object] = {
        "name": item.name,
        "max_abs": _finite(item.largest),
        "scale": item.scale,
        "relative": _finite(item.relative),
        "cosine": item.cosine,
    }
    found |= {"unlike": item.unlike} if item.unlike else {}
    return {**found, "types": item.types} if item.types else found


def _finite(number: float) -> float | None:
    return number if number < float("inf") else None


def explained_to_json(found: Explained) -> dict[str, object]:
    """A divergence as data."""
    node = found.operation
    return {
        "operator": None if node is None else word_of(node),
        **gap_to_json(found.gap),
        "right": found.at.pair.right,
        "builds_up": found.builds_up,
        "left_operations": [word_of(item) for item in found.left.nodes],
        "right_operations": [word_of(item) for item in found.right.nodes],
        "origin": [] if node is None else list(origin_words(node.origin)),
        "causes": [{"kind": item.kind, "sentence": item.sentence} for item in found.causes],
        "inside": None if found.inside is None else _inside_to_json(found.inside),
    }


def _inside_to_json(found: InnerComparison) -> dict[str, object]:
    inner = found.comparison.diverging
    return {"where": found.where, "first_diverging": None if inner is None else explained_to_json(inner)}
