"""The right side of a formula as NumPy calls: each term once, known parts computed before the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from lamella.backend.nacvm.formula.gathers import gather
from lamella.backend.nacvm.formula.reads import read
from lamella.backend.nacvm.formula.values import Space, UnsupportedError, Value, astype
from lamella.backend.nacvm.formula.windows import find_window
from lamella.backend.nacvm.tape import Register
from lamella.backend.reference.formula.access import computing_type
from lamella.backend.reference.formula.affine import Affine
from lamella.backend.reference.formula.cells import Access, Cell, Formula
from lamella.backend.reference.formula.contract import OPERAND
from lamella.backend.reference.formula.scalars import BOOLEAN, INTEGER, Real, convert, find_function
from lamella.base.arrays import Array, DType
from lamella.ops.formula import Apply

LONGEST = 1 << 20
"""Indices that are counted before the run; more are counted by the run."""
LAZY = ("?:", "&&", "||", "=>")
"""Functions that do not look at every operand."""
DIVIDING = ("/", "\\", "%", "**")
"""Functions of integers that have no value for some operands."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that a formula may read: where it stands, its shape and its stored type."""

    register: Register
    shape: tuple[int, ...]
    dtype: DType


Tensors = Mapping[str, Held | tuple[Held, ...]]


@dataclass(slots=True)
class Terms:
    """The values of a formula's cells."""

    space: Space
    formula: Formula
    tensors: Tensors
    real: Real
    found: dict[int, Value] = field(default_factory=dict)
    padded: bool = False
    """Whether zeros were read beyond the edges of a tensor: right only where what they meet is finite."""

    def value(self, root: int) -> Value:
        """The value of a cell; the cells it needs come first."""
        for number in self.formula.cells.needed([root]):
            if number not in self.found:
                self.found[number] = self._make(self.formula.cells[number])
        return self.found[root]

    def tensor(self, access: Access) -> Held:
        """The tensor of an access whose item is known."""
        found = self.tensors.get(access.tensor)
        if isinstance(found, tuple) and 0 <= (access.item or 0) < len(found):
            return found[access.item or 0]
        if not isinstance(found, Held):
            raise UnsupportedError("what it writes is read")
        return found

    def _make(self, cell: Cell) -> Value:
        if cell.form is not None:
            return self._count(cell.form)
        if cell.access is not None:
            return self._read(cell.access)
        if isinstance(cell.term, Apply):
            return self._apply(cell, cell.term)
        if isinstance(cell.term, bool):
            return self.space.literal(np.asarray(cell.term))
        if isinstance(cell.term, float):
            return self.space.literal(np.asarray(cell.term, self.real))
        raise UnsupportedError("a term is looked up or counted")

    def _count(self, form: Affine) -> Value:
        """The values of an index."""
        axes = tuple(sorted(form.axes))
        if any(extent > LONGEST for extent in self.space.shape(axes)):
            raise UnsupportedError("it counts far")
        found = self.space.literal(np.asarray(form.constant, INTEGER))
        for axis, factor in form.factors:
            along = np.arange(self.space.extents[axis], dtype=INTEGER) * factor
            found = self.space.apply(np.add, [found, self.space.literal(along, (axis,))], INTEGER)
        return Value(found.register, axes, INTEGER)

    def _read(self, access: Access) -> Value:
        held = self.tensor(access)
        if 0 in held.shape:
            raise UnsupportedError("a tensor is empty")
        cells = self.formula.cells
        if all(cells[place.at].form is not None for place in access.places):
            value = read(self.space, cells, access, held.register, held.shape, held.dtype)
        elif self._is_lazy():
            raise UnsupportedError("an index may be computed for nothing")
        else:
            tensor = held.register, held.shape, held.dtype
            value = gather(self.space, cells, access, tensor, self.found)
        wide = computing_type(held.dtype, self.real)
        return value if wide == held.dtype else self.space.apply(astype(wide), [value], wide)

    def _is_lazy(self) -> bool:
        """Whether some values are not used in every step."""
        terms = (cell.term for cell in self.formula.cells.cells)
        return any(isinstance(term, Apply) and term.function in LAZY for term in terms)

    def windows(self, number: int) -> Value:
        """The value of a cell that may read beyond the edges of a tensor, where it finds zeros."""
        access = self.formula.cells[number].access
        try:
            return self.value(number)
        except UnsupportedError:
            if access is None or 0 in self.tensor(access).shape:
                raise
        held = self.tensor(access)
        found = find_window(self.space, self.formula.cells, access, held.shape, held.dtype)
        if self.space.reserve(found.axes, held.dtype) > OPERAND:
            raise UnsupportedError("windows are taken in parts")
        register = self.space.view(held.register, found.look)
        value, wide = Value(register, found.axes, held.dtype), computing_type(held.dtype, self.real)
        self.padded = self.padded or found.room is not None
        return value if wide == held.dtype else self.space.apply(astype(wide), [value], wide)

    def _apply(self, cell: Cell, term: Apply) -> Value:
        operands = [self.found[number] for number in cell.operands]
        dtype = _type_of(term.type, self.real)
        if term.function == "cast":
            return self._cast(operands[0], term.type, dtype)
        integers = operands[0].dtype == INTEGER
        if integers and term.function in DIVIDING and not self._divides(operands[1]):
            raise UnsupportedError("a divisor may be zero")
        return self.space.apply(find_function(term.function, integers), operands, dtype)

    def _cast(self, value: Value, kind: str, dtype: DType) -> Value:
        real = self.real

        def cast(values: Array) -> Array:
            return convert(np.asarray(values), kind, real)

        return value if value.dtype == dtype else self.space.apply(cast, [value], dtype)

    def _divides(self, value: Value) -> bool:
        """Whether a divisor or an exponent is known, and positive."""
        known = self.space.tape.literals.get(value.register)
        return known is not None and bool((known > 0).all())


def _type_of(kind: str, real: Real) -> DType:
    types: dict[str, DType] = {"int": INTEGER, "real": real, "bool": BOOLEAN}
    if kind not in types:
        raise UnsupportedError("it computes with strings")
    return types[kind]
