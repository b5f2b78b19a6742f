"""A graph builder with checkpoints: what one instruction added can be undone, and outputs get their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from lamella.base.dim import Dim, Extent, substitute, symbol, symbols
from lamella.bridge.aten.nodes import Result
from lamella.bridge.nac_to_graph.nodes import Value
from lamella.graph.build import Builder
from lamella.graph.nodes import Branch, Graph, Node, Operation, Region, Tensor
from lamella.graph.rewrite import FreshNames, copy_of, defined, rename, results_of
from lamella.ops.library import Library


class _ReturnableNames(FreshNames):
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


class UndoBuilder(Builder):
    """Builds a graph instruction by instruction."""

    def __init__(self, library: Library, name: str) -> None:
        super().__init__(library, name)
        self._given = _ReturnableNames()
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


# --- results of a program under the names of its outputs ----------------------------------------------------


def output_names(noted: Sequence[str], count: int) -> list[str]:
    """What the outputs are called: as the file says, else by their numbers."""
    if len(noted) == count:
        return list(noted)
    return ["output"] if count == 1 else [f"output_{number}" for number in range(count)]


class Outputs:
    """Tensors that become outputs: what an operation makes takes the name, anything else is copied."""

    def __init__(self, builder: UndoBuilder, names: Sequence[str]) -> None:
        self._builder = builder
        self._names = [builder.fresh(name) for name in names]
        self._renamed: dict[str, str] = {}

    def name(self, tensors: Sequence[Tensor], nodes: Sequence[Node]) -> Graph:
        """The graph whose outputs these are, in the order of the names."""
        inner = {item.name for node in nodes for item in results_of(node)}
        found: list[Tensor] = []
        for tensor, name in zip(tensors, self._names, strict=True):
            if tensor.name in inner and tensor.name not in self._renamed:
                self._renamed[tensor.name] = name
                found.append(tensor)
                continue
            copy = replace(tensor, name=name, quantization=None, origin=self._builder.origin)
            self._builder.append(copy_of(tensor, copy))
            found.append(copy)
        return rename(self._builder.close(found), self._renamed)

    def follow(self, graph: Graph, values: Sequence[Value]) -> tuple[Result, ...]:
        """What instructions give, after the outputs have their names."""
        known = {item.name: item for item in defined(graph) if isinstance(item, Tensor)}
        return tuple(_renew(value, self._renamed, known) for value in values)


def _renew(value: Value, names: Mapping[str, str], known: Mapping[str, Tensor]) -> Result:
    if isinstance(value, Tensor):
        return known.get(names.get(value.name, value.name), value)
    if isinstance(value, tuple):
        return tuple(_renew(item, names, known) for item in value)
    if isinstance(value, Dim):
        return _renew_extent(value, names)
    return value if isinstance(value, int) else None


def _renew_extent(extent: Dim, names: Mapping[str, str]) -> Extent:
    """An extent, which a renamed tensor may have given."""
    values: dict[str, Extent] = {}
    for item in symbols(extent):
        owner, dot, axis = item.name.rpartition(".")
        if dot and owner in names:
            values[item.name] = symbol(f"{names[owner]}.{axis}", item.high, item.low)
    return substitute(extent, values) if values else extent
