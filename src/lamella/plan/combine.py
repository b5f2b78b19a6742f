"""Variables that occur only together are one variable: in `(40·i + j) mod 3` nothing but 40·i + j matters.

The combination takes values in an interval, though perhaps not all of them; so an answer "nowhere" holds, and an
answer with a place holds when the place can be taken apart again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from lamella.lang.nem.resolved import Atom, Index, Operation, Variable
from lamella.plan.feasible import Box, Budget, solve


@dataclass(frozen=True, slots=True)
class Combined:
    """An index in fewer variables; each group of old ones, with factors, became the variable that names it."""

    index: Index
    box: Box
    groups: dict[int, dict[int, int]]

    def take_apart(self, values: dict[int, int], box: Box, budget: Budget) -> dict[int, int] | None:
        """The old variables at a place of the new ones; None where a combination cannot take its value."""
        found = dict(values)
        for name, factors in self.groups.items():
            target = found.pop(name)
            parts = solve(0, factors, box, target, target, budget)
            if parts is None:
                return None
            found |= parts
        return found


def combine(index: Index, box: Box) -> Combined | None:
    """The index with its combinations made variables; None where there are none."""
    columns: dict[int, list[int]] = {}
    for place, row in enumerate(_sums(index)):
        for variable, factor in row.items():
            column = columns.setdefault(variable, [])
            column += [0] * (place - len(column)) + [factor]
    groups: dict[tuple[int, ...], dict[int, int]] = {}
    for variable, column in columns.items():
        scale = gcd(*column) * (1 if next(filter(None, column)) > 0 else -1)
        groups.setdefault(tuple(factor // scale for factor in column), {})[variable] = scale
    joined = {min(group): group for group in groups.values() if len(group) > 1}
    if not joined:
        return None
    members = {variable for group in joined.values() for variable in group}
    kept = {variable: ends for variable, ends in box.items() if variable not in members}
    ranges = {name: _range(group, box) for name, group in joined.items()}
    return Combined(_rewrite(index, joined, members), {**kept, **ranges}, joined)


def _sums(index: Index) -> Iterator[dict[int, int]]:
    """The linear part of an index, then those of the sides of its operations."""
    yield {atom.loop: factor for atom, factor in index.terms if isinstance(atom, Variable)}
    for atom, _ in index.terms:
        if isinstance(atom, Operation):
            yield from _sums(atom.left)
            yield from _sums(atom.right)


def _range(group: dict[int, int], box: Box) -> tuple[int, int]:
    low = sum(factor * box[variable][factor < 0] for variable, factor in group.items())
    return low, sum(factor * box[variable][factor > 0] for variable, factor in group.items())


def _rewrite(index: Index, joined: dict[int, dict[int, int]], members: set[int]) -> Index:
    """Each group is told by the variable that names it; the other members are gone."""
    terms: list[tuple[Atom, int]] = []
    for atom, factor in index.terms:
        if isinstance(atom, Operation):
            sides = _rewrite(atom.left, joined, members), _rewrite(atom.right, joined, members)
            terms.append((Operation(atom.sign, *sides), factor))
        elif atom.loop not in members:
            terms.append((atom, factor))
        elif atom.loop in joined:
            terms.append((atom, factor // joined[atom.loop][atom.loop]))
    return Index(index.constant, tuple(terms))
