"""Every tensor and every extent of a part of a graph, replaced wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lamella.base.dim import Dim, DimSymbol, Extent, Logic, Test, substitute, substitute_truth, symbols
from lamella.graph.nodes import (
    Argument,
    Branch,
    Constant,
    Graph,
    Loop,
    Node,
    Operation,
    Pack,
    Region,
    Tensor,
    Update,
    Value,
)
from lamella.graph.rewrite.members import defined, extents
from lamella.ops.instance import Repeated, singles

ChangeTensor: TypeAlias = Callable[[Tensor], Tensor]
ChangeExtent: TypeAlias = Callable[[Extent], Extent]


def _same(extent: Extent) -> Extent:
    return extent


@dataclass(frozen=True, slots=True)
class Renewal:
    """How tensors and extents are replaced, wherever they stand."""

    tensor: ChangeTensor
    extent: ChangeExtent = _same

    def argument(self, argument: Argument) -> Argument:
        """An argument with its tensors replaced."""
        if isinstance(argument, Tensor):
            return self.tensor(argument)
        if isinstance(argument, tuple):
            return tuple(map(self.tensor, argument))
        return argument if argument is None else self.pack(argument)

    def pack(self, pack: Pack) -> Pack | tuple[Tensor, ...]:
        """A pack with its extents replaced; once its length is known it is a pack of that many tensors."""
        shape, size = tuple(map(self.extent, pack.shape)), self.extent(pack.size)
        if isinstance(size, Dim):
            return replace(pack, shape=shape, size=size)
        names = (f"{pack.name}:{number}" for number in range(1, size + 1))
        return tuple(Tensor(name, pack.element, shape, origin=pack.origin) for name in names)

    def attributes(self, values: tuple[tuple[str, Value], ...]) -> tuple[tuple[str, Value], ...]:
        """Attributes with the extents in them replaced."""
        return tuple((name, self._value(value)) for name, value in values)

    def _value(self, value: Value) -> Value:
        if isinstance(value, Dim):
            return self.extent(value)
        if isinstance(value, tuple):
            return tuple(self.extent(item) if isinstance(item, Dim) else item for item in value)
        if isinstance(value, Repeated):
            return self._repeated(value)
        return value

    def _repeated(self, value: Repeated) -> Value:
        """A repetition; once its length is known it is a pack of that many items."""
        length = self.extent(value.length)
        item, *_ = (self.extent(part) if isinstance(part, Dim) else part for part in singles(value))
        return Repeated(item, length) if isinstance(length, Dim) else (item,) * length

    def node(self, node: Node) -> Node:
        """A node with everything in it replaced."""
        if isinstance(node, Operation):
            return replace(
                node,
                inputs=tuple(map(self.argument, node.inputs)),
                outputs=tuple(map(self.argument, node.outputs)),
                attributes=self.attributes(node.attributes),
            )
        if isinstance(node, Branch):
            return replace(
                node,
                conditions=tuple(map(self.region, node.conditions)),
                branches=tuple(map(self.region, node.branches)),
                outputs=tuple(map(self.tensor, node.outputs)),
            )
        return self._loop(node)

    def _loop(self, node: Loop) -> Loop:
        scans = tuple(
            self.pack(scan) if isinstance(scan, Pack) else tuple(map(self.tensor, scan))
            for scan in node.scans
        )
        return replace(
            node,
            carried=tuple(map(self.tensor, node.carried)),
            scans=scans,
            body=self.region(node.body),
            outputs=tuple(map(self.argument, node.outputs)),
            count=self.count(node.count),
            condition=None if node.condition is None else self.region(node.condition),
        )

    def count(self, value: Tensor | Extent | None) -> Tensor | Extent | None:
        """A loop's count, which may be a tensor, a number or nothing."""
        if isinstance(value, Tensor):
            return self.tensor(value)
        return None if value is None else self.extent(value)

    def region(self, region: Region) -> Region:
        """A region with everything in it replaced."""
        return replace(
            region,
            inputs=tuple(map(self.tensor, region.inputs)),
            nodes=tuple(map(self.node, region.nodes)),
            outputs=tuple(map(self.tensor, region.outputs)),
        )

    def graph(self, graph: Graph) -> Graph:
        """A graph with everything in it replaced."""
        return replace(
            graph,
            inputs=tuple(map(self.argument, graph.inputs)),
            outputs=tuple(map(self.argument, graph.outputs)),
            nodes=tuple(map(self.node, graph.nodes)),
            variables=tuple(map(self.tensor, graph.variables)),
            constants=tuple(Constant(self.tensor(item.tensor), item.value) for item in graph.constants),
            updates=tuple(
                Update(self.tensor(item.variable), self.tensor(item.value)) for item in graph.updates
            ),
        )


def substitution(values: Mapping[str, Extent]) -> ChangeExtent:
    """The change that gives some symbols their values."""
    return lambda extent: extent if isinstance(extent, int) else substitute(extent, values)


def rename(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with some tensors and packs called otherwise, and with them the extents that only they tell."""

    def renamed(symbol: str) -> str | None:
        owner, dot, axis = symbol.rpartition(".")
        return f"{names[owner]}{dot}{axis}" if dot and owner in names else None

    values = _new_symbols(graph, renamed)
    change = substitution(values) if values else _same

    def renew(tensor: Tensor) -> Tensor:
        return replace(
            tensor, name=names.get(tensor.name, tensor.name), shape=tuple(map(change, tensor.shape))
        )

    return with_checks(_Naming(renew, change, names).graph(graph), values)


def rename_symbols(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with some extents called otherwise."""
    values = _new_symbols(graph, names.get)
    change = substitution(values) if values else _same
    renewal = Renewal(lambda item: replace(item, shape=tuple(map(change, item.shape))), change)
    return with_checks(renewal.graph(graph), values)


def with_checks(graph: Graph, values: Mapping[str, Extent]) -> Graph:
    """The graph whose assertions speak of the extents under their new names."""
    checks = tuple(
        replace(item, condition=substitute_truth(item.condition, values))
        if isinstance(item.condition, Test | Logic)
        else item
        for item in graph.checks
    )
    return replace(graph, checks=checks) if values and checks else graph


def _new_symbols(graph: Graph, renamed: Callable[[str], str | None]) -> dict[str, Extent]:
    values: dict[str, Extent] = {}
    for symbol in (found for item in defined(graph) for extent in extents(item) for found in symbols(extent)):
        name = renamed(symbol.name)
        if name is not None and name != symbol.name:
            values[symbol.name] = Dim((((DimSymbol(name, symbol.low, symbol.high),), 1),))
    return values


@dataclass(frozen=True, slots=True)
class _Naming(Renewal):
    """A renewal that renames packs too."""

    names: Mapping[str, str] = field(default_factory=dict)

    def pack(self, pack: Pack) -> Pack | tuple[Tensor, ...]:
        """A pack under its new name."""
        return Renewal.pack(self, replace(pack, name=self.names.get(pack.name, pack.name)))
