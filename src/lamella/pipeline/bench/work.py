"""The work of a graph, counted from its formulas: multiplications that are summed up, and bytes that must move.

They bound the time of any implementation: arithmetic by the peak of the machine, weights by its memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lamella.base.diagnostic import LamellaError
from lamella.base.dim import Extent, bounds, substitute
from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.graph.binding import bind_operation
from lamella.graph.compose.decompose import compose_call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Loop, Node, Operation, Tensor, regions, tensors
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Element, Guard, Lookup, Scalar
from lamella.ops.library import Library
from lamella.ops.lower import contractions

Extents = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Work:
    """What an operation, or a whole graph, has to do."""

    macs: int = 0
    """Products that are added up."""
    moved: int = 0
    """Bytes of the tensors that it reads and writes, each once."""

    @property
    def flops(self) -> int:
        """A product and its sum are two."""
        return 2 * self.macs

    def __add__(self, other: Work) -> Work:
        return Work(self.macs + other.macs, self.moved + other.moved)


class Counting:
    """Counts the work of the operations of one graph for known extents."""

    def __init__(self, library: Library, extents: Extents) -> None:
        self._library = library
        self._extents = extents

    def operation(self, operation: Operation) -> Work:
        """The work of one operation; a composed one keeps what lies between its components to itself."""
        made = [item for argument in operation.outputs for item in tensors(argument)]
        moved = sum(size for _, size in self.read_by(operation)) + sum(self._bytes(item) for item in made)
        inner = self._components(operation)
        if inner:
            return Work(
                sum(times * self.operation(item).macs for item, times in _repeated(inner, self)), moved
            )
        formulas = self._formulas(operation)
        return Work(sum(self._steps(item) for item in formulas if _is_product(item)), moved)

    def read_by(self, operation: Operation) -> Iterator[tuple[str, int]]:
        """The tensors that an operation reads, each with the bytes of it that can matter: a gather reads few rows."""
        formulas = self._formulas(operation)
        touched = sum(self._steps(item) for item in formulas) if formulas else None
        for argument in operation.inputs:
            for item in tensors(argument):
                yield item.name, self._bytes(item, touched)

    def size(self, extent: Extent) -> int:
        """An extent as a number: the largest where nobody knows it."""
        found = substitute(extent, self._extents)
        return found if isinstance(found, int) else bounds(found)[1]

    def _bytes(self, tensor: Tensor, touched: int | None = None) -> int:
        count = prod(map(self.size, tensor.shape))
        return _size_of(tensor.element, count if touched is None else min(count, touched))

    def _steps(self, formula: Contraction) -> int:
        return prod(self.size(loop.extent) for loop in formula.loops)

    def _components(self, operation: Operation) -> tuple[Node, ...]:
        """What a composed operation is made of; nothing of one that has formulas, or none that are known."""
        definition = self._library.find(operation.operator)
        if definition is None or definition.operator.kind != "compose":
            return ()
        try:
            return compose_call(self._library, operation).nodes
        except (Found, LamellaError):  # a run says what is wrong with it
            return ()

    def _formulas(self, operation: Operation) -> Sequence[Contraction]:
        try:
            return contractions(bind_operation(self._library, operation))
        except (Fault, Found, LamellaError):  # packs of open length: only a run knows them
            return ()


def _size_of(element: ElementType, count: int) -> int:
    return (count * element.bits + 7) // 8


def _is_product(formula: Contraction) -> bool:
    """Whether a formula adds up products of elements."""
    return formula.sign == "+=" and any(_multiplies(value) for value in formula.values)


def _multiplies(value: Scalar) -> bool:
    waiting: list[Scalar] = [value]
    while waiting:
        term = waiting.pop()
        if isinstance(term, Apply):
            if term.function == "*" and sum(map(_reads, term.operands)) > 1:
                return True
            waiting += term.operands
    return False


def _reads(value: Scalar) -> bool:
    """Whether a term depends on an element of a tensor."""
    waiting: list[Scalar | Guard] = [value]
    while waiting:
        term = waiting.pop()
        if isinstance(term, Element):
            return True
        if isinstance(term, Apply):
            waiting += term.operands
        elif isinstance(term, Lookup):
            waiting.append(term.index)
    return False


# --- whole graphs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GraphWork:
    """The work of one run of a graph, composed operators written out."""

    macs: int
    fixed: int
    """Bytes of weights and inputs that a run has to read at least once."""


def count_graph(model: Model, extents: Extents) -> GraphWork:
    """The work of a graph whose composed operators are written out; loops count as often as they are known to run."""
    counting = Counting(model.library, extents)
    outside: dict[str, int] = {}
    macs = 0
    fixed = {item.name for argument in model.graph.inputs for item in tensors(argument)}
    fixed |= {item.name for item in model.graph.variables}
    for operation, times in _repeated(model.graph.nodes, counting):
        macs += times * counting.operation(operation).macs
        for name, size in counting.read_by(operation):
            if name in fixed:
                outside[name] = max(outside.get(name, 0), size)
    return GraphWork(macs, sum(outside.values()))


def _repeated(nodes: Sequence[Node], counting: Counting, times: int = 1) -> Iterator[tuple[Operation, int]]:
    """Every operation with how often it runs; branches count as if each of them ran."""
    for node in nodes:
        if isinstance(node, Operation):
            yield node, times
        inner = times * _trips(node, counting) if isinstance(node, Loop) else times
        for region in regions(node):
            yield from _repeated(region.nodes, counting, inner)


def _trips(loop: Loop, counting: Counting) -> int:
    lengths = [len(item) for item in loop.scans if isinstance(item, tuple)]
    if lengths:
        return lengths[0]
    return 1 if loop.count is None or isinstance(loop.count, Tensor) else counting.size(loop.count)


def extents_of(inputs: Sequence[Argument], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The open extents of a graph that the shapes of given arrays decide."""
    found: dict[str, int] = {}
    for argument in inputs:
        for item in tensors(argument):
            for extent, size in zip(item.shape, shapes.get(item.name, ()), strict=False):
                if not isinstance(extent, int) and str(extent).isidentifier():
                    found[str(extent)] = size
    return found
