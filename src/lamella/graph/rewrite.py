"""Changing graphs: the one walk, replacement of tensors and extents everywhere, what nodes make and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import count
from typing import TypeAlias

from lamella.base.dim import (
    Dim,
    DimSymbol,
    Extent,
    Logic,
    Test,
    change_truth,
    substitute,
    substitute_truth,
    symbols,
)
from lamella.base.origin import Origin
from lamella.base.records import dataclass, replace
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
    Single,
    Tensor,
    Update,
    Value,
    regions,
    walk,
)
from lamella.ops.instance import Repeated, singles

# --- what nodes make and read -------------------------------------------------------------------------------


def results_of(node: Node) -> Iterator[Tensor | Pack]:
    """The tensors and packs that a node makes, those inside its regions left out."""
    return members(node.outputs)


def operands_of(node: Node) -> Iterator[Tensor | Pack]:
    """The tensors and packs that a node reads, by its regions too."""
    return members(node.inputs) if isinstance(node, Operation) else _operands_inside(node)


def _operands_inside(node: Branch | Loop) -> Iterator[Tensor | Pack]:
    if isinstance(node, Loop):
        yield from (*node.carried, *members(node.scans))
        if isinstance(node.count, Tensor):
            yield node.count
    for region in regions(node):
        for inner in region.nodes:
            yield from operands_of(inner)
        yield from region.outputs


def members(arguments: Iterable[Argument]) -> Iterator[Tensor | Pack]:
    """The tensors and the packs of unknown length among arguments."""
    # Passes ask this a million times for a large graph: nearly all arguments are tensors.
    found: list[Tensor | Pack] = []
    for argument in arguments:
        if argument.__class__ is Tensor:
            found.append(argument)
        elif isinstance(argument, tuple):
            found += argument
        elif argument is not None:
            found.append(argument)
    return iter(found)


def uses(graph: Graph) -> dict[str, int]:
    """How often each tensor is read, by nodes, as an output of the graph, and by updates."""
    found: dict[str, int] = {}
    read = [item for node in graph.nodes for item in operands_of(node)]
    for item in (*read, *members(graph.outputs), *(update.value for update in graph.updates)):
        found[item.name] = found.get(item.name, 0) + 1
    return found


def producers(graph: Graph) -> dict[str, Node]:
    """The node that makes each tensor, for those inside regions too."""
    return {item.name: node for node in walk(graph.nodes) for item in results_of(node)}


def defined(graph: Graph) -> Iterator[Tensor | Pack]:
    """Every tensor and pack of a graph, once, where it is made or declared."""
    yield from (*members(graph.inputs), *graph.variables, *(item.tensor for item in graph.constants))
    for node in walk(graph.nodes):
        for region in regions(node):
            yield from region.inputs
        yield from results_of(node)


def extents(item: Tensor | Pack) -> tuple[Extent, ...]:
    """The extents of a tensor, or of a pack with its length."""
    return (*item.shape, item.size) if isinstance(item, Pack) else item.shape


class FreshNames:
    """Names that are given away once: the one asked for, else the next like it with a number."""

    def __init__(self, taken: Iterable[str] = (), start: int = 1) -> None:
        self._taken = set(taken)
        self._start = start
        self._next: dict[str, int] = {}

    def take(self, stem: str) -> str:
        """A name that nothing has."""
        found = stem
        while found in self._taken:
            number = self._next.get(stem, self._start)
            self._next[stem] = number + 1
            found = f"{stem}_{number}"
        self._taken.add(found)
        return found


# --- every tensor and every extent of a part of a graph, replaced wherever it stands ------------------------


ChangeTensor: TypeAlias = Callable[[Tensor], Tensor]
ChangeExtent: TypeAlias = Callable[[Extent], Extent]


def _same(extent: Extent) -> Extent:
    return extent


@dataclass(frozen=True, slots=True)
class Substitution:
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
        if isinstance(value, Repeated):
            return self._repeated(value)
        return None if value is None else self._content(value)

    def _content(self, value: Single | tuple[Single, ...]) -> Single | tuple[Single, ...]:
        """One value or several, with the extents in them replaced."""
        return tuple(map(self._single, value)) if isinstance(value, tuple) else self._single(value)

    def _single(self, value: Single) -> Single:
        if isinstance(value, Dim):
            return self.extent(value)
        return change_truth(value, self.extent) if isinstance(value, Test | Logic) else value

    def _repeated(self, value: Repeated) -> Value:
        """A repetition; once its length is known it is a pack of that many items."""
        length = self.extent(value.length)
        item, *_ = map(self._single, singles(value))
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
            constants=tuple(
                Constant(self.tensor(item.tensor), self._content(item.value)) for item in graph.constants
            ),
            updates=tuple(
                Update(self.tensor(item.variable), self.tensor(item.value)) for item in graph.updates
            ),
        )


def extent_substitution(values: Mapping[str, Extent]) -> ChangeExtent:
    """The change that gives some symbols their values."""
    return lambda extent: extent if isinstance(extent, int) else substitute(extent, values)


def rename(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with some tensors and packs called otherwise, and with them the extents that only they tell."""

    def renamed(symbol: str) -> str | None:
        owner, dot, axis = symbol.rpartition(".")
        return f"{names[owner]}{dot}{axis}" if dot and owner in names else None

    values = _new_symbols(graph, renamed)
    change = extent_substitution(values) if values else _same

    def renew(tensor: Tensor) -> Tensor:
        if not values and tensor.name not in names:
            return tensor
        return replace(
            tensor, name=names.get(tensor.name, tensor.name), shape=tuple(map(change, tensor.shape))
        )

    return with_checks(_Naming(renew, change, names).graph(graph), values)


