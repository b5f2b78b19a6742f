"""Results of a program under the names of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lamella.base.dim import Dim, Extent, substitute, symbol, symbols
from lamella.bridge.aten.nodes import Result
from lamella.bridge.nac_to_graph.nodes import Value
from lamella.bridge.nac_to_graph.recorder import Recorder
from lamella.graph.nodes import Graph, Node, Tensor
from lamella.graph.rewrite import copy_of, defined, rename, results_of


def output_names(noted: Sequence[str], count: int) -> list[str]:
    """What the outputs are called: as the file says, else by their numbers."""
    if len(noted) == count:
        return list(noted)
    return ["output"] if count == 1 else [f"output_{number}" for number in range(count)]


class Outputs:
    """Tensors that become outputs: what an operation makes takes the name, anything else is copied."""

    def __init__(self, builder: Recorder, names: Sequence[str]) -> None:
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
    """An extent, which a renamed tensor may have told."""
    values: dict[str, Extent] = {}
    for item in symbols(extent):
        owner, dot, axis = item.name.rpartition(".")
        if dot and owner in names:
            values[item.name] = symbol(f"{names[owner]}.{axis}", item.high, item.low)
    return substitute(extent, values) if values else extent
