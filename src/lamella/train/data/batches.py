"""Batches: what a step is given, as a function of the number of the step alone, so that a run can go on anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.records import dataclass

TARGETS = "targets"
"""The name under which a batch holds what is aimed at."""
IGNORED = -100
"""A target that does not count."""
DRAWN, MOST_DRAWS = 0xD0, (1 << 31) - 1
"""What tells draws of dropout from other random numbers of the seed, and the number that all are below."""

Batch = Mapping[str, Array]
Rows = npt.NDArray[np.int64]


class Dataset(Protocol):
    """Items that batches are taken of."""

    @property
    def size(self) -> int:
        """How many items there are."""

    @property
    def tokens(self) -> int:
        """How many targets one item has at most: what is counted as a token of a step."""

    def take(self, rows: Rows) -> Batch:
        """The inputs and targets of some items, one behind the other along the first axes."""

    def describe(self) -> str:
        """One line about the data."""


@dataclass(frozen=True, slots=True)
class Batches:
    """The order in which batches are taken: that of the data again and again, or another in each epoch."""

    data: Dataset
    size: int
    """Items of a batch."""
    shuffled: bool = False
    seed: int = 0
    draws: str = ""
    """The input with a number for each example that decides what dropout drops; empty where there is none."""
    is_still: bool = False
    """Whether nothing is dropped, as in evaluations."""

    @property
    def epoch(self) -> int:
        """How many batches one walk through the data gives; what fills none is left out."""
        return self.data.size // self.size

    @property
    def tokens(self) -> int:
        """How many targets a batch has at most."""
        return self.size * self.data.tokens

    def batch(self, number: int) -> Batch:
        """One batch; the first is 0. It depends on nothing but its number."""
        epoch, place = divmod(number, self.epoch)
        rows = np.arange(place * self.size, (place + 1) * self.size, dtype=np.int64)
        found = self.data.take(self._order(epoch)[rows] if self.shuffled else rows)
        return {**found, self.draws: self._drawn(number)} if self.draws else found

    def _drawn(self, number: int) -> Rows:
        """The draws of a batch, below 0 where there are none."""
        if self.is_still:
            return np.full(self.size, -1, np.int64)
        return np.random.default_rng([self.seed, DRAWN, number]).integers(0, MOST_DRAWS, self.size)

    def _order(self, epoch: int) -> Rows:
        return _permutation(self.seed, epoch, self.data.size)


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> Rows:
    """The order of an epoch; kept, because every batch of it asks again."""
    return np.random.default_rng([seed, epoch]).permutation(size)


def count_targets(batch: Batch, names: Sequence[str] = (TARGETS,)) -> int:
    """How many targets of a batch count: those of classes that are not left out, or the items of the batch."""
    found = [batch[name] for name in names if name in batch]
    if not found or found[0].dtype.kind not in "iu":
        return len(next(iter(batch.values())))
    return int(np.count_nonzero(found[0] != IGNORED))


def require_batches(batches: Batches) -> None:
    """InputError where the data do not fill a single batch."""
    if batches.epoch < 1:
        hint = f"give more data, or --batch {max(1, batches.data.size)} or less"
        raise InputError(
            f"the data have {batches.data.size} items, and a batch takes {batches.size}", hint=hint
        )


@dataclass(frozen=True, slots=True)
class VirtualTokens:
    """Sequences with virtual tokens in front, for which an adapter has vectors; nothing is aimed at there."""

    data: Dataset
    length: int
    ports: frozenset[str]
    """The inputs that take tokens."""

    @property
    def size(self) -> int:
        """How many items there are."""
        return self.data.size

    @property
    def tokens(self) -> int:
        """Targets of an item."""
        return self.data.tokens

    def take(self, rows: Rows) -> Batch:
        """Some items."""
        found = dict(self.data.take(rows))
        for name in (*self.ports, TARGETS):
            first = np.full((len(rows), self.length), IGNORED if name == TARGETS else 0, np.int64)
            found[name] = np.concatenate([first, found[name]], axis=1)
        return found

    def describe(self) -> str:
        """One line about the data."""
        return f"{self.data.describe()}, behind {self.length} virtual tokens"


@dataclass(frozen=True, slots=True)
class RenamedTargets:
    """Data whose targets have the name of an input."""

    data: Dataset
    name: str

    @property
    def size(self) -> int:
        """How many items there are."""
        return self.data.size

    @property
    def tokens(self) -> int:
        """Targets of an item."""
        return self.data.tokens

    def take(self, rows: Rows) -> Batch:
        """Some items."""
        return {self.name if name == TARGETS else name: array for name, array in self.data.take(rows).items()}

    def describe(self) -> str:
        """One line about the data."""
        return self.data.describe()
