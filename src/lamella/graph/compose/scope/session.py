"""What one composition has made so far, and what it may still spend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, Protocol

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Extent, symbol, symbols
from lamella.base.dtype import ElementType
from lamella.base.limits import Limits
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.scope.names import Names
from lamella.graph.nodes import Constant, Node, Quantization, Shape, Single, Tensor, Update
from lamella.lang.skriptnd.nodes import Expr
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.evaluate import Code
from lamella.ops.instance import Check, Definition
from lamella.ops.library import Library


class Stop(Exception):
    """A limit is passed: the composition ends."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Named(NamedTuple):
    """A name for a tensor, whether `@quantize` and files may call it so, and whether it was promised."""

    name: str
    exposed: bool = False
    promised: bool = False


class Quantizer(Protocol):
    """An entry of `@quantize` that waits for its tensor."""

    def bind(self, tensor: Tensor) -> Quantization | None:
        """The quantisation of the tensor, every attribute with its value; None where that failed and was reported."""

    def miss(self) -> None:
        """Remember that only a hidden tensor has the name."""


class Session:
    """The graph under construction: all that its parts share."""

    def __init__(self, library: Library, keep: Callable[[Definition], bool], limits: Limits) -> None:
        self.library = library
        library.budget.renew()
        self.keep = keep
        self.limits = limits
        self.names = Names()
        self.findings: list[Diagnostic] = []
        self.nodes: list[Node] = []
        self.regions = 0
        self.constants: list[Constant] = []
        self.variables: dict[str, Tensor] = {}
        self.updates: list[Update] = []
        self.checks: list[Check] = []
        self.quantizers: dict[str, Quantizer] = {}
        self.known: dict[str, Tensor] = {}
        """Tensors that exist already under names that are made again (when a graph is decomposed)."""
        self.codes: dict[int, tuple[Expr, Code]] = {}
        """Expressions made ready, by identity; those of one body are evaluated for each of its calls."""
        self._symbols: list[str] = []
        self._scalars: dict[tuple[object, ...], Tensor] = {}
        self._spent = 0
        self._depth = 0
        self._steps = 1

    def report(self, origin: Origin | None, *findings: Diagnostic) -> None:
        """Keep findings, each with the calls that led to it."""
        path = () if origin is None else origin.words()
        self.findings += [item if item.origins or not path else item.from_origin(*path) for item in findings]

    def leave(self, checks: Sequence[Check]) -> None:
        """Leave assertions to the run of the graph, or of the region that is being composed."""
        self.checks += checks

    # --- limits -----------------------------------------------------------------------------------------------

    def spend(self, amount: int, span: Span) -> None:
        """Count work that a text can multiply; the composition ends when it is too much."""
        self._spent += amount
        if self._spent > self.limits.max_operations:
            raise Stop(rules.TOO_MANY.at(span, limit=self.limits.max_operations))

    @contextmanager
    def deeper(self, span: Span) -> Iterator[None]:
        """One level of nesting further in."""
        if self._depth >= self.limits.max_depth:
            raise Stop(rules.TOO_DEEP.at(span, limit=self.limits.max_depth))
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    @contextmanager
    def unrolled(self, steps: int, span: Span) -> Iterator[None]:
        """Steps of an unrolled loop; nested loops multiply, which is refused before any of it is done."""
        outer, self._steps = self._steps, self._steps * max(steps, 1)
        if self._steps > self.limits.max_operations:
            raise Stop(rules.TOO_MANY.at(span, limit=self.limits.max_operations))
        try:
            yield
        finally:
            self._steps = outer

    # --- what is made -------------------------------------------------------------------------------------------

    @contextmanager
    def region(self, span: Span) -> Iterator[tuple[list[Node], list[Check]]]:
        """Nodes and assertions made inside belong to a region of their own; all work on a graph descends into it."""
        most = self.limits.max_depth // 2
        if self.regions >= most:
            raise Stop(rules.TOO_DEEP.at(span, limit=most))
        nodes, checks = self.nodes, self.checks
        self.nodes, self.checks = [], []
        self.regions += 1
        try:
            yield self.nodes, self.checks
        finally:
            self.nodes, self.checks = nodes, checks
            self.regions -= 1

    def take(self, named: Named) -> str:
        """The name itself where it was promised or is free; otherwise the next one like it."""
        return self.names.redeem(named.name) if named.promised else self.names.fresh(named.name)

    def tensor(
        self, named: Named, element: ElementType, shape: Shape, origin: Origin | None, taken: bool = False
    ) -> Tensor:
        """A new tensor; `taken` says that its name was taken before."""
        name = named.name if taken else self.take(named)
        known = self.known.get(name)
        if known is not None and known.element == element:
            return known
        made = Tensor(name, element, shape, origin=origin)
        return self._quantized(made, named.exposed) if self.quantizers else made

    def _quantized(self, tensor: Tensor, exposed: bool) -> Tensor:
        """The tensor as `@quantize` has it; an item of a pack goes by the name of the pack as well."""
        pack, _, number = tensor.name.rpartition(":")
        for name in (tensor.name, pack) if number.isdigit() else (tensor.name,):
            entry = self.quantizers.get(name)
            if entry is not None and exposed:
                return replace(tensor, quantization=entry.bind(tensor))
            if entry is not None:
                entry.miss()
        return tensor

    def scalar(self, prefix: str, value: Single, element: ElementType, shape: Shape = ()) -> Tensor:
        """A constant with one value; equal ones of a scope are one."""
        key = (prefix, type(value), repr(value), element, shape)
        found = self._scalars.get(key)
        if found is None:
            name = self.names.fresh(f"{prefix}constant")
            found = self._scalars[key] = Tensor(name, element, shape)
            self.constants.append(Constant(found, value))
        return found

    # --- extents that only the run tells ------------------------------------------------------------------------

    def symbol(self, name: str, low: int, high: int) -> Extent:
        """A new extent that only the run tells."""
        self._symbols.append(name)
        return symbol(name, high, low)

    def learn(self, shapes: Iterable[Shape]) -> None:
        """Remember the symbols that an operation has introduced with the shapes of a result."""
        self._symbols += [item.name for shape in shapes for extent in shape for item in symbols(extent)]

    def mark(self) -> int:
        """A point in time, for `since`."""
        return len(self._symbols)

    def since(self, mark: int) -> frozenset[str]:
        """The symbols introduced after a point in time: inside a region, they mean nothing outside."""
        return frozenset(self._symbols[mark:])