def rename_symbols(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with some extents called otherwise."""
    values = _new_symbols(graph, names.get)
    change = extent_substitution(values) if values else _same
    renewal = Substitution(lambda item: replace(item, shape=tuple(map(change, item.shape))), change)
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
    for symbol in (
        found
        for item in defined(graph)
        for extent in extents(item)
        if extent.__class__ is not int
        for found in symbols(extent)
    ):
        name = renamed(symbol.name)
        if name is not None and name != symbol.name:
            values[symbol.name] = Dim((((DimSymbol(name, symbol.low, symbol.high),), 1),))
    return values


@dataclass(frozen=True, slots=True)
class _Naming(Substitution):
    """A renewal that renames packs too."""

    names: Mapping[str, str] = field(default_factory=dict)

    def pack(self, pack: Pack) -> Pack | tuple[Tensor, ...]:
        """A pack under its new name."""
        return Substitution.pack(self, replace(pack, name=self.names.get(pack.name, pack.name)))


# --- the one walk that changes graphs: nodes in order, regions inside out, tensors replaced on the ----------


@dataclass(frozen=True, slots=True)
class Replacement:
    """What takes the place of a node: other nodes, constants, and for tensors no longer made those that stand in."""

    nodes: tuple[Node, ...] = ()
    results: Mapping[str, Tensor] = field(default_factory=dict)
    constants: tuple[Constant, ...] = ()


class RewriteWalk:
    """One walk over a graph; a pass sees through it what was made so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = {item.tensor.name: item for item in graph.constants}
        self.outputs = frozenset(item.name for item in members(graph.outputs))
        self.path: tuple[int, ...] = ()
        """The regions around the current node, outermost first, as numbers."""
        self._makers: dict[str, Node] = {}
        self._results: dict[str, Tensor] = {}
        self._origins: dict[str, Origin | None] = {}
        self._names: FreshNames | None = None
        """Made when somebody asks: most walks give no new names."""
        self._regions = count()
        self._renewal = Substitution(self._current)

    def maker(self, tensor: Argument) -> Operation | None:
        """The operation that makes a tensor, where it is one."""
        found = self._makers.get(tensor.name) if isinstance(tensor, Tensor) else None
        return found if isinstance(found, Operation) else None

    def constant(self, tensor: Argument) -> Constant | None:
        """The constant behind a tensor, where it is one."""
        return self.constants.get(tensor.name) if isinstance(tensor, Tensor) else None

    def fresh(self, stem: str) -> str:
        """A name that no tensor of the graph has."""
        if self._names is None:
            self._names = FreshNames(item.name for item in defined(self.graph))
        return self._names.take(stem)

    def _current(self, tensor: Tensor) -> Tensor:
        return self._results.get(tensor.name, tensor)

    def run(self, visit: Visit) -> Graph:
        """The graph after a pass has seen every node."""
        nodes = self._nodes(self.graph.nodes, visit)
        graph = replace(self.graph, nodes=nodes, constants=tuple(self.constants.values()))
        updates = tuple(Update(item.variable, self._current(item.value)) for item in graph.updates)
        return self._keep_outputs(replace(graph, updates=updates))

    def _nodes(self, nodes: tuple[Node, ...], visit: Visit) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in nodes:
            # Topological order: whatever a node reads was rewritten before it, so one walk sees chains of rewrites.
            renewed = self._renew(node, visit)
            change = visit(renewed, self)
            if change is None or not self.is_sound(renewed, change):
                self._makers.update((item.name, renewed) for item in results_of(renewed))
                found.append(renewed)
                continue
            for item in change.constants:
                self.constants[item.tensor.name] = item
            self._results.update(change.results)
            self._origins.update(dict.fromkeys(change.results, renewed.origin))
            for new in change.nodes:
                self._makers.update((item.name, new) for item in results_of(new))
            found += change.nodes
        return tuple(found)

    def _renew(self, node: Node, visit: Visit) -> Node:
        if isinstance(node, Operation):
            if not self._is_changed(node.inputs):
                return node
            return replace(node, inputs=tuple(map(self._renewal.argument, node.inputs)))
        if isinstance(node, Branch):
            return replace(
                node,
                conditions=tuple(self._region(item, visit) for item in node.conditions),
                branches=tuple(self._region(item, visit) for item in node.branches),
            )
        return replace(
            node,
            carried=tuple(map(self._current, node.carried)),
            scans=tuple(
                scan if isinstance(scan, Pack) else tuple(map(self._current, scan)) for scan in node.scans
            ),
            count=self._renewal.count(node.count),
            body=self._region(node.body, visit),
            condition=None if node.condition is None else self._region(node.condition, visit),
        )

    def _is_changed(self, arguments: Iterable[Argument]) -> bool:
        """Whether something else stands for one of some arguments now; packs may have got their length."""
        found = self._results
        for argument in arguments:
            if isinstance(argument, Tensor):
                if argument.name in found:
                    return True
            elif isinstance(argument, Pack) or any(item.name in found for item in argument or ()):
                return True
        return False

    def _region(self, region: Region, visit: Visit) -> Region:
        outer = self.path
        self.path = (*outer, next(self._regions))
        nodes = self._nodes(region.nodes, visit)
        self.path = outer
        return replace(region, nodes=nodes, outputs=tuple(map(self._current, region.outputs)))

    def is_sound(self, node: Node, change: Replacement) -> bool:
        """Only an equal type and shape may stand in for a tensor, and a quantised one is never taken away."""
        old = {item.name: item for item in results_of(node)}
        return all(
            isinstance(gone := old.get(name), Tensor)
            and gone.quantization is None
            and (gone.element, gone.shape) == (new.element, new.shape)
            for name, new in change.results.items()
        )

    def _keep_outputs(self, graph: Graph) -> Graph:
        """Outputs of the graph keep their names: what stands in for one takes its name, or is copied."""
        names: dict[str, str] = {}
        copies: list[Node] = []
        # What a region computes, an input or a variable cannot take the name of an output: these are copied.
        replaced = [
            (item, self._results[item.name])
            for item in members(graph.outputs)
            if isinstance(item, Tensor) and item.name in self._results
        ]
        inner = {item.name for node in graph.nodes for item in results_of(node)} if replaced else set()
        for output, new in replaced:
            free = new.name in inner and new.name not in names and new.name not in self.outputs
            if free and new.quantization is None:
                names[new.name] = output.name
            else:
                origin = self._origins.get(output.name) or output.origin
                copies.append(replace(copy_of(new, output), origin=origin))
        graph = replace(graph, nodes=(*graph.nodes, *copies))
        return rename(graph, names) if names else graph


Visit: TypeAlias = Callable[[Node, RewriteWalk], Replacement | None]


def rewrite(graph: Graph, visit: Visit) -> Graph:
    """The graph after a pass has seen every node, each after those it depends on."""
    return RewriteWalk(graph).run(visit)


def copy_of(source: Tensor, target: Tensor) -> Operation:
    """The operation that gives a tensor a second name."""
    return Operation("math.iden", (source,), (target,), types=(("T", source.element),), origin=target.origin)


__all__ = [
    "FreshNames",
    "Replacement",
    "RewriteWalk",
    "Substitution",
    "Visit",
    "copy_of",
    "defined",
    "extent_substitution",
    "extents",
    "members",
    "operands_of",
    "producers",
    "rename",
    "rename_symbols",
    "results_of",
    "rewrite",
    "uses",
]
