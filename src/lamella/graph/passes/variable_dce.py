"""Dead-code elimination of variables: leave out those that nothing reads, with their data.

`dce` keeps them, since they are how others see a model; a file that is only run has no use for them. A variable
that an update writes stays, since its value can be asked for after a run, and so does one that alone tells an extent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lamella.base.records import dataclass
from lamella.graph.model import Model
from lamella.graph.rewrite import uses

if TYPE_CHECKING:
    from lamella.base.arrays import Array


def variable_dce(model: Model) -> Model:
    """The model without variables that nothing reads or writes."""
    graph = model.graph
    needed = {*uses(graph), *(item.variable.name for item in graph.updates)}
    kept = tuple(
        item
        for item in graph.variables
        if item.name in needed or not all(isinstance(extent, int) for extent in item.shape)
    )
    if len(kept) == len(graph.variables):
        return model
    gone = frozenset(item.name for item in graph.variables) - {item.name for item in kept}
    data = None if model.data is None else _RemainingData(model.data, gone)
    return replace(model, graph=replace(graph, variables=kept), data=data)


@dataclass(frozen=True, slots=True)
class _RemainingData(Mapping[str, "Array"]):
    """Data without some names; those that are left are read when they are asked for."""

    data: Mapping[str, Array]
    gone: frozenset[str]

    def __getitem__(self, name: str) -> Array:
        if name in self.gone:
            raise KeyError(name)
        return self.data[name]

    def __contains__(self, name: object) -> bool:
        return name not in self.gone and name in self.data

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.data if name not in self.gone)

    def __len__(self) -> int:
        return sum(1 for _ in self)
