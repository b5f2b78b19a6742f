"""Symbolic extents as instructions: sizes of tensors, and Python's arithmetic on them, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.dim import Atom, Dim, DimSymbol, Extent, Monomial, symbols
from lamella.bridge.graph_to_nac.calls.restate import Inexpressible
from lamella.bridge.graph_to_nac.code.words import Ref, Word, size_words
from lamella.graph.nodes import Tensor

SIZE = "aten.sym_size.int"
SIZE_KEY = "\0size "
"""How the keys of sizes begin; no tensor is called so."""
_SIGNS: Mapping[str, str] = MappingProxyType({"/": "floordiv", "%": "mod", "<<": "sym_min", ">>": "sym_max"})

Size: TypeAlias = int | Ref
Emit: TypeAlias = Callable[[str, tuple[Word, ...], str], None]
"""Adds an instruction: its name, its arguments, and the key of its result."""


class SizeWriter:
    """Writes sizes where they are first needed."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self.count = 0
        self.computed: dict[tuple[str, tuple[Word, ...]], Ref] = {}
        self.sources: dict[str, tuple[Tensor, int]] = {}
        """Symbols that are an extent of a tensor."""
        self.linear: dict[str, tuple[Tensor, int, int, int]] = {}
        """Symbols of which an extent is a multiple plus a number."""

    @contextmanager
    def block(self) -> Iterator[None]:
        """Forget in the end what is seen and computed in the meantime: it is not there behind a block."""
        before = dict(self.computed), dict(self.sources), dict(self.linear)
        try:
            yield
        finally:
            self.computed, self.sources, self.linear = before

    def see(self, tensor: Tensor) -> None:
        """A tensor that can be asked for its sizes from now on."""
        for axis, extent in enumerate(tensor.shape):
            found = _linear(extent)
            if found is not None:
                symbol, factor, rest = found
                if (factor, rest) == (1, 0):
                    self.sources.setdefault(symbol.name, (tensor, axis))
                else:
                    self.linear.setdefault(symbol.name, (tensor, axis, factor, rest))

    def write(self, extent: Dim) -> Ref:
        """The instruction that computes an extent."""
        found = self._sum(extent)
        if isinstance(found, Ref):
            return found
        return self._emit("add", found, 0)

    def _size(self, extent: Extent) -> Size:
        return extent if isinstance(extent, int) else self.write(extent)

    def _sum(self, extent: Dim) -> Size:
        total: Size | None = None
        for monomial, factor in extent.terms:
            if total is None:
                total = self._product(monomial, factor)
            elif factor < 0:
                total = self._emit("sub", total, self._product(monomial, -factor))
            else:
                total = self._emit("add", total, self._product(monomial, factor))
        return 0 if total is None else total

    def _product(self, monomial: Monomial, factor: int) -> Size:
        total: Size = factor
        for atom in monomial:
            value = self._atom(atom)
            total = value if total == 1 else self._emit("mul", value, total)
        return total

    def _atom(self, atom: Atom) -> Size:
        if isinstance(atom, DimSymbol):
            return self._symbol(atom)
        if atom.sign not in _SIGNS:
            raise Inexpressible(atom, "is a choice, and sizes have none")
        left, right = (self._size(item) for item in atom.operands)
        return self._emit(_SIGNS[atom.sign], left, right)

    def _symbol(self, symbol: DimSymbol) -> Size:
        if symbol.name in self.sources:
            return self._ask(*self.sources[symbol.name])
        if symbol.name not in self.linear:
            raise Inexpressible(symbol, "is the size of no tensor that is there by then")
        tensor, axis, factor, rest = self.linear[symbol.name]
        size: Size = self._ask(tensor, axis)
        if rest:
            size = self._emit("sub", size, rest)
        return self._emit("floordiv", size, factor) if factor != 1 else size

    def _ask(self, tensor: Tensor, axis: int) -> Ref:
        return self._once(SIZE, (Word("T", Ref(tensor.name)), Word("A", axis)))

    def _emit(self, name: str, left: Size, right: Size) -> Ref:
        return self._once(name, size_words(left, right))

    def _once(self, name: str, words: tuple[Word, ...]) -> Ref:
        """The result of an instruction, which is written only the first time."""
        if (name, words) not in self.computed:
            key = f"{SIZE_KEY}{self.count}"
            self.count += 1
            self.computed[name, words] = Ref(key)
            self.emit(name, words, key)
        return self.computed[name, words]


def _linear(extent: Extent) -> tuple[DimSymbol, int, int] | None:
    """The symbol, the factor and the rest of an extent that has one symbol, once."""
    if isinstance(extent, int):
        return None
    rest = sum(factor for monomial, factor in extent.terms if not monomial)
    terms = [(monomial, factor) for monomial, factor in extent.terms if monomial]
    if len(terms) != 1 or len(terms[0][0]) != 1:
        return None
    atom = terms[0][0][0]
    return (atom, terms[0][1], rest) if isinstance(atom, DimSymbol) else None


def own_symbols(tensor: Tensor) -> dict[str, tuple[int, int]]:
    """The symbols in the shape of a tensor, each with its range."""
    found = (symbol for extent in tensor.shape for symbol in symbols(extent))
    return {symbol.name: (symbol.low, symbol.high) for symbol in found}
