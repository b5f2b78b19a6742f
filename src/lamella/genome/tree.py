"""Trees from distances: by the nearest groups (UPGMA) or by neighbours, with how often resampled genes agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.records import dataclass
from lamella.genome.collection import distances

NOTHING = 1e-9
"""A length that only rounding makes."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A leaf, or branches; each with the length of the way to it."""

    leaves: frozenset[int]
    branches: tuple[Tree, ...] = ()
    length: float = 0.0
    height: float = field(default=0.0, compare=False)
    """How far below it the leaves lie, on the mean."""

    def newick(
        self, names: Sequence[str], support: Counter[frozenset[int]] | None = None, most: int = 1
    ) -> str:
        """The tree as other programs read it."""
        return f"{self._newick(names, support, most)};\n"

    def _newick(self, names: Sequence[str], support: Counter[frozenset[int]] | None, most: int) -> str:
        if not self.branches:
            (leaf,) = self.leaves
            quoted = names[leaf].replace("'", "''")
            return f"'{quoted}':{self.length:.6g}"
        inner = ",".join(item._newick(names, support, most) for item in self.branches)
        word = "" if support is None else f"{support[self.leaves] / most:.2f}"
        return f"({inner}){word}:{self.length:.6g}"

    def walk(self) -> Iterator[Tree]:
        """Every part of the tree, itself first."""
        yield self
        for item in self.branches:
            yield from item.walk()

    def outline(self, names: Sequence[str], before: str = "", own: str = "") -> Iterator[str]:
        """The tree as lines of text, with the ways to its leaves and groups."""
        words = f"{self.length:.3f}" if self.length else ""
        if not self.branches:
            (leaf,) = self.leaves
            yield f"{own}{names[leaf]}  {words}".rstrip()
            return
        yield f"{own}┐ {words}".rstrip()
        for place, item in enumerate(self.branches):
            last = place == len(self.branches) - 1
            yield from item.outline(
                names, before + ("  " if last else "│ "), before + ("└─" if last else "├─")
            )

    def between(self, count: int) -> Array:
        """The distances that the tree says: how long the way from leaf to leaf is."""
        found: Array = np.zeros((count, count))
        for part in self.walk():
            inside = np.isin(np.arange(count), list(part.leaves))
            found += part.length * (inside[:, None] != inside[None, :])
        return found


def grow(apart: Array) -> Tree:
    """The tree that joins the nearest groups first, groups being as far apart as their leaves on the mean (UPGMA)."""
    parts = {number: Tree(frozenset([number])) for number in range(len(apart))}
    table: Array = apart.astype(float).copy()
    np.fill_diagonal(table, np.inf)
    while len(parts) > 1:
        one, other = sorted(map(int, np.unravel_index(int(table.argmin()), table.shape)))
        height = float(table[one, other]) / 2
        branches = tuple(_hang(parts[item], height - parts[item].height) for item in (one, other))
        sizes = [len(item.leaves) for item in branches]
        row = (table[one] * sizes[0] + table[other] * sizes[1]) / sum(sizes)
        table[one], table[:, one] = row, row
        table[one, one] = np.inf
        table[other], table[:, other] = np.inf, np.inf
        parts[one] = Tree(branches[0].leaves | branches[1].leaves, branches, 0.0, height)
        del parts[other]
    return _flattened(next(iter(parts.values())))


def join_neighbours(apart: Array) -> Tree:
    """The tree of neighbour joining: of distances that a tree says it is that tree; its root means nothing."""
    parts = {number: Tree(frozenset([number])) for number in range(len(apart))}
    table = {(a, b): float(apart[a, b]) for a in parts for b in parts}
    while len(parts) > 2:
        names = list(parts)
        sums = {a: sum(table[a, b] for b in names) for a in names}
        count = len(names)
        one, other = min(
            ((a, b) for place, a in enumerate(names) for b in names[:place]),
            key=lambda pair: (count - 2) * table[pair] - sums[pair[0]] - sums[pair[1]],
        )
        gap = table[one, other]
        first = gap / 2 + (sums[one] - sums[other]) / (2 * (count - 2))
        branches = (_hang(parts[one], max(first, 0.0)), _hang(parts[other], max(gap - first, 0.0)))
        for item in names:
            if item not in (one, other):
                way = (table[one, item] + table[other, item] - gap) / 2
                table[one, item] = table[item, one] = way
        parts[one] = Tree(branches[0].leaves | branches[1].leaves, branches)
        del parts[other]
    if len(parts) == 1:
        return next(iter(parts.values()))
    (a, left), (b, right) = parts.items()
    way = table[a, b] / 2
    return _flattened(Tree(left.leaves | right.leaves, (_hang(left, way), _hang(right, way))))


METHODS: dict[str, Callable[[Array], Tree]] = {"upgma": grow, "nj": join_neighbours}


def _hang(tree: Tree, length: float) -> Tree:
    return Tree(tree.leaves, tree.branches, length, tree.height)


def _flattened(tree: Tree) -> Tree:
    """The tree without branches of no length: what is equally far apart hangs at one place."""
    found: list[Tree] = []
    for item in map(_flattened, tree.branches):
        found += item.branches if item.branches and item.length < NOTHING else (item,)
    return Tree(tree.leaves, tuple(found), tree.length, tree.height)


def agreement(apart: Array, tree: Tree) -> float:
    """How well the distances of a tree follow those that it was made of: their (cophenetic) correlation."""
    upper = np.triu_indices(len(apart), 1)
    one, other = apart[upper], tree.between(len(apart))[upper]
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return 1.0
    return float(np.corrcoef(one, other)[0, 1])


def count_support(
    presence: Sequence[npt.NDArray[np.bool_]], method: Callable[[Array], Tree], rounds: int, seed: int
) -> Counter[frozenset[int]]:
    """In how many trees of resampled genes each group of leaves is a branch (bootstrap)."""
    generator = np.random.default_rng(seed)
    found: Counter[frozenset[int]] = Counter()
    for _ in range(rounds):
        weights = [
            generator.multinomial(rows.shape[1], np.full(rows.shape[1], 1 / rows.shape[1])).astype(float)
            for rows in presence
        ]
        found.update({part.leaves for part in method(distances(presence, weights)).walk()})
    return found
