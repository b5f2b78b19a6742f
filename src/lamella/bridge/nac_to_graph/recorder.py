"""A builder that can say what one instruction added, and take it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from lamella.graph.build import Builder
from lamella.graph.nodes import Branch, Graph, Node, Operation, Region, Tensor
from lamella.graph.rewrite import FreshNames
from lamella.ops.library import Library


class _Names(FreshNames):
    """Names that can be given back, the last ones first."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[str, int | None, str]] = []

    def take(self, stem: str) -> str:
        """A name that nothing has."""
        before = self._next.get(stem)
        found = super().take(stem)
        self.given.append((stem, before, found))
        return found

    def give_back(self, count: int) -> None:
        """Forget the names behind the first ones."""
        while len(self.given) > count:
            stem, before, found = self.given.pop()
            self._taken.discard(found)
            if before is None:
                self._next.pop(stem, None)
            else:
                self._next[stem] = before


class Mark(NamedTuple):
    """A moment: how many names, constants and nodes there were."""

    names: int
    constants: int
    nodes: int


class Recorder(Builder):
    """Builds a graph instruction by instruction."""

    def __init__(self, library: Library, name: str) -> None:
        super().__init__(library, name)
        self._given = _Names()
        self._names = self._given
        self._outer: list[list[Node]] = []
        self._closed = 0
        """Operations in regions that are over, less the branches that they belong to."""

    @property
    def count(self) -> int:
        """How many operations there are, those in regions too."""
        return self._closed + len(self._nodes) + sum(map(len, self._outer))

    def open_region(self) -> None:
        """Put what is called from now on into a region."""
        self._outer.append(self._nodes)
        self._nodes = []

    def close_region(self, outputs: Sequence[Tensor]) -> Region:
        """The region that was opened last."""
        region = Region((), tuple(self._nodes), tuple(outputs))
        self._closed += len(self._nodes)
        self._nodes = self._outer.pop()
        return region

    def add_branch(self, condition: Tensor, regions: Sequence[Region]) -> tuple[Tensor, ...]:
        """Choose between regions that give the same types; the results."""
        outputs = tuple(replace(item, name=self.fresh("r")) for item in regions[0].outputs)
        test = Region((), (), (condition,))
        self._nodes.append(Branch((test,), tuple(regions), outputs, origin=self.origin))
        self._closed -= 1
        return outputs

    def mark(self) -> Mark:
        """Now."""
        return Mark(len(self._given.given), len(self._constants), len(self._nodes))

    def undo(self, mark: Mark) -> None:
        """Forget everything since a moment."""
        self._given.give_back(mark.names)
        for key in list(islice(reversed(self._constants), len(self._constants) - mark.constants)):
            del self._constants[key]
        del self._nodes[mark.nodes :]

    def append(self, operation: Operation) -> None:
        """Add an operation that is made already."""
        self._nodes.append(operation)

    def close(self, outputs: Sequence[Tensor]) -> Graph:
        """The graph with these outputs, which it computes."""
        return Graph(
            self.name,
            tuple(self._inputs),
            tuple(outputs),
            tuple(self._nodes),
            tuple(self._variables),
            tuple(self._constants.values()),
            tuple(self._updates),
        )
