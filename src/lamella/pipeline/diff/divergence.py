"""The first divergence of two runs: tensors that correspond and differ, computed from tensors that agree."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from lamella.base.arrays import Array
from lamella.pipeline.diff.pairing import Pair, Pairing, SideView, is_plain

STEEP = 0.5
"""A step that adds at least this part of the largest error of one step is taken for the cause of what builds up."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Corresponding tensors that differ, and the nodes that compute each from tensors that agree."""

    pair: Pair
    left: tuple[int, ...]
    """Nodes of the left side, by their places; none where the tensor itself is one that agrees with another."""
    right: tuple[int, ...]
    borders: tuple[tuple[str, str], ...]
    """What both sides compute it from: tensors that agree, and leaves that correspond."""


class _Either:
    """Two sets as one to be looked up in."""

    def __init__(self, one: Container[str], other: Container[str]) -> None:
        self._sets = one, other

    def __contains__(self, name: object) -> bool:
        return any(name in item for item in self._sets)


class DivergenceFinder:
    """Looks for the first divergence among pairs of tensors."""

    def __init__(self, pairing: Pairing, pairs: Sequence[Pair], tolerance: float) -> None:
        self._left, self._right = pairing.left, pairing.right
        self._tolerance = tolerance
        self._by_left: Mapping[str, Pair] = {pair.left: pair for pair in pairs}
        self._agreeing = {pair.left for pair in pairs if pair.agrees(tolerance)}
        self._agreeing_right = {self._by_left[name].right for name in self._agreeing}
        left = equal_tensors(self._left, self._agreeing)
        right = equal_tensors(self._right, self._agreeing_right)
        self._agreeing |= left.keys() - self._by_left.keys()
        self._agreeing_right |= right.keys() - pairing.back.keys()
        self._partner = {name: pairing.partner[same] for name, same in left.items()} | pairing.partner
        self._back = {name: pairing.back[same] for name, same in right.items()} | pairing.back
        self._differing = {pair.left for pair in pairs if not pair.agrees(tolerance)}
        self._differing_right = {self._by_left[name].right for name in self._differing}
        self._ends = [pairing.measured(one, other, "output") for one, other in pairing.ends.items()]

    def all(self) -> list[Divergence]:
        """Every divergence whose inputs agree, in topological order; nothing where all results agree."""
        wrong = [pair for pair in self._ends if not pair.agrees(self._tolerance)]
        if not wrong:
            return []
        places, _ = self._left.flow.behind([pair.left for pair in wrong], self._agreeing)
        suspects = [
            self._by_left[name]
            for place in places
            for name in self._left.flow.results(place)
            if name in self._by_left and name not in self._agreeing
        ]
        found = [item for item in map(self._at, suspects) if item is not None]
        return found or [self.region(pair) for pair in (suspects or wrong)[:1]]

    def _at(self, pair: Pair) -> Divergence | None:
        """The divergence at a pair; None where something before it differs already."""
        # Stopping at all that is paired keeps this local: a graph is walked once, not once for each pair.
        _, mine = self._left.flow.behind([pair.left], _Either(self._agreeing, self._differing))
        if any(name in self._differing and not self._left.flow.is_leaf(name) for name in mine):
            return None
        _, theirs = self._right.flow.behind(
            [pair.right], _Either(self._agreeing_right, self._differing_right)
        )
        if any(name in self._differing_right and not self._right.flow.is_leaf(name) for name in theirs):
            return None
        return self.region(pair)

    def region(self, pair: Pair) -> Divergence:
        """The nodes between a pair and what agrees before it."""
        left, mine = self._left.flow.behind([pair.left], self._agreeing)
        if pair.right in self._agreeing_right:  # a result that is another tensor of the left side
            right: list[int] = []
            theirs = [pair.right]
        else:
            right, theirs = self._right.flow.behind([pair.right], self._agreeing_right)
        borders = [(name, self._partner[name]) for name in mine if name in self._partner]
        borders += [
            (self._back[name], name)
            for name in theirs
            if name in self._back and (self._back[name], name) not in borders
        ]
        return Divergence(pair, tuple(left), tuple(right), tuple(borders))


def equal_tensors(side: SideView, known: Collection[str]) -> dict[str, str]:
    """Further tensors of a side that hold exactly the numbers of some that are known, and which these are."""
    first = {_digest(side.values[name]): name for name in known if not is_plain(side.values[name])}
    made = (item.name for item in side.flow.made() if item.name not in known and item.name in side.values)
    found = ((name, first.get(_digest(side.values[name]))) for name in made)
    return {name: same for name, same in found if same is not None}


def _digest(array: Array) -> tuple[object, ...]:
    data = np.ascontiguousarray(array)
    return data.shape, str(data.dtype), blake2b(data.tobytes(), digest_size=16).digest()


def steepest(pairs: Sequence[Pair], steps: Mapping[str, float]) -> Pair | None:
    """The first pair at which a step by itself adds a large part of what builds up; None where no step is known."""
    largest = max(steps.values(), default=0.0)
    return next((pair for pair in pairs if steps.get(pair.left, -1.0) >= STEEP * largest > 0), None)
