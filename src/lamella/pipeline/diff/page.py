"""A comparison as one HTML page that needs nothing else: the left graph coloured by error, and the table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from lamella.base.diagnostic import printable
from lamella.base.page import article, table, text
from lamella.pipeline.diff.comparison import LONGEST, Comparison
from lamella.pipeline.diff.flow import Dataflow, word_of
from lamella.pipeline.diff.pairing import Pair
from lamella.pipeline.diff.report import divergence_lines

MOST_NODES = 1500
MOST_ROWS = 5000
WIDTH, HEIGHT, GAP = 190, 34, 22
LETTERS = 29
"""Letters that a box has room for."""
STYLE = "svg.flow text { font-size: 11px; fill: #14171b } svg.flow line { stroke: var(--soft) }\n"
STYLE += ".first { stroke: #b91c1c; stroke-width: 3 }\n"


def page_of(found: Comparison, tolerance: float) -> str:
    """The whole page."""
    pairs = {pair.left: pair for pair in found.pairs}
    parts = ["<h2>First divergence</h2>", f"<pre>{_lines(_divergence(found, tolerance))}</pre>"]
    parts += ["<h2>Graph of the left side</h2>", *_graph(found, pairs, tolerance)]
    parts += ["<h2>Tensors</h2>", _table(found, tolerance)]
    return article(f"lamella diff {_title(found)}", (f"{part}\n" for part in parts), STYLE)


def _title(found: Comparison) -> str:
    """What is compared with what: two models, or one on two backends."""
    names = [side.model.graph.name for side in found.sides]
    ways = [side.backend for side in found.sides]
    if names[0] == names[1]:
        return f"{names[0]}: {ways[0]} | {ways[1]}" if ways[0] != ways[1] else f"{names[0]}: two models"
    return f"{names[0]} | {names[1]}"


def _lines(written: str) -> str:
    return "\n".join(text(line, 2000) for line in written.splitlines())


def _divergence(found: Comparison, tolerance: float) -> str:
    if found.diverging is not None:
        return "\n".join(divergence_lines(found.diverging))
    if found.unlike:
        return f"not compared: {found.unlike}"
    return "none" if found.agrees(tolerance) else "\n".join(found.notes)


def colour_of(pair: Pair | None, tolerance: float) -> str:
    """Green where a tensor agrees, from yellow to red the more it differs, grey where nothing corresponds."""
    if pair is None:
        return "#d1d5db"
    if pair.gap.relative <= tolerance:
        return "#86efac" if pair.gap.relative else "#bbf7d0"
    above = math.log10(min(pair.gap.relative / max(tolerance, 1e-12), 1e6)) / 6
    return f"hsl({int(50 - 50 * min(above, 1.0))}, 90%, 65%)"


def _graph(found: Comparison, pairs: Mapping[str, Pair], tolerance: float) -> Iterator[str]:
    """The nodes by layers: each below all that it reads."""
    flow = Dataflow(found.sides[0].model.graph)
    if len(flow.nodes) > MOST_NODES:
        yield f"<p>The graph has {len(flow.nodes)} operations; the table shows them.</p>"
        return
    places = _places(flow)
    columns = max((column for column, _ in places), default=0) + 1
    rows = max((row for _, row in places), default=0) + 1
    size = columns * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    yield f'<div class="scroll"><svg class="flow" width="{size[0]}" height="{size[1]}" role="img">'
    for place, operands in enumerate(flow.operands):
        for name in operands:
            if name in flow.maker:
                yield _edge(places[flow.maker[name]], places[place])
    first = None if found.diverging is None else found.diverging.at.pair.left
    for place, node in enumerate(flow.nodes):
        results = flow.results(place)
        pair = next((pairs[name] for name in results if name in pairs), None)
        named = found.diverging is not None and found.diverging.operation is node
        yield _box(places[place], word_of(node), results, pair, tolerance, named or first in results)
    yield "</svg></div>"


def _places(flow: Dataflow) -> list[tuple[int, int]]:
    """A column and a row for each node."""
    depth: list[int] = []
    used: dict[int, int] = {}
    found = []
    for operands in flow.operands:
        row = max((depth[flow.maker[name]] + 1 for name in operands if name in flow.maker), default=0)
        depth.append(row)
        found.append((used.get(row, 0), row))
        used[row] = used.get(row, 0) + 1
    return found


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return GAP + place[0] * (WIDTH + GAP), GAP + place[1] * (HEIGHT + GAP)


def _edge(one: tuple[int, int], other: tuple[int, int]) -> str:
    (x1, y1), (x2, y2) = _corner(one), _corner(other)
    half = WIDTH // 2
    return f'<line x1="{x1 + half}" y1="{y1 + HEIGHT}" x2="{x2 + half}" y2="{y2}"/>'


def _box(
    place: tuple[int, int], word: str, results: list[str], pair: Pair | None, tolerance: float, is_first: bool
) -> str:
    x, y = _corner(place)
    name = printable(", ".join(results), 200)
    tip = "nothing corresponds" if pair is None else _tip(pair)
    mark = ' class="first"' if is_first else ""
    return (
        f'<g><title>{text(name)}: {text(tip)}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5"'
        f' fill="{colour_of(pair, tolerance)}"{mark}/><text x="{x + 6}" y="{y + 14}">{text(word[:LETTERS])}</text>'
        f'<text x="{x + 6}" y="{y + 28}">{text(_end_of(results))}</text></g>'
    )


def _end_of(results: list[str]) -> str:
    """The first of some names, cut where it is like others: at its beginning."""
    name = printable(next(iter(results), ""), 200)
    return name if len(name) <= LETTERS else f"…{name[1 - LETTERS :]}"


def _tip(pair: Pair) -> str:
    gap = pair.gap
    return f"max |Δ| {gap.largest:.3g}, relative {gap.relative:.3g}, cosine {gap.cosine:.6f}"


def _table(found: Comparison, tolerance: float) -> str:
    heads = ("tensor", "right", "paired by", "max |Δ|", "relative", "cosine")
    return table(heads, (_row(pair, tolerance) for pair in found.pairs[:MOST_ROWS]))


def _row(pair: Pair, tolerance: float) -> list[str]:
    gap = pair.gap
    fill = f'<rect width="10" height="10" rx="3" fill="{colour_of(pair, tolerance)}"/>'
    first = f'<svg class="dot" viewBox="0 0 10 10">{fill}</svg>{text(pair.left, LONGEST)}'
    numbers = (f"{gap.largest:.3g}", f"{gap.relative:.3g}", f"{gap.cosine:.6f}")
    return [first, text(pair.right, LONGEST), text(pair.evidence), *numbers]
