"""All pairs: few rows of levels in which any two levels of different factors stand together somewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import TypeAlias

Factors: TypeAlias = Mapping[str, Sequence[Hashable]]
Row: TypeAlias = dict[str, Hashable]
Legal: TypeAlias = Callable[[Row], bool]
Pair: TypeAlias = tuple[str, Hashable, str, Hashable]


def cover_pairs(factors: Factors, legal: Legal, seeds: Iterable[Row] = ()) -> list[Row]:
    """Rows that hold every pair that a legal row can hold, the same ones each time; each legal seed is in one, too.

    `legal` judges rows of which some factors are not chosen yet: it may refuse only what no choice can repair.
    """
    cover = _Cover(factors, legal, dict.fromkeys(_all_pairs(factors)))
    for seed in seeds:
        cover.grow(seed)
    while cover.open:
        first = next(iter(cover.open))
        cover.grow({first[0]: first[1], first[2]: first[3]})
        # a pair that no row can hold is not asked for again
        cover.open.pop(first, None)
    return cover.rows


def pairs_of(row: Row) -> Iterator[Pair]:
    """The pairs of a row, in the order of its factors."""
    for (one, first), (other, second) in combinations(row.items(), 2):
        yield one, first, other, second


def _all_pairs(factors: Factors) -> Iterator[Pair]:
    for one, other in combinations(factors, 2):
        for first, second in product(factors[one], factors[other]):
            yield one, first, other, second


@dataclass(slots=True)
class _Cover:
    """What is left to be covered."""

    factors: Factors
    legal: Legal
    open: dict[Pair, None]
    used: Counter[tuple[str, Hashable]] = field(default_factory=Counter)
    rows: list[Row] = field(default_factory=list)

    def grow(self, seed: Row) -> None:
        """Add a row with the levels of a seed, if there is one."""
        found = self.complete(seed)
        if found is None:
            return
        row = {name: found[name] for name in self.factors}
        for pair in pairs_of(row):
            self.open.pop(pair, None)
        self.used.update(row.items())
        self.rows.append(row)

    def complete(self, row: Row) -> Row | None:
        """A legal row with these levels and as many open pairs as one step after the other finds."""
        if not self.legal(row):
            return None
        name = next((name for name in self.factors if name not in row), None)
        if name is None:
            return row
        levels = sorted(self.factors[name], key=lambda level: self._worth(row, name, level))
        found = (self.complete({**row, name: level}) for level in levels)
        return next((item for item in found if item is not None), None)

    def _worth(self, row: Row, name: str, level: Hashable) -> tuple[int, int]:
        order = list(self.factors)
        place = order.index(name)
        gain = 0
        for other, chosen in row.items():
            before = order.index(other) < place
            gain += ((other, chosen, name, level) if before else (name, level, other, chosen)) in self.open
        return -gain, self.used[name, level]
