"""Epilogues of products: what is computed from a sum before it is stored (bias, activation, residual, cast)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.accesses import Access, form_value
from lamella.bridge.graph_to_kernels.terms import TermWriter, stored_type
from lamella.bridge.graph_to_kernels.tiled import Epilogue, key_of, walk_terms
from lamella.lang.tensor.nodes import If, Scalar, Value
from lamella.lang.tensor.nodes.types import INTEGERS
from lamella.ops.formula import Apply, Element, Index


@dataclass(slots=True)
class EpilogueWriter(TermWriter):
    """Terms behind a sum: their elements are loaded by their accesses, the sum itself is a value."""

    accesses: Mapping[int, Access] = field(default_factory=dict)
    loops: Mapping[str, Value] = field(default_factory=dict)
    sum: tuple[str, Value] = ("", Value(""))
    known: Mapping[tuple[str, int | None], Value] = field(default_factory=dict)
    """Tensors whose element is a value too."""
    ready: Mapping[int, Value] = field(default_factory=dict)
    """Elements that were loaded before, by their identity."""
    row: str = ""
    """The loop of the rows where a tile has more of them than there are."""
    end: int = 0

    def epilogue_value(self, item: Epilogue, target: str, total: Value) -> Value:
        """The value of an output at one element of the sum."""
        self.sum = target, total
        for name in dict.fromkeys(term.name for term in walk_terms(item.formula) if isinstance(term, Index)):
            if any(symbol in self.loops for symbol in item.loops[name].symbols):
                self.open_index(name, form_value(self.here, item.loops[name], self.loops))
        if self.kind(item.formula.values[0]) != self.real:
            raise Unsupported("what follows it is no real")
        return self.value(item.formula.values[0])

    def _apply(self, term: Apply) -> Value:
        return self._by_reciprocal(term) or super(EpilogueWriter, self)._apply(term)

    def load(self, element: Element) -> Value:
        """The element of a tensor, or of the sum."""
        if (known := self.known.get(key_of(element))) is not None:
            return known
        if id(element) in self.ready:
            return self.widen(self.ready[id(element)], self.held(element).element, self.kind(element))
        if element.tensor == self.sum[0]:
            return self.sum[1]
        end = (self.row, self.end) if self.row else ("", None)
        return load_predicated(self, element, self.accesses[id(element)], self.loops, end)


def load_predicated(
    writing: TermWriter,
    element: Element,
    access: Access,
    loops: Mapping[str, Value],
    end: tuple[str, int | None],
) -> Value:
    """An element of a tensor; lanes of a loop that are beyond its end touch no memory, and get 0."""
    here, held = writing.here, writing.held(element)
    stored, (name, last) = Scalar(stored_type(held.element)), end
    if last is None or name not in access.loops():
        found = here.load(access.memref, access.places(here, loops), stored)
        return writing.widen(found, held.element, writing.kind(element))
    inside = here.compare("lt", loops[name], here.constant(last))
    then, otherwise, found = here.inner(), here.inner(), here.names.new()
    then.give(then.load(access.memref, access.places(then, loops), stored))
    otherwise.give(otherwise.constant(0 if stored.name in INTEGERS else 0.0, stored))
    here.put(If(inside, then.region(), otherwise.region(), (stored,)), (found,))
    return writing.widen(found, held.element, writing.kind(element))
