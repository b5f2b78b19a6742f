"""A tree of models as a page: a drawing, and a table of distances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from lamella.base.arrays import Array
from lamella.base.page import article, table, text
from lamella.genome.tree import Tree

ROW, WIDTH, LEFT = 24, 560, 12
"""Pixels of a leaf, of the longest way, and before the root."""
SURE = 0.8
"""The part of the resampled trees from which on a branch is sure."""
STYLE = """
.tree { display: block; max-width: 100%; height: auto; }
.tree path { fill: none; stroke: var(--ink, currentColor); stroke-width: 1.5; }
.tree .unsure { stroke-dasharray: 4 3; }
.tree text { font: 13px system-ui, sans-serif; fill: currentColor; }
.tree .support { font-size: 10px; opacity: .75; }
"""


def tree_page(
    names: Sequence[str], tree: Tree, apart: Array, support: Counter[frozenset[int]], rounds: int, words: str
) -> str:
    """The page of a tree."""
    drawn = "".join(_draw(names, tree, support, rounds))
    heads = ["", *(text(item) for item in names)]
    rows = [[text(name), *(f"{value:.3f}" for value in apart[place])] for place, name in enumerate(names)]
    note = (
        "<p>Ways are as long as models are apart. A number says which part of the trees of resampled genes has the "
        f"branch; those below {SURE:.0%} are dashed.</p>"
    )
    body = [f"<p>{text(words, 1000)}</p>", drawn, note, "<h2>Distances</h2>", table(heads, rows)]
    return article("lamella genome: models by what they compute", body, STYLE)


def _draw(names: Sequence[str], tree: Tree, support: Counter[frozenset[int]], rounds: int) -> Iterator[str]:
    deepest = max(_ways(tree, 0.0)) or 1.0
    scale = WIDTH / deepest
    longest = max(map(len, names), default=0)
    width, height = LEFT + WIDTH + 8 * longest + 40, ROW * (len(names) + 1)
    yield (
        f'<svg class="tree" role="img" aria-label="tree of {len(names)} models" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">'
    )
    rows = iter(range(1, len(names) + 1))
    yield from _part(tree, LEFT, scale, rows, names, support, rounds)[1]
    yield "</svg>"


def _ways(tree: Tree, before: float) -> Iterator[float]:
    here = before + tree.length
    if not tree.branches:
        yield here
    for item in tree.branches:
        yield from _ways(item, here)


def _part(
    tree: Tree,
    x: float,
    scale: float,
    rows: Iterator[int],
    names: Sequence[str],
    support: Counter[frozenset[int]],
    rounds: int,
) -> tuple[float, list[str]]:
    """Where a part of the tree lies, and its drawing."""
    end = x + tree.length * scale
    if not tree.branches:
        (leaf,) = tree.leaves
        y = float(next(rows) * ROW)
        words = f'<text x="{end + 6:.1f}" y="{y + 4:.1f}">{text(names[leaf], 80)}</text>'
        return y, [f'<path d="M{x:.1f} {y:.1f}H{end:.1f}"/>', words]
    inner = [_part(item, end, scale, rows, names, support, rounds) for item in tree.branches]
    ys = [y for y, _ in inner]
    y = sum(ys) / len(ys)
    part = support[tree.leaves] / max(1, rounds)
    sure = "" if part >= SURE else ' class="unsure"'
    drawn = [f'<path{sure} d="M{x:.1f} {y:.1f}H{end:.1f}M{end:.1f} {ys[0]:.1f}V{ys[-1]:.1f}"/>']
    if tree.length * scale > 30:
        drawn.append(f'<text class="support" x="{end - 26:.1f}" y="{y - 4:.1f}">{part:.2f}</text>')
    return y, drawn + [line for _, lines in inner for line in lines]
