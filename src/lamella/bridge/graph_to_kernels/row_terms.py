"""Address computation of row kernels: places are affine forms, each part hoisted to where it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lamella.base.affine import Affine
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.terms import TensorView, TermWriter
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Value
from lamella.ops.formula import Apply, Element


@dataclass(slots=True)
class RowTerms(TermWriter):
    """The terms of a row kernel: elements have places in flat memory, registers or local memory."""

    forms: Callable[[Element], Form] = lambda element: Affine()
    registers: dict[str, Value] = field(default_factory=dict)
    """Tensors of which the row has one element."""
    single: frozenset[str] = frozenset()
    """The tensors of which the row has one element, which it makes: nobody knows it outside of the row."""
    passing: dict[str, Value] = field(default_factory=dict)
    """Elements that this step has computed."""
    row_depth: int = 0
    """The level of the innermost row loop."""
    _sums: dict[tuple[int, Form], tuple[Builder, Value]] = field(default_factory=dict)
    """Parts of places, by the region in which they are written, which is kept so that its identity stays its own."""

    def load(self, element: Element) -> Value:
        """The element, from where it is."""
        if element.tensor in self.passing:
            return self.passing[element.tensor]
        if element.tensor in self.single and element.tensor in self.registers:
            return self.registers[element.tensor]
        return super(RowTerms, self).load(element)

    def _depth_of(self, term: object) -> int:
        found = super(RowTerms, self)._depth_of(term)
        if isinstance(term, Element) and term.tensor in self.single and found < self.row_depth:
            self._depths[id(term)] = found = self.row_depth
        return found

    def _apply(self, term: Apply) -> Value:
        return self._by_reciprocal(term) or super(RowTerms, self)._apply(term)

    def places(self, element: Element, held: TensorView) -> list[Value]:
        """The one index of an element, each part computed where its loops are open."""
        return [self.sum_of(self.forms(element))]

    def sum_of(self, form: Form) -> Value:
        """The value of an affine form over open loops."""
        ordered = sorted(form.terms, key=lambda item: self.depth.get(item[0], 0))
        prefix: Form = Affine(form.constant)
        found: Value | None = None
        for name, factor in ordered:
            prefix = prefix.plus(Affine(0, ((name, factor),)))
            level = min(self.depth.get(name, 0), len(self.levels) - 1)
            found = self._extended(self.levels[level], prefix, found, (name, factor))
        return self.here.constant(form.constant) if found is None else found

    def _extended(self, builder: Builder, prefix: Form, before: Value | None, part: tuple[str, int]) -> Value:
        key = (id(builder), prefix)
        if key not in self._sums:
            name, factor = part
            value = self.indices[name]
            if factor != 1:
                value = builder.arith("mul", value, builder.constant(factor))
            if before is not None:
                value = builder.arith("add", before, value)
            elif prefix.constant:
                value = builder.arith("add", value, builder.constant(prefix.constant))
            self._sums[key] = (builder, value)
        return self._sums[key][1]

    @contextmanager
    def level(self, body: Builder) -> Iterator[None]:
        """Code for some values of an index: what is written in it is known in it only."""
        self.levels.append(body)
        self._known.append({})
        yield
        self._known.pop()
        self.levels.pop()

    def forget(self, depth: int) -> None:
        """Forget what was written further in than a level: other code, for other values of indices, follows."""
        depths = {key: found for key, found in self._depths.items() if found <= depth}
        self._known[0] = {key: value for key, value in self._known[0].items() if key in depths}
        self._depths = depths
        self.passing.clear()
